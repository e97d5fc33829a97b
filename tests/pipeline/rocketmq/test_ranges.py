"""Which messages are read: queues, positions, shares of a micro-batch, cuts into tasks; no service takes part."""

import logging

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.rocketmq.errors import DataLostError, OffsetError
from pipeline.rocketmq.gateway import HeldRange
from pipeline.rocketmq.options import Subscription
from pipeline.rocketmq.positions import Bound, QueueKey
from pipeline.rocketmq.ranges import (
    MessageRange,
    choose_queues,
    cut_into_tasks,
    held_part,
    limit_by_bytes,
    limit_by_count,
    resolve,
)
from reput_client.errors import QueueNotFoundError, TopicNotFoundError


def queue(queue_id: int, topic: str = "T", broker_name: str = "a") -> QueueKey:
    return QueueKey(topic, broker_name, queue_id)


HELD = {
    queue(0): HeldRange("h:1", 10, 50),
    queue(1): HeldRange("h:1", 0, 0),
    queue(0, "TT"): HeldRange("h:1", 0, 5),
    queue(0, "T", "b"): HeldRange("h:2", 3, 4),
}


def never(key: QueueKey, time_millis: int) -> int:
    raise AssertionError("not asked for")


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(topics=("T",)), [queue(0), queue(1), queue(0, "T", "b")]),
        (Subscription(pattern="T+"), [queue(0), queue(1), queue(0, "T", "b"), queue(0, "TT")]),
        (Subscription(pattern="T"), [queue(0), queue(1), queue(0, "T", "b")]),
        (Subscription(pattern="None.*"), []),
        (Subscription(assigned={"T": {"": (0,)}}), [queue(0), queue(0, "T", "b")]),
        (Subscription(assigned={"T": {"b": (0,)}}), [queue(0, "T", "b")]),
    ],
)
def test_a_subscription_chooses_queues(subscription: Subscription, expected: list[QueueKey]) -> None:
    assert list(choose_queues(HELD, subscription)) == expected


def test_an_unknown_topic_or_queue_is_an_error() -> None:
    with pytest.raises(TopicNotFoundError, match="'U'"):
        choose_queues(HELD, Subscription(topics=("T", "U")))
    with pytest.raises(QueueNotFoundError, match="queue 1 of topic 'T' of b"):
        choose_queues(HELD, Subscription(assigned={"T": {"b": (1,)}}))


def test_positions_are_resolved_queue_by_queue() -> None:
    one_shard = choose_queues({k: v for k, v in HELD.items() if k.broker_name == "a"}, Subscription(topics=("T",)))

    assert resolve(Bound(everywhere=-2), one_shard, never, "o") == {queue(0): 10, queue(1): 0}
    assert resolve(Bound(everywhere=-1), one_shard, never, "o") == {queue(0): 50, queue(1): 0}
    given_positions = {QueueKey("T", "", 0): 12, QueueKey("T", "", 1): -1}
    assert resolve(Bound(positions=given_positions), one_shard, never, "o") == {queue(0): 12, queue(1): 0}
    assert resolve(Bound(time_millis=7), one_shard, lambda key, time: key.queue_id + time, "o") == {
        queue(0): 7,
        queue(1): 8,
    }


@pytest.mark.parametrize(
    ("positions", "text"),
    [
        ({QueueKey("T", "a", 0): 1}, "no position for queue 1 of topic 'T' of a and 1 more"),
        ({QueueKey("T", "", 0): 1}, "several shards (a, b)"),
        ({QueueKey("T", "a", 9): 1}, "queue 9 of topic 'T' of a, which is not among"),
        ({QueueKey("U", "a", 0): 1}, "not among the queues that are read"),
    ],
)
def test_positions_that_are_not_those_of_the_queues_are_refused(positions: dict[QueueKey, int], text: str) -> None:
    with pytest.raises(OffsetError) as failure:
        resolve(Bound(positions=positions), choose_queues(HELD, Subscription(topics=("T",))), never, "startingOffsets")
    assert text in str(failure.value)
    assert "startingOffsets" in str(failure.value)


