"""The coordinator is away, restarts, or loses its data: what goes on, and what waits for it."""

import pathlib
import time

import pytest

from services.coordination.opening import open_record_store
from tests.cluster.cases import FAILOVER_SECONDS_MAX, SHORT_SECONDS_MAX, epoch_of, under_load
from tests.cluster.shard import BROKER_NAME, Shard, pause
from tests.support.command import run_command
from tests.support.etcd import ETCD, MISSING
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(300)]

AWAY_SECONDS = 8.0  # two leases
ROOT = pathlib.Path(__file__).parents[2]


def coordinator_of(shard: Shard) -> str:
    return f"etcd://{shard.etcd.endpoint}/reput"


def test_a_leader_goes_on_while_the_coordinator_is_away(shard: Shard, topic: str) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    with under_load(shard, topic, "coordinator down for 8 s") as producers:
        with shard.coordinator_away():
            pause(AWAY_SECONDS)
            assert producers.longest_silence() < SHORT_SECONDS_MAX
        producers.wait_for(30)
        assert epoch_of(shard, leader) == epoch


@pytest.mark.release
def test_a_restart_of_the_coordinator_changes_nothing(shard: Shard, topic: str) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    with under_load(shard, topic, "coordinator restarted") as producers:
        with shard.coordinator_away():
            pass
        pause(2)
        assert producers.longest_silence() < SHORT_SECONDS_MAX
        assert epoch_of(shard, leader) == epoch


def test_a_replica_that_is_lost_with_the_coordinator_is_waited_for_until_the_coordinator_is_back(
    shard: Shard, topic: str
) -> None:
    leader = shard.wait_until_whole()
    with under_load(shard, topic, "coordinator and one follower down for 8 s") as producers:
        with shard.away(shard.others(leader)[0]):
            with shard.coordinator_away():
                pause(AWAY_SECONDS)
            back_at = time.monotonic()
            producers.wait_for(30)
            print(f"acknowledged {time.monotonic() - back_at:.1f} s after the coordinator was back")
        assert AWAY_SECONDS * 0.7 < producers.longest_silence() < AWAY_SECONDS + FAILOVER_SECONDS_MAX


def test_a_coordinator_that_lost_its_data_gets_the_record_back_from_the_leader(shard: Shard, topic: str) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    with under_load(shard, topic, "coordinator's data lost") as producers:
        shard.etcd.lose_data()
        store = open_record_store(coordinator_of(shard), BROKER_NAME)
        wait_until(lambda: store.read(5.0) is not None, "the record is there again")
        producers.wait_for(30)
        assert epoch_of(shard, leader) == epoch
        assert producers.longest_silence() < SHORT_SECONDS_MAX


def test_nobody_leads_after_the_data_is_lost_with_the_leader_until_an_operator_says_who(
    shard: Shard, topic: str
) -> None:
    leader = shard.wait_until_whole()
    to = shard.others(leader)[0]
    command = ["lead", "--force", to, "--coordinator", coordinator_of(shard)]
    with under_load(shard, topic, "coordinator's data and the leader lost, --force after 8 s"), shard.away(leader):
        shard.etcd.lose_data()
        pause(AWAY_SECONDS)
        assert shard.leader() is None
        forced = run_command(*command)
        assert forced.returncode == 0, forced.stderr
        assert shard.wait_for_leader() == to
