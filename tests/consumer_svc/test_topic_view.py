"""The topic table as the consumer service sees it: which topics may be read, and what waits for others hears of it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.life import check_group_name
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.topic_view import FAILED_SECONDS, LOOK_SECONDS, MAKE_COUNT_MAX, TopicView
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import ServiceUnavailableError, TopicNotFoundError, TopicNotReadableError, UnsupportedStoreError
from store.format.topic import validate_topic
from tests.consumer_svc.asking import pop_of, pull_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog
from tests.consumer_svc.test_queue_locks import Clock
from tests.support.waiting import WAIT_SECONDS_MAX

WRITE, BOTH = 2, 6


def test_a_topic_without_the_right_to_read_looked_like_an_empty_one(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    log.configure("t", WRITE)

    with pytest.raises(TopicNotReadableError) as refused:
        life.pop(pop_of("g", "t"))
    with pytest.raises(TopicNotReadableError):
        life.pulls.pull(pull_of("t", 0, 0))

    assert refused.value.metadata == {"topic": "t", "perm": "read"}
    assert "g" not in life.states.groups
    log.configure("t", BOTH)
    assert len(life.pop(pop_of("g", "t"))) == 1


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

    def away(_request: object) -> None:
        nonlocal calls
        calls += 1
        raise ServiceUnavailableError("away")

    log.ListTopics = away  # type: ignore[assignment]
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


def outcome_of(ask: Callable[[], object]) -> object:
    """What was told: messages, nothing, or that there is no such topic."""
    try:
        return "messages" if ask() else "nothing"
    except TopicNotFoundError as error:
        return "absent" if error.metadata.get("isAbsent") else "without messages"


@pytest.mark.parametrize(
    ("made_by_messages", "topic", "popped", "pulled"),
    [
        (False, "never", "absent", "absent"),
        (True, "never", "nothing", "absent"),
        (False, "deleted", "absent", "absent"),
        (True, "deleted", "absent", "absent"),
        (False, "empty", "nothing", "without messages"),
        (True, "empty", "nothing", "without messages"),
        (False, "unconfigured", "messages", "messages"),
        (False, "%RETRY%g", "nothing", "without messages"),
        (False, "%DLQ%g", "nothing", "without messages"),
    ],
)
def test_a_topic_that_there_is_not_looked_like_an_empty_one(
    log: MemoryLog, life: LogLife, made_by_messages: bool, topic: str, popped: str, pulled: str
) -> None:
    """RocketMQ's PopMessageProcessor and PullMessageProcessor answer TOPIC_NOT_EXIST."""
    log.new_topic_queue_count = 8 if made_by_messages else 0
    log.configure("empty")
    log.send("unconfigured")
    log.send("deleted")
    log.configure("deleted")
    life.life.topics.load()
    log.delete("deleted")

    assert outcome_of(lambda: life.pop(pop_of("g", topic))) == popped
    assert outcome_of(lambda: life.pulls.pull(pull_of(topic, 0, 0)).messages) == pulled


def test_polls_that_wait_hear_of_a_topic_that_was_deleted(log: MemoryLog, life: LogLife) -> None:
    log.configure("t")
    life.life.topics.load()
    watcher = life.arrivals.watch()
    watcher.take(0)
    log.delete("t")
    life.life.topics.look()
    assert watcher.take(0).topics == {"t"}


@pytest.mark.parametrize("begins_at_end", [False, True])
def test_a_group_that_asked_before_its_topic_was_made_gets_the_first_message(
    log: MemoryLog, begin: Callable[..., LogLife], begins_at_end: bool
) -> None:
    life = begin(begins_at_end=begins_at_end)
    log.new_topic_queue_count = 0
    log.topics_version += 1
    with pytest.raises(TopicNotFoundError):
        life.pop(pop_of("g", "t"))
    log.configure("t", queue_count=2)
    log.send("t", b"first")
    assert [one.message.body for one in life.pop(pop_of("g", "t"))] == [b"first"]


class Makes:
    """The topics of each call that a log gets; `fails` is raised by the next ones, and `meanwhile` is called during each."""

    def __init__(self, log: Any) -> None:
        self.asked: list[list[str]] = []
        self.fails: Exception | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        make = log.AppendInternal

        def made(request: pb.AppendInternalRequest) -> pb.AppendInternalResponse:
            self.asked.append(list(request.new_topics))
            self.meanwhile()
            if self.fails is not None:
                raise self.fails
            return make(request)

        log.AppendInternal = made