def test_what_retention_took_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    held = HeldRange("h:1", 10, 50)
    with pytest.raises(DataLostError, match="Messages 4 to 9 of queue 0 of topic 'T' of a are lost") as failure:
        held_part(queue(0), 4, 20, held, fail_on_data_loss=True)
    assert (failure.value.begin, failure.value.end) == (4, 10)
    with pytest.raises(DataLostError, match="no such queue any more"):
        held_part(queue(0), 4, 20, None, fail_on_data_loss=True)

    with caplog.at_level(logging.WARNING):
        assert held_part(queue(0), 4, 20, held, fail_on_data_loss=False) == range(10, 20)
        assert held_part(queue(0), 4, 8, held, fail_on_data_loss=False) == range(8, 8)
    assert len(caplog.records) == 2
    assert held_part(queue(0), 10, 50, held, fail_on_data_loss=True) == range(10, 50)
    assert len(held_part(queue(0), 20, 20, None, fail_on_data_loss=True)) == 0


queue_counts = st.lists(st.integers(0, 10_000), min_size=1, max_size=12)


@given(queue_counts, st.integers(1, 20_000), st.integers(0, 1000))
def test_a_limited_batch_has_as_many_messages_as_it_may(counts: list[int], count_max: int, begin: int) -> None:
    start = {queue(i): begin for i in range(len(counts))}
    end = {queue(i): begin + count for i, count in enumerate(counts)}

    limited = limit_by_count(start, end, count_max)

    assert limited.keys() == end.keys()
    assert all(start[key] <= limited[key] <= end[key] for key in end)
    assert sum(limited[key] - start[key] for key in end) == min(count_max, sum(counts))
    if count_max >= len(counts):
        assert all(limited[key] > start[key] for key in end if end[key] > start[key]), "a queue was left out"


def test_queues_share_a_batch_by_how_much_they_are_behind() -> None:
    start = {queue(i): 0 for i in range(3)}
    limited = limit_by_count(start, {queue(0): 1000, queue(1): 3000, queue(2): 0}, 402)
    assert limited == pytest.approx({queue(0): 101, queue(1): 301, queue(2): 0}, abs=1)


def test_a_queue_with_little_is_not_left_behind_one_that_always_has_much() -> None:
    """Also when a batch has room for one message only."""
    position = {queue(0): 0, queue(1): 0}
    for _ in range(4):
        position = limit_by_count(position, {queue(0): position[queue(0)] + 1_000_000, queue(1): 2}, 1)
    assert position[queue(1)] == 2


def test_a_queue_that_was_made_anew_keeps_its_new_end_in_a_limited_batch() -> None:
    assert limit_by_count({queue(0): 100, queue(1): 0}, {queue(0): 7, queue(1): 50}, 10) == {queue(0): 7, queue(1): 10}


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(100, 5000)), min_size=1, max_size=6),
    st.integers(1, 2_000_000),
)
@example([(1, 100), (110, 680), (1, 100)], 4681)
def test_records_of_one_size_in_each_queue_are_limited_exactly(queues: list[tuple[int, int]], bytes_max: int) -> None:
    start = {queue(i): 5 for i in range(len(queues))}
    end = {queue(i): 5 + count for i, (count, _) in enumerate(queues)}

    def sizes(key: QueueKey, position: int, count: int) -> list[int]:
        return [queues[key.queue_id][1]] * min(count, end[key] - position)

    limited = limit_by_bytes(start, end, bytes_max, sizes)

    taken = {key: limited[key] - start[key] for key in end}
    size = sum(count * queues[key.queue_id][1] for key, count in taken.items())
    total = sum(count * each for count, each in queues)
    # A message is never cut, each queue that is behind gives one, and the batch and each share are rounded to messages.
    slack = 2 * sum(each for _, each in queues) + max(each for _, each in queues)
    assert size <= bytes_max + slack
    assert sum(taken.values()) > 0 or total == 0
    assert limited == end or size >= min(bytes_max, total) - slack


def test_large_records_at_the_end_of_a_batch_count() -> None:
    """Sampled at the beginning alone, the batch would be ten times too large."""

    def sizes(key: QueueKey, position: int, count: int) -> list[int]:
        return [100 if at < 50 else 10_000 for at in range(position, position + count)]

    limited = limit_by_bytes({queue(0): 0}, {queue(0): 1000}, 90_000, sizes)
    assert 10 <= limited[queue(0)] <= 60


@settings(max_examples=30)
@given(queue_counts, st.integers(1, 40))
def test_tasks_cover_every_message_once(counts: list[int], min_count: int) -> None:
    ranges = [MessageRange("h:1", queue(i), 7, 7 + count) for i, count in enumerate(counts)]

    tasks = cut_into_tasks(ranges, min_count)

    covered = sorted((task.key, at) for task in tasks for at in range(task.begin, task.end))
    assert covered == [(each.key, at) for each in ranges for at in range(each.begin, each.end)]
    assert all(task.message_count > 0 for task in tasks)
    assert len(tasks) >= min(min_count, sum(counts))
