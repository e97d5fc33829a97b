"""One client takes all it can, and the others still get what they need: groups and locks."""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from consumer_svc.queue_locks import LOCK_SECONDS, QueueLocks
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import QueueRef
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED, AppendResult, FlushMode
from services.serving.admission.shares import KEPT_ADDRESS_DIVISOR, KEPT_CLIENT_DIVISOR
from store.errors import GroupNotFoundError, InvalidArgumentError, ResourceBusyError
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog
from tests.support.waiting import WAIT_SECONDS_MAX

GROUP_COUNT_MAX = 200
ATTACKER, VICTIM = "identity:attacker", "identity:victim"
BEGIN = Callable[..., LogLife]


def takes_all(take: Callable[[int], object], count_max: int = 10_000) -> int:
    """How much a client gets that takes until it is refused."""
    for count in range(count_max):
        try:
            take(count)
        except ResourceBusyError:
            return count
    raise AssertionError("it was never refused")


def groups_taken(life: LogLife, way: str, caller: str) -> Callable[[int], object]:
    """Makes one invented group after the other, in one of the ways in which groups are made."""

    def take(number: int) -> object:
        name = f"{way}-{caller.rpartition(':')[2]}-{number}"
        match way:
            case "pop":
                return life.pop(pop_of(name, "t", caller=caller))
            case "commit":
                return life.pulls.commit(name, [("t", 0, 0)], caller)
            case "send_back":
                return life.send_backs.send_back(QueueRef(name, "t", 0), [0], 0, caller)
            case "reset":
                return life.pulls.reset(name, "t", {0: 0}, dry_run=False, caller=caller)
            case _:
                return life.groups.update(GroupSettings(name), caller)

    return take


@pytest.fixture
def small(log: MemoryLog, begin: BEGIN) -> LogLife:
    log.send("t")
    return begin(group_count_max=GROUP_COUNT_MAX)


@pytest.mark.parametrize("way", ["pop", "commit", "send_back", "reset", "update"])
def test_a_client_that_invents_groups_gets_a_tenth_and_another_one_still_makes_its_own(
    small: LogLife, way: str
) -> None:
    assert takes_all(groups_taken(small, way, ATTACKER)) == GROUP_COUNT_MAX // KEPT_CLIENT_DIVISOR
    groups_taken(small, way, VICTIM)(0)
    assert f"{way}-victim-0" in small.states.groups


def test_many_connections_of_one_address_get_a_quarter_of_the_groups_together(small: LogLife) -> None:
    taken = 0
    for connection in range(100):
        taken += takes_all(groups_taken(small, "commit", f"ipv4:10.0.0.1:{connection}"))
    assert taken == GROUP_COUNT_MAX // KEPT_ADDRESS_DIVISOR
    groups_taken(small, "commit", "ipv4:10.0.0.2:1")(0)


def test_another_connection_of_the_same_address_still_makes_its_group(small: LogLife) -> None:
    takes_all(groups_taken(small, "commit", "ipv4:127.0.0.1:1"))
    groups_taken(small, "commit", "ipv4:127.0.0.1:2")(0)


def test_the_refusal_of_a_group_names_the_limit_and_its_setting(small: LogLife) -> None:
    take = groups_taken(small, "pop", ATTACKER)
    takes_all(take)
    with pytest.raises(ResourceBusyError, match="REPUT_CONSUMER_GROUP_COUNT_MAX") as refusal:
        take(GROUP_COUNT_MAX)
    assert refusal.value.metadata["countMax"] == str(GROUP_COUNT_MAX)
    assert refusal.value.metadata["setting"] == "group_count_max"


def test_a_group_that_is_deleted_leaves_its_place_to_another(small: LogLife) -> None:
    take = groups_taken(small, "commit", ATTACKER)
    count = takes_all(take)
    small.groups.delete("commit-attacker-0")
    take(count)
    with pytest.raises(ResourceBusyError):
        take(count + 1)


def test_the_share_of_a_client_counts_over_a_restart_and_in_the_full_state(
    log: MemoryLog, small: LogLife, begin: BEGIN
) -> None:
    take = groups_taken(small, "commit", ATTACKER)
    count = takes_all(take)
    small.close()
    again = begin(group_count_max=GROUP_COUNT_MAX)
    with pytest.raises(ResourceBusyError):
        groups_taken(again, "commit", ATTACKER)(count)
    again.life.write_full().result(WAIT_SECONDS_MAX)
    again.close()
    third = begin(group_count_max=GROUP_COUNT_MAX)
    with pytest.raises(ResourceBusyError):
        groups_taken(third, "commit", ATTACKER)(count)
    groups_taken(third, "commit", VICTIM)(0)


def test_groups_that_were_there_before_the_limit_stay_and_count(small: LogLife, log: MemoryLog, begin: BEGIN) -> None:
    takes_all(groups_taken(small, "commit", ATTACKER))
    before = len(small.states.groups)
    small.close()
    less = begin(group_count_max=10)
    assert len(less.states.groups) == before
    with pytest.raises(ResourceBusyError):
        groups_taken(less, "commit", VICTIM)(0)


