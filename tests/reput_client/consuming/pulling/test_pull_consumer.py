"""`PullConsumer` against `reput serve`."""

import collections
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from reput_client import (
    AdminClient,
    Consumer,
    ConsumerClosedError,
    IllegalFilterError,
    Message,
    MessageQueue,
    PullConsumer,
    PullConsumerSettings,
    QueryClient,
    SendBackOutcome,
    Sql,
    StartFrom,
    TrackState,
)
from reput_client.consuming.pulling.allocation import share_of, strategy_of
from reput_client.errors import InvalidArgumentError
from tests.reput_client.consuming.support import WAIT_SECONDS, bodies_of, fresh, send
from tests.support.stack import Stack
from tests.support.waiting import wait_until

QUICK = PullConsumerSettings(members_seconds=0.2, commit_seconds=0.2, rebalance_seconds=0.5)


@pytest.fixture
def topic(stack: Stack) -> str:
    """A topic of two queues with ten messages each."""
    name = fresh("Pulled")
    with AdminClient(stack.addresses["gateway"]) as client:
        client.create_topic(name, queue_count=2)
    for queue_id in range(2):
        send(stack, name, [f"{queue_id}:{i}".encode() for i in range(10)], queue_id=queue_id, tags="A")
    return name


@contextlib.contextmanager
def member(stack: Stack, group: str, topic: str, **named: object) -> Iterator[PullConsumer]:
    with PullConsumer(stack.addresses["gateway"], group, {topic: "*"}, **{"settings": QUICK, **named}) as consumer:  # type: ignore[arg-type]
        yield consumer


def polled(consumer: PullConsumer, count: int) -> list[Message]:
    """So many messages, which must come."""
    messages: list[Message] = []
    wait_until(lambda: messages.extend(consumer.poll(timeout_seconds=0.5)) or len(messages) >= count, lambda: messages)
    assert len(messages) == count
    return messages


def positions(stack: Stack, group: str) -> dict[int, int]:
    with QueryClient(stack.addresses["gateway"]) as client:
        return {each.queue_id: each.consumer_offset for each in client.offsets(group)}


def test_all_queues_are_read_in_order_and_the_positions_are_kept(stack: Stack, topic: str) -> None:
    group = fresh("kept")
    with member(stack, group, topic) as consumer:
        messages = polled(consumer, 20)
        for queue_id in range(2):
            offsets = [message.queue_offset for message in messages if message.queue_id == queue_id]
            assert offsets == list(range(10))
        assert messages[0].body == f"{messages[0].queue_id}:0".encode()
        assert [queue.queue_id for queue in consumer.assignment] == [0, 1]
    assert positions(stack, group) == {0: 10, 1: 10}
    send(stack, topic, [b"new"], queue_id=1)
    with member(stack, group, topic) as consumer:
        assert [message.body for message in polled(consumer, 1)] == [b"new"]


def test_positions_are_committed_while_it_runs_and_what_is_not_processed_is_not(stack: Stack, topic: str) -> None:
    group = fresh("running")
    with member(stack, group, topic) as consumer:
        polled(consumer, 20)
        consumer.poll(timeout_seconds=0)
        wait_until(lambda: positions(stack, group) == {0: 10, 1: 10}, "the positions")
        send(stack, topic, [b"x"], queue_id=0)
        polled(consumer, 1)
        consumer.commit()
        assert positions(stack, group)[0] == 11
    broken = fresh("broken")
    with pytest.raises(RuntimeError, match="in the middle"), member(stack, broken, topic) as consumer:
        polled(consumer, 21)
        consumer.poll(timeout_seconds=0)
        send(stack, topic, [b"unprocessed"], queue_id=0)
        polled(consumer, 1)
        raise RuntimeError("in the middle")
    assert positions(stack, broken) == {0: 11, 1: 10}


def test_a_group_begins_where_it_is_told(stack: Stack, topic: str) -> None:
    settings = PullConsumerSettings(members_seconds=0.2)
    with member(stack, fresh("last"), topic, start=StartFrom.LAST, settings=settings) as consumer:
        wait_until(lambda: consumer.poll(timeout_seconds=0.1) == [] and len(consumer.assignment) == 2, "its queues")
        send(stack, topic, [b"later"], queue_id=0)
        assert [message.body for message in polled(consumer, 1)] == [b"later"]
    past, future = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    with member(stack, fresh("past"), topic, start=past) as consumer:
        polled(consumer, 21)
    with member(stack, fresh("future"), topic, start=future) as consumer:
        wait_until(lambda: len(consumer.poll(timeout_seconds=0.1)) == 0 and len(consumer.assignment) == 2, "its queues")
        assert consumer.poll(timeout_seconds=0.3) == []


