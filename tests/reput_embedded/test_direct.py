"""Calls without gRPC: the same answers and errors as over the socket, and a stop waits for them."""

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import reput_embedded
from gateway.settings import GatewaySettings
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput_client import AppendClient, NewMessage, QueryClient, queries
from reput_client.errors import ReputClientError, UnavailableError, error_of_call
from services.serving.server import ServiceServer
from tests.support.waiting import WAIT_SECONDS_MAX

PATH = "/reput.gateway.v1.GatewayService/GetStatus"
LARGEST = b"x" * (4 << 20)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[reput_embedded.EmbeddedStore]:
    with reput_embedded.open(tmp_path_factory.mktemp("direct") / "store") as store:
        store.append_all(NewMessage("Orders", b"%d" % number, keys=["k"], queue_id=0) for number in range(10))
        store.append("Large", LARGEST, keys=["k"])
        yield store


Ask = Callable[[Any], Any]
QUESTIONS: dict[str, Ask] = {
    "pages": lambda client: list(client.by_key("Orders", "k", page_size=3)),
    "nothing": lambda client: list(client.by_key("Orders", "absent")),
    "no such topic": lambda client: list(client.by_key("Absent", "k")),
    "no such record": lambda client: client.by_id("7F00000100002A9F00000000FFFFFFFF"),
    "no id": lambda client: client.by_id("none"),
    "a bad page token": lambda client: list(client.by_key("Orders", "k", page_token="none")),
    "behind the end": lambda client: list(client.by_offset("Orders", 0, 99)),
    "a bad expression": lambda client: list(client.search("Orders", cel="message.")),
    "an expression": lambda client: list(client.search("Orders", cel="message.queue_offset > 6")),
    "topics": lambda client: list(client.topics(topic="Orders")),
    "the largest body": lambda client: [len(each.body) for each in client.by_key("Large", "k")],
    "an explanation": lambda client: client.explain(queries.by_id("7F00000100002A9F00000000FFFFFFFF")).error,
    "a group": lambda client: client.consumer_group("absent"),
}


def outcome(ask: Ask, client: Any) -> object:
    try:
        return ask(client)
    except ReputClientError as error:
        return type(error), error.message, error.code, error.reason, error.metadata


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_direct_call_answers_and_fails_as_one_over_the_socket(store: reput_embedded.EmbeddedStore, name: str) -> None:
    with QueryClient(store.target) as over_grpc:
        expected = outcome(QUESTIONS[name], over_grpc)
        assert repr(outcome(QUESTIONS[name], store)) == repr(expected)


@pytest.mark.parametrize("message", [("Orders", b""), ("", b"x"), ("Orders", LARGEST + b"x")])
def test_a_direct_append_is_refused_as_one_over_the_socket(
    store: reput_embedded.EmbeddedStore, message: tuple[str, bytes]
) -> None:
    def ask(client: AppendClient) -> object:
        return client.append([NewMessage(*message)])

    with AppendClient(store.target) as over_grpc:
        expected = outcome(ask, over_grpc)
        assert isinstance(expected, tuple)
        assert outcome(ask, store._appends) == expected


def test_a_call_without_time_ends_with_the_deadline(store: reput_embedded.EmbeddedStore) -> None:
    with QueryClient(channel=store._channel, timeout_seconds=0.000001) as hurried, pytest.raises(UnavailableError):
        hurried.status()


class Held(pb_grpc.GatewayServiceServicer):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        self.begun.set()
        self.release.wait(WAIT_SECONDS_MAX)
        return pb.GetStatusResponse()


def test_a_stop_waits_for_a_direct_call_and_the_next_one_is_refused(tmp_path: pathlib.Path) -> None:
    server = ServiceServer("gateway", GatewaySettings(address=f"unix:{tmp_path}/s"))
    servicer = Held()
    server.add("reput.gateway.v1.GatewayService", pb_grpc.add_GatewayServiceServicer_to_server, servicer)
    server.start()
    channel = server.direct_channel(lambda: grpc.insecure_channel(server.address))
    call = channel.unary_unary(PATH, pb.GetStatusRequest.SerializeToString, pb.GetStatusResponse.FromString)
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(call(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)))
    caller.start()
    assert servicer.begun.wait(WAIT_SECONDS_MAX)
    server.stop()
    stopper = threading.Thread(target=server.serve_until_stopped)
    stopper.start()
    assert server.stopping.wait(WAIT_SECONDS_MAX)
    with pytest.raises(grpc.RpcError) as refused:
        call(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    assert type(error_of_call(refused.value)).__name__ == "ServiceUnavailableError"
    assert stopper.is_alive()
    servicer.release.set()
    for thread in (caller, stopper):
        thread.join(WAIT_SECONDS_MAX)
    assert answers == [pb.GetStatusResponse()]
    channel.close()
    server.close()
