"""The consumer client over a real socket, with calls that wait in a thread and calls that do not."""

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.consumer.v1 import consumer_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.calling.consumer import ConsumerClient
from services.calling.later import call_later
from services.methods import CONSUMER_SERVICE, METHODS, Kind, Retry
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ServiceUnavailableError,
    StoreError,
    StoreRecoveringError,
)
from tests.support.ports import free_port

WAIT_SECONDS_MAX = 20.0
REQUESTS = {
    "pop": pb.PopMessagesRequest(consumer_group="orders"),
    "ack": pb.AckMessagesRequest(consumer_group="orders"),
    "change_invisible_duration": pb.ChangeInvisibleDurationRequest(consumer_group="orders"),
    "forward_to_dead_letter_topic": pb.ForwardToDeadLetterTopicRequest(consumer_group="orders"),
    "pull": pb.PullMessagesRequest(consumer_group="orders"),
    "send_back": pb.SendBackMessagesRequest(consumer_group="orders"),
    "lock_queues": pb.LockQueuesRequest(consumer_group="orders"),
    "see_topics": pb.SeeTopicsRequest(),
    "commit_offsets": pb.CommitOffsetsRequest(consumer_group="orders"),
    "get_offsets": pb.GetOffsetsRequest(consumer_group="orders"),
    "reset_offsets": pb.ResetOffsetsRequest(consumer_group="orders"),
    "keep_clients": pb.KeepClientsRequest(clients=[pb.Client(consumer_group="orders")]),
    "end_client": pb.EndClientRequest(consumer_group="orders"),
    "list_groups": pb.ListGroupsRequest(topic="orders"),
    "get_group": pb.GetGroupRequest(consumer_group="orders"),
    "update_group": pb.UpdateGroupRequest(settings=pb.GroupSettings(consumer_group="orders")),
    "delete_group": pb.DeleteGroupRequest(consumer_group="orders"),
    "track": pb.TrackMessageRequest(message=message_pb2.StoredMessage(topic="orders")),
}
LATER = ("pop", "ack", "change_invisible_duration", "pull")


def rpc_of(request) -> str:
    """The RPC's name, from the name of its request."""
    return type(request).__name__.removesuffix("Request")


class Counting(pb_grpc.ConsumerServiceServicer):
    """Notes each call; the first `failures` of each RPC are answered as a service that is recovering does."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.failures = 0
        self.hold: threading.Event | None = None
        self.entered = threading.Event()
        for request in [*REQUESTS.values(), pb.GetStatusRequest()]:
            setattr(self, rpc_of(request), self._handler(rpc_of(request)))

    def _handler(self, rpc: str):
        def handle(request, context):
            self.calls.append(request)
            self.entered.set()
            if self.hold is not None:
                context.add_callback(self.hold.set)  # also when its caller has gone
                self.hold.wait(WAIT_SECONDS_MAX)
            if sum(rpc_of(call) == rpc for call in self.calls) <= self.failures:
                raise StoreRecoveringError("not yet")
            if "bad" in str(request):
                raise InvalidArgumentError("a bad group", field="consumer_group")
            return getattr(pb, rpc + "Response")()

        return handle

    def WatchArrivals(self, request, context):
        yield pb.WatchArrivalsResponse(all=True)
        yield pb.WatchArrivalsResponse(topics=["orders"])
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(WAIT_SECONDS_MAX)


@contextlib.contextmanager
def serving() -> Iterator[tuple[Counting, ConsumerClient]]:
    servicer = Counting()
    server = ServiceServer("consumer", ServiceSettings())
    server.add("reput.consumer.v1.ConsumerService", pb_grpc.add_ConsumerServiceServicer_to_server, servicer)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    client = ConsumerClient(server.address)
    try:
        yield servicer, client
    finally:
        client.close()
        server.stop()
        ended.join()


def later(client: ConsumerClient, name: str, request, seconds: float = WAIT_SECONDS_MAX):
    """The queue that gets the outcomes."""
    outcomes: queue.SimpleQueue = queue.SimpleQueue()
    getattr(client, name + "_later")(request, seconds, outcomes.put)
    return outcomes


def test_there_is_a_method_for_each_rpc_of_the_service() -> None:
    unary = {
        path.removeprefix(CONSUMER_SERVICE)
        for path, method in METHODS.items()
        if path.startswith(CONSUMER_SERVICE) and method.kind is Kind.UNARY
    }

    assert {rpc_of(request) for request in REQUESTS.values()} | {"GetStatus"} == unary


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_arrives_as_it_is_and_its_own_response_comes_back(name: str) -> None:
    with serving() as (servicer, client):
        response = getattr(client, name)(REQUESTS[name], timeout_seconds=WAIT_SECONDS_MAX)

        assert servicer.calls == [REQUESTS[name]]
        assert type(response) is getattr(pb, rpc_of(REQUESTS[name]) + "Response")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_call_is_sent_again_only_if_the_table_of_methods_allows_it(name: str) -> None:
    method = METHODS[CONSUMER_SERVICE + rpc_of(REQUESTS[name])]
    with serving() as (servicer, client):
        servicer.failures = 1
        if method.retry is Retry.SAFE:
            getattr(client, name)(REQUESTS[name], timeout_seconds=WAIT_SECONDS_MAX)
        else:
            with pytest.raises(StoreRecoveringError):
                getattr(client, name)(REQUESTS[name], timeout_seconds=WAIT_SECONDS_MAX)

        assert len(servicer.calls) == (2 if method.retry is Retry.SAFE else 1)


def test_the_status_is_answered_and_asked_again_while_the_service_recovers() -> None:
    with serving() as (servicer, client):
        servicer.failures = 1

        assert client.get_status(timeout_seconds=WAIT_SECONDS_MAX) == pb.GetStatusResponse()
        assert len(servicer.calls) == 2


def test_arrivals_are_streamed_until_they_are_cancelled() -> None:
    with serving() as (_, client):
        stream = client.watch_arrivals()
        answers = iter(stream)

        assert next(answers).all
        assert list(next(answers).topics) == ["orders"]
        stream.cancel()
        with pytest.raises(ServiceUnavailableError):
            next(answers)


@pytest.mark.parametrize("name", LATER)
def test_a_call_without_a_thread_gives_the_response_or_the_typed_error_to_its_callback(name: str) -> None:
    request = REQUESTS[name]
    bad = type(request)(consumer_group="bad")
    with serving() as (servicer, client):
        good_outcomes = later(client, name, request)
        bad_outcomes = later(client, name, bad)

        assert good_outcomes.get(timeout=WAIT_SECONDS_MAX) == getattr(pb, rpc_of(request) + "Response")()
        error = bad_outcomes.get(timeout=WAIT_SECONDS_MAX)
        assert isinstance(error, InvalidArgumentError)
        assert error.metadata == {"field": "consumer_group"}
        assert sorted(map(str, servicer.calls)) == sorted(map(str, [request, bad]))


def client_threads() -> set[str]:
    """The threads that are not the server's."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("rpc-")}


