"""The outbox against a plain model: order, limits of batches, bytes in the buffer."""

from hypothesis import given
from hypothesis import strategies as st

from reput_client.errors import ServiceUnavailableError
from reput_client.producing.outbox import BATCH_SPREAD_SECONDS_MAX, Batch, Outbox, taken_bytes
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings

UNBOUNDED = 1 << 39


def outbox(**limits: object) -> Outbox:
    return Outbox(ProducerSettings(**{"buffer_bytes_max": UNBOUNDED, **limits}))  # type: ignore[arg-type]


class Named(bytes):
    """The bytes of a message that a test tells from others."""

    name: int


def message(name: int = 0, size_bytes: int = 10) -> Named:
    wire = Named(b"x" * size_bytes)
    wire.name = name
    return wire


def names(batch: Batch) -> list[int]:
    return [each.name for each in batch.wires]  # type: ignore[attr-defined]


def wakes(box: Outbox, wire: bytes, now: float, *, urgent: bool = False) -> bool:
    return box.add(wire, now, urgent=urgent)[2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 120)),
        st.tuples(st.just("add_all"), st.lists(st.integers(1, 120), min_size=1, max_size=12)),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("answer"), st.none()),
        st.tuples(st.just("refuse"), st.none()),
        st.tuples(st.just("break"), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 7)),
        st.tuples(st.just("tick"), st.floats(0, 0.02)),
        st.tuples(st.just("seal"), st.none()),
    ),
    max_size=120,
)


@given(steps=STEPS, count_max=st.integers(1, 8), bytes_max=st.integers(1, 300), in_flight_max=st.integers(1, 4))
def test_every_message_is_in_one_batch_in_order_and_batches_keep_their_limits(
    steps: list, count_max: int, bytes_max: int, in_flight_max: int
) -> None:
    """The model is a list: what is sent over one stream, in order, is a suffix of what has no outcome yet."""
    box = outbox(batch_count_max=count_max, batch_bytes_max=bytes_max, in_flight_count_max=in_flight_max)
    now, added, open_names, sizes = 0.0, 0, [], {}
    places, settlements = {}, []  # by settlement and slot: who was promised to be told there
    in_flight: list[Batch] = []

    def check_order(batches: list[Batch]) -> None:
        sent = [name for batch in batches for name in names(batch)]
        assert sent == sorted(sent), "order of one producer"

    for step, argument in steps:
        if step == "add":
            settlement, slot, _ = box.add(message(added, argument), now)
            places[id(settlement), slot] = added
            settlements.append(settlement)
            open_names.append(added)
            sizes[added] = argument
            added += 1
        elif step == "add_all":
            told = []
            for settlement, first, message_count in box.add_all(
                [message(added + i, size) for i, size in enumerate(argument)], now
            ):
                settlements.append(settlement)
                told += [(id(settlement), first + i) for i in range(message_count)]
            assert len(told) == len(argument)
            if len(argument) <= count_max and sum(argument) <= bytes_max:
                assert len({settlement for settlement, _ in told}) == 1, "what fits into one request travels in one"
            for i, (place, size) in enumerate(zip(told, argument, strict=True)):
                places[place] = added + i
                open_names.append(added + i)
                sizes[added + i] = size
            added += len(argument)
        elif step == "take":
            batch = box.take(now)
            if batch is not None:
                in_flight.append(batch)
                told = [places[id(batch.settlement), batch.slot_of(i)] for i in range(len(batch.wires))]
                assert told == names(batch), "each is told in the slot that its sender was given"
                assert 1 <= len(batch.wires) <= count_max
                wire_bytes = sum(map(len, batch.wires))
                assert batch.wire_bytes == wire_bytes
                assert wire_bytes <= bytes_max or len(batch.wires) == 1
                assert len(in_flight) <= in_flight_max
                if not any(each.attempt_count > 1 or len(each.wires) < 1 for each in in_flight):
                    check_order([batch])
        elif step == "answer" and in_flight:
            batch = box.answered()
            assert batch is in_flight.pop(0), "answers belong to requests in order"
            box.settle(batch)
            box.finish(batch)
            for name in names(batch):
                open_names.remove(name)
        elif step == "refuse" and in_flight:
            batch = box.answered()
            assert batch is in_flight.pop(0)
            box.refuse(batch, ServiceUnavailableError("no"))
        elif step == "break":
            box.give_back(ServiceUnavailableError("no"))
            in_flight.clear()
            check_order(list(box._ready) + ([box._open] if box._open else []))
        elif step == "drop" and in_flight:
            batch = box.answered()
            assert batch is in_flight.pop(0)
            name = names(batch)[argument % len(batch.wires)]
            (slot,) = box.drop_messages(batch, {argument % len(batch.wires)})
            assert places[id(batch.settlement), slot] == name
            open_names.remove(name)
            if not batch.wires:
                box.finish(batch)
        elif step == "tick":
            now += argument
        elif step == "seal":
            box.seal()
        assert box.buffered_bytes == sum(sizes[name] + MESSAGE_OVERHEAD_BYTES for name in open_names)
        assert box.has_work == bool(open_names)

    left = [name for batch in box.remove_all() for name in names(batch)]
    assert left == open_names, "nothing is lost, nothing is there twice, and order is kept"
    assert box.buffered_bytes == 0


def test_lists_that_are_sent_while_all_requests_are_under_way_share_the_next_one() -> None:
    box = outbox(linger_millis=0, in_flight_count_max=1, batch_bytes_max=1000)
    box.add_all([message(0), message(1)], now=0.0)
    first = box.take(0.0)
    assert first is not None
    assert names(first) == [0, 1]
    spans = [span for number in (2, 4, 6) for span in box.add_all([message(number), message(number + 1)], now=0.0)]
    assert box.take(0.0) is None
    assert box.answered() is first
    second = box.take(0.0)
    assert second is not None
    assert names(second) == [2, 3, 4, 5, 6, 7]
    assert [(span.first, span.message_count) for span in spans] == [(0, 2), (2, 2), (4, 2)]


