"""The outbox against a plain model: order, limits of batches, bytes in the buffer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from reput_client.errors import ServiceUnavailableError
from reput_client.outbox import BATCH_SPREAD_SECONDS_MAX, Batch, Message, Outbox
from reput_client.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings

UNBOUNDED = 1 << 39


def outbox(**limits: object) -> Outbox:
    return Outbox(ProducerSettings(**{"buffer_bytes_max": UNBOUNDED, **limits}))  # type: ignore[arg-type]


def message(name: int = 0, size_bytes: int = 10) -> Message:
    return Message(b"x" * size_bytes, str(name), None)


def names(batch: Batch) -> list[int]:
    return [int(each.unique_key) for each in batch.messages]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 120)),
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


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, count_max=st.integers(1, 8), bytes_max=st.integers(1, 300), in_flight_max=st.integers(1, 4))
def test_every_message_is_in_one_batch_in_order_and_batches_keep_their_limits(
    steps: list, count_max: int, bytes_max: int, in_flight_max: int
) -> None:
    """The model is a list: what is sent over one stream, in order, is a suffix of what has no outcome yet."""
    box = outbox(batch_count_max=count_max, batch_bytes_max=bytes_max, in_flight_count_max=in_flight_max)
    now, added, open_names, sizes = 0.0, 0, [], {}
    in_flight: list[Batch] = []

    def check_order(batches: list[Batch]) -> None:
        sent = [name for batch in batches for name in names(batch)]
        assert sent == sorted(sent), "order of one producer"

    for step, argument in steps:
        if step == "add":
            box.add(message(added, argument), now)
            open_names.append(added)
            sizes[added] = argument
            added += 1
        elif step == "take":
            batch = box.take(now)
            if batch is not None:
                in_flight.append(batch)
                assert 1 <= len(batch.messages) <= count_max
                wire_bytes = sum(len(each.wire) for each in batch.messages)
                assert batch.wire_bytes == wire_bytes
                assert wire_bytes <= bytes_max or len(batch.messages) == 1
                assert len(in_flight) <= in_flight_max
                if not any(each.attempt_count > 1 or len(each.messages) < 1 for each in in_flight):
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
            bad = box.drop_message(batch, argument % len(batch.messages))
            open_names.remove(int(bad.unique_key))
            if not batch.messages:
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


def test_a_message_lingers_until_its_batch_is_full() -> None:
    box = outbox(linger_millis=5, batch_count_max=2)
    assert box.add(message(0), 10.0), "the first of a batch starts the linger"
    assert box.take(10.004) is None
    assert box.next_take_seconds(10.004) == 10.005 - 10.004
    assert box.add(message(1), 10.004), "a full batch is worth a look"
    assert names(box.take(10.004)) == [0, 1]


def test_a_message_lingers_at_most_so_long() -> None:
    box = outbox(linger_millis=5)
    box.add(message(0), 10.0)
    assert not box.add(message(1), 10.001), "one that joins a lingering batch wakes nobody"
    assert names(box.take(10.006)) == [0, 1]


def test_a_message_that_somebody_waits_for_lingers_only_behind_others() -> None:
    box = outbox(linger_millis=5)
    assert box.add(message(0), 10.0, urgent=True)
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
    assert box.buffered_bytes == message().buffered_bytes


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
