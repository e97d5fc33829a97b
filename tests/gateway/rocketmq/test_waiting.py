"""Producers over a real socket: they are asked on their Telemetry streams, and end transactions and recall messages."""

import queue
from collections.abc import Iterator

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.message.v1 import message_pb2
from reput.schedule.v1.schedule_service_pb2 import WatchChecksResponse
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import Consumer, Gateway, serving
from tests.gateway.waiting.memory_waiting import MemoryScheduling, delayed, half
from tests.support.waiting import WAIT_SECONDS_MAX

TRANSACTION_ID = encode_handle(TRANSACTION, WaitingHandle("Orders", "broker-a", 7, "K"))


@pytest.fixture
def scheduling() -> MemoryScheduling:
    return MemoryScheduling("broker-a", [half("K")], [delayed("K")])


@pytest.fixture
def gateway(scheduling: MemoryScheduling) -> Iterator[Gateway]:
    with serving(MemoryDelivering("broker-a"), scheduling=[scheduling]) as running:
        yield running


class Producer:
    """A producer with an open Telemetry stream."""

    def __init__(self, gateway: Gateway, client_id: str, *topics: str) -> None:
        self.caller: Consumer = gateway.consumer(client_id=client_id)
        self._said: queue.SimpleQueue = queue.SimpleQueue()
        self.stream = self.caller.stub.Telemetry(
            iter(self._said.get, None), metadata=self.caller.metadata, timeout=WAIT_SECONDS_MAX
        )
        self.settle(*topics)

    def settle(self, *topics: str) -> None:
        settings = v2.Settings(client_type=v2.PRODUCER)
        settings.publishing.topics.extend(v2.Resource(name=topic) for topic in topics)
        self._said.put(v2.TelemetryCommand(settings=settings))
        assert next(self.stream).WhichOneof("command") == "settings"

    def question(self) -> v2.RecoverOrphanedTransactionCommand:
        command = next(self.stream)
        assert command.WhichOneof("command") == "recover_orphaned_transaction_command"
        return command.recover_orphaned_transaction_command

    def leave(self) -> None:
        self._said.put(None)
        assert list(self.stream) == []


def check(topic: str = "Orders", body: bytes = b"body") -> WatchChecksResponse.Check:
    message = message_pb2.StoredMessage(
        topic=topic,
        body=body,
        unique_key="K",
        properties={"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "1", "__transactionId__": "K", "colour": "red"},
    )
    return WatchChecksResponse.Check(message=message, transaction_id=TRANSACTION_ID)


def test_a_producer_is_asked_on_its_stream_with_the_message_as_a_consumer_would_get_it(
    gateway: Gateway, scheduling: MemoryScheduling
) -> None:
    producer = Producer(gateway, "p1", "Orders")
    assert scheduling.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["Orders"])
    scheduling.stream.feed(check())
    question = producer.question()
    assert question.transaction_id == TRANSACTION_ID
    message = question.message
    assert (message.topic.name, message.body, dict(message.user_properties)) == ("Orders", b"body", {"colour": "red"})
    system = message.system_properties
    assert (system.message_id, system.message_type, system.body_encoding) == ("K", v2.TRANSACTION, v2.IDENTITY)
    assert len(system.body_digest.checksum) == 32
    producer.settle("Orders", "Bills")  # the stream is still answered
    assert scheduling.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["Bills", "Orders"])
    producer.leave()
    assert scheduling.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", [])


def test_a_producer_that_said_goodbye_is_not_asked_but_another_one(
    gateway: Gateway, scheduling: MemoryScheduling
) -> None:
    ended, other = Producer(gateway, "p1", "Orders"), Producer(gateway, "p2", "Orders")
    ended.caller.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
    for number in range(3):
        scheduling.stream.feed(check(body=b"%d" % number))
        assert other.question().message.body == b"%d" % number
    ended.leave()
    other.leave()


def test_a_broken_stream_is_dropped_at_once(gateway: Gateway, scheduling: MemoryScheduling) -> None:
    producer = Producer(gateway, "p1", "Orders")
    assert scheduling.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["Orders"])
    producer.stream.cancel()
    assert scheduling.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", [])


def test_settings_of_no_client_end_the_stream_of_a_producer_too(gateway: Gateway) -> None:
    producer = Producer(gateway, "p1", "Orders")
    producer._said.put(v2.TelemetryCommand(settings=v2.Settings()))
    with pytest.raises(grpc.RpcError) as ended:
        next(producer.stream)
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_verdict_on_a_question_says_that_it_answers_a_check(gateway: Gateway, scheduling: MemoryScheduling) -> None:
    caller = gateway.consumer(client_id="p1")
    request = v2.EndTransactionRequest(
        topic=v2.Resource(name="Orders"), message_id="K", transaction_id=TRANSACTION_ID, resolution=v2.COMMIT
    )
    request.source = v2.SOURCE_SERVER_CHECK
    assert caller.call("EndTransaction", request).status.code == v2.OK
    assert scheduling.verdicts[0].is_from_check
    assert caller.call("EndTransaction", request).status.code == v2.INTERNAL_SERVER_ERROR
    request.resolution = v2.TRANSACTION_RESOLUTION_UNSPECIFIED
    assert caller.call("EndTransaction", request).status.code == v2.OK
    assert len(scheduling.verdicts) == 2


def test_a_recall_answers_with_the_id_of_the_message_and_the_second_with_not_found(gateway: Gateway) -> None:
    caller = gateway.consumer(client_id="p1")
    handle = encode_handle(RECALL, WaitingHandle("Orders", "broker-a", 5_000, "K"))
    request = v2.RecallMessageRequest(topic=v2.Resource(name="Orders"), recall_handle=handle)
    first = caller.call("RecallMessage", request)
    assert (first.status.code, first.message_id) == (v2.OK, "K")
    assert caller.call("RecallMessage", request).status.code == v2.MESSAGE_NOT_FOUND
    request.topic.name = "Bills"
    assert caller.call("RecallMessage", request).status.code == v2.BAD_REQUEST


@pytest.mark.parametrize("method", ["EndTransaction", "RecallMessage"])
def test_bytes_that_are_no_verdict_or_recall_are_refused_in_the_body(gateway: Gateway, method: str) -> None:
    raw = gateway.consumer(client_id="p1").channel.unary_unary(f"/apache.rocketmq.v2.MessagingService/{method}")
    answer = getattr(v2, f"{method}Response").FromString(raw(b"\xff\xff", timeout=WAIT_SECONDS_MAX))
    assert answer.status.code == v2.BAD_REQUEST
