"""What counts as an attempt: a delivery that a program got. Everything else is released, also across restarts."""

from collections.abc import Callable

import pytest

from consumer_svc.delivering.life import RELEASED_COUNT_MAX
from consumer_svc.delivering.moves import attempts_of, dead_letter_of, retry_of, sent_back_of
from consumer_svc.delivering.picks import MESSAGE_GROUP_LENGTH_MAX
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import HandedOut, Lease, QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import ReceiptHandleNotFoundError
from tests.consumer_svc.asking import pop_of, state_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog, contents
from tests.support.waiting import WAIT_SECONDS_MAX

ASK = pop_of("g", "t", invisible_millis=10_000)
RENEWED = pop_of("g", "t", client_id="c")

Begin = Callable[..., LogLife]


def attempts(life: LogLife, ask: pb.PopMessagesRequest = ASK) -> dict[bytes, int]:
    """Pop everything; the attempt of each message."""
    return {one.message.body: one.delivery_attempt for one in life.pop(ask)}


def no_dead_letters(log: MemoryLog) -> bool:
    return not list(log.messages("%DLQ%g"))


def test_clients_that_ended_in_order_made_dead_letters_of_what_no_program_had_seen(
    log: MemoryLog, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    for number in range(20):
        log.send("t", b"m%d" % number)
    for run in range(10):
        delivered = life.pop(RENEWED)
        assert [one.delivery_attempt for one in delivered] == [1] * (20 - run)
        life.acks.note_delivered([one.receipt_handle for one in delivered])
        life.acks.ack("g", [delivered[0].receipt_handle])
        life.groups.end_client("g", "c")
        before = contents(life.states)
        life.close()
        life = begin(attempts_max=3)  # a release is a record, too
        assert contents(life.states) == before
    assert no_dead_letters(log)
    assert list(log.messages("%RETRY%g_t")) == []


def test_the_end_of_a_client_leaves_alone_what_it_hid_itself_and_what_others_have(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    for body in (b"timed", b"nacked", b"other"):
        log.send("t", body)
    timed = pop_of("g", "t", max_messages=1, invisible_millis=10_000, client_id="c")
    assert len(life.pop(timed)) == 1
    (nacked,) = life.pop(pop_of("g", "t", max_messages=1, client_id="c"))
    life.acks.change_invisible("g", nacked.receipt_handle, 10_000)
    (other,) = life.pop(pop_of("g", "t", client_id="other"))
    life.groups.end_client("g", "c")
    assert attempts(life) == {}
    clock.now += 10_000
    life.expire()
    assert attempts(life) == {b"timed": 2, b"nacked": 2}
    assert life.acks.change_invisible("g", other.receipt_handle, 0)


def test_a_message_that_ends_every_program_in_order_becomes_a_dead_letter_at_last(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    log.send("t", b"poison")
    ends = 0
    while delivered := life.pop(RENEWED):
        life.acks.note_delivered([one.receipt_handle for one in delivered])
        life.groups.end_client("g", "c")
        life.expire()
        ends += 1
        assert ends < 1_000
    assert ends == (RELEASED_COUNT_MAX + 1) * 3
    assert [dead.body for dead in log.messages("%DLQ%g")] == [b"poison"]


def test_a_message_whose_answer_never_goes_out_becomes_a_dead_letter_at_last(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    """Each gateway ends before its answer is out, maybe because of the message."""
    life = begin(attempts_max=3)
    log.send("t", b"poison")
    deliveries = 0
    while life.pop(RENEWED):
        clock.now += 60_000
        life.expire()
        deliveries += 1
        assert deliveries < 1_000
    assert deliveries == (RELEASED_COUNT_MAX + 1) * 3
    assert [dead.body for dead in log.messages("%DLQ%g")] == [b"poison"]


@pytest.mark.parametrize("is_full", [False, True])
def test_in_an_ordered_group_messages_behind_a_failed_one_became_dead_letters_unseen(
    log: MemoryLog, clock: ManualClock, begin: Begin, is_full: bool
) -> None:
    life = begin(attempts_max=3)
    life.groups.update(GroupSettings("g", ordered=True))
    for number in range(1, 6):
        log.send("t", b"A%d" % number, 0, "A")
    log.send("t", b"B1", 0, "B")
    for attempt in range(1, 4):
        assert attempts(life) == {b"A1": attempt, b"B1": attempt} | {b"A%d" % number: 1 for number in range(2, 6)}
        clock.now += 10_000  # the program was killed
        life.expire()
        if is_full:
            life.life.write_full().result(WAIT_SECONDS_MAX)
        life.close()
        life = begin(attempts_max=3)
    assert {dead.body for dead in log.messages("%DLQ%g")} == {b"A1", b"B1"}
    assert attempts(life) == {b"A%d" % number: 1 for number in range(2, 6)}


def test_a_message_of_an_ordered_group_counts_from_when_those_before_it_are_consumed(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    life.groups.update(GroupSettings("g", ordered=True))
    for number in range(1, 4):
        log.send("t", b"A%d" % number, 0, "A")
    first, _, _ = life.pop(ASK)
    life.acks.ack("g", [first.receipt_handle])
    clock.now += 10_000
    life.expire()
    assert attempts(life) == {b"A2": 2, b"A3": 1}


def test_what_lies_behind_a_failed_message_keeps_its_time_and_can_be_acknowledged(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    life.groups.update(GroupSettings("g", ordered=True))
    for number in range(1, 4):
        log.send("t", b"A%d" % number, 0, "A")
    first, second, _ = life.pop(ASK)
    life.acks.change_invisible("g", first.receipt_handle, 1_000)
    clock.now += 1_000
    life.expire()
    state = life.states.find(QueueRef("g", "t", 0))
    assert state is not None
    assert sorted(state.leases) == [1, 2]
    life.close()
    life = begin(attempts_max=3)
    life.acks.ack("g", [second.receipt_handle])
    clock.now += 10_000
    life.expire()
    assert attempts(life) == {b"A1": 2, b"A3": 1}


def test_a_lost_answer_that_is_given_again_counts_when_its_program_has_it(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    life.groups.update(GroupSettings("g", ordered=True))
    log.send("t", b"A1", 0, "A")
    ask = pop_of("g", "t", invisible_millis=10_000, client_id="c", attempt_id="one")
    assert attempts(life, ask) == {b"A1": 1}
    assert attempts(life, ask) == {b"A1": 1}
    clock.now += 10_000
    life.expire()
    assert attempts(life) == {b"A1": 2}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_released_message_comes_at_its_time_as_if_it_had_not_been_handed_out(
    log: MemoryLog, clock: ManualClock, begin: Begin, ordered: bool
) -> None:
    life = begin(attempts_max=3)
    life.groups.update(GroupSettings("g", ordered=ordered))
    log.send("t", b"m", 0, "A")
    for _ in range(5):
        (one,) = life.pop(ASK)
        assert one.delivery_attempt == 1
        life.acks.change_invisible("g", one.receipt_handle, 60_000, is_released=True)
        life.close()
        life = begin(attempts_max=3)
        clock.now += 59_999
        life.expire()
        assert attempts(life) == {}
        clock.now += 1
        life.expire()
        with pytest.raises(ReceiptHandleNotFoundError):
            life.acks.change_invisible("g", one.receipt_handle, 0)
    assert list(log.messages("%RETRY%g_t")) == []
    assert attempts(life) == {b"m": 1}


def test_a_message_that_failed_after_a_release_has_one_attempt(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    life = begin(attempts_max=3)
    log.send("t", b"m")
    (one,) = life.pop(ASK)
    handle = life.acks.change_invisible("g", one.receipt_handle, 60_000, is_released=True)
    life.acks.change_invisible("g", handle, 0)  # its program got it all the same
    life.expire()
    assert [copy.reconsume_times for copy in log.messages("%RETRY%g_t")] == [1]
    assert attempts(life) == {b"m": 2}


def test_a_delivery_whose_gateway_died_with_it_was_no_attempt_and_one_that_arrived_was(
    log: MemoryLog, clock: ManualClock, begin: Begin
) -> None:
    clients = LiveConsumers(lambda: clock.now / 1000)
    life = begin(attempts_max=3, clients=clients)
    clock.now += 60_000
    log.send("t", b"arrived")
    log.send("t", b"lost")
    clients.keep(pb.Client(client_id="c", consumer_group="g"))
    arrived, _ = life.pop(RENEWED)
    life.acks.note_delivered([arrived.receipt_handle])
    clock.now += 60_000  # the client is killed, too
    life.expire()
    assert attempts(life) == {b"arrived": 2, b"lost": 1}


def test_a_track_of_a_message_that_no_program_got_says_that_it_was_not_consumed(log: MemoryLog, life: LogLife) -> None:
    sent = log.send("t", b"m")
    life.pop(RENEWED)
    life.groups.end_client("g", "c")
    (track,) = life.track(sent)
    assert (state_of(track), track.delivery_attempts) == ("NOT_CONSUMED", 0)


def test_the_end_of_a_client_with_much_in_flight_was_one_record_that_the_log_refuses(
    log: MemoryLog, life: LogLife
) -> None:
    queue_count, lease_count, size_bytes_max = 60, 1_000, 4 << 20
    life.groups.update(GroupSettings("g", ordered=True))
    with life.life.lock:
        for queue_id in range(queue_count):
            leases = [
                Lease(
                    at, 1, 0, 1, 1, client_id="c", message_group=f"{queue_id}-{at}".rjust(MESSAGE_GROUP_LENGTH_MAX, "x")
                )
                for at in range(lease_count)
            ]
            life.states.queue(QueueRef("g", "t", queue_id)).apply(HandedOut(QueueRef("g", "t", queue_id), 1, leases))
    before = len(log.requests)

    life.groups.end_client("g", "c")

    sizes = [sum(record.ByteSize() for record in request) for request in log.requests[before:]]
    assert sum(sizes) > size_bytes_max > max(sizes)
    assert sum(len(queue.waiting) for _, queue in life.states.groups["g"].queues()) == queue_count * lease_count


def test_a_message_of_the_largest_reconsume_times_was_never_moved_nor_handed_out() -> None:
    """Found by fuzzing: a producer may say any number, and one more is none of 32 bits."""
    message = StoredMessage(topic="t", reconsume_times=(1 << 31) - 1)
    attempts = attempts_of(message, 1)
    for record in (
        retry_of(message, "g", attempts, 5),
        sent_back_of(message, "g", attempts, 3),
        dead_letter_of(message, "g", attempts, 5),
    ):
        assert record.reconsume_times == (1 << 31) - 1
