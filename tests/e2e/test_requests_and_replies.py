"""Requests and replies over a whole installation: SendRequest, and `request` and `reply` of the producer."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import Consumer, NewMessage, Producer, ReceivedMessage
from reput_client.errors import DeadlineExceededError, InvalidArgumentError, InvalidMessageError
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

SECONDS_MAX = 60  # the most that a request may wait for its reply
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(8 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("store"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def producer(stack: HostedStack) -> Iterator[Producer]:
    with Producer(stack.addresses["gateway"]) as made:
        yield made


def test_a_request_is_answered_with_the_reply_of_its_consumer(stack: HostedStack, producer: Producer) -> None:
    answered: list[bytes] = []
    is_over = threading.Event()

    def serve() -> None:
        with Consumer(stack.addresses["gateway"], "helpers", {"Questions": "*"}) as consumer:
            while not is_over.is_set():
                delivery = consumer.take(1)
                if delivery is None:
                    continue
                if delivery.message.body != b"silence":
                    answered.append(delivery.message.body)
                    producer.reply(delivery.message, b"re: " + delivery.message.body)
                delivery.ack()

    helper = threading.Thread(target=serve)
    helper.start()
    try:
        for body in (b"one", b"two"):
            reply = producer.request(NewMessage("Questions", body), timeout_seconds=SECONDS_MAX)
            assert reply.body == b"re: " + body
            assert reply.topic == "DefaultCluster_REPLY_TOPIC"
            assert reply.properties["MSG_TYPE"] == "reply"
        with pytest.raises(DeadlineExceededError) as late:
            producer.request(NewMessage("Questions", b"silence"), timeout_seconds=1)
        assert len(late.value.metadata["offsetMsgId"]) == 32
    finally:
        is_over.set()
        helper.join()
    assert answered == [b"one", b"two"]
    with pytest.raises(InvalidArgumentError, match="CORRELATION_ID"):
        producer.request(NewMessage("Questions", b"x", properties={"CORRELATION_ID": "mine"}))
    with pytest.raises(InvalidArgumentError, match="60000 ms"):
        producer.request(NewMessage("Questions", b"x"), timeout_seconds=61)


@pytest.mark.parametrize(
    "waiting",
    [
        {"delay_level": 1},
        {"delivery_time": Timestamp(seconds=4_000_000_000)},
        {"properties": {"TRAN_MSG": "true"}},
        {"properties": {"DELAY": "1"}},
        {"properties": {"TIMER_DELAY_MS": "5"}},
    ],
)
def test_a_request_that_nobody_would_see_was_sent_and_waited_for(stack: HostedStack, waiting: dict[str, Any]) -> None:
    request = pb.SendRequestRequest(message=message_pb2.NewMessage(topic="Never", body=b"x", **waiting))
    with pytest.raises(grpc.RpcError) as refused:
        stack.gateway.SendRequest(request, timeout=WAIT_SECONDS_MAX)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "delivered at once" in refused.value.details()


def test_a_message_that_did_not_say_that_it_is_a_reply_was_taken_for_one(
    stack: HostedStack, producer: Producer
) -> None:
    with Consumer(stack.addresses["gateway"], "askers", {"Unsaid": "*"}) as consumer:
        outcomes: list[Exception | bytes] = []

        def ask() -> None:
            outcomes.append(producer.request(NewMessage("Unsaid", b"x"), timeout_seconds=SECONDS_MAX).body)

        asker = threading.Thread(target=ask)
        asker.start()
        delivery = consumer.take(SECONDS_MAX)
        assert delivery is not None
        request = producer_properties(stack, delivery.message)
        unsaid = {name: request[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT")}
        with pytest.raises(InvalidMessageError, match="MSG_TYPE = reply"):
            producer.send_and_wait("DefaultCluster_REPLY_TOPIC", b"no reply", properties=unsaid)
        producer.reply(delivery.message, b"a reply")
        delivery.ack()
        asker.join()
    assert outcomes == [b"a reply"]


def producer_properties(stack: HostedStack, message: ReceivedMessage) -> dict[str, str]:
    """All properties of a message as it is stored."""
    query = pb.QueryMessageByUniqueKeyRequest(topic=message.topic, unique_key=message.message_id)
    return dict(stack.gateway.QueryMessageByUniqueKey(query, timeout=WAIT_SECONDS_MAX).messages[0].properties)


def test_many_requests_at_once_each_get_their_own_reply(stack: HostedStack, producer: Producer) -> None:
    count = 32
    replies: dict[int, bytes] = {}

    def serve() -> None:
        with Consumer(stack.addresses["gateway"], "crowd", {"Crowd": "*"}) as consumer:
            for _ in range(count):
                delivery = consumer.take(SECONDS_MAX)
                assert delivery is not None
                producer.reply(delivery.message, delivery.message.body)
                delivery.ack()

    def ask(number: int) -> None:
        replies[number] = producer.request(NewMessage("Crowd", b"%d" % number), timeout_seconds=SECONDS_MAX).body

    threads = [threading.Thread(target=serve), *(threading.Thread(target=ask, args=(n,)) for n in range(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {number: b"%d" % number for number in range(count)}
