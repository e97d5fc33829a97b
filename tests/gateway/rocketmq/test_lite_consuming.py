"""Lite topics against a whole installation: `reput serve` with its own consumer service."""

import contextlib
import pathlib
import time
from collections.abc import Iterator

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.gateway.rocketmq.consumers import ENDPOINTS, Consumer
from tests.gateway.rocketmq.test_lite import session
from tests.support.stack import HostedStack, hosted_gateway, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(pathlib.Path(tmp_path_factory.mktemp("lite")) / "store") as one:
        yield one


def make(stack: HostedStack, topic: str, **attributes: str) -> str:
    """A topic of the type LITE and a group that is bound to it; the group's name."""
    create = pb.CreateTopicRequest(topic=topic, queue_count=4, message_type=message_pb2.MESSAGE_TYPE_LITE)
    stack.gateway.CreateTopic(create, timeout=WAIT_SECONDS_MAX)
    group = f"group-of-{topic}"
    lite = {"lite.bind.topic": topic} | {f"lite.{name.replace('_', '.')}": value for name, value in attributes.items()}
    request = pb.UpdateConsumerGroupRequest(consumer_group=group, lite_attributes=lite)
    settings = stack.gateway.UpdateConsumerGroup(request, timeout=WAIT_SECONDS_MAX).settings
    assert settings.lite.bind_topic == topic
    return group


def lite_consumer(
    stack: HostedStack, group: str, topic: str, *lite_topics: str, client_id: str = "client-1"
) -> Consumer:
    """A consumer that has told its settings, and has subscribed to these."""
    consumer = Consumer(stack.addresses["gateway"], group=group, topic=topic, client_id=client_id)
    route = consumer.call("QueryRoute", v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS))
    consumer.broker = route.message_queues[0].broker.name
    assert consumer.tell(consumer.settings(v2.LITE_PUSH_CONSUMER))[0].status.code == v2.OK
    for lite_topic in lite_topics:
        assert sync(consumer, v2.PARTIAL_ADD, lite_topic) == v2.OK
    return consumer


def sync(consumer: Consumer, action: int, *lite_topics: str, **fields: object) -> int:
    request = v2.SyncLiteSubscriptionRequest(
        action=action, topic=consumer.topic, group=consumer.group, lite_topic_set=lite_topics, **fields
    )
    return int(consumer.call("SyncLiteSubscription", request).status.code)


def send(consumer: Consumer, lite_topic: str, *bodies: str) -> None:
    for body in bodies:
        system = v2.SystemProperties(message_id=f"id-{time.time_ns()}", lite_topic=lite_topic)
        message = v2.Message(topic=consumer.topic, body=body.encode(), system_properties=system)
        assert consumer.call("SendMessage", v2.SendMessageRequest(messages=[message])).status.code == v2.OK


def receive(consumer: Consumer, count: int, *, is_acked: bool = True, **options: object) -> list[v2.Message]:
    """So many messages."""
    messages: list[v2.Message] = []
    while len(messages) < count:
        code, got = consumer.receive(broker=consumer.broker, **options)
        assert (code, bool(got)) == (v2.OK, True), (v2.Code.Name(code), len(messages))
        messages += got
        if is_acked:
            assert consumer.ack(*map(handle_of, got)).status.code == v2.OK
    return messages


def handle_of(message: v2.Message) -> str:
    return str(message.system_properties.receipt_handle)


def told(messages: list[v2.Message]) -> list[tuple[str, str]]:
    return [(each.system_properties.lite_topic, each.body.decode()) for each in messages]


def test_a_subscriber_gets_its_lite_topics_in_order_and_no_others(stack: HostedStack) -> None:
    group = make(stack, "Shared")
    consumer = lite_consumer(stack, group, "Shared", "a", "b")
    poll = consumer.poll(broker=consumer.broker)  # waits before anything is sent
    send(consumer, "c", "unwanted")
    send(consumer, "a", "0")
    first = [answer.message for answer in poll if answer.HasField("message")]
    assert told(first) == [("a", "0")]
    assert (first[0].topic.name, first[0].system_properties.message_type) == ("Shared", v2.LITE)
    assert not first[0].user_properties
    send(consumer, "a", "1", "2")
    send(consumer, "b", "0", "1")
    assert told(receive(consumer, 2)) == [("b", "0"), ("b", "1")], "of a nothing comes while its first one is in flight"
    assert consumer.ack(handle_of(first[0])).status.code == v2.OK
    assert told(receive(consumer, 2)) == [("a", "1"), ("a", "2")]
    assert sync(consumer, v2.COMPLETE_ADD, "c") == v2.OK
    assert told(receive(consumer, 1)) == [("c", "unwanted")]


