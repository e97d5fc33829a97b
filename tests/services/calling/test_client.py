"""ServiceClient over a real socket: every RPC of every inner service, calls that wait in a thread and calls that do not."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.calling.client import ServiceClient, call_later
from services.calling.pulled_bytes import PULL_BYTES, PulledBytes
from services.calling.verdict_batches import batches_over
from services.methods import Kind, Retry
from services.rpcs import Rpc, consumer
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ServiceUnavailableError,
    StoreError,
    StoreRecoveringError,
)
from tests.services.test_rpcs import SERVICES, methods_of, rpcs_of
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX

UNARY = [rpc for service in SERVICES for rpc in rpcs_of(service).values() if rpc.row.kind is Kind.UNARY]
POP = pb.PopMessagesRequest(consumer_group="orders")


class Counting:
    """Serves a service: notes each call. The first `failures` of them are answered as a service that is recovering does."""

    def __init__(self, service: str) -> None:
        self.calls: list[Any] = []
        self.failures = 0
        self.hold: threading.Event | None = None
        self.entered = threading.Event()
        for rpc in rpcs_of(service).values():
            setattr(self, rpc.name, self._handler(rpc))

    def _handler(self, rpc: Rpc[Any, Any]) -> Any:
        def handle(request: Any, context: Any) -> Any:
            self.calls.append(request)
            self.entered.set()
            if self.hold is not None:
                context.add_callback(self.hold.set)  # also when its caller has gone
                self.hold.wait(WAIT_SECONDS_MAX)
            if len(self.calls) <= self.failures:
                raise StoreRecoveringError("not yet")
            if "bad" in str(request):
                raise InvalidArgumentError("a bad group", field="consumer_group")
            return rpc.answer_class()

        def follow(request: Any, context: Any) -> Iterator[Any]:
            if rpc is consumer.WATCH_ARRIVALS:
                yield from (pb.WatchArrivalsResponse(all=True), pb.WatchArrivalsResponse(topics=["orders"]))
            gone = threading.Event()
            context.add_callback(gone.set)
            gone.wait(WAIT_SECONDS_MAX)

        return follow if rpc.row.kind is Kind.TAIL else handle


@contextlib.contextmanager
def serving(service: str = "consumer", unknown: str = "") -> Iterator[tuple[Counting, ServiceClient]]:
    """A service that does not know an RPC, if one is named."""
    servicer = Counting(service)
    server = ServiceServer(service, ServiceSettings())
    (name,) = {path.split("/")[1] for path in methods_of(service)}
    short = name.rpartition(".")[2]
    stubs = import_module(f"reput.{service}.v1.{service}_service_pb2_grpc")
    if unknown:
        setattr(servicer, unknown, getattr(getattr(stubs, f"{short}Servicer")(), unknown))
    server.add(name, getattr(stubs, f"add_{short}Servicer_to_server"), servicer)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    client = ServiceClient(service, server.address)
    try:
        yield servicer, client
    finally:
        client.close()
        server.stop()
        ended.join()


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, tuple[Counting, ServiceClient]]]:
    """All of them, for tests that leave them as they were."""
    with contextlib.ExitStack() as stack:
        yield {service: stack.enter_context(serving(service)) for service in SERVICES}


def later(client: ServiceClient, rpc: Rpc[Any, Any], request: Any, seconds: float = WAIT_SECONDS_MAX) -> Any:
    """The queue that gets the outcomes."""
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.later(rpc, request, seconds, outcomes.put)
    return outcomes


def some(rpc: Rpc[Any, Any], text: str = "orders") -> Any:
    """A request that says something, if it has a text to say it."""
    request = rpc.request_class()
    for field in request.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(request, field.name, text)
            break
    return request


@pytest.mark.parametrize("rpc", UNARY, ids=lambda rpc: rpc.path)
def test_a_request_arrives_as_it_is_and_its_own_response_comes_back(services: Any, rpc: Rpc[Any, Any]) -> None:
    servicer, client = services[rpc.service]
    servicer.calls.clear()

    assert client.call(rpc, some(rpc), WAIT_SECONDS_MAX) == rpc.answer_class()
    assert later(client, rpc, some(rpc)).get(timeout=WAIT_SECONDS_MAX) == rpc.answer_class()
    assert servicer.calls == [some(rpc)] * 2


@pytest.mark.parametrize("rpc", UNARY, ids=lambda rpc: rpc.path)
def test_a_call_is_sent_again_only_if_the_table_of_methods_allows_it(services: Any, rpc: Rpc[Any, Any]) -> None:
    servicer, client = services[rpc.service]
    servicer.calls.clear()
    servicer.failures = 1
    is_safe = rpc.row.retry is Retry.SAFE
    try:
        with contextlib.nullcontext() if is_safe else pytest.raises(StoreRecoveringError):
            client.call(rpc, some(rpc), WAIT_SECONDS_MAX)
        assert len(servicer.calls) == (2 if is_safe else 1)
        servicer.calls.clear()
        with pytest.raises(StoreRecoveringError):
            client.call_once(rpc, some(rpc), WAIT_SECONDS_MAX)
        servicer.calls.clear()
        assert isinstance(later(client, rpc, some(rpc)).get(timeout=WAIT_SECONDS_MAX), StoreRecoveringError)
        assert len(servicer.calls) == 1
    finally:
        servicer.failures = 0


def test_answers_are_streamed_until_they_are_cancelled(services: Any) -> None:
    _, client = services["consumer"]
    stream = client.follow(consumer.WATCH_ARRIVALS, pb.WatchArrivalsRequest())
    answers = iter(stream)

    assert next(answers).all
    assert list(next(answers).topics) == ["orders"]
    stream.cancel()
    with pytest.raises(ServiceUnavailableError):
        next(answers)


def test_a_call_without_a_thread_gives_the_typed_error_to_its_callback(services: Any) -> None:
    _, client = services["consumer"]
    error = later(client, consumer.POP_MESSAGES, some(consumer.POP_MESSAGES, "bad")).get(timeout=WAIT_SECONDS_MAX)
    with pytest.raises(InvalidArgumentError) as raised:
        client.call(consumer.GET_GROUP, some(consumer.GET_GROUP, "bad"), WAIT_SECONDS_MAX)

    assert isinstance(error, InvalidArgumentError)
    assert error.metadata == raised.value.metadata == {"field": "consumer_group"}


def test_an_answer_may_stay_bytes(services: Any) -> None:
    _, client = services["consumer"]
    pulled = later(client, PULL_BYTES, some(PULL_BYTES)).get(timeout=WAIT_SECONDS_MAX)

    assert pulled == PulledBytes(pb.PullMessagesResponse(), memoryview(b""))


def test_verdicts_are_sent_one_by_one_to_a_service_of_an_earlier_release() -> None:
    verdict = schedule_pb.EndTransactionRequest(topic="orders")
    with serving("schedule", unknown="EndTransactions") as (servicer, client):
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        batches_over(client).end(verdict, WAIT_SECONDS_MAX, outcomes.put)

        assert outcomes.get(timeout=WAIT_SECONDS_MAX) == schedule_pb.EndTransactionResponse()
        assert servicer.calls == [verdict]


def client_threads() -> set[str]:
    """The threads that are not the server's."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("rpc-")}


