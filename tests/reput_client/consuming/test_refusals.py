"""A refusal is never told as emptiness: each reason at each door by which messages are consumed.

RocketMQ's broker answers NO_PERMISSION to a topic without the right to read (PullMessageProcessor, PopMessageProcessor), and
to a group whose `consumeEnable` is false; TOPIC_NOT_EXIST to a topic that there is not.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import AsyncConsumer, Consumer, PullConsumer, ReputClientError
from services.status import from_rpc_error
from tests.reput_client.consuming.support import WAIT_SECONDS, fresh, send
from tests.support.command import run_command
from tests.support.stack import Stack
from tests.support.waiting import wait_until

METADATA = (("x-mq-client-id", "refused"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0"))

Door = Callable[[Stack, str, str], object]


def by_handler(stack: Stack, topic: str, group: str) -> object:
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        return consumer.take(WAIT_SECONDS)


def by_handler_async(stack: Stack, topic: str, group: str) -> object:
    async def take() -> object:
        async with AsyncConsumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
            return await consumer.take(WAIT_SECONDS)

    return asyncio.run(take())


def by_queue(stack: Stack, topic: str, group: str) -> object:
    with PullConsumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        return consumer.poll(1, WAIT_SECONDS)


def in_bulk(stack: Stack, topic: str, group: str) -> object:
    request = pb.PullMessagesRequest(topic=topic, consumer_group=group)
    return list(stack.gateway.PullMessages(request, timeout=WAIT_SECONDS))


def at_the_end_in_bulk(stack: Stack, topic: str, group: str) -> object:
    request = pb.PullMessagesRequest(topic=topic, consumer_group=group, queue_offset=1 << 40)
    return list(stack.gateway.PullMessages(request, timeout=WAIT_SECONDS))


def by_command(stack: Stack, topic: str, group: str) -> object:
    words = ("consume", "-t", topic, "-g", group, "--until-end", "--address", stack.addresses["gateway"])
    run = run_command(*words)
    return (run.returncode, run.stderr.split(":")[1].strip())


def by_pop(stack: Stack, topic: str, group: str) -> object:
    request = v2.ReceiveMessageRequest(group=v2.Resource(name=group), batch_size=1, auto_renew=True)
    request.message_queue.topic.name, request.message_queue.broker.name = topic, "broker-a"
    request.filter_expression.expression = "*"
    return _first_code(
        v2_grpc.MessagingServiceStub(stack.channel).ReceiveMessage(request, timeout=6, metadata=METADATA)
    )


def by_pull(stack: Stack, topic: str, group: str) -> object:
    request = v2.PullMessageRequest(
        group=v2.Resource(name=group), batch_size=1, long_polling_timeout=Duration(seconds=1)
    )
    request.message_queue.topic.name, request.message_queue.broker.name = topic, "broker-a"
    return _first_code(v2_grpc.MessagingServiceStub(stack.channel).PullMessage(request, timeout=6, metadata=METADATA))


def _first_code(answers: object) -> str:
    status = next(answer.status for answer in answers if answer.HasField("status"))  # type: ignore[attr-defined]
    assert status.message, "it says why"
    return v2.Code.Name(status.code)


def outcome(door: Door, stack: Stack, topic: str, group: str) -> object:
    """The refusal by its reason, or what the door answered."""
    try:
        answer = door(stack, topic, group)
    except grpc.RpcError as error:
        return from_rpc_error(error).reason()
    except ReputClientError as error:
        return error.reason if str(error) else "no words"
    if answer is None or answer == []:
        return "nothing"
    return answer if isinstance(answer, str | tuple) else "messages"


def disabled(stack: Stack, topic: str, group: str) -> None:
    stack.gateway.UpdateConsumerGroup(
        pb.UpdateConsumerGroupRequest(consumer_group=group, consume_disabled=True), timeout=WAIT_SECONDS
    )


def unreadable(stack: Stack, topic: str, group: str) -> None:
    stack.gateway.UpdateTopic(pb.UpdateTopicRequest(topic=topic, perm=2), timeout=WAIT_SECONDS)
    # The consumer service sees the change within a tenth of a second.
    wait_until(lambda: outcome(by_pull, stack, topic, group) == "FORBIDDEN")


def broadcasting(stack: Stack, topic: str, group: str) -> None:
    stack.gateway.UpdateConsumerGroup(
        pb.UpdateConsumerGroupRequest(consumer_group=group, broadcast=True), timeout=WAIT_SECONDS
    )


def deleted(stack: Stack, topic: str, group: str) -> None:
    stack.gateway.DeleteTopic(pb.DeleteTopicRequest(topic=topic), timeout=WAIT_SECONDS)


REFUSED = {
    disabled: {
        by_handler: "FORBIDDEN",
        by_handler_async: "FORBIDDEN",
        by_queue: "GROUP_DISABLED",
        in_bulk: "GROUP_DISABLED",
        at_the_end_in_bulk: "GROUP_DISABLED",
        by_command: (4, "GROUP_DISABLED"),
        by_pop: "FORBIDDEN",
        by_pull: "FORBIDDEN",
    },
    unreadable: {
        by_handler: "FORBIDDEN",
        by_handler_async: "FORBIDDEN",
        by_queue: "TOPIC_NOT_READABLE",
        in_bulk: "TOPIC_NOT_READABLE",
        at_the_end_in_bulk: "TOPIC_NOT_READABLE",
        by_command: (4, "TOPIC_NOT_READABLE"),
        by_pop: "FORBIDDEN",
        by_pull: "FORBIDDEN",
    },
    # Consumers of the library go on asking, see below.
    deleted: {
        in_bulk: "TOPIC_NOT_FOUND",
        at_the_end_in_bulk: "TOPIC_NOT_FOUND",
        by_command: (1, "TOPIC_NOT_FOUND"),
        by_pop: "TOPIC_NOT_FOUND",
        by_pull: "TOPIC_NOT_FOUND",
    },
    # Its members pull, so pulls are served.
    broadcasting: {
        by_handler: "ILLEGAL_CONSUMER_GROUP",
        by_handler_async: "ILLEGAL_CONSUMER_GROUP",
        by_pop: "ILLEGAL_CONSUMER_GROUP",
    },
}


@pytest.mark.parametrize("reason", REFUSED, ids=lambda each: each.__name__)
def test_a_refusal_was_told_as_emptiness_at_some_doors(stack: Stack, reason: Callable[[Stack, str, str], None]) -> None:
    topic, group = fresh("Refused"), fresh("refused")
    send(stack, topic, [b"x"] * 8)
    reason(stack, topic, group)
    told = {door.__name__: outcome(door, stack, topic, group) for door in REFUSED[reason]}
    assert told == {door.__name__: refusal for door, refusal in REFUSED[reason].items()}


@pytest.mark.parametrize("kind", [Consumer, PullConsumer])
def test_a_consumer_waited_without_a_word_when_its_topic_was_deleted(
    stack: Stack, caplog: pytest.LogCaptureFixture, kind: type[Consumer] | type[PullConsumer]
) -> None:
    topic, group = fresh("Deleted"), fresh("deleted")

    def next_body(consumer: Consumer | PullConsumer) -> bytes:
        if isinstance(consumer, PullConsumer):
            return b"".join(message.body for message in consumer.poll(1, WAIT_SECONDS))
        delivery = consumer.take(WAIT_SECONDS)
        assert delivery is not None
        delivery.ack()
        return delivery.message.body

    send(stack, topic, [b"before"])
    with kind(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        assert next_body(consumer) == b"before"
        deleted(stack, topic, group)
        asking = ThreadPoolExecutor(1)
        with asking:
            after = asking.submit(next_body, consumer)
            wait_until(lambda: any(topic in r.message for r in caplog.records if r.levelname == "WARNING"))
            send(stack, topic, [b"after"])
            assert after.result(WAIT_SECONDS) == b"after"