def test_a_message_that_is_returned_comes_again_before_the_next_of_its_lite_topic(stack: HostedStack) -> None:
    consumer = lite_consumer(stack, make(stack, "Returned"), "Returned", "a")
    send(consumer, "a", "0", "1")
    (first, *_) = receive(consumer, 1, is_acked=False, batch_size=1)
    assert consumer.change(handle_of(first), 0).status.code == v2.OK
    (again,) = receive(consumer, 1, is_acked=False, batch_size=1)
    assert (again.body, again.system_properties.delivery_attempt) == (b"0", 2)
    suspend = v2.ChangeInvisibleDurationRequest(
        group=consumer.group, topic=consumer.topic, receipt_handle=handle_of(again), lite_topic="a", suspend=True
    )
    suspend.invisible_duration.CopyFrom(Duration(seconds=1))
    assert consumer.call("ChangeInvisibleDuration", suspend).status.code == v2.OK
    third, last = receive(consumer, 2)
    assert (third.body, third.system_properties.delivery_attempt) == (b"0", 2), "it counts as no attempt"
    assert last.body == b"1"


def test_the_newest_subscriber_owns_an_exclusive_lite_topic_and_the_former_one_hears_of_it(stack: HostedStack) -> None:
    group = make(stack, "Exclusive", sub_model="Exclusive")
    first = lite_consumer(stack, group, "Exclusive")
    with session(first) as commands:
        assert sync(first, v2.PARTIAL_ADD, "a") == v2.OK
        second = lite_consumer(stack, group, "Exclusive", "a", client_id="client-2")
        lost = commands.get(timeout=WAIT_SECONDS_MAX).notify_unsubscribe_lite_command
        assert lost.lite_topic == "a"
        send(first, "a", "0")
        assert told(receive(second, 1)) == [("a", "0")]
        assert sync(first, v2.COMPLETE_ADD, "a") == v2.OK, "it takes nothing from the other one"
        assert commands.get(timeout=WAIT_SECONDS_MAX).notify_unsubscribe_lite_command.lite_topic == "a"
        send(first, "a", "1")
        assert told(receive(second, 1)) == [("a", "1")]


def test_a_wildcard_group_gets_new_lite_topics_too(stack: HostedStack) -> None:
    consumer = lite_consumer(stack, make(stack, "Wild", sub_wildcard="true"), "Wild")
    assert sync(consumer, v2.PARTIAL_ADD, "a") == v2.BAD_REQUEST
    send(consumer, "a", "0")
    assert sync(consumer, v2.COMPLETE_ADD) == v2.OK
    assert told(receive(consumer, 1)) == [("a", "0")]
    send(consumer, "new", "1")
    assert told(receive(consumer, 1)) == [("new", "1")]


def test_a_client_has_as_many_lite_topics_as_its_group_allows(stack: HostedStack) -> None:
    consumer = lite_consumer(stack, make(stack, "Quota", sub_client_quota="2"), "Quota", "a", "b")
    assert sync(consumer, v2.PARTIAL_ADD, "c") == v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert sync(consumer, v2.PARTIAL_REMOVE, "a") == v2.OK
    assert sync(consumer, v2.PARTIAL_ADD, "c") == v2.OK


def test_a_client_that_has_ended_gets_nothing_and_its_group_goes_on(stack: HostedStack) -> None:
    group = make(stack, "Ended")
    first = lite_consumer(stack, group, "Ended", "a")
    send(first, "a", "0")
    receive(first, 1)
    end = v2.NotifyClientTerminationRequest(group=first.group)
    assert first.call("NotifyClientTermination", end).status.code == v2.OK
    second = lite_consumer(stack, group, "Ended", "a", client_id="client-2")
    send(second, "a", "1")
    assert told(receive(second, 1)) == [("a", "1")]


def test_lite_topics_are_listed_by_name_with_their_groups_and_lag(stack: HostedStack) -> None:
    group = make(stack, "Listed")
    consumer = lite_consumer(stack, group, "Listed", "chat-1", "chat-2")
    for number in range(5):
        send(consumer, f"chat-{number}", "0", "1")
    receive(consumer, 4)

    def listed(**fields: object) -> pb.ListLiteTopicsResponse:
        request = pb.ListLiteTopicsRequest(topic="Listed", **fields)
        return stack.gateway.ListLiteTopics(request, timeout=WAIT_SECONDS_MAX)

    wait_until(lambda: len(listed().lite_topics) == 5, "all are listed")
    page = listed(page_size=2)
    assert [each.lite_topic for each in page.lite_topics] == ["chat-0", "chat-1"]
    rest = listed(page_size=2, page_token=page.next_page_token)
    assert [each.lite_topic for each in rest.lite_topics] == ["chat-2", "chat-3"]
    (one,) = listed(lite_topic="chat-1").lite_topics
    assert (one.min_offset, one.max_offset) == (0, 2)
    (row,) = one.groups
    assert (row.consumer_group, row.consumer_offset, row.lag_count) == (group, 2, 0)
    assert list(row.client_ids) == ["client-1"]
    assert [each.lite_topic for each in listed(name_contains="AT-4").lite_topics] == ["chat-4"]
    of_group = listed(consumer_group=group).lite_topics
    assert [each.lite_topic for each in of_group] == ["chat-1", "chat-2"]
    details = stack.gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group=group), timeout=WAIT_SECONDS_MAX)
    (summary,) = details.lite_topics
    assert (summary.topic, summary.lite_topic_count, summary.lag_count) == ("Listed", 2, 0)
    assert not [queue for queue in details.queues if queue.topic.startswith("%LMQ%")]


