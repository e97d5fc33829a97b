"""A leader that is cut off, in one or both directions: who leads then, and how long nothing is acknowledged.

Without the coordinator it goes on as long as all in-sync replicas answer; without the replicas it leads on and refuses what two
disks are to have; without its clients it leads on, unseen. Only when it can prove its lead neither way another one leads.
"""

from collections.abc import Callable

import pytest

from tests.cluster.cases import FAILOVER_SECONDS_MAX, SHORT_SECONDS_MAX, epoch_of, under_load
from tests.cluster.shard import COORDINATOR, GATEWAY, Shard, pause
from tests.support.etcd import ETCD, MISSING
from tests.support.network import Way, both

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(300)]

CUT_SECONDS = 8.0  # longer than a lease, its margin, and a look at the record
CLIENT_SECONDS_MAX = 15.0  # a call that waits for an answer may have begun just before the cut

Ways = Callable[[Shard, str, str], frozenset[Way]]
RELEASE = pytest.mark.release


def from_coordinator(shard: Shard, leader: str, other: str) -> frozenset[Way]:
    return both(leader, COORDINATOR)


def from_replicas(shard: Shard, leader: str, other: str) -> frozenset[Way]:
    return shard.cut_from_others(leader)


def from_clients(shard: Shard, leader: str, other: str) -> frozenset[Way]:
    return both(leader, GATEWAY)


def from_one_replica(shard: Shard, leader: str, other: str) -> frozenset[Way]:
    return both(leader, other)


def mute(ways: Ways) -> Ways:
    """Only what the leader says is lost."""
    return lambda shard, leader, other: frozenset(way for way in ways(shard, leader, other) if way[0] == leader)


def deaf(ways: Ways) -> Ways:
    """Only what is said to the leader is lost."""
    return lambda shard, leader, other: frozenset(way for way in ways(shard, leader, other) if way[1] == leader)


def all_of(*parts: Ways) -> Ways:
    return lambda shard, leader, other: frozenset().union(*(part(shard, leader, other) for part in parts))


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(from_coordinator, id="from the coordinator"),
        pytest.param(mute(from_coordinator), id="mute to the coordinator", marks=RELEASE),
        pytest.param(deaf(from_coordinator), id="deaf to the coordinator", marks=RELEASE),
        pytest.param(from_one_replica, id="from one replica", marks=RELEASE),
        pytest.param(mute(from_one_replica), id="mute to one replica", marks=RELEASE),
        pytest.param(deaf(from_one_replica), id="deaf to one replica"),
    ],
)
def test_a_leader_that_is_cut_from_one_other_leads_on(
    shard: Shard, topic: str, ways: Ways, request: pytest.FixtureRequest
) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    with under_load(shard, topic, request.node.callspec.id) as producers:
        with shard.network.cut(ways(shard, leader, shard.others(leader)[0])):
            pause(CUT_SECONDS)
            assert epoch_of(shard, leader) == epoch
        assert producers.longest_silence() < SHORT_SECONDS_MAX


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(from_replicas, id="from all replicas", marks=RELEASE),
        pytest.param(mute(from_replicas), id="mute to all replicas"),
        pytest.param(deaf(from_replicas), id="deaf to all replicas", marks=RELEASE),
        pytest.param(from_clients, id="from clients", marks=RELEASE),
        pytest.param(mute(from_clients), id="mute to clients", marks=RELEASE),
        pytest.param(deaf(from_clients), id="deaf to clients", marks=RELEASE),
    ],
)
def test_a_leader_that_keeps_its_lease_leads_on_and_acknowledges_again_when_the_cut_is_mended(
    shard: Shard, topic: str, ways: Ways, request: pytest.FixtureRequest
) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    with under_load(shard, topic, request.node.callspec.id) as producers:
        with shard.network.cut(ways(shard, leader, "")):
            pause(CUT_SECONDS)
            assert epoch_of(shard, leader) == epoch
        producers.wait_for(10)
        assert CUT_SECONDS * 0.7 < producers.longest_silence() < CUT_SECONDS + CLIENT_SECONDS_MAX


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(all_of(from_coordinator, from_replicas, from_clients), id="from all"),
        pytest.param(
            all_of(from_coordinator, from_replicas), id="from the coordinator and all replicas", marks=RELEASE
        ),
        pytest.param(all_of(from_coordinator, from_one_replica), id="from the coordinator and one replica"),
        pytest.param(
            mute(all_of(from_coordinator, from_replicas)), id="mute to coordinator and replicas", marks=RELEASE
        ),
        pytest.param(
            all_of(from_coordinator, from_one_replica, from_clients),
            id="from coordinator and one replica and clients",
            marks=RELEASE,
        ),
    ],
)
def test_a_leader_that_cannot_prove_its_lead_is_replaced(
    shard: Shard, topic: str, ways: Ways, request: pytest.FixtureRequest
) -> None:
    leader = shard.wait_until_whole()
    with under_load(shard, topic, request.node.callspec.id) as producers:
        with shard.network.cut(ways(shard, leader, shard.others(leader)[0])):
            shard.wait_for_leader(besides=[leader])
            producers.wait_for(30)
        assert producers.longest_silence() < FAILOVER_SECONDS_MAX
