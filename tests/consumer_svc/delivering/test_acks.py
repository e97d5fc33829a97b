"""Acknowledgements, changes of the invisible time, messages given back and given up."""

import threading
from collections.abc import Callable

import pytest

from consumer_svc.delivering.acks import INVALID, OK, TOO_LATE
from consumer_svc.delivering.receipt_handle import ReceiptHandle, ReceiptHandles
from consumer_svc.state.queue_state import QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import InvalidReceiptHandleError, ReceiptHandleNotFoundError, ServiceUnavailableError, StoreError
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import SECRET, LogLife, ManualClock, MemoryLog
from tests.support.waiting import WAIT_SECONDS_MAX

ASK = pop_of("g", "t", invisible_millis=10_000)


def pop_one(life: LogLife, ask: pb.PopMessagesRequest = ASK) -> pb.Delivery:
    (delivered,) = life.pop(ask)
    return delivered


def test_a_message_that_is_acknowledged_is_not_delivered_again(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    assert life.acks.ack("g", [handle]) == [OK]
    clock.now += 20_000
    life.expire()
    assert life.pop(ASK) == []
    assert life.pulls.offsets("g", "t") == [(QueueRef("g", "t", 0), 1)]


def test_an_acknowledgement_that_comes_twice_is_answered_only_when_the_first_is_in_the_log(
    log: MemoryLog, life: LogLife
) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    may_write, is_asked = threading.Event(), threading.Event()

    def slow(*arguments: object) -> object:
        is_asked.set()
        assert may_write.wait(WAIT_SECONDS_MAX)
        raise StoreError("it was not written")

    log.append = slow  # type: ignore[method-assign, assignment]
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(life.acks.ack("g", [handle]))
        except StoreError as error:
            answers.append(error)

    callers = [threading.Thread(target=ask) for _ in range(2)]
    callers[0].start()
    assert is_asked.wait(WAIT_SECONDS_MAX)
    callers[1].start()
    callers[1].join(0.2)  # an answer must not come, and nothing tells that
    assert answers == []
    may_write.set()
    for caller in callers:
        caller.join(WAIT_SECONDS_MAX)
    assert [type(answer) for answer in answers] == [ServiceUnavailableError] * 2


def test_an_acknowledgement_after_a_nack_that_moved_the_message_is_too_late(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    life.acks.change_invisible("g", handle, 0)
    life.expire()
    assert [message.body for message in log.messages("%RETRY%g_t")] == [b"x"]
    assert life.acks.ack("g", [handle]) == [TOO_LATE]  # its time is not over, but it comes again


def test_an_acknowledgement_that_is_repeated_within_its_time_is_ok(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    assert life.acks.ack("g", [handle, handle]) == [OK, OK]
    assert life.acks.ack("g", [handle]) == [OK]


def test_an_acknowledgement_after_the_time_is_too_late_and_changes_nothing(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    clock.now += 10_000
    life.expire()
    assert life.acks.ack("g", [handle]) == [TOO_LATE]
    again = pop_one(life)
    assert (again.message.topic, again.delivery_attempt) == ("%RETRY%g_t", 2)


def test_handles_of_others_change_nothing(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    forged = ReceiptHandles("broker-a", b"another secret").make(ReceiptHandle(QueueRef("g", "t", 0), 0, 1, 1 << 50))
    other_shard = ReceiptHandles("broker-b", SECRET).make(ReceiptHandle(QueueRef("g", "t", 0), 0, 1, 1 << 50))
    renamed = ".".join([handle.split(".")[0], *other_shard.split(".")[1:]])  # all shards may have one secret
    for bad in (forged, other_shard, renamed, "", "a.b.c", "é.é.é", handle[:-4], handle + "A", "x" * 5_000):
        assert life.acks.ack("g", [bad]) == [INVALID]
        with pytest.raises(InvalidReceiptHandleError):
            life.acks.change_invisible("g", bad, 0)
        with pytest.raises(InvalidReceiptHandleError):
            life.acks.give_up("g", bad)
    assert life.acks.ack("other", [handle]) == [INVALID]
    assert life.acks.ack("g", [handle]) == [OK]


def test_a_message_given_back_comes_at_once_and_the_attempt_does_not_count(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    for _ in range(5):  # more than the maximum of three attempts
        delivered = pop_one(life)
        assert delivered.delivery_attempt == 1
        life.acks.give_back("g", delivered.receipt_handle)
        with pytest.raises(ReceiptHandleNotFoundError):
            life.acks.change_invisible("g", delivered.receipt_handle, 0)
        assert life.acks.ack("g", [delivered.receipt_handle]) == [TOO_LATE]


def test_a_message_given_up_becomes_a_dead_letter_once(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"body")
    handle = pop_one(life).receipt_handle
    life.acks.give_up("g", handle)
    life.acks.give_up("g", handle)  # its answer was lost: clients repeat the call until they are told OK
    (dead,) = log.messages("%DLQ%g")
    assert (dead.body, dead.reconsume_times, dead.properties["DLQ_ORIGIN_TOPIC"]) == (b"body", 1, "t")
    assert life.pop(ASK) == []


def test_a_message_that_could_not_be_given_up_ends_at_its_time(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    message = log.send("t")
    handle = pop_one(life).receipt_handle
    log.unreadable.add(message.commit_log_offset)
    read, reader = life.life.reader.records, life.life.reader

    def expire_meanwhile(*arguments: object) -> object:
        clock.now += 10_000
        reader.records = read  # type: ignore[method-assign]
        life.expire()  # its end is taken from the heap while it is being moved
        return read(*arguments)  # type: ignore[arg-type]

    reader.records = expire_meanwhile  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreError):
        life.acks.give_up("g", handle)
    log.unreadable.clear()
    life.expire()
    assert pop_one(life).delivery_attempt == 2


def test_a_renewed_handle_and_the_one_before_it_both_acknowledge(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    log.send("t", b"a")
    log.send("t", b"b")
    first, second = life.pop(ASK)
    changed = life.acks.change_invisible("g", first.receipt_handle, 60_000)
    assert life.acks.ack("g", [changed]) == [OK]
    life.acks.change_invisible("g", second.receipt_handle, 60_000)
    clock.now += 30_000
    life.expire()
    assert life.acks.ack("g", [second.receipt_handle]) == [OK]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_handle_from_before_a_reset_acknowledged_the_next_delivery(
    log: MemoryLog, begin: Callable[..., LogLife], clock: ManualClock, is_deleted: bool
) -> None:
    life = begin()
    log.send("t")
    old = pop_one(life).receipt_handle
    if is_deleted:
        life.groups.delete("g")
    else:
        life.pulls.reset("g", "t", {0: 0}, dry_run=False)
    new = pop_one(life)  # at the same millisecond, and again the first delivery
    assert new.delivery_attempt == 1

    assert life.acks.ack("g", [old]) == [TOO_LATE]
    for call in (life.acks.give_back, life.acks.give_up):
        with pytest.raises(ReceiptHandleNotFoundError):
            call("g", old)
    with pytest.raises(ReceiptHandleNotFoundError):
        life.acks.change_invisible("g", old, 0)
    life.close()
    again = begin()  # what names the delivery is in the log
    assert again.acks.ack("g", [old]) == [TOO_LATE]
    changed = again.acks.change_invisible("g", new.receipt_handle, 60_000)
    assert again.acks.ack("g", [changed]) == [OK]
    clock.now += 120_000
    again.expire()
    assert again.pop(pop_of("g", "t")) == []


def test_a_handle_of_a_version_without_serials_is_taken_for_the_lease_that_it_made(
    log: MemoryLog, life: LogLife
) -> None:
    log.send("t")
    pop_one(life)
    lease = life.states.groups["g"].topics["t"][0].leases[0]
    lease.serial = 0  # as an older version has written it
    until = lease.invisible_until_millis
    old = life.life.handles.make(ReceiptHandle(QueueRef("g", "t", 0), 0, 1, until))

    assert life.acks.ack("g", [old]) == [OK]


def test_a_message_that_comes_again_cannot_be_given_up_by_the_delivery_before(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    handle = pop_one(life).receipt_handle
    clock.now += 10_000
    life.expire()
    with pytest.raises(ReceiptHandleNotFoundError):
        life.acks.give_up("g", handle)
    assert list(log.messages("%DLQ%g")) == []
    assert pop_one(life).delivery_attempt == 2
