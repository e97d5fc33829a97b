"""Replicas that are restarted one after the other: no append fails, and the lead is handed over.

tests/releases/test_rolling.py does the same with the code of releases before.
"""

import signal

import pytest

from tests.cluster.cases import FAILOVER_SECONDS_MAX, under_load
from tests.cluster.shard import Shard
from tests.support.etcd import ETCD, MISSING

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(300)]


def followers_then_leader(shard: Shard) -> list[str]:
    leader = shard.wait_until_whole()
    return [*shard.others(leader), leader]


def test_a_rolling_restart_fails_no_append(shard: Shard, topic: str) -> None:
    with under_load(shard, topic, "rolling restart") as producers:
        for name in followers_then_leader(shard):
            with shard.away(name, signal.SIGTERM):
                pass
            shard.wait_until_whole()
            producers.wait_for(30)
        assert [str(failure) for failure in producers.failures] == []
        assert producers.longest_silence() < FAILOVER_SECONDS_MAX