def test_callers_that_an_older_gateway_does_not_name_share_all_groups(small: LogLife) -> None:
    count = takes_all(groups_taken(small, "commit", ""))
    assert count == GROUP_COUNT_MAX
    small.groups.delete("commit--0")
    groups_taken(small, "commit", "")(count)


# -- groups that hold nothing


def test_a_group_that_only_asked_is_not_made_and_nothing_of_it_is_in_the_log(log: MemoryLog, life: LogLife) -> None:
    log.configure("t")
    before = log.state().change_count
    for number in range(1_000):
        assert not life.pop(pop_of(f"invented-{number}", "t"))
    assert not life.states.groups
    assert log.state().change_count == before
    with pytest.raises(GroupNotFoundError):
        life.groups.describe("invented-1")


def test_what_is_remembered_of_groups_that_only_ask_does_not_grow(log: MemoryLog, life: LogLife) -> None:
    log.configure("t")

    def ask(numbers: Iterator[int] | range) -> None:
        for number in numbers:
            life.pop(pop_of(f"invented-{number}", "t"))

    ask(range(500))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        ask(range(500, 3_000))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, f"{grown} bytes for 2,500 groups"


def test_a_group_that_only_asks_is_shown_while_a_member_of_it_lives(log: MemoryLog, life: LogLife) -> None:
    log.configure("t")
    life.life.clients.keep(pb.Client(client_id="c", consumer_group="asks"))
    life.pop(pop_of("asks", "t"))
    answer = life.groups.describe("asks")
    assert [client.client_id for client in answer.clients] == ["c"]
    assert answer.settings.consumer_group == "asks"
    life.life.clients.end("asks", "c")
    with pytest.raises(GroupNotFoundError):
        life.groups.describe("asks")


def test_a_position_that_was_committed_is_kept_also_at_the_begin_of_a_queue(log: MemoryLog, begin: BEGIN) -> None:
    life = begin()
    log.send("t")
    life.pulls.commit("began", [("t", 0, 0)])
    life.close()
    assert [at for _, at in begin().pulls.offsets("began", "t")] == [0]


def test_an_invented_name_that_is_none_is_still_refused_by_a_pop(log: MemoryLog, life: LogLife) -> None:
    log.configure("t")
    with pytest.raises(InvalidArgumentError):
        life.pop(pop_of("no group!", "t"))


# -- locks


def locker(locks: QueueLocks, caller: str, group: str, count: int = 16) -> Callable[[int], object]:
    def take(number: int) -> object:
        queues = [QueueRef(f"{group}-{number}", "t", queue_id) for queue_id in range(count)]
        return locks.lock("c", queues, renew=False, was_consumed=lambda _: False, caller=caller)

    return take


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def locks() -> Any:
    clock = Clock()
    locks = QueueLocks(clock, count_max=16 * 200)
    locks.clock = clock  # type: ignore[attr-defined]
    clock.now += LOCK_SECONDS
    return locks


def test_a_client_that_locks_all_it_can_leaves_others_their_queues(locks: Any) -> None:
    assert takes_all(locker(locks, ATTACKER, "attacker")) == 20
    assert len(locker(locks, VICTIM, "victim")(0)) == 16  # type: ignore[arg-type]


def test_a_call_that_is_refused_locks_none_of_its_queues(locks: Any) -> None:
    takes_all(locker(locks, ATTACKER, "a", 48))
    with pytest.raises(ResourceBusyError):
        locker(locks, ATTACKER, "b", 48)(0)
    assert len(locker(locks, VICTIM, "b", 48)(0)) == 48  # type: ignore[arg-type]


def test_locks_of_a_client_that_is_gone_are_free_for_another(locks: Any) -> None:
    take = locker(locks, ATTACKER, "a")
    count = takes_all(take)
    locks.end_client("a-0", "c")
    take(count)
    locks.clock.now += LOCK_SECONDS
    take(count + 1)  # the others were not renewed


def test_a_lock_that_another_client_takes_over_counts_in_its_own_share(locks: Any) -> None:
    ref = QueueRef("g", "t", 0)
    assert locks.lock("first", [ref], renew=False, was_consumed=lambda _: False, caller=ATTACKER) == [ref]
    locks.clock.now += LOCK_SECONDS
    assert locks.lock("second", [ref], renew=False, was_consumed=lambda _: False, caller=VICTIM) == [ref]
    assert takes_all(locker(locks, ATTACKER, "a")) == 20


def test_a_power_cut_lost_a_group_that_an_operator_had_made(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[FlushMode] = []
    append = log.append

    def noting(epoch: int, records: Sequence[InternalRecord], flush: FlushMode) -> Sequence[AppendResult]:
        modes.append(flush)
        return append(epoch, records, flush)

    monkeypatch.setattr(log, "append", noting)
    life.groups.update(GroupSettings("disabled", consume_enabled=False), VICTIM)
    assert modes == [FLUSH_MODE_UNSPECIFIED]
