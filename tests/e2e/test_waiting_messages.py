"""Messages that wait, over a whole installation: delays, recalls, transactions, lists, tracks, requests and replies."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import (
    Consumer,
    MessageState,
    NewMessage,
    Producer,
    QueryClient,
    ScheduledMessageNotFoundError,
    TransactionNotFoundError,
    TransactionProducer,
    TransactionResolution,
)
from services.status import from_rpc_error
from store.errors import BrokerNotFoundError, StoreError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

FAST_CHECKS = {
    "REPUT_LOG_LEVEL": "debug",
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(8 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    "REPUT_SCHEDULE_TRANSACTION_TIMEOUT_SECONDS": "0.5",
    "REPUT_SCHEDULE_TRANSACTION_CHECK_INTERVAL_SECONDS": "0.5",
}
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("store"), settings=FAST_CHECKS) as running:
        yield running


@pytest.fixture
def queries(stack: HostedStack) -> Iterator[QueryClient]:
    with QueryClient(stack.addresses["gateway"]) as client:
        yield client


@pytest.fixture
def producer(stack: HostedStack) -> Iterator[Producer]:
    with Producer(stack.addresses["gateway"]) as made:
        yield made


def taken(stack: HostedStack, topic: str, count: int, group: str = "", seconds: float = SECONDS_MAX) -> list:
    """The first messages of a topic for a new group."""
    found = []
    with Consumer(stack.addresses["gateway"], group or f"g-{topic}", {topic: "*"}) as consumer:
        while len(found) < count and (delivery := consumer.take(seconds)) is not None:
            found.append(delivery.message)
            delivery.ack()
    return found


def body_of(queries: QueryClient, topic: str) -> list[bytes]:
    """The bodies that lie in a topic."""
    (listed,) = list(queries.topics(topic=topic)) or [None]
    if listed is None:
        return []
    return [
        message.body
        for queue in listed.queues
        for message in queries.by_offset(topic, queue.queue_id, 0, queue.broker_name)
    ]


def test_a_delayed_message_comes_at_its_time_and_not_before_and_is_tracked_until_then(
    stack: HostedStack, producer: Producer, queries: QueryClient
) -> None:
    due = datetime.now(UTC) + timedelta(seconds=6)
    receipt = producer.send_and_wait("Later", b"later", keys=["k"], properties={"colour": "red"}, delivery_time=due)
    assert receipt.recall_handle
    track = queries.track(topic="Later", unique_key=receipt.unique_key)
    assert track.state is MessageState.SCHEDULED
    assert track.due_time is not None
    assert timedelta(0) <= track.due_time - due.replace(microsecond=0) <= timedelta(seconds=1)
    wait_until(lambda: list(queries.scheduled_messages("Later")), "the schedule service has seen it")
    (waiting,) = queries.scheduled_messages("Later")
    assert (waiting.unique_key, waiting.topic, waiting.delay_level) == (receipt.unique_key, "Later", 0)
    assert [each.offset_msg_id for each in queries.by_unique_key("Later", receipt.unique_key)] == [
        receipt.offset_msg_id
    ]

    (message,) = taken(stack, "Later", 1)
    assert datetime.now(UTC) >= due.replace(microsecond=0)
    assert (message.body, message.keys, dict(message.properties)) == (b"later", ("k",), {"colour": "red"})
    assert message.message_id == receipt.unique_key
    after = queries.track(topic="Later", unique_key=receipt.unique_key)
    assert (after.state, after.due_time) == (MessageState.STORED, None)
    assert queries.track(receipt.offset_msg_id).message.offset_msg_id == after.message.offset_msg_id
    assert list(queries.scheduled_messages("Later")) == []
    with pytest.raises(ScheduledMessageNotFoundError):
        producer.recall(receipt)


def test_a_recalled_message_never_comes_and_a_second_recall_says_so(
    stack: HostedStack, producer: Producer, queries: QueryClient
) -> None:
    gone = producer.send_and_wait("Recalled", b"gone", delay=timedelta(seconds=6))  # a busy machine recalls it late
    assert producer.recall(gone) == gone.unique_key
    kept = producer.send_and_wait("Recalled", b"kept", delay=timedelta(seconds=7))  # later than it would have come
    assert [message.body for message in taken(stack, "Recalled", 1)] == [b"kept"]
    assert body_of(queries, "Recalled") == [b"kept"]
    with pytest.raises(ScheduledMessageNotFoundError):
        queries.recall(gone.recall_handle)
    assert queries.track(gone.offset_msg_id).state is MessageState.RECALLED
    assert queries.track(kept.offset_msg_id).state is MessageState.STORED


def test_a_message_of_a_delay_level_waits_as_long_as_the_level_says(
    stack: HostedStack, producer: Producer, queries: QueryClient
) -> None:
    receipt = producer.send_and_wait("Levelled", b"x", delay_level=2)
    assert not receipt.recall_handle
    assert queries.track(receipt.offset_msg_id).state is MessageState.SCHEDULED
    (message,) = taken(stack, "Levelled", 1)
    assert message.store_time >= receipt.store_time + timedelta(seconds=5)


@pytest.mark.parametrize("verdict", ["commit", "rollback"])
def test_a_half_message_is_seen_only_when_its_transaction_is_committed(
    stack: HostedStack, queries: QueryClient, verdict: str
) -> None:
    topic = f"Half-{verdict}"
    with TransactionProducer(stack.addresses["gateway"]) as producer:
        half = producer.send_half(NewMessage(topic, b"x", keys=["k"]), check_after_seconds=SECONDS_MAX)
        assert queries.track(half.receipt.offset_msg_id).state is MessageState.PENDING_TRANSACTION
        wait_until(lambda: list(queries.pending_transactions(topic)), "the schedule service has seen it")
        (pending,) = queries.pending_transactions(topic)
        assert (pending.unique_key, pending.check_count) == (half.receipt.unique_key, 0)
        assert body_of(queries, topic) == []
        if verdict == "commit":
            receipt = half.commit()
            assert receipt is not None
            (message,) = taken(stack, topic, 1)
            assert (message.body, message.keys, dict(message.properties)) == (b"x", ("k",), {})
            assert queries.track(half.receipt.offset_msg_id).message.offset_msg_id == receipt.offset_msg_id
        else:
            half.rollback()
            assert body_of(queries, topic) == []
            assert queries.track(half.receipt.offset_msg_id).state is MessageState.ROLLED_BACK
        assert list(queries.pending_transactions(topic)) == []
        with pytest.raises(TransactionNotFoundError):
            half.commit()


def test_the_block_of_a_transaction_commits_at_its_end_and_rolls_back_after_an_exception(
    stack: HostedStack, queries: QueryClient
) -> None:
    with TransactionProducer(stack.addresses["gateway"]) as producer:
        with producer.transaction(NewMessage("Block", b"good")):
            pass
        with pytest.raises(KeyError), producer.transaction(NewMessage("Block", b"bad")):
            raise KeyError
    wait_until(lambda: body_of(queries, "Block"), "the list of topics has it")  # the list waits for no message
    assert body_of(queries, "Block") == [b"good"]


def test_another_producer_is_asked_for_the_verdict_when_the_first_one_has_gone(
    stack: HostedStack, queries: QueryClient
) -> None:
    with TransactionProducer(stack.addresses["gateway"]) as first:
        for body in (b"yes", b"no", b"unknown"):
            first.send_half(NewMessage("Orphans", body))
    asked: list[bytes] = []
    is_settled = threading.Event()

    def check(message) -> TransactionResolution:
        asked.append(message.body)
        if asked.count(b"unknown") > 1:
            is_settled.set()
        return {
            b"yes": TransactionResolution.COMMIT,
            b"no": TransactionResolution.ROLLBACK,
            b"unknown": TransactionResolution.UNKNOWN,
        }[message.body]

    with TransactionProducer(stack.addresses["gateway"], topics=["Orphans"], checker=check):
        assert [message.body for message in taken(stack, "Orphans", 1)] == [b"yes"]
        assert is_settled.wait(SECONDS_MAX)
    assert (asked.count(b"yes"), asked.count(b"no")) == (1, 1)
    # A check stores the half message again; until the service has seen that, it is not listed.
    wait_until(lambda: list(queries.pending_transactions("Orphans")), "the one without a verdict is listed")
    (pending,) = queries.pending_transactions("Orphans")
    assert pending.check_count >= 1
    queries.end_transaction(pending.transaction_id, TransactionResolution.ROLLBACK, is_from_check=True)
    assert body_of(queries, "Orphans") == [b"yes"]


class V2:
    """The calls of an official client."""

    def __init__(self, stack: HostedStack) -> None:
        self.stub = v2_grpc.MessagingServiceStub(stack.channel)

    def end(self, transaction_id: str, topic: str = "Half-commit", resolution: int = v2.COMMIT) -> int:
        request = v2.EndTransactionRequest(
            topic=v2.Resource(name=topic), transaction_id=transaction_id, resolution=resolution
        )
        return self.stub.EndTransaction(request, timeout=WAIT_SECONDS_MAX).status.code

    def recall(self, handle: str, topic: str = "Recalled") -> v2.RecallMessageResponse:
        request = v2.RecallMessageRequest(topic=v2.Resource(name=topic), recall_handle=handle)
        return self.stub.RecallMessage(request, timeout=WAIT_SECONDS_MAX)


def test_verdicts_and_recalls_of_nothing_have_the_codes_of_rocketmqs_contract(stack: HostedStack) -> None:
    calls = V2(stack)
    nothing = WaitingHandle("Half-commit", "broker-a", 0, "K")
    assert calls.end(" ") == v2.INVALID_TRANSACTION_ID
    assert calls.end("made-up") == v2.INTERNAL_SERVER_ERROR
    assert calls.end(encode_handle(TRANSACTION, nothing)) == v2.INTERNAL_SERVER_ERROR
    assert calls.end(encode_handle(TRANSACTION, nothing._replace(topic="Other"))) == v2.INTERNAL_SERVER_ERROR
    assert calls.end("made-up", resolution=v2.TRANSACTION_RESOLUTION_UNSPECIFIED) == v2.OK
    assert calls.end("made-up", topic="RMQ_SYS_TRANS_HALF_TOPIC") == v2.ILLEGAL_TOPIC
    due = (int(time.time()) + 60) * 1000
    handle = WaitingHandle("Recalled", "broker-a", due, "K")
    assert calls.recall(encode_handle(RECALL, handle)).status.code == v2.MESSAGE_NOT_FOUND
    assert calls.recall("made-up").status.code == v2.BAD_REQUEST
    assert calls.recall(encode_handle(RECALL, handle._replace(broker_name="broker-z"))).status.code == v2.NOT_FOUND


def test_wrong_questions_about_waiting_messages_have_typed_errors(stack: HostedStack) -> None:
    def refused(call, request) -> StoreError:
        with pytest.raises(grpc.RpcError) as error:
            call(request, timeout=WAIT_SECONDS_MAX)
        return from_rpc_error(error.value)

    gateway = stack.gateway
    far = encode_handle(RECALL, WaitingHandle("T", "broker-z", 0, "K"))
    assert isinstance(
        refused(gateway.RecallMessage, pb.RecallMessageRequest(topic="T", recall_handle=far)), BrokerNotFoundError
    )
    for call, request, field in (
        (gateway.RecallMessage, pb.RecallMessageRequest(topic="T", recall_handle="x"), "recall_handle"),
        (gateway.RecallMessage, pb.RecallMessageRequest(topic="U", recall_handle=far), "recall_handle"),
        (gateway.EndTransaction, pb.EndTransactionRequest(topic="T", transaction_id="x"), "resolution"),
        (gateway.EndTransaction, pb.EndTransactionRequest(topic="T", resolution=1), "transaction_id"),
        (gateway.ListScheduledMessages, pb.ListScheduledMessagesRequest(page_size=-1), "page_size"),
    ):
        assert refused(call, request).metadata["field"] == field
    for call, request in (
        (gateway.ListPendingTransactions, pb.ListPendingTransactionsRequest(topic="no-such")),
        (gateway.ListScheduledMessages, pb.ListScheduledMessagesRequest(topic="no-such")),
    ):
        assert refused(call, request).reason() == "TOPIC_NOT_FOUND"


def test_the_list_of_scheduled_messages_comes_in_pages_the_next_due_one_first(
    stack: HostedStack, producer: Producer, queries: QueryClient
) -> None:
    now = datetime.now(UTC)
    sent = [
        producer.send_and_wait("Paged", b"x", delivery_time=now + timedelta(minutes=minutes)) for minutes in (7, 3, 5)
    ]
    wait_until(lambda: len(list(queries.scheduled_messages("Paged"))) == 3, "the schedule service has seen them")
    by_due = [sent[1].unique_key, sent[2].unique_key, sent[0].unique_key]
    assert [each.unique_key for each in queries.scheduled_messages("Paged", page_size=1)] == by_due
    pages = list(queries.scheduled_messages("Paged", page_size=2).pages())
    assert [len(page.items) for page in pages] == [2, 1]
    for waiting in list(queries.scheduled_messages("Paged")):
        assert queries.recall(waiting.recall_handle) == waiting.unique_key
    assert list(queries.scheduled_messages("Paged")) == []


def test_a_producer_that_asks_for_both_a_delay_and_a_transaction_is_refused(stack: HostedStack) -> None:
    with TransactionProducer(stack.addresses["gateway"]) as producer, pytest.raises(ValueError, match="delay_level"):
        producer.send_half(NewMessage("Both", b"x", delay_level=1))
    request = pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="Both", body=b"x", delay_level=1, properties={"TRAN_MSG": "true"})]
    )
    with pytest.raises(grpc.RpcError) as refused:
        stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