def test_a_message_lingers_until_its_batch_is_full() -> None:
    box = outbox(linger_millis=5, batch_count_max=2)
    assert wakes(box, message(0), 10.0), "the first of a batch starts the linger"
    assert box.take(10.004) is None
    assert box.next_take_seconds(10.004) == 10.005 - 10.004
    assert wakes(box, message(1), 10.004), "a full batch is worth a look"
    assert names(box.take(10.004)) == [0, 1]


def test_a_message_lingers_at_most_so_long() -> None:
    box = outbox(linger_millis=5)
    box.add(message(0), 10.0)
    assert not wakes(box, message(1), 10.001), "one that joins a lingering batch wakes nobody"
    assert names(box.take(10.006)) == [0, 1]


def test_a_message_that_somebody_waits_for_lingers_only_behind_others() -> None:
    box = outbox(linger_millis=5)
    assert wakes(box, message(0), 10.0, urgent=True)
    assert names(box.take(10.0)) == [0]
    box.add(message(1), 10.0, urgent=True)
    assert box.take(10.0) is None, "one is in flight: others may join"
    box.settle(box.answered())
    assert names(box.take(10.0)) == [1]


def test_no_more_than_so_many_are_in_flight() -> None:
    box = outbox(linger_millis=0, batch_count_max=1, in_flight_count_max=2)
    for name in range(3):
        box.add(message(name), 0.0)
    assert [names(box.take(0.0)), names(box.take(0.0))] == [[0], [1]]
    assert box.take(0.0) is None
    box.settle(box.answered())
    assert names(box.take(0.0)) == [2]


def test_what_waited_too_long_is_taken_out_and_what_was_added_later_is_not() -> None:
    box = outbox(delivery_seconds_max=60)
    box.add(message(0), 0.0)
    box.add(message(1), BATCH_SPREAD_SECONDS_MAX * 2)
    assert box.overdue_at() == 60.0
    assert box.remove_overdue(59.9, 100) == []
    assert [names(batch) for batch in box.remove_overdue(60.0, 100)] == [[0]]
    assert box.buffered_bytes == len(message()) + MESSAGE_OVERHEAD_BYTES


def test_what_was_tried_too_often_is_taken_out() -> None:
    box = outbox(linger_millis=0)
    box.add(message(0), 0.0)
    for _ in range(3):
        assert box.remove_overdue(0.0, 3) == []
        assert box.take(0.0) is not None
        box.give_back(ServiceUnavailableError("no"))
    (batch,) = box.remove_overdue(0.0, 3)
    assert batch.may_be_written
    assert isinstance(batch.error, ServiceUnavailableError)


def test_who_waits_for_room_is_woken_for_an_eighth_of_the_buffer_or_when_no_answer_is_to_come() -> None:
    size_bytes = 10_000 - MESSAGE_OVERHEAD_BYTES
    box = outbox(linger_millis=0, batch_count_max=1, buffer_bytes_max=160_000, in_flight_count_max=4)
    for name in range(16):
        assert box.has_room(taken_bytes([message(name, size_bytes)]))
        box.add(message(name, size_bytes), 0.0)
    assert not box.has_room(taken_bytes([message(16, size_bytes)]))
    assert box.has_ample_room, "nothing is in flight"
    for _ in range(4):
        box.take(0.0)
    assert not box.has_ample_room
    box.settle(box.answered())
    assert box.has_room(taken_bytes([message(16, size_bytes)]))
    assert not box.has_ample_room
    box.settle(box.answered())
    assert box.has_ample_room


def test_who_takes_is_left_alone_until_half_of_what_was_in_flight_is_answered() -> None:
    box = outbox(linger_millis=0, batch_count_max=1, in_flight_count_max=4)
    for name in range(10):
        box.add(message(name), 0.0)
    assert [box.take(0.0) is not None for _ in range(5)] == [True] * 4 + [False]
    assert box.is_saturated
    box.settle(box.answered())
    assert box.is_saturated
    assert box.take(0.0) is not None, "it may take all the same"
    box.settle(box.answered())
    box.settle(box.answered())
    assert not box.is_saturated
    assert [box.take(0.0) is not None for _ in range(3)] == [True, True, False]
    assert box.is_saturated
    box.give_back(None)
    assert not box.is_saturated, "no answer is to come"


def test_who_stays_in_a_batch_keeps_the_slot_that_its_sender_knows() -> None:
    box = outbox(linger_millis=0)
    settlements, slots, _ = zip(*(box.add(message(name), 0.0) for name in range(4)), strict=True)
    assert slots == (0, 1, 2, 3)
    for dropped, its_slots, left in (({1}, [1], [0, 2, 3]), ({0, 2}, [0, 3], [2])):
        batch = box.take(0.0)
        assert {*settlements} == {batch.settlement}
        assert box.drop_messages(box.answered(), dropped) == its_slots
        assert [batch.slot_of(place) for place in range(len(batch.wires))] == names(batch) == left


def test_flush_knows_which_batches_are_finished() -> None:
    box = outbox(linger_millis=0)
    box.add(message(0), 0.0)
    number = box.seal()
    box.add(message(1), 0.0)
    assert not box.is_finished(number)
    batch = box.take(0.0)
    box.settle(box.answered())
    assert not box.is_finished(number), "its futures are not told yet"
    box.finish(batch)
    assert box.is_finished(number), "what was added later does not count"