def test_seek_pause_and_resume_choose_what_is_polled(stack: Stack, topic: str) -> None:
    with member(stack, fresh("seeking"), topic) as consumer:
        polled(consumer, 20)
        first, second = consumer.assignment
        assert first == MessageQueue(topic, first.broker_name, 0)
        assert consumer.position(first) == 10
        consumer.seek(first, 7)
        assert [message.queue_offset for message in polled(consumer, 3)] == [7, 8, 9]
        consumer.pause([second])
        send(stack, topic, [b"paused"], queue_id=1)
        assert consumer.poll(timeout_seconds=0.5) == []
        consumer.resume([second])
        assert [message.body for message in polled(consumer, 1)] == [b"paused"]
        consumer.seek(first, 1_000)  # outside the queue: it goes on at its end
        wait_until(lambda: consumer.position(first) == 10, lambda: consumer.position(first))
        send(stack, topic, [b"inside"], queue_id=0)
        assert polled(consumer, 1)[0].body == b"inside"


@pytest.mark.parametrize("allocation", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_members_share_the_queues_when_they_join_and_leave(stack: Stack, allocation: str) -> None:
    name, group = fresh("Shared"), fresh("shared")
    with AdminClient(stack.addresses["gateway"]) as client:
        client.create_topic(name, queue_count=8)
    members = [
        PullConsumer(stack.addresses["gateway"], group, {name: "*"}, allocation=allocation, settings=QUICK)
        for _ in range(3)
    ]
    received: list[bytes] = []

    def shares(consumers: list[PullConsumer]) -> list[MessageQueue]:
        for each in consumers:
            received.extend(message.body for message in each.poll(timeout_seconds=0.05))
        return sorted(queue for each in consumers for queue in each.assignment)

    def are_shared(consumers: list[PullConsumer]) -> bool:
        queues, ids = shares(consumers), [each.client_id for each in consumers]
        expected = [list(share_of(strategy_of(allocation), name, ids, queues)) for name in ids]
        count = sum(queue.topic == name for queue in queues)  # beside them they share that of the retry topic
        return count == 8 and [list(each.assignment) for each in consumers] == expected

    with contextlib.ExitStack() as closing:
        for each in members:
            closing.callback(each.close)
        wait_until(lambda: are_shared(members[:1]), "one has all")
        wait_until(lambda: are_shared(members), lambda: [each.assignment for each in members])
        send(stack, name, [b"%d" % i for i in range(80)])
        wait_until(lambda: (shares(members), len(received) >= 80)[1], lambda: received)
        for each in members:
            each.commit()  # what was polled and not processed may come to another member again
        members[1].close()
        wait_until(lambda: are_shared([members[0], members[2]]), "the others have its queues")
        send(stack, name, [b"more-%d" % i for i in range(16)])
        wait_until(lambda: (shares([members[0], members[2]]), len(received) >= 96)[1], lambda: received)
    assert max(collections.Counter(received).values()) == 1, "positions went from hand to hand"


@pytest.mark.parametrize("ordered", [False, True])
def test_the_members_of_a_group_that_broadcasts_got_a_part_each(stack: Stack, topic: str, ordered: bool) -> None:
    group = fresh("broadcast")
    with QueryClient(stack.addresses["gateway"]) as client:
        client.update_consumer_group(group, broadcast=True)
    with member(stack, group, topic, ordered=ordered) as first, member(stack, group, topic, ordered=ordered) as second:
        for consumer in (first, second):
            bodies = {message.body for message in polled(consumer, 20)}
            assert bodies == {f"{queue_id}:{i}".encode() for queue_id in range(2) for i in range(10)}
            consumer.commit()
    assert positions(stack, group) == {}
    with member(stack, group, topic, start=StartFrom.LAST) as third:
        assert third.poll(timeout_seconds=0.5) == []
    with (
        Consumer(stack.addresses["gateway"], group, {topic: "*"}) as polling,
        pytest.raises(InvalidArgumentError, match="broadcasts"),
    ):
        polling.take(10)


def test_no_more_is_fetched_of_a_queue_than_the_settings_say(stack: Stack) -> None:
    name = fresh("Bounded")
    with AdminClient(stack.addresses["gateway"]) as client:
        client.create_topic(name, queue_count=1)
    send(stack, name, [bytes(1000)] * 200)
    settings = PullConsumerSettings(members_seconds=0.2, cache_count_max=50, batch_count_max=20)
    with member(stack, fresh("bounded"), name, settings=settings) as consumer:
        seen = len(polled_some(consumer, 1))
        (queue,) = consumer._queues.values()
        while seen < 200:
            assert queue.count <= 50
            seen += len(consumer.poll(max_messages=7, timeout_seconds=WAIT_SECONDS))
        assert seen == 200


def polled_some(consumer: PullConsumer, max_messages: int) -> list[Message]:
    messages: list[Message] = []
    wait_until(lambda: messages.extend(consumer.poll(max_messages, 0.2)) or messages, "a message")
    return messages


def test_filters_choose_messages_and_a_bad_one_ends_the_consumer(stack: Stack, topic: str) -> None:
    send(stack, topic, [b"b"], queue_id=0, tags="B")
    target = stack.addresses["gateway"]
    with PullConsumer(target, fresh("tags"), {topic: "B"}, settings=QUICK) as consumer:
        assert [message.body for message in polled(consumer, 1)] == [b"b"]
    with (
        PullConsumer(target, fresh("sql"), {topic: Sql("a = ")}, settings=QUICK) as consumer,
        pytest.raises(IllegalFilterError),
    ):
        consumer.poll(timeout_seconds=WAIT_SECONDS)


def test_a_closed_consumer_polls_nothing(stack: Stack, topic: str) -> None:
    consumer = PullConsumer(stack.addresses["gateway"], fresh("closed"), {topic: "*"}, settings=QUICK)
    consumer.close()
    with pytest.raises(ConsumerClosedError):
        consumer.poll()


def test_messages_that_are_sent_back_wait_for_their_level_or_are_dead_letters(stack: Stack, topic: str) -> None:
    group = fresh("back")
    with member(stack, group, topic) as consumer:
        messages = polled(consumer, 20)
        assert consumer.send_back([messages[0], messages[-1]]) == [SendBackOutcome.OK] * 2
        assert consumer.send_back([messages[0]]) == [SendBackOutcome.OK]  # again: once is enough
        assert consumer.send_back(messages[1:2], delay_level=-1) == [SendBackOutcome.DEAD_LETTER]
        consumer.commit()
    assert bodies_of(stack, f"%DLQ%{group}") == [messages[1].body]
    waiting = set(bodies_of(stack, "SCHEDULE_TOPIC_XXXX", queue_id=2)) & {message.body for message in messages}
    assert waiting == {messages[0].body, messages[-1].body}
    with QueryClient(stack.addresses["gateway"]) as client:
        states = [
            {each.consumer_group: each for each in client.track(offset_msg_id=message.offset_msg_id).tracks}[group]
            for message in messages[:3]
        ]
    assert [each.state for each in states] == [TrackState.RETRYING, TrackState.DEAD_LETTER, TrackState.CONSUMED]
    assert states[0].delivery_attempts == 1


def test_retries_of_the_group_come_also_when_the_topic_is_made_later(stack: Stack, topic: str) -> None:
    group = fresh("retried")
    with member(stack, group, topic, start=StartFrom.LAST) as consumer:
        wait_until(lambda: consumer.poll(timeout_seconds=0.1) == [] and len(consumer.assignment) == 2, "its queues")
        send(stack, f"%RETRY%{group}", [b"retry"], queue_id=0)  # as the schedule service does when the level is over
        (message,) = polled(consumer, 1)
        assert (message.topic, message.body) == (f"%RETRY%{group}", b"retry")
        assert consumer.send_back([message]) == [SendBackOutcome.OK]


def test_a_suspended_queue_gives_the_same_messages_again_and_others_go_on(stack: Stack, topic: str) -> None:
    with member(stack, fresh("suspended"), topic, ordered=True) as consumer:
        polled(consumer, 20)
        consumer.commit()
        first, _ = consumer.assignment
        send(stack, topic, [b"a", b"b"], queue_id=0)
        polled(consumer, 2)
        consumer.suspend(first, 3_600)
        send(stack, topic, [b"other"], queue_id=1)
        assert [message.body for message in polled(consumer, 1)] == [b"other"]
        consumer.suspend(first, 0)
        assert [message.body for message in polled(consumer, 2)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "named",
    [{"consumer_group": ""}, {"allocation": "NEARBY"}, {"start": datetime(2026, 1, 1)}, {"subscriptions": {}}],
)
def test_arguments_that_cannot_be_used_are_refused(named: dict[str, object]) -> None:
    given: dict[str, object] = {"consumer_group": "g", "subscriptions": {"T": "*"}, **named}
    with pytest.raises(ValueError, match=r"."):
        PullConsumer("127.0.0.1:1", **given)  # type: ignore[arg-type]
