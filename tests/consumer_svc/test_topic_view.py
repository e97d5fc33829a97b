"""The topic table as the consumer service sees it: which topics may be read, and what waits for others hears of it."""

import pytest

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.picks import PopAsk
from consumer_svc.delivering.pulls import PullAsk
from consumer_svc.topic_view import FAILED_SECONDS, LOOK_SECONDS, TopicView
from store.errors import ServiceUnavailableError, TopicNotReadableError, UnsupportedStoreError
from tests.consumer_svc.memory_log import LogLife, MemoryLog
from tests.consumer_svc.test_queue_locks import Clock

WRITE, BOTH = 2, 6


def test_a_topic_without_the_right_to_read_looked_like_an_empty_one(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    log.configure("t", WRITE)

    with pytest.raises(TopicNotReadableError) as refused:
        life.pops.pop(PopAsk("g", "t"))
    with pytest.raises(TopicNotReadableError):
        life.pulls.pull(PullAsk("t", 0, 0))

    assert refused.value.metadata == {"topic": "t", "perm": "read"}
    assert "g" not in life.states.groups
    log.configure("t", BOTH)
    assert len(life.pops.pop(PopAsk("g", "t"))) == 1


def test_polls_that_wait_hear_of_a_topic_whose_right_to_read_has_changed(log: MemoryLog) -> None:
    arrivals, clock = Arrivals(), Clock()
    watcher = arrivals.watch()
    watcher.take(0)
    view = TopicView(log, arrivals, clock)
    log.configure("t", WRITE)
    log.configure("other", BOTH)
    view.look()
    assert watcher.take(0).topics == {"t"}

    log.configure("t", BOTH)
    view.look()  # not yet: it is too early
    assert not watcher.take(0)
    clock.now += LOOK_SECONDS
    view.look()

    assert watcher.take(0).topics == {"t"}
    view.check_readable("t")


def test_what_was_known_of_topics_holds_while_the_commit_log_does_not_answer(log: MemoryLog) -> None:
    clock = Clock()
    view = TopicView(log, Arrivals(), clock)
    log.configure("t", WRITE, queue_count=3)
    view.look()
    calls = 0

    def away(**_: object) -> None:
        nonlocal calls
        calls += 1
        raise ServiceUnavailableError("away")

    log.list_topics = away  # type: ignore[assignment]
    clock.now += LOOK_SECONDS
    for _ in range(3):
        with pytest.raises(TopicNotReadableError):
            view.check_readable("t")
    assert calls == 1, f"the next call comes after {FAILED_SECONDS} s"
    with pytest.raises(ServiceUnavailableError):
        view.queue_counts()


def test_a_group_of_a_topic_whose_queues_are_not_served_saw_an_empty_one(log: MemoryLog) -> None:
    view = TopicView(log, Arrivals(), Clock(), {"batch": "topic batch uses batch queues"})
    for topic in ("batch", "%LMQ%a"):
        with pytest.raises(UnsupportedStoreError):
            view.check_readable(topic)
    view.check_readable("t")