def test_subscriptions_and_what_is_in_flight_outlive_a_restart_of_everything(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store") as before:
        group = make(before, "Lasting")
        consumer = lite_consumer(before, group, "Lasting", "a", "b")
        send(consumer, "a", "0")
        (in_flight,) = receive(consumer, 1, is_acked=False)
    with hosted_stack(tmp_path / "store") as after:
        again = Consumer(after.addresses["gateway"], group=group, topic="Lasting")
        again.broker = consumer.broker
        assert again.tell(again.settings(v2.LITE_PUSH_CONSUMER))[0].status.code == v2.OK
        send(again, "a", "1")
        send(again, "b", "0")
        assert told(receive(again, 1)) == [("b", "0")], "it says nothing of its subscriptions"
        assert again.ack(handle_of(in_flight)).status.code == v2.OK
        assert told(receive(again, 1)) == [("a", "1")]


def test_a_gateway_that_has_just_started_gives_a_lite_client_nothing_of_the_parent(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store") as before:
        group = make(before, "Unknown")
        broker = lite_consumer(before, group, "Unknown", "a").broker
    with hosted_stack(tmp_path / "store") as after:
        again = Consumer(after.addresses["gateway"], group=group, topic="Unknown")
        again.broker = broker
        send(again, "b", "unwanted")
        send(again, "a", "0")
        assert again.receive(broker=broker) == (v2.MESSAGE_NOT_FOUND, []), "it learns what the group is"
        assert told(receive(again, 1)) == [("a", "0")]


def test_lite_topics_lie_each_in_one_of_several_shards_and_all_come(tmp_path: pathlib.Path) -> None:
    names = ("broker-a", "broker-b")
    services = ("commitlog", "consumequeue", "index", "consumer")
    with contextlib.ExitStack() as running:
        stacks = [
            running.enter_context(hosted_stack(tmp_path / name, settings={"REPUT_BROKER_NAME": name})) for name in names
        ]
        shards = ";".join(
            f"{name}=" + ",".join(f"{service}={one.addresses[service]}" for service in services)
            for name, one in zip(names, stacks, strict=True)
        )
        address = running.enter_context(hosted_gateway(tmp_path, {"REPUT_GATEWAY_SHARDS": shards}))
        for one in stacks:
            make(one, "Spread")
        consumer = Consumer(address, group="group-of-Spread", topic="Spread")
        assert consumer.tell(consumer.settings(v2.LITE_PUSH_CONSUMER))[0].status.code == v2.OK
        wanted = [f"chat-{number}" for number in range(12)]
        assert sync(consumer, v2.COMPLETE_ADD, *wanted) == v2.OK
        for body in ("0", "1"):
            for lite_topic in (*wanted, "unwanted"):
                send(consumer, lite_topic, body)
        request = v2.QueryAssignmentRequest(topic=consumer.topic, group=consumer.group, endpoints=ENDPOINTS)
        assigned = consumer.call("QueryAssignment", request).assignments
        assert sorted((each.message_queue.broker.name, each.message_queue.id) for each in assigned) == [
            (name, -1) for name in names
        ]
        came: dict[str, list[tuple[str, str]]] = {name: [] for name in names}

        def poll_both() -> bool:
            for name in names:
                _, got = consumer.receive(broker=name, seconds=5)
                came[name] += told(got)
                if got:
                    consumer.ack(*map(handle_of, got))
            return sum(map(len, came.values())) >= 2 * len(wanted)

        wait_until(poll_both, lambda: f"all come, not only {came}")
        both = [{lite_topic for lite_topic, _ in came[name]} for name in names]
        assert all(both)
        assert not both[0] & both[1]
        assert both[0] | both[1] == set(wanted)
        for name in names:
            for lite_topic in both[names.index(name)]:
                assert [body for each, body in came[name] if each == lite_topic] == ["0", "1"]