def test_retry_topics_of_groups_are_made_once_and_together_where_there_are_none(log: MemoryLog) -> None:
    clock = Clock()
    view, makes = TopicView(log, Arrivals(), clock), Makes(log)
    log.configure("%RETRY%grown", queue_count=4)  # by messages that were popped of 4 queues
    for _ in range(3):
        view.make_retry_topics(["a", "grown", "b"], wait=True)
        clock.now += LOOK_SECONDS / 10  # heartbeats come faster than the table is asked for

    assert makes.asked == [["%RETRY%a", "%RETRY%b"]]
    queue_counts = {topic: row.read_queue_count for topic, row in log.topics.items()}
    assert queue_counts == {"%RETRY%grown": 4, "%RETRY%a": 1, "%RETRY%b": 1}


def test_a_retry_topic_that_could_not_be_made_is_made_with_that_of_a_later_group(log: MemoryLog) -> None:
    clock = Clock()
    view, makes = TopicView(log, Arrivals(), clock), Makes(log)
    makes.fails = ServiceUnavailableError("away")
    for wait in (True, False, True):
        view.make_retry_topics(["a", "b"], wait=wait)
    assert len(makes.asked) == 1, f"the next try comes after {FAILED_SECONDS} s"

    makes.fails = None
    clock.now += FAILED_SECONDS
    view.make_retry_topics(["c"], wait=False)
    assert log.topics.keys() == {"%RETRY%a", "%RETRY%b", "%RETRY%c"}


def test_a_group_that_was_deleted_meanwhile_got_its_retry_topic_all_the_same(log: MemoryLog, life: LogLife) -> None:
    makes = Makes(log)
    for name in ("a", "b"):
        life.groups.update(GroupSettings(name))
    makes.fails = ServiceUnavailableError("away")
    life.groups.make_retry_topics(["a", "b"], wait=True)
    life.groups.delete("a")
    makes.fails = None
    life.groups.make_retry_topics(["b"], wait=True)
    assert makes.asked[-1] == ["%RETRY%b"]
    assert "%RETRY%a" not in log.topics


def test_one_group_with_a_long_name_kept_all_others_without_a_retry_topic(log: MemoryLog) -> None:
    """Its own is too long for a topic, and the commit log refused each call that named it with those of others."""
    longest = "x" * 248
    check_group_name(longest + "x")
    view, makes = TopicView(log, Arrivals(), Clock()), Makes(log)
    view.make_retry_topics([longest + "x", "a", longest], wait=True)
    assert makes.asked == [["%RETRY%a", "%RETRY%" + longest]]
    for topic in makes.asked[0]:
        validate_topic(topic)


def test_heartbeats_that_waited_for_a_retry_topic_each_asked_again_when_it_failed(log: MemoryLog) -> None:
    """Each call to a commit log that does not answer takes a second, so a hundred of them took all threads of the service."""
    view, makes = TopicView(log, Arrivals(), Clock()), Makes(log)
    makes.fails = ServiceUnavailableError("away")
    heartbeats = [
        threading.Thread(target=view.make_retry_topics, args=(["a"],), kwargs={"wait": True}) for _ in range(5)
    ]

    def come() -> None:
        if len(makes.asked) == 1:
            for heartbeat in heartbeats:
                heartbeat.start()
            heartbeats[-1].join(
                0.1
            )  # they wait for the lock by now; on a slow machine they come later, which is as good

    makes.meanwhile = come
    view.make_retry_topics(["a"], wait=True)
    for heartbeat in heartbeats:
        heartbeat.join(WAIT_SECONDS_MAX)
    assert len(makes.asked) == 1


def test_retry_topics_of_a_fleet_that_comes_at_once_are_made_by_few_calls(log: MemoryLog) -> None:
    """Each call writes the whole table; a group that comes while it is written does not wait for that."""
    view, makes = TopicView(log, Arrivals(), Clock()), Makes(log)
    fleet = [f"g{number}" for number in range(MAKE_COUNT_MAX + 1)]

    def come() -> None:
        if len(makes.asked) == 1:
            for group in fleet:
                view.make_retry_topics([group], wait=False)
            assert not log.topics

    makes.meanwhile = come
    view.make_retry_topics(["first"], wait=False)
    assert list(map(len, makes.asked)) == [1, MAKE_COUNT_MAX, 1]
    assert len(log.topics) == 1 + len(fleet)


def test_a_heartbeat_waits_for_a_retry_topic_that_another_call_makes(log: MemoryLog) -> None:
    view, makes = TopicView(log, Arrivals(), Clock()), Makes(log)
    answered: list[bool] = []

    def beat() -> None:
        view.make_retry_topics(["a"], wait=True)
        answered.append("%RETRY%a" in log.topics)

    heartbeat = threading.Thread(target=beat)

    def come() -> None:
        if len(makes.asked) == 1:
            heartbeat.start()
            heartbeat.join(
                0.05
            )  # it would have ended by now if it did not wait; on a slow machine it may not have begun
            assert not answered

    makes.meanwhile = come
    view.make_retry_topics(["a"], wait=False)
    heartbeat.join(WAIT_SECONDS_MAX)
    assert answered == [True]
