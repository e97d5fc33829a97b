"""What happens to messages whose time is over."""

from collections.abc import Callable, ItemsView, Iterator, ValuesView
from typing import Any

import pytest

from consumer_svc.delivering.expirer import TRIM_COUNT_MIN
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import HandedOut, Lease, QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import StoreError
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog
from tests.support.waiting import WAIT_SECONDS_MAX

ASK = pop_of("g", "t", invisible_millis=10_000)


def test_attempts_are_counted_up_to_the_dead_letter(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    log.send("t", b"body")
    attempts = []
    while delivered := life.pop(ASK):
        attempts += [one.delivery_attempt for one in delivered]
        clock.now += 10_000
        life.expire()
    assert attempts == [1, 2, 3]
    (dead,) = log.messages("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"body", 3)
    assert [copy.reconsume_times for copy in log.messages("%RETRY%g_t")] == [1, 2]


def test_a_message_that_cannot_be_read_holds_none_of_the_others_for_ever(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    sent = [log.send("t", f"m{number}".encode()) for number in range(5)]
    assert len(life.pop(ASK)) == 5
    log.unreadable.add(sent[1].commit_log_offset)
    clock.now += 10_000
    with pytest.raises(StoreError):
        life.expire()
    assert {copy.body for copy in log.messages("%RETRY%g_t")} == {b"m0", b"m2", b"m3", b"m4"}
    log.unreadable.clear()
    clock.now += 1_000
    life.expire()
    assert len(list(log.messages("%RETRY%g_t"))) == 5


def test_a_message_whose_queue_is_being_built_is_not_given_up_as_removed(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin(recent_count_max=1)
    log.send("t", b"m")
    assert len(life.pop(ASK)) == 1
    log.send("u")  # the unit of m is not in memory any more
    log.is_building = True
    clock.now += 10_000
    with pytest.raises(StoreError):
        life.expire()
    log.is_building = False
    clock.now += 1_000
    life.expire()
    assert [one.message.body for one in life.pop(ASK)] == [b"m"]


def test_a_message_that_retention_removed_is_counted_for_its_group(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin(recent_count_max=1)
    for number in range(3):
        log.send("t", f"m{number}".encode())
    assert len(life.pop(pop_of("g", "t", max_messages=1, invisible_millis=10_000))) == 1
    log.remove("t", 0, 2)
    clock.now += 10_000
    life.expire()
    assert [one.message.body for one in life.pop(ASK)] == [b"m2"]
    state = life.states.find(QueueRef("g", "t", 0))
    assert state is not None
    assert state.removed_count == 2  # m0 in flight, m1 before it was handed out


def test_the_heap_does_not_keep_the_ends_of_messages_that_were_acknowledged(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    (one,) = life.pop(ASK)
    for number in range(TRIM_COUNT_MIN + 10):
        life.life.expiry.note(1 << 60, QueueRef("g", "t", 0), number, 1)
    life.expirer.start()
    try:
        assert len(life.life.expiry) == 1  # a start takes exactly the leases
    finally:
        life.expirer.close()
    assert life.acks.ack("g", [one.receipt_handle])


def test_a_message_is_renewed_while_its_client_lives(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    clients = LiveConsumers(lambda: clock.now / 1000)
    life = begin(clients=clients)
    log.send("t")
    clients.keep(pb.Client(client_id="c", consumer_group="g"))
    (one,) = life.pop(pop_of("g", "t", client_id="c"))
    life.acks.note_delivered([one.receipt_handle])
    for _ in range(10):
        clock.now += 60_000
        clients.keep(pb.Client(client_id="c", consumer_group="g"))
        life.expire()
        assert life.pop(ASK) == []
    clock.now += 60_000  # without a sign of life
    life.expire()
    assert [again.delivery_attempt for again in life.pop(ASK)] == [2]


def test_a_message_whose_answer_its_living_client_never_got_comes_again_after_its_minute(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    """It was once renewed for 3 hours: the gateway had died with the answer, and the client went on."""
    clients = LiveConsumers(lambda: clock.now / 1000)
    life = begin(clients=clients)
    log.send("t", b"lost")
    log.send("t", b"got")
    lost, got = life.pop(pop_of("g", "t", client_id="c"))
    assert (lost.message.body, got.message.body) == (b"lost", b"got")
    life.acks.note_delivered(["", "x.y.z", got.receipt_handle])
    clock.now += 59_999
    clients.keep(pb.Client(client_id="c", consumer_group="g"))
    life.expire()
    assert life.pop(ASK) == []
    clock.now += 1
    life.expire()
    life.acks.note_delivered([lost.receipt_handle])  # too late, without effect
    (again,) = life.pop(ASK)
    assert (again.message.body, again.delivery_attempt) == (b"lost", 1), "no program got it, so it was not attempted"


def test_a_delivery_that_its_client_has_stays_renewed_after_a_restart(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    log.send("t", b"lost")
    log.send("t", b"got")
    _, got = life.pop(pop_of("g", "t", client_id="c"))
    life.acks.note_delivered([got.receipt_handle])
    for is_full, expected in ((False, [b"lost"]), (True, [])):  # from the change, and from the full state
        if is_full:
            life.life.write_full().result(WAIT_SECONDS_MAX)
        life.close()
        clients = LiveConsumers(lambda: clock.now / 1000)
        life = begin(clients=clients)
        clock.now += 60_000
        clients.keep(pb.Client(client_id="c", consumer_group="g"))
        life.expire()
        again = life.pop(ASK)
        assert [one.message.body for one in again] == expected
        if again:
            life.acks.ack("g", [one.receipt_handle for one in again])


def test_a_client_that_is_silent_loses_its_messages(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    clients = LiveConsumers(lambda: clock.now / 1000)
    life = begin(clients=clients)
    clock.now += 60_000  # it is known who lives
    log.send("t")
    (one,) = life.pop(pop_of("g", "t", client_id="gone"))
    life.acks.note_delivered([one.receipt_handle])
    clock.now += 60_000
    life.expire()
    assert [again.delivery_attempt for again in life.pop(ASK)] == [2]


def test_dead_letters_can_be_consumed_with_as_many_attempts(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    log.send("t")
    (one,) = life.pop(ASK)
    life.acks.give_up("g", one.receipt_handle)
    for message in log.messages("%DLQ%g"):
        message.reconsume_times = 17
    count = 0
    while life.pop(pop_of("other", "%DLQ%g", invisible_millis=1_000)):
        count += 1
        clock.now += 1_000
        life.expire()
    assert count == 3
    assert len(list(log.messages("%DLQ%other"))) == 1


def test_attempts_of_an_ordered_group_count_when_it_is_not_ordered_any_more(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    life.groups.update(GroupSettings("g", ordered=True))
    log.send("t")
    for ordered in (True, False):
        life.groups.update(GroupSettings("g", ordered=ordered))
        assert len(life.pop(ASK)) == 1
        clock.now += 10_000
        life.expire()
    assert [again.delivery_attempt for again in life.pop(ASK)] == [3]


class Counted(dict[int, Any]):
    """Positions; it counts how many are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for at in super().__iter__():
            self.looked_at += 1
            yield at

    def items(self) -> ItemsView[int, Any]:
        """All, each counted."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:
        """All, each counted."""
        return ValuesView(self)

    def __getitem__(self, at: int) -> Any:
        self.looked_at += 1
        return super().__getitem__(at)

    def get(self, at: int, default: Any = None) -> Any:
        """One, counted."""
        self.looked_at += 1
        return super().get(at, default)


@pytest.mark.parametrize("is_last_first", [False, True])
@pytest.mark.parametrize("group_count", [1, 50, 2_000])
def test_a_client_that_died_with_many_leases_of_an_ordered_group_held_up_all_groups(
    log: MemoryLog, clock: ManualClock, life: LogLife, group_count: int, is_last_first: bool
) -> None:
    count, looks_per_lease_max = 2_000, 30
    life.groups.update(GroupSettings("g", ordered=True))
    state = life.states.queue(QueueRef("g", "t", 0))
    state.leases, state.waiting = in_flight, waiting = Counted(), Counted()
    leases = []
    for at in range(count):
        group = f"{at % group_count}"
        log.send("t", b"m", 0, group)
        ends = clock.now + (count - at if is_last_first else at)
        leases.append(Lease(at, 1, 0, ends, client_id="c", message_group=group))
    state.apply(HandedOut(QueueRef("g", "t", 0), count, leases))
    life.expirer.note_all()
    clock.now += count

    assert life.expire() == count

    assert in_flight.looked_at + waiting.looked_at <= looks_per_lease_max * count
    # The first of each message group was attempted; those behind it were not.
    assert {one.queue_offset: one.attempt_count for one in waiting.values()} == {
        at: int(at < group_count) for at in range(count)
    }
