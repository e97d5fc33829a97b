"""Leadership with its thread: replicas of one process over one record store, with a short lease."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes, Purpose
from commitlog_svc.replication.leading.record import ShardRecord
from commitlog_svc.replication.leading.view import LeadershipView, Role
from services.coordination.port import MemoryRecordStore, StoredRecord
from store.errors import CoordinatorUnavailableError, InvalidArgumentError
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TIMES = LeaseTimes(lease_seconds=1.5, margin_seconds=0.3, renew_seconds=0.2, jitter_seconds=0.05)


class Coordinator:
    """A record store that can be taken away, from one replica or from all."""

    def __init__(self) -> None:
        self.store = MemoryRecordStore()
        self.away: set[str] = set()

    def for_replica(self, name: str) -> "Way":
        return Way(self, name)

    def record(self) -> ShardRecord:
        stored = self.store.read(1)
        assert stored is not None
        return ShardRecord.from_bytes(stored.data)


class Way:
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self._coordinator = coordinator
        self._name = name

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        self._check()
        return self._coordinator.store.read(timeout_seconds)

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        self._check()
        return self._coordinator.store.write(data, version, timeout_seconds)

    def _check(self) -> None:
        if self._name in self._coordinator.away:
            raise CoordinatorUnavailableError("taken away by the test", coordinator="memory")


Start = Callable[..., ElectedLeadership]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def start(coordinator: Coordinator) -> Iterator[Start]:
    with contextlib.ExitStack() as opened:

        def start_one(name: str, last_epoch: int = 0, *, may_create: bool = False) -> ElectedLeadership:
            leadership = ElectedLeadership(
                name, {"commitlog": f"{name}:1"}, coordinator.for_replica(name), lambda: last_epoch,
                may_create=may_create, times=TIMES,
            )  # fmt: skip
            return opened.enter_context(leadership)

        yield start_one


def until(leadership: ElectedLeadership, is_so: Callable[[LeadershipView], bool]) -> LeadershipView:
    """The first view for which it is so."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    view = leadership.view
    while not is_so(view):
        assert time.monotonic() < end, view
        view = leadership.wait_change(view, 1.0)
    return view


def leads(view: LeadershipView) -> bool:
    return view.role is Role.LEADER


def test_the_first_replica_makes_the_shard_and_leads_it(start: Start, coordinator: Coordinator) -> None:
    follower = start("r2")
    leader = start("r1", may_create=True)

    view = until(leader, leads)
    seen = until(follower, lambda view: view.leader == "r1")

    assert (view.epoch, view.in_sync, view.leader_address) == (1, {"r1"}, "r1:1")
    assert (seen.role, seen.epoch, seen.leader_address) == (Role.FOLLOWER, 1, "r1:1")
    assert leader.may_acknowledge()
    assert not follower.may_acknowledge()
    assert coordinator.record().lease_millis == 1500


def test_a_set_is_changed_by_the_leader_and_a_member_takes_over_when_the_leader_is_gone(
    start: Start, coordinator: Coordinator
) -> None:
    leader = start("r1", may_create=True)
    until(leader, leads)
    assert leader.change_in_sync(frozenset({"r1", "r2"}))
    assert coordinator.record().in_sync == {"r1", "r2"}
    follower = start("r2", 1)
    until(follower, lambda view: view.leader == "r1")
    assert not follower.change_in_sync(frozenset({"r2"})), "only the leader may"

    leader.close()
    view = until(follower, leads)

    assert (view.epoch, view.leader, view.in_sync) == (2, "r2", {"r1", "r2"})
    assert follower.may_acknowledge()
    assert not leader.may_acknowledge()


def test_a_leader_without_the_coordinator_goes_on_while_its_followers_promise(
    start: Start, coordinator: Coordinator
) -> None:
    leader = start("r1", may_create=True)
    until(leader, leads)
    leader.change_in_sync(frozenset({"r1", "r2"}))
    coordinator.away.add("r1")
    began = leader.now()
    while leader.now() < began + 2 * TIMES.lease_seconds:
        leader.note_promise("r2", leader.now())
        assert leader.may_acknowledge()
        threading.Event().wait(0.01)

    assert not leader.change_in_sync(frozenset({"r1"})), "the coordinator has to store it"
    wait_until(lambda: not leader.may_acknowledge(), "the last promise is over")
    coordinator.away.clear()
    wait_until(leader.may_acknowledge, "it is the leader of the record still")
    assert coordinator.record().epoch == 1


def test_a_leader_that_was_replaced_while_it_was_cut_off_resigns(start: Start, coordinator: Coordinator) -> None:
    leader = start("r1", may_create=True)
    until(leader, leads)
    leader.change_in_sync(frozenset({"r1", "r2"}))
    follower = start("r2", 1)
    coordinator.away.add("r1")

    until(follower, leads)
    assert not leader.may_acknowledge()
    coordinator.away.clear()
    view = until(leader, lambda view: view.resigned)

    assert not leader.may_acknowledge()
    assert (follower.view.epoch, follower.may_acknowledge(), view.role) == (2, True, Role.LEADER)


def test_a_leader_hands_over_without_a_lease_that_has_to_run_out(start: Start, coordinator: Coordinator) -> None:
    leader = start("r1", may_create=True)
    until(leader, leads)
    leader.change_in_sync(frozenset({"r1", "r2"}))
    follower = start("r2", 1)
    until(follower, lambda view: view.leader == "r1")
    with pytest.raises(InvalidArgumentError):
        leader.hand_over("r3")
    with pytest.raises(InvalidArgumentError):
        follower.hand_over("r1")
    began = leader.now()

    leader.hand_over("r2")
    until(follower, leads)

    assert leader.view.resigned
    assert leader.now() - began < TIMES.lease_seconds
    assert coordinator.record().leader == "r2"


def test_a_lost_record_is_written_back_by_the_leader_that_runs(start: Start, coordinator: Coordinator) -> None:
    leader = start("r1", may_create=True)
    until(leader, leads)
    coordinator.store.lose()
    wait_until(lambda: coordinator.store.read(1) is not None, "the record is back")

    assert (coordinator.record().epoch, coordinator.record().leader) == (1, "r1")
    assert not leader.view.resigned


def test_what_is_asked_and_how_it_failed_is_told(coordinator: Coordinator) -> None:
    told: list[tuple[Purpose, Exception | None]] = []
    has_failed, leads_now = threading.Event(), threading.Event()

    def observed(purpose: Purpose, error: Exception | None) -> None:
        told.append((purpose, error))
        (has_failed if error is not None else leads_now if purpose is Purpose.CREATE else threading.Event()).set()

    coordinator.away.add("r1")
    way = coordinator.for_replica("r1")
    with ElectedLeadership("r1", {}, way, lambda: 0, may_create=True, times=TIMES, observed=observed):
        assert has_failed.wait(WAIT_SECONDS_MAX)
        coordinator.away.clear()
        assert leads_now.wait(WAIT_SECONDS_MAX)

    assert isinstance(told[0][1], CoordinatorUnavailableError)
    assert told[0][0] is Purpose.READ
