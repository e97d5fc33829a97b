"""A consumer's calls against a whole installation: `reput serve` with its own consumer service."""

import gzip
import pathlib
import time
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.gateway.rocketmq.consumers import ENDPOINTS, Consumer
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(pathlib.Path(tmp_path_factory.mktemp("consuming")) / "store") as one:
        yield one


def consumer_of(stack: HostedStack, topic: str, group: str = "", **options: str) -> Consumer:
    """A consumer of a new group, which has told its settings and knows its route."""
    consumer = Consumer(stack.addresses["gateway"], group=group or f"group-of-{topic}", topic=topic, **options)
    route = consumer.call("QueryRoute", v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS))
    assert route.status.code == v2.OK
    consumer.broker = route.message_queues[0].broker.name
    assert consumer.tell(consumer.settings())[0].status.code == v2.OK
    return consumer


def send(consumer: Consumer, *bodies: bytes, group: str = "", tag: str = "", **properties: str) -> list[str]:
    """The ids of the messages."""
    ids = []
    for body in bodies:
        system = v2.SystemProperties(message_id=f"id-{time.time_ns()}-{body.decode()}")
        if group:
            system.message_group, system.message_type = group, v2.FIFO
        if tag:
            system.tag = tag
        message = v2.Message(topic=consumer.topic, body=body, system_properties=system, user_properties=properties)
        answer = consumer.call("SendMessage", v2.SendMessageRequest(messages=[message]))
        assert answer.status.code == v2.OK, answer
        ids.append(system.message_id)
    return ids


def receive(consumer: Consumer, **options: object) -> list[v2.Message]:
    code, messages = consumer.receive(broker=consumer.broker, **options)
    assert code in (v2.OK, v2.MESSAGE_NOT_FOUND), code
    return messages


def receive_count(consumer: Consumer, count: int, **options: object) -> list[v2.Message]:
    messages: list[v2.Message] = []
    while len(messages) < count:
        got = receive(consumer, **options)
        assert got, f"only {len(messages)} of {count} came"
        messages += got
    return messages


def handle_of(message: v2.Message) -> str:
    return str(message.system_properties.receipt_handle)


def test_a_group_has_its_retry_topic_from_its_first_member_on(stack: HostedStack) -> None:
    """mqadmin and the dashboard look for the brokers of a group by the route of that topic."""
    consumer = consumer_of(stack, "First")
    send(consumer, b"x")
    assert len(receive_count(consumer, 1)) == 1

    def queue_counts() -> list[int]:
        listed = stack.gateway.ListTopics(pb.ListTopicsRequest(page_size=1_000), timeout=WAIT_SECONDS_MAX).topics
        return [each.queue_count for each in listed if each.topic == "%RETRY%group-of-First"]

    wait_until(lambda: queue_counts() == [1], queue_counts)


