"""The schedule client over a real socket: its own RPCs, sent again only where that does no harm, errors as they were raised."""

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from reput.schedule.v1 import schedule_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2_grpc as pb_grpc
from services.calling.schedule import ScheduleClient
from services.methods import METHODS, SCHEDULE_SERVICE, Kind, Retry
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreRecoveringError
from tests.support.ports import free_port

WAIT_SECONDS_MAX = 20.0
REQUESTS = {
    "end_transaction": pb.EndTransactionRequest(topic="orders", resolution=pb.EndTransactionRequest.RESOLUTION_COMMIT),
    "recall": pb.RecallMessageRequest(topic="orders", unique_key="k"),
    "list_transactions": pb.ListPendingTransactionsRequest(topic="orders"),
    "list_scheduled": pb.ListScheduledMessagesRequest(topic="orders"),
    "keep_producers": pb.KeepProducersRequest(gateway_id="g", topics=["orders"]),
}


def rpc_of(request: object) -> str:
    """The RPC's name, from the name of its request."""
    return type(request).__name__.removesuffix("Request")


class Counting(pb_grpc.ScheduleServiceServicer):
    """Notes each call; the first `failures` of all are answered as a service that is recovering does."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.failures = 0
        for request in [*REQUESTS.values(), pb.GetStatusRequest()]:
            setattr(self, rpc_of(request), self._handler(rpc_of(request)))

    def _handler(self, rpc: str):
        def handle(request, context):
            self.calls.append(request)
            if len(self.calls) <= self.failures:
                raise StoreRecoveringError("not yet")
            if "bad" in str(request):
                raise InvalidArgumentError("a bad topic", field="topic")
            return getattr(pb, rpc + "Response")()

        return handle

    def WatchChecks(self, request, context):
        yield pb.WatchChecksResponse()
        yield pb.WatchChecksResponse(checks=[{"transaction_id": request.gateway_id}])
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(WAIT_SECONDS_MAX)


@contextlib.contextmanager
def serving() -> Iterator[tuple[Counting, ScheduleClient]]:
    servicer = Counting()
    server = ServiceServer("schedule", ServiceSettings())
    server.add("reput.schedule.v1.ScheduleService", pb_grpc.add_ScheduleServiceServicer_to_server, servicer)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    client = ScheduleClient(server.address)
    try:
        yield servicer, client
    finally:
        client.close()
        server.stop()
        ended.join()


def test_there_is_a_method_for_each_rpc_of_the_service() -> None:
    unary = {
        path.removeprefix(SCHEDULE_SERVICE)
        for path, method in METHODS.items()
        if path.startswith(SCHEDULE_SERVICE) and method.kind is Kind.UNARY
    }

    # `end_transaction_later` calls EndTransactions (test_verdict_batches.py).
    assert {rpc_of(request) for request in REQUESTS.values()} | {"GetStatus", "EndTransactions"} == unary


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_arrives_as_it_is_and_its_own_response_comes_back(name: str) -> None:
    with serving() as (servicer, client):
        response = getattr(client, name)(REQUESTS[name], timeout_seconds=WAIT_SECONDS_MAX)

        assert servicer.calls == [REQUESTS[name]]
        assert type(response) is getattr(pb, rpc_of(REQUESTS[name]) + "Response")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_call_is_sent_again_only_if_the_table_of_methods_allows_it(name: str) -> None:
    is_safe = METHODS[SCHEDULE_SERVICE + rpc_of(REQUESTS[name])].retry is Retry.SAFE
    with serving() as (servicer, client):
        servicer.failures = 1
        with contextlib.nullcontext() if is_safe else pytest.raises(StoreRecoveringError):
            getattr(client, name)(REQUESTS[name], timeout_seconds=WAIT_SECONDS_MAX)

        assert len(servicer.calls) == (2 if is_safe else 1)


def test_the_status_is_answered_and_asked_again_while_the_service_recovers() -> None:
    with serving() as (servicer, client):
        servicer.failures = 1

        assert client.get_status(timeout_seconds=WAIT_SECONDS_MAX) == pb.GetStatusResponse()
        assert len(servicer.calls) == 2


def test_an_error_comes_back_as_the_class_that_was_raised_with_its_metadata() -> None:
    with serving() as (_, client):
        with pytest.raises(InvalidArgumentError) as refused:
            client.recall(pb.RecallMessageRequest(topic="bad"), timeout_seconds=WAIT_SECONDS_MAX)

        assert refused.value.metadata == {"field": "topic"}


def test_checks_are_streamed_until_they_are_cancelled() -> None:
    with serving() as (_, client):
        stream = client.watch_checks("gateway-1")
        answers = iter(stream)

        assert not next(answers).checks
        assert [check.transaction_id for check in next(answers).checks] == ["gateway-1"]
        stream.cancel()
        with pytest.raises(ServiceUnavailableError):
            next(answers)


def test_verdicts_to_a_service_of_an_earlier_release_are_given_one_by_one() -> None:
    """It does not know EndTransactions, as this servicer."""
    with serving() as (servicer, client):
        outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()
        client.end_transaction_later(REQUESTS["end_transaction"], WAIT_SECONDS_MAX, outcomes.put)

        assert outcomes.get(timeout=WAIT_SECONDS_MAX) == pb.EndTransactionResponse()
        assert servicer.calls == [REQUESTS["end_transaction"]]


def test_a_service_that_is_not_there_is_unavailable_and_named() -> None:
    client = ScheduleClient(f"127.0.0.1:{free_port()}")
    with pytest.raises(ServiceUnavailableError) as missing:
        client.end_transaction(REQUESTS["end_transaction"], timeout_seconds=2.0)
    client.close()

    assert missing.value.metadata["service"] == "schedule"
