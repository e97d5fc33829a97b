"""The bounds and positions of a pulled queue, and the share of a member, against models."""

from datetime import UTC, datetime
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from reput_client import Message
from reput_client.consuming.pulling.allocation import MessageQueue, strategy_of
from reput_client.consuming.pulling.membership import Share
from reput_client.consuming.pulling.pull_queue import PullQueue
from reput_client.consuming.settings import PullConsumerSettings

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUEUE = MessageQueue("T", "broker-a", 0)


def message(offset: int, size_bytes: int) -> Message:
    return Message(
        *("T", 0, offset, 0, 0, bytes(size_bytes), False, (), "", "", "", MappingProxyType({})),
        *(EPOCH, "", EPOCH, "", "broker-a", 0, 0, 0, 0, 0),
    )


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["fetch", "poll", "finish"]), st.integers(0, 30), st.integers(1, 50)), max_size=60
    ),
    count_max=st.integers(1, 40),
    bytes_max=st.integers(100, 1000),
    span_max=st.integers(1, 60),
)
def test_bounds_hold_and_no_position_is_passed(
    steps: list[tuple[str, int, int]], count_max: int, bytes_max: int, span_max: int
) -> None:
    settings = PullConsumerSettings(
        cache_count_max=count_max,
        cache_bytes_max=bytes_max,
        cache_span_max=span_max,
        batch_count_max=10,
        batch_bytes_max=100,
    )
    queue = PullQueue(QUEUE, 0, None, settings)
    wanted: list[int] = []  # every second position matches the filter
    polled: list[int] = []
    for what, number, size in steps:
        if what == "fetch" and queue.may_fetch:
            begin = queue.next_offset
            count = min(number, queue.batch_count, queue.batch_bytes // size)
            offsets = [begin + 2 * i for i in range(count)]
            queue.add([message(offset, size) for offset in offsets], begin + 2 * count + 1)
            wanted += offsets
        elif what == "poll":
            polled += [each.queue_offset for each in queue.take(number)]
        elif what == "finish":
            queue.finish()
            assert queue.done_offset == (wanted[len(polled)] if len(polled) < len(wanted) else queue.next_offset)
        assert queue.count <= count_max
        assert queue.size_bytes <= bytes_max
        assert polled == wanted[: len(polled)]
        assert queue.done_offset <= queue.position <= queue.next_offset


def test_a_span_that_is_too_long_is_not_made_longer() -> None:
    queue = PullQueue(QUEUE, 0, None, PullConsumerSettings(cache_span_max=100))
    queue.add([message(0, 1), message(101, 1)], 102)
    assert not queue.may_fetch
    queue.take(1)
    assert queue.may_fetch


def test_a_position_that_was_chosen_forgets_what_was_fetched() -> None:
    queue = PullQueue(QUEUE, 5, 5, PullConsumerSettings())
    queue.add([message(5, 10)], 6)
    generation = queue.generation
    queue.seek(2)
    assert (queue.count, queue.size_bytes, queue.position, queue.done_offset) == (0, 0, 2, 2)
    assert queue.generation != generation


def test_a_queue_changes_hands_at_the_second_look_and_leaves_at_the_first() -> None:
    queues = [MessageQueue("T", "b", i) for i in range(4)]
    old, new = Share("old", strategy_of("AVG")), Share("new", strategy_of("AVG"))
    assert old.look(["old"], queues) == frozenset(queues), "who is alone need not wait"
    assert new.look(["new", "old"], queues) == frozenset()
    assert old.look(["new", "old"], queues) == frozenset(queues[2:])
    assert new.look(["new", "old"], queues) == frozenset(queues[:2])
    assert old.look([], queues) == frozenset(), "a member that its group does not know has none"


def test_a_suspended_queue_gives_what_was_not_processed_again_after_its_time() -> None:
    queue = PullQueue(QUEUE, 0, None, PullConsumerSettings())
    queue.add([message(offset, 1) for offset in range(10)], 10)
    queue.take(2)
    queue.finish()
    queue.take(3)
    generation = queue.generation
    queue.suspend(100.0)
    assert (queue.position, queue.next_offset, queue.done_offset) == (2, 2, 2)
    assert queue.generation == generation + 1, "a batch that was asked for before is dropped"
    queue.add([message(offset, 1) for offset in range(2, 10)], 10)
    assert [queue.may_give(now) for now in (99.9, 100.0)] == [False, True]
    assert [each.queue_offset for each in queue.take(3)] == [2, 3, 4]


def test_a_queue_that_leaves_gives_nothing_and_keeps_the_position_of_what_was_polled() -> None:
    queue = PullQueue(QUEUE, 0, None, PullConsumerSettings())
    queue.add([message(offset, 1) for offset in range(10)], 10)
    queue.take(4)
    queue.leave()
    assert (queue.take(1), queue.may_fetch, queue.is_polled) == ([], False, True)
    queue.finish()
    assert (queue.done_offset, queue.is_polled) == (4, False)