def test_a_hundred_calls_that_wait_take_no_thread_of_their_caller() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        first = later(client, consumer.POP_MESSAGES, POP)
        assert servicer.entered.wait(WAIT_SECONDS_MAX)  # the channel is open and has its thread
        before = client_threads()
        others = [later(client, consumer.POP_MESSAGES, POP) for _ in range(100)]
        more = client_threads() - before
        servicer.hold.set()
        for outcomes in (first, *others):
            assert outcomes.get(timeout=WAIT_SECONDS_MAX) == pb.PopMessagesResponse()

        assert not more


def test_a_call_that_is_ended_early_tells_its_callback_once() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        pull = client.channel.unary_unary(consumer.PULL_MESSAGES.path, pb.PullMessagesRequest.SerializeToString)
        cancel = call_later(pull, pb.PullMessagesRequest(), WAIT_SECONDS_MAX, "consumer", outcomes.put)
        assert servicer.entered.wait(WAIT_SECONDS_MAX)

        cancel()
        cancel()

        assert isinstance(outcomes.get(timeout=WAIT_SECONDS_MAX), ServiceUnavailableError)
        with pytest.raises(queue.Empty):
            outcomes.get_nowait()


def test_a_call_whose_time_is_over_says_so() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        outcomes = later(client, consumer.POP_MESSAGES, POP, seconds=0.2)
        none_left = later(client, consumer.POP_MESSAGES, POP, seconds=0.0)

        assert isinstance(outcomes.get(timeout=WAIT_SECONDS_MAX), DeadlineExceededError)
        assert isinstance(none_left.get(timeout=WAIT_SECONDS_MAX), DeadlineExceededError)


def test_a_service_that_is_not_there_is_unavailable_also_for_a_closed_client() -> None:
    client = ServiceClient("consumer", f"127.0.0.1:{free_port()}")
    outcomes = later(client, consumer.POP_MESSAGES, POP)
    error = outcomes.get(timeout=WAIT_SECONDS_MAX)
    with pytest.raises(ServiceUnavailableError) as raised:
        client.call(consumer.POP_MESSAGES, POP, 2.0)
    client.close()
    closed = later(client, consumer.POP_MESSAGES, POP)

    assert isinstance(error, ServiceUnavailableError)
    assert error.metadata["service"] == raised.value.metadata["service"] == "consumer"
    assert isinstance(closed.get(timeout=WAIT_SECONDS_MAX), StoreError)


def test_a_callback_that_fails_leaves_the_client_as_it_was(services: Any) -> None:
    failed = threading.Event()

    def fail(_: object) -> None:
        failed.set()
        raise RuntimeError("a bug of the callback")

    _, client = services["consumer"]
    client.later(consumer.POP_MESSAGES, POP, WAIT_SECONDS_MAX, fail)
    assert failed.wait(WAIT_SECONDS_MAX)

    assert later(client, consumer.POP_MESSAGES, POP).get(timeout=WAIT_SECONDS_MAX) == pb.PopMessagesResponse()
