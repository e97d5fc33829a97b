"""Requests and replies over a whole installation: SendRequest, and `request` and `reply` of the producer."""

import threading
from collections.abc import Iterator

import pytest

from reput_client import Consumer, NewMessage, Producer
from reput_client.errors import DeadlineExceededError, InvalidArgumentError
from tests.support.stack import Stack, running_stack

SECONDS_MAX = 60
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(8 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("store"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def producer(stack: Stack) -> Iterator[Producer]:
    with Producer(stack.addresses["gateway"]) as made:
        yield made


def test_a_request_is_answered_with_the_reply_of_its_consumer(stack: Stack, producer: Producer) -> None:
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
            reply = producer.request(NewMessage("Questions", body), timeout_seconds=30)
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


def test_many_requests_at_once_each_get_their_own_reply(stack: Stack, producer: Producer) -> None:
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
        replies[number] = producer.request(NewMessage("Crowd", b"%d" % number), timeout_seconds=50).body

    threads = [threading.Thread(target=serve), *(threading.Thread(target=ask, args=(n,)) for n in range(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {number: b"%d" % number for number in range(count)}
