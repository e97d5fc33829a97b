"""The columns that kernels know topics by: as they grow, each view stays what it was, and finds its own topics."""

import random

import pytest

from commitlog_svc.append import layout
from commitlog_svc.append.topics import topic_columns
from commitlog_svc.append.topics.queue_offsets import QueueKey, QueueOffsets
from commitlog_svc.append.topics.topic_columns import TOPIC_COUNT_MIN, KnownTopics, TopicColumns
from tests.commitlog_svc.batches import BatchRun
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import request_of
from tests.support.kernels import LoadKernel


def number_of(run: BatchRun, topic: str) -> int:
    """Which topic the kernel takes a message for; -1: it does not take it."""
    return int(run.rows[0, layout.TOPIC_NUMBER]) if run.scan(request_of(new_message(topic=topic))) == 1 else -1


def test_each_view_finds_its_topics_and_none_that_came_later(load_kernel: LoadKernel) -> None:
    chance, offsets, known = random.Random(7), QueueOffsets({("t3", 1): 5}), KnownTopics()
    topics = [f"t{number}" for number in range(5 * TOPIC_COUNT_MIN)]
    chance.shuffle(topics)
    views: list[TopicColumns] = []
    queue_counts = [chance.randrange(1, 9) for _ in topics]
    for topic, queue_count in zip(topics, queue_counts, strict=True):
        assert topic not in known
        known.add(topic, queue_count, offsets.give_slots)
        known.add(topic, queue_count + 1, offsets.give_slots)  # once is enough
        assert topic in known
        views.append(known.columns)
    assert [len(view.sizes) for view in views] == list(range(1, len(topics) + 1))
    for view in chance.sample(views, 40):
        count = len(view.sizes)
        run = BatchRun(load_kernel, view)
        assert [number_of(run, topic) for topic in topics] == [*range(count), *[-1] * (len(topics) - count)]
        assert view.queue_counts.tolist() == queue_counts[:count]
        slots = [
            view.queue_slots[begin : begin + size].tolist()
            for begin, size in zip(view.queue_slot_begins, view.queue_counts, strict=True)
        ]
        keys: list[list[QueueKey]] = [
            [(topic, queue_id) for queue_id in range(size)] for topic, size in zip(topics, queue_counts, strict=False)
        ][:count]
        assert slots == [offsets.give_slots(each) for each in keys]
    assert offsets.copy()() == {("t3", 1): 5}


def test_queues_keep_their_offsets_as_the_column_grows() -> None:
    chance, offsets = random.Random(9), QueueOffsets({})
    model: dict[QueueKey, int] = {}
    for number in range(300):
        keys = [(f"t{number}", queue_id) for queue_id in range(chance.randrange(1, 9))]
        if chance.random() < 0.5:
            offsets.update({keys[0]: number})
            model[keys[0]] = number
        slots = offsets.give_slots(keys)
        offsets.column[slots[-1]] += 7  # as a kernel does
        model[keys[-1]] = model.get(keys[-1], 0) + 7
    assert offsets.copy()() == {key: offset for key, offset in model.items() if offset}
    assert all(offsets.get(key) == offset for key, offset in model.items())


def test_what_does_not_fit_is_not_known(monkeypatch: pytest.MonkeyPatch, load_kernel: LoadKernel) -> None:
    known, offsets = KnownTopics(), QueueOffsets({})
    for name, queue_count in (("", 1), ("x" * 128, 1), ("ü", 1), ("none", 0)):
        known.add(name, queue_count, offsets.give_slots)
        assert name not in known
    monkeypatch.setattr(topic_columns, "QUEUE_COUNT_MAX", 10)
    known.add("a", 8, offsets.give_slots)
    known.add("too many queues", 3, offsets.give_slots)
    known.add("b", 2, offsets.give_slots)
    monkeypatch.setattr(topic_columns, "TOPIC_COUNT_MAX", 2)
    monkeypatch.setattr(topic_columns, "QUEUE_COUNT_MAX", 100)
    known.add("c", 1, offsets.give_slots)
    assert list(known.columns.topics) == ["a", "b"]
    assert number_of(BatchRun(load_kernel, known.columns), "x" * 128) == -1