def test_a_hundred_calls_that_wait_take_no_thread_of_their_caller() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        first = later(client, "pop", REQUESTS["pop"])
        assert servicer.entered.wait(WAIT_SECONDS_MAX)  # the channel is open and has its thread
        before = client_threads()
        others = [later(client, "pop", REQUESTS["pop"]) for _ in range(100)]
        more = client_threads() - before
        servicer.hold.set()
        for outcomes in (first, *others):
            assert outcomes.get(timeout=WAIT_SECONDS_MAX) == pb.PopMessagesResponse()

        assert not more


def test_a_call_that_is_ended_early_tells_its_callback_once() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        outcomes: queue.SimpleQueue = queue.SimpleQueue()
        stub = pb_grpc.ConsumerServiceStub(client.channel)
        cancel = call_later(stub.PullMessages, REQUESTS["pull"], WAIT_SECONDS_MAX, "consumer", outcomes.put)
        assert servicer.entered.wait(WAIT_SECONDS_MAX)

        cancel()
        cancel()

        assert isinstance(outcomes.get(timeout=WAIT_SECONDS_MAX), ServiceUnavailableError)
        with pytest.raises(queue.Empty):
            outcomes.get_nowait()


def test_a_call_whose_time_is_over_says_so() -> None:
    with serving() as (servicer, client):
        servicer.hold = threading.Event()
        outcomes = later(client, "pop", REQUESTS["pop"], seconds=0.2)
        none_left = later(client, "pop", REQUESTS["pop"], seconds=0.0)

        assert isinstance(outcomes.get(timeout=WAIT_SECONDS_MAX), DeadlineExceededError)
        assert isinstance(none_left.get(timeout=WAIT_SECONDS_MAX), DeadlineExceededError)


def test_a_service_that_is_not_there_is_unavailable_also_for_a_closed_client() -> None:
    client = ConsumerClient(f"127.0.0.1:{free_port()}")
    outcomes = later(client, "pop", REQUESTS["pop"])
    error = outcomes.get(timeout=WAIT_SECONDS_MAX)
    client.close()
    closed = later(client, "pop", REQUESTS["pop"])

    assert isinstance(error, ServiceUnavailableError)
    assert error.metadata["service"] == "consumer"
    assert isinstance(closed.get(timeout=WAIT_SECONDS_MAX), ServiceUnavailableError)


def test_a_callback_that_fails_does_not_break_the_channel() -> None:
    def fail(outcome: object) -> None:
        failed.set()
        raise RuntimeError("a bug of the callback")

    failed = threading.Event()
    with serving() as (_, client):
        stub = pb_grpc.ConsumerServiceStub(client.channel)
        call_later(stub.PopMessages, REQUESTS["pop"], WAIT_SECONDS_MAX, "consumer", fail)
        assert failed.wait(WAIT_SECONDS_MAX)

        outcomes = later(client, "pop", REQUESTS["pop"])
        assert not isinstance(outcomes.get(timeout=WAIT_SECONDS_MAX), StoreError)
