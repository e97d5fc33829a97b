"""Clients newer than this gateway: what they say that it does not know is passed over, on every path."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from tests.gateway.rocketmq.consumers import ENDPOINTS, Consumer
from tests.gateway.rocketmq.test_consuming import consumer_of, handle_of, receive_count, send
from tests.support.stack import HostedStack, hosted_stack

# Field 1,000 as a number, 1,001 as bytes, 1,002 as 32 bits, 1,003 as a message that holds one.
UNKNOWN = b"\xc0\x3e\x01" + b"\xca\x3e\x03\xff\xfe\xfd" + b"\xd5\x3e\x01\x02\x03\x04" + b"\xda\x3e\x03\xc0\x3e\x07"
# `client_properties` (9) of RocketMQ's Settings, since the client that follows Java's 5.2.1: {"team": "a"}.
CLIENT_PROPERTIES = b"\x4a\x09\x0a\x04team\x12\x01a"
SERVICE = v2.DESCRIPTOR.services_by_name["MessagingService"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(pathlib.Path(tmp_path_factory.mktemp("newer")) / "store") as one:
        yield one


def grown(message: Message) -> bytes:
    """A message with fields that nobody knows, in it and in each message inside of it."""
    data = b""
    for field, value in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is None or is_map:
            alone = type(message)()
            if field.is_repeated:
                alone.MergeFrom(type(message)(**{field.name: value}))
            else:
                setattr(alone, field.name, value)
            data += alone.SerializeToString()
            continue
        for one in value if field.is_repeated else (value,):
            inner = grown(one)
            data += _varint(field.number << 3 | 2) + _varint(len(inner)) + inner
    return data + UNKNOWN + (CLIENT_PROPERTIES if isinstance(message, v2.Settings) else b"")


def _varint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low]) if value < 0x80 else bytes([low | 0x80]) + _varint(value >> 7)


class NewerConsumer(Consumer):
    """All that it says has more than the gateway knows."""

    def call(self, method: str, request: Any, timeout: float = 60) -> Any:
        """As a Consumer."""
        answer_type = getattr(v2, SERVICE.methods_by_name[method].output_type.name)
        kind = {"ReceiveMessage": "unary_stream", "Telemetry": "stream_stream"}.get(method, "unary_unary")
        make: Callable[..., Callable[..., Any]] = getattr(self.channel, kind)
        called = make(
            f"/{SERVICE.full_name}/{method}", request_serializer=grown, response_deserializer=answer_type.FromString
        )
        return called(request, timeout=timeout, metadata=self.metadata)


def newer(stack: HostedStack, topic: str) -> NewerConsumer:
    """One that has told its settings."""
    known = consumer_of(stack, topic)
    consumer = NewerConsumer(stack.addresses["gateway"], group=known.group.name, topic=topic)
    consumer.broker = known.broker
    return consumer


def test_what_is_grown_has_all_that_it_had_and_more() -> None:
    properties = v2.SystemProperties(keys=["a", "b"], message_type=v2.FIFO, message_group="g")
    message = v2.Message(
        topic=v2.Resource(name="T"), system_properties=properties, body=b"x", user_properties={"a": "b"}
    )
    request = v2.SendMessageRequest(messages=[message, message])
    again = v2.SendMessageRequest.FromString(grown(request))
    assert again != request
    again.DiscardUnknownFields()
    assert again == request


def test_fields_that_the_gateway_does_not_know_change_no_answer(stack: HostedStack) -> None:
    consumer = newer(stack, "Grown")
    route = consumer.call("QueryRoute", v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS))
    assert (route.status.code, len(route.message_queues) > 0) == (v2.OK, True)
    assigned = consumer.call(
        "QueryAssignment", v2.QueryAssignmentRequest(topic=consumer.topic, group=consumer.group, endpoints=ENDPOINTS)
    )
    assert (assigned.status.code, len(assigned.assignments)) == (v2.OK, 1)
    (told,) = consumer.tell(consumer.settings())
    assert told.status.code == v2.OK
    assert CLIENT_PROPERTIES in told.settings.SerializeToString()
    heartbeat = v2.HeartbeatRequest(group=consumer.group, client_type=v2.PUSH_CONSUMER)
    assert consumer.call("Heartbeat", heartbeat).status.code == v2.OK
    send(consumer, b"plain", b"red", colour="red")
    send(consumer, b"in order", group="g")
    messages = receive_count(consumer, 3)
    assert sorted(one.body for one in messages) == [b"in order", b"plain", b"red"]
    assert [dict(one.user_properties) for one in messages if one.body == b"red"] == [{"colour": "red"}]
    changed = consumer.change(handle_of(messages[0]), 30)
    assert changed.status.code == v2.OK
    assert consumer.ack(changed.receipt_handle, handle_of(messages[1])).status.code == v2.OK
    assert consumer.forward(handle_of(messages[2])).status.code == v2.OK
    ended = consumer.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(group=consumer.group))
    assert ended.status.code == v2.OK


def test_a_half_message_of_a_newer_producer_gets_its_verdict(stack: HostedStack) -> None:
    producer = newer(stack, "GrownHalf")
    system = v2.SystemProperties(message_id="half-1", message_type=v2.TRANSACTION)
    message = v2.Message(topic=producer.topic, body=b"half", system_properties=system)
    (sent,) = producer.call("SendMessage", v2.SendMessageRequest(messages=[message])).entries
    verdict = v2.EndTransactionRequest(
        topic=producer.topic, message_id=sent.message_id, transaction_id=sent.transaction_id, resolution=v2.COMMIT
    )
    assert producer.call("EndTransaction", verdict).status.code == v2.OK
    (got,) = receive_count(producer, 1)
    assert got.body == b"half"


def test_a_command_of_telemetry_that_is_not_known_is_passed_over(stack: HostedStack) -> None:
    """Such as RocketMQ's `reconnect_endpoints_command` (8), which goes to clients."""
    consumer = consumer_of(stack, "Commands")
    known = v2.TelemetryCommand(settings=consumer.settings())
    commands = [
        known,
        v2.TelemetryCommand.FromString(b"\x42\x03\x0a\x011"),
        v2.TelemetryCommand.FromString(UNKNOWN),
        known,
    ]
    answers = list(consumer.call("Telemetry", iter(commands)))
    assert [answer.status.code for answer in answers] == [v2.OK, v2.OK]


def test_an_attempt_id_that_comes_again_for_longer_gets_what_arrives_and_each_message_once(stack: HostedStack) -> None:
    """As Java's client after 5.2.1: it keeps the id of a poll until messages came."""
    consumer = consumer_of(stack, "Attempts")
    wanted = {"attempt_id": "kept", "seconds": 5, "invisible": 60}
    assert consumer.receive(broker=consumer.broker, **wanted) == (v2.MESSAGE_NOT_FOUND, [])
    poll = consumer.poll(broker=consumer.broker, attempt_id="kept", invisible=60)
    send(consumer, b"first")
    (first,) = [answer.message for answer in poll if answer.HasField("message")]
    send(consumer, b"second")
    (second,) = receive_count(consumer, 1, **wanted)
    assert [one.body for one in (first, second)] == [b"first", b"second"]
    assert consumer.ack(handle_of(first), handle_of(second)).status.code == v2.OK
