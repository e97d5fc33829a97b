"""Verdicts and recalls: the shard that a handle names gets them, and no other."""

import pytest

from gateway.waiting.endings import Endings
from gateway.waiting.producers import Producers
from gateway.waiting.shards import SchedulingShards
from reput.gateway.v1.gateway_service_pb2 import TRANSACTION_RESOLUTION_COMMIT as COMMIT
from reput.gateway.v1.gateway_service_pb2 import TRANSACTION_RESOLUTION_ROLLBACK as ROLLBACK
from reput.gateway.v1.gateway_service_pb2 import RecallMessageResponse
from reput.schedule.v1.schedule_service_pb2 import EndTransactionRequest, EndTransactionResponse
from store.errors import (
    BrokerNotFoundError,
    InvalidArgumentError,
    ScheduledMessageNotFoundError,
    ServiceUnavailableError,
    TransactionNotFoundError,
)
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle
from tests.gateway.waiting.memory_waiting import MemoryScheduling, delayed, half


@pytest.fixture
def services():
    return MemoryScheduling("broker-a"), MemoryScheduling("broker-b", [half("K")], [delayed("K", 5_000)])


@pytest.fixture
def endings(services):
    source: SchedulingShards = SchedulingShards(Producers(), "gateway-1")
    source.keep(services)
    yield Endings(source)
    source.close()


def transaction_id(broker_name: str = "broker-b", topic: str = "Orders") -> str:
    return encode_handle(TRANSACTION, WaitingHandle(topic, broker_name, 7, "K"))


def recall_handle(broker_name: str = "broker-b", due_millis: int = 5_000, topic: str = "Orders") -> str:
    return encode_handle(RECALL, WaitingHandle(topic, broker_name, due_millis, "K"))


def test_a_verdict_reaches_its_shard_with_all_that_it_says(services, endings) -> None:
    outcomes: list = []
    given = transaction_id()
    endings.end_transaction("Orders", given, COMMIT, 5, outcomes.append, is_from_check=True)
    endings.end_transaction("Orders", given, ROLLBACK, 5, outcomes.append)
    assert services[0].verdicts == []
    assert services[1].verdicts == [
        EndTransactionRequest(
            topic="Orders",
            unique_key="K",
            transaction_id=given,
            resolution=COMMIT,
            is_from_check=True,
        ),
        EndTransactionRequest(
            topic="Orders",
            unique_key="K",
            transaction_id=given,
            resolution=ROLLBACK,
        ),
    ]
    assert isinstance(outcomes[0], EndTransactionResponse)
    assert isinstance(outcomes[1], TransactionNotFoundError)


def test_a_recall_reaches_its_shard_and_a_second_one_finds_nothing(services, endings) -> None:
    outcomes: list = []
    for _ in range(2):
        endings.recall("Orders", recall_handle(), 5, outcomes.append)
    assert outcomes[0] == RecallMessageResponse(offset_msg_id="1" * 32, unique_key="K")
    assert isinstance(outcomes[1], ScheduledMessageNotFoundError)
    assert services[1].messages == []


@pytest.mark.parametrize("due_millis", [253_402_300_800_000, 10**18 - 1])
def test_a_recall_handle_with_a_time_of_no_calendar_finds_nothing(services, endings, due_millis: int) -> None:
    outcomes: list = []
    endings.recall("Orders", recall_handle(due_millis=due_millis), 5, outcomes.append)
    assert isinstance(outcomes[0], ScheduledMessageNotFoundError)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("made up", InvalidArgumentError),
        ("", InvalidArgumentError),
        (recall_handle(), InvalidArgumentError),  # a handle of another kind
        (transaction_id(topic="Bills"), InvalidArgumentError),
        (transaction_id("broker-z"), BrokerNotFoundError),
    ],
)
def test_a_text_that_is_no_transaction_of_the_topic_is_refused_before_any_call(
    services, endings, text: str, error: type
) -> None:
    with pytest.raises(error):
        endings.end_transaction("Orders", text, COMMIT, 5, pytest.fail)
    assert services[1].verdicts == []


def test_a_gateway_without_any_schedule_service_says_so() -> None:
    alone = Endings(SchedulingShards(Producers(), "gateway-1"))
    with pytest.raises(ServiceUnavailableError, match="schedule"):
        alone.recall("Orders", recall_handle(), 5, pytest.fail)