def test_what_is_sent_is_received_and_acknowledged_once(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Once")
    poll = consumer.poll(broker=consumer.broker)  # waits before anything is sent
    ids = send(consumer, b"first")
    answers = list(poll)
    assert [answer.WhichOneof("content") for answer in answers] == ["status", "message", "delivery_timestamp"]
    first = answers[1].message
    assert (first.body, first.system_properties.message_id) == (b"first", ids[0])
    ids += send(consumer, b"second", b"third", colour="red")
    others = receive_count(consumer, 2)
    assert sorted(message.body for message in others) == [b"second", b"third"]
    assert all(dict(message.user_properties) == {"colour": "red"} for message in others)
    answer = consumer.ack(*map(handle_of, [first, *others]))
    assert (answer.status.code, len(answer.entries)) == (v2.OK, 3)
    assert consumer.ack(handle_of(first)).status.code == v2.OK, "a second time is as good"
    assert receive(consumer, seconds=5) == []


def test_two_groups_both_get_all(stack: HostedStack) -> None:
    first, second = consumer_of(stack, "Both", "one"), consumer_of(stack, "Both", "two")
    polls = [consumer.poll(broker=consumer.broker) for consumer in (first, second)]
    (sent,) = send(first, b"x")
    for poll in polls:
        assert [answer.message.system_properties.message_id for answer in poll if answer.HasField("message")] == [sent]


def test_a_disabled_group_waited_as_if_its_topics_were_empty(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Disabled")

    def set_disabled(is_disabled: bool) -> None:
        request = pb.UpdateConsumerGroupRequest(consumer_group=consumer.group.name, consume_disabled=is_disabled)
        stack.gateway.UpdateConsumerGroup(request, timeout=WAIT_SECONDS_MAX)

    set_disabled(True)
    send(consumer, b"x")
    assert next(iter(consumer.poll(broker=consumer.broker))).status.code == v2.FORBIDDEN
    set_disabled(False)
    assert [message.body for message in receive(consumer)] == [b"x"]
    poll = consumer.poll(broker=consumer.broker)

    set_disabled(True)

    assert [answer.status.code for answer in poll if answer.HasField("status")] == [v2.FORBIDDEN]


def test_a_topic_without_the_right_to_read_was_answered_as_if_nothing_came(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "WriteOnly")
    send(consumer, b"x")
    assert [message.body for message in receive(consumer)] == [b"x"]
    send(consumer, b"y")
    queue = v2.MessageQueue(topic=consumer.topic, broker=v2.Broker(name=consumer.broker))
    pull = v2.PullMessageRequest(group=consumer.group, message_queue=queue, long_polling_timeout=Duration(seconds=5))
    other = consumer_of(stack, "WriteOnly", "another-group")
    waiting = other.poll(broker=consumer.broker, filter_expression=v2.FilterExpression(expression="other"))

    def pulled_code() -> int:
        return next(iter(consumer.call("PullMessage", pull))).status.code

    def set_perm(perm: int) -> None:
        stack.gateway.UpdateTopic(pb.UpdateTopicRequest(topic="WriteOnly", perm=perm), timeout=WAIT_SECONDS_MAX)
        time.sleep(0.1)  # LOOK_SECONDS of the consumer service's topic view: nothing tells that it is over

    assert pulled_code() == v2.OK
    set_perm(2)

    assert consumer.receive(broker=consumer.broker)[0] == v2.FORBIDDEN
    assert pulled_code() == v2.FORBIDDEN
    with pytest.raises(grpc.RpcError) as refused:
        list(stack.gateway.PullMessages(pb.PullMessagesRequest(topic="WriteOnly"), timeout=WAIT_SECONDS_MAX))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert next(iter(waiting)).status.code == v2.FORBIDDEN, "a poll that waits is told, too"
    set_perm(6)
    assert [message.body for message in receive(consumer)] == [b"y"]


def test_a_message_that_is_returned_comes_again_at_once_with_the_next_attempt(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Again")
    poll = consumer.poll(broker=consumer.broker)
    send(consumer, b"x")
    message = next(answer.message for answer in poll if answer.HasField("message"))
    waiting = consumer.poll(broker=consumer.broker)
    began = time.monotonic()
    assert consumer.change(handle_of(message), 1).status.code == v2.OK
    again = next(answer.message for answer in waiting if answer.HasField("message"))
    assert 0.9 < time.monotonic() - began < 5
    assert again.topic.name == "Again"
    assert again.system_properties.message_id == message.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
    assert consumer.ack(handle_of(again)).status.code == v2.OK
    assert consumer.ack(handle_of(message)).status.code in (v2.OK, v2.INVALID_RECEIPT_HANDLE)


def test_a_priority_is_delivered_and_kept_when_the_message_comes_again(stack: HostedStack) -> None:
    create = pb.CreateTopicRequest(topic="Urgent", queue_count=4, message_type=message_pb2.MESSAGE_TYPE_PRIORITY)
    stack.gateway.CreateTopic(create, timeout=WAIT_SECONDS_MAX)
    consumer = consumer_of(stack, "Urgent")

    def code_of_send(**system: int) -> int:
        properties = v2.SystemProperties(message_id=f"{time.time_ns()}", **system)
        message = v2.Message(topic=consumer.topic, body=b"x", system_properties=properties)
        return int(consumer.call("SendMessage", v2.SendMessageRequest(messages=[message])).status.code)

    assert code_of_send() == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert code_of_send(priority=-1) == v2.BAD_REQUEST
    assert code_of_send(priority=9) == v2.OK
    for attempt in (1, 2, 3):
        (message,) = receive_count(consumer, 1)
        system = message.system_properties
        assert (message.topic.name, system.delivery_attempt) == ("Urgent", attempt)
        assert (system.priority, system.queue_id, system.message_type) == (9, 3, v2.PRIORITY)
        assert consumer.change(handle_of(message), 1).status.code == v2.OK


def test_a_lite_topic_has_its_messages_in_a_light_queue(stack: HostedStack) -> None:
    create = pb.CreateTopicRequest(topic="Chats", queue_count=4, message_type=message_pb2.MESSAGE_TYPE_LITE)
    stack.gateway.CreateTopic(create, timeout=WAIT_SECONDS_MAX)
    producer = Consumer(stack.addresses["gateway"], topic="Chats")

    def code_of(lite_topic: str | None, **fields: object) -> int:
        system = v2.SystemProperties(message_id=f"id-{time.time_ns()}", lite_topic=lite_topic, **fields)
        message = v2.Message(topic=producer.topic, body=b"x", system_properties=system)
        return int(producer.call("SendMessage", v2.SendMessageRequest(messages=[message])).status.code)

    assert [code_of(each) for each in ("a", "b", "a")] == [v2.OK] * 3
    assert code_of("not a name") == v2.ILLEGAL_LITE_TOPIC
    assert code_of(None) == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert code_of("a", message_group="g") == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    stack.wait_until_built()
    query = pb.QueryMessageByOffsetRequest(topic="%LMQ%$Chats$a", max_messages=9)
    found = stack.gateway.QueryMessageByOffset(query, timeout=WAIT_SECONDS_MAX).messages
    assert [message.topic for message in found] == ["Chats"] * 2
    assert {message.properties["__LITE_TOPIC"] for message in found} == {"a"}


def test_a_message_that_is_given_up_is_a_dead_letter(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "GivenUp")
    poll = consumer.poll(broker=consumer.broker)
    (sent,) = send(consumer, b"x")
    message = next(answer.message for answer in poll if answer.HasField("message"))
    assert consumer.forward(handle_of(message)).status.code == v2.OK
    dead_topic = "%DLQ%group-of-GivenUp"
    undertaker = Consumer(stack.addresses["gateway"], group="undertaker", topic=dead_topic)
    undertaker.broker = consumer.broker
    (dead,) = receive_count(undertaker, 1)
    assert (dead.topic.name, dead.body) == (dead_topic, b"x")
    assert dead.system_properties.message_id == sent


def test_official_clients_repeated_for_ever_to_give_up_a_message_that_was_given_up_or_reset(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Forwarded")
    send(consumer, b"x", b"y")
    first, second = receive_count(consumer, 2)
    for _ in range(2):  # the first answer was lost
        assert consumer.forward(handle_of(first)).status.code == v2.OK
    reset = pb.ResetOffsetsRequest(consumer_group=consumer.group.name, topic="Forwarded", latest=True)
    stack.gateway.ResetOffsets(reset, timeout=WAIT_SECONDS_MAX)
    reset.earliest = True
    stack.gateway.ResetOffsets(reset, timeout=WAIT_SECONDS_MAX)

    assert consumer.forward(handle_of(second)).status.code == v2.OK

    again = receive_count(consumer, 2)
    assert {message.body for message in again} == {b"x", b"y"}, "the reset counts"
    undertaker = Consumer(stack.addresses["gateway"], group="undertaker-2", topic="%DLQ%group-of-Forwarded")
    undertaker.broker = consumer.broker
    assert [message.body for message in receive_count(undertaker, 1)] == [b"x"]


def test_a_tag_and_an_expression_choose_messages(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Chosen", "tags")
    other = consumer_of(stack, "Chosen", "sql")
    tags = v2.FilterExpression(type=v2.TAG, expression="a || c")
    sql = v2.FilterExpression(type=v2.SQL, expression="size > 2")
    polls = [
        consumer.poll(broker=consumer.broker, filter_expression=tags),
        other.poll(broker=consumer.broker, filter_expression=sql),
    ]
    send(consumer, b"b", tag="b", size="1")
    send(consumer, b"a", tag="a", size="3")
    for poll in polls:
        assert [answer.message.body for answer in poll if answer.HasField("message")] == [b"a"]
    bad = v2.FilterExpression(type=v2.SQL, expression="size >")
    assert other.receive(broker=consumer.broker, filter_expression=bad) == (v2.ILLEGAL_FILTER_EXPRESSION, [])
    # RocketMQ's own suite subscribes to a tag of 10,240 characters.
    long = v2.FilterExpression(type=v2.TAG, expression="t" * 10_240)
    assert other.receive(broker=consumer.broker, filter_expression=long) == (v2.MESSAGE_NOT_FOUND, [])
    too_long = v2.FilterExpression(type=v2.TAG, expression="t" * 16_385)
    assert other.receive(broker=consumer.broker, filter_expression=too_long) == (v2.ILLEGAL_FILTER_EXPRESSION, [])


def test_a_handle_of_nobody_is_invalid(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Handles")
    for handle in ("", "x", f"{'eA'}.1.2"):
        assert consumer.ack(handle).status.code == v2.INVALID_RECEIPT_HANDLE
        assert consumer.change(handle, 1).status.code == v2.INVALID_RECEIPT_HANDLE
        assert consumer.forward(handle).status.code == v2.INVALID_RECEIPT_HANDLE


def test_a_poll_that_was_cancelled_costs_the_next_consumer_no_time(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Cancelled")
    poll = consumer.poll(broker=consumer.broker)
    assert poll.is_active()
    poll.cancel()
    other = consumer_of(stack, "Cancelled", "group-of-Cancelled", client_id="other")
    waiting = other.poll(broker=other.broker)
    send(other, b"x")
    began = time.monotonic()
    message = next(answer.message for answer in waiting if answer.HasField("message"))
    assert time.monotonic() - began < 5
    assert message.system_properties.delivery_attempt == 1


def test_offsets_are_kept_and_a_queue_is_read(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Read")
    send(consumer, b"one", b"two", group="same")
    stack.wait_until_built()
    found = None
    for queue_id in range(16):
        where = v2.MessageQueue(topic=consumer.topic, id=queue_id, broker=v2.Broker(name=consumer.broker))
        request = v2.PullMessageRequest(group=consumer.group, message_queue=where)
        answers = list(consumer.call("PullMessage", request))
        bodies = [answer.message.body for answer in answers if answer.HasField("message")]
        if bodies:
            found = where
            assert bodies == [b"one", b"two"]
            assert answers[-1].next_offset == 2
    assert found is not None
    update = v2.UpdateOffsetRequest(group=consumer.group, message_queue=found, offset=1)
    assert consumer.call("UpdateOffset", update).status.code == v2.OK
    get = v2.GetOffsetRequest(group=consumer.group, message_queue=found)
    assert consumer.call("GetOffset", get).offset == 1


@pytest.mark.parametrize(
    ("sent", "received", "encoding"),
    [
        (gzip.compress(b"plain"), b"plain", v2.IDENTITY),
        (b"hello", b"hello", v2.GZIP),
        (b"x" * 4_096, b"x" * 4_096, v2.GZIP),
    ],
    ids=["gzip", "no gzip", "the large message of RocketMQ's contract tests"],
)
def test_a_body_marked_as_gzip_is_readable_for_every_consumer(
    stack: HostedStack, sent: bytes, received: bytes, encoding: int
) -> None:
    consumer = consumer_of(stack, f"Encoded-{len(sent)}")
    poll = consumer.poll(broker=consumer.broker)
    system = v2.SystemProperties(message_id=f"id-{time.time_ns()}", body_encoding=v2.GZIP)
    message = v2.Message(topic=consumer.topic, body=sent, system_properties=system)
    assert consumer.call("SendMessage", v2.SendMessageRequest(messages=[message])).status.code == v2.OK
    (came,) = [answer.message for answer in poll if answer.HasField("message")]
    assert (came.body, came.system_properties.body_encoding) == (received, encoding)
    assert not came.user_properties
    found = stack.gateway.QueryMessageByUniqueKey(
        pb.QueryMessageByUniqueKeyRequest(topic=consumer.topic.name, unique_key=system.message_id),
        timeout=WAIT_SECONDS_MAX,
    )
    assert [one.body for one in found.messages] == [received], "as any other reader of the store sees it"


def test_a_topic_with_a_type_refuses_others_from_its_first_message_on(stack: HostedStack) -> None:
    create = pb.CreateTopicRequest(topic="Ordered", message_type=message_pb2.MESSAGE_TYPE_FIFO)
    stack.gateway.CreateTopic(create, timeout=WAIT_SECONDS_MAX)
    consumer = Consumer(stack.addresses["gateway"], group="of-types", topic="Ordered")
    normal, fifo = (
        v2.Message(topic=consumer.topic, body=b"x", system_properties=v2.SystemProperties(message_id=name))
        for name in ("normal", "fifo")
    )
    fifo.system_properties.message_group = "g"
    refused = consumer.call("SendMessage", v2.SendMessageRequest(messages=[normal]))
    assert refused.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    stored = consumer.call("SendMessage", v2.SendMessageRequest(messages=[fifo, fifo]))
    assert stored.status.code == v2.OK
    assert [(entry.status.code, entry.message_id) for entry in stored.entries] == [(v2.OK, "fifo")] * 2
    route = consumer.call("QueryRoute", v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS))
    assert {tuple(queue.accept_message_types) for queue in route.message_queues} == {(v2.FIFO,)}


def test_without_auto_create_topic_an_unknown_topic_is_not_found_and_never_made(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store", settings={"REPUT_COMMITLOG_AUTO_CREATE_TOPIC": "false"}) as stack:
        consumer = Consumer(stack.addresses["gateway"], group="billing", topic="Unheard")
        route = v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS)
        message = v2.Message(topic=consumer.topic, body=b"x", system_properties=v2.SystemProperties(message_id="1"))
        assert consumer.call("QueryRoute", route).status.code == v2.TOPIC_NOT_FOUND
        sent = consumer.call("SendMessage", v2.SendMessageRequest(messages=[message]))
        assert sent.status.code == v2.TOPIC_NOT_FOUND
        assert consumer.call("QueryRoute", route).status.code == v2.TOPIC_NOT_FOUND


def test_a_message_that_its_program_never_got_was_given_back_as_an_attempt(stack: HostedStack) -> None:
    """`suspend` of RocketMQ 5.5: it comes again when its time is over, and the delivery does not count."""
    consumer = consumer_of(stack, "Suspended")
    send(consumer, b"x")
    for seconds in (0, 0, 1):
        (message,) = receive_count(consumer, 1)
        assert message.system_properties.delivery_attempt == 1
        request = v2.ChangeInvisibleDurationRequest(
            group=consumer.group,
            topic=consumer.topic,
            receipt_handle=handle_of(message),
            invisible_duration=Duration(seconds=seconds),
            suspend=True,
        )
        answer = consumer.call("ChangeInvisibleDuration", request)
        assert answer.status.code == v2.OK
        assert answer.receipt_handle, "clients keep what they are given"
    (message,) = receive_count(consumer, 1)
    assert message.system_properties.delivery_attempt == 1
    assert consumer.ack(handle_of(message)).status.code == v2.OK


def test_a_client_that_ended_in_order_had_attempted_what_it_only_held(stack: HostedStack) -> None:
    consumer = consumer_of(stack, "Terminated")
    send(consumer, *[b"%d" % number for number in range(6)])
    for attempt in range(3):
        member = consumer_of(stack, "Terminated", client_id=f"client-{attempt}")
        messages = receive_count(member, 6 - attempt, auto_renew=True)
        assert [message.system_properties.delivery_attempt for message in messages] == [1] * (6 - attempt)
        assert member.ack(handle_of(messages[0])).status.code == v2.OK
        ended = member.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(group=member.group))
        assert ended.status.code == v2.OK
    assert [message.system_properties.delivery_attempt for message in receive_count(consumer, 3)] == [1] * 3
