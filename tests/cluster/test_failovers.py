"""The time without acknowledgements over many failovers with default timeouts: 3 for a change, 50 for a release
(CLUSTER_FAILOVERS).

The leader is killed, or stands still until another one leads, in turns. Each failover begins with a whole in-sync set.
"""

import os
import pathlib
import statistics

import pytest

from tests.cluster.history import Producers, lost_and_doubled, problems_of
from tests.cluster.shard import running_shard
from tests.support.etcd import ETCD, MISSING

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(600)]

TOPIC = "FailedOver"
SECONDS_MAX = 10.0
BUSY_SECONDS_MAX = 30.0  # beside other tests on a busy machine


def fail_over(directory: pathlib.Path, count: int) -> list[float]:
    """The longest time without acknowledgements in each of so many failovers (seconds), printed."""
    silences = []
    with running_shard(directory) as shard:
        with Producers(shard.gateway, TOPIC) as producers:
            producers.wait_for(50)
            for number in range(count):
                leader = shard.wait_until_whole()
                producers.wait_for(50)
                since = producers.acknowledged[-1].answered_at
                if number % 2:
                    with shard.stopped(leader):
                        shard.wait_for_leader(besides=[leader])
                        producers.wait_for(50)
                else:
                    shard.kill(leader)
                    producers.wait_for(50)
                silences.append(producers.longest_silence(since))
        shard.settle()
    assert problems_of(shard.stores, TOPIC, producers) == []
    lost, doubled = lost_and_doubled(shard.stores["r1"], TOPIC, producers)
    print(
        f"{count} failovers: {statistics.median(silences):.1f} s without acknowledgements (p50), "
        f"{max(silences):.1f} s at most; "
        f"{len(producers.acknowledged)} acknowledged, {lost} lost, {doubled} doubled, "
        f"{len(producers.failures)} failed calls; {[round(each, 1) for each in silences]}"
    )
    return silences


def test_three_failovers_lose_nothing_and_end_in_time(tmp_path: pathlib.Path) -> None:
    assert max(fail_over(tmp_path, 3)) < BUSY_SECONDS_MAX


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_fifty_failovers_take_ten_seconds_each_at_most(tmp_path: pathlib.Path) -> None:
    assert max(fail_over(tmp_path, int(os.environ.get("CLUSTER_FAILOVERS") or 50))) <= SECONDS_MAX
