"""Lookups between real clients and servers: whatever goes wrong with the local wire, gRPC answers."""

import dataclasses
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.local import client as local_client
from services.local.client import LocalClient
from services.local.server import LocalServer, over_bytes, serve_local
from services.local.wire import GREETING, LOOKUPS, LocalMethod, pieces_of
from services.retry import ATTEMPT_COUNT_MAX
from services.rpcs.commitlog import GET_MESSAGE
from services.serving.server import ServiceServer
from services.status import StatusError, to_status
from store import errors
from tests.services.local.support import WAIT_SECONDS_MAX, listening
from tests.services.loopback import ScriptedCommitLog, commit_log_server
from tests.support.waiting import wait_until


class Answers:
    """A handler that notes by which wire it was asked: a local call comes without a context."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.wires: list[str] = []
        self._answer = answer

    def __call__(self, request: Any, context: Any) -> Any:
        self.wires.append("grpc" if context is not None else "local")
        return self._answer(request)


def fail_with(error: Exception) -> Callable[[Any], Any]:
    def answer(_request: Any) -> Any:
        raise error

    return answer


def message_at(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
    return pb.GetMessageResponse(message=message_pb2.StoredMessage(commit_log_offset=request.commit_log_offset))


@pytest.fixture
def path(address: str) -> str:
    return address.removeprefix("unix:") + ".lookups"


def serve_lookups(address: str, get_message: Any, server: ServiceServer) -> LocalServer | None:
    return serve_local(
        LOOKUPS, address, {LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, get_message)}, server
    )


@contextmanager
def commit_log(address: str, get_message: Any, *, with_lookups: bool = True) -> Iterator[ServiceServer]:
    with commit_log_server(address, get_message=get_message) as server:
        if with_lookups:
            assert serve_lookups(address, ScriptedCommitLog(get_message=get_message).GetMessage, server) is not None
        yield server


def test_a_service_that_is_not_ready_is_asked_again_by_the_one_retry_policy(address):
    get = Answers(fail_with(errors.StoreRecoveringError("still walking")))
    with commit_log(address, get), pytest.raises(errors.StoreRecoveringError):
        CommitLogClient(address).get(0)

    assert get.wires == ["local"] + ["grpc"] * ATTEMPT_COUNT_MAX


def test_lookups_that_close_are_done_without_and_found_again(address, monkeypatch):
    monkeypatch.setattr(local_client, "CLOSED_SECONDS", 0.0)
    get = Answers(message_at)
    with commit_log(address, get, with_lookups=False) as server:
        client = CommitLogClient(address)
        client.get(1)
        first = serve_lookups(address, get, server)
        client.get(2)
        first.close()
        client.get(3)
        client.get(4)
        serve_lookups(address, get, server)
        client.get(5)

    assert get.wires == ["grpc", "local", "grpc", "grpc", "local"]


def test_a_socket_that_was_away_is_not_tried_each_time(address, monkeypatch):
    tries = []
    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, path: (tries.append(path), connect(self, path))[1])
    with commit_log(address, Answers(message_at), with_lookups=False):
        client = CommitLogClient(address)
        for offset in range(5):
            client.get(offset)

    assert len(tries) == 1


@pytest.mark.parametrize("greeting", [b"", b"reput-lookups-1\n", GREETING[:3]])
def test_a_peer_with_another_greeting_is_not_asked(address, path, greeting):
    get = Answers(message_at)

    def greet(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(greeting)

    with commit_log(address, get, with_lookups=False), listening(path) as listener, ThreadPoolExecutor(1) as pool:
        greeting_thread = pool.submit(greet, listener)
        CommitLogClient(address).get(1)
        greeting_thread.result(WAIT_SECONDS_MAX)

    assert get.wires == ["grpc"]


def test_an_answer_that_is_no_message_is_asked_for_over_grpc(address):
    get = Answers(message_at)
    with commit_log(address, get, with_lookups=False) as server:
        assert serve_local(LOOKUPS, address, {LocalMethod.GET_MESSAGE: lambda _request: b"\xff\xff"}, server)
        assert CommitLogClient(address).get(7).commit_log_offset == 7

    assert get.wires == ["grpc"]


def test_more_connections_than_are_served_go_over_grpc(address, path):
    inside, leave = threading.Event(), threading.Event()

    def slow(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
        if request.commit_log_offset == 1:
            inside.set()
            assert leave.wait(WAIT_SECONDS_MAX)
        return message_at(request)

    get = Answers(slow)
    with commit_log(address, get, with_lookups=False) as server, ThreadPoolExecutor(1) as pool:
        kind = dataclasses.replace(LOOKUPS, connection_count_max=1)
        handlers = {LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, get)}
        only_one = LocalServer(kind, path, handlers, server.work)
        only_one.start()
        client = ServiceClient("commitlog", address)

        def ask(offset: int) -> pb.GetMessageResponse:
            return client.call(GET_MESSAGE, pb.GetMessageRequest(commit_log_offset=offset), 30)

        first = pool.submit(ask, 1)
        assert inside.wait(WAIT_SECONDS_MAX)
        ask(2)
        leave.set()
        first.result(WAIT_SECONDS_MAX)
        only_one.close()

    assert get.wires == ["local", "grpc"]


def test_a_client_with_a_channel_of_its_own_uses_only_that(address):
    get = Answers(message_at)
    with commit_log(address, get), grpc.insecure_channel(address) as channel:
        CommitLogClient(address, channel).get(1)

    assert get.wires == ["grpc"]


def test_after_close_nothing_is_kept(address):
    get = Answers(message_at)
    with commit_log(address, get):
        client = CommitLogClient(address)
        client.get(1)
        client.close()
        with pytest.raises((errors.StoreError, ValueError)):  # a closed channel raises ValueError
            client.get(2)

    assert get.wires == ["local"]


def test_a_caller_that_takes_no_answer_gives_its_thread_back(address, monkeypatch):
    from services.local import server as local_server

    monkeypatch.setattr(local_server, "ANSWER_SECONDS_MAX", 1)
    big = pb.GetMessageResponse(message=message_pb2.StoredMessage(body=b"x" * 4_000_000))
    with commit_log(address, Answers(message_at), with_lookups=False) as server:
        lookups = serve_lookups(address, lambda _request, _context: big, server)
        connection = LocalClient(LOOKUPS, address, "commitlog").connect(10)
        connection.plain.sendall(b"".join(pieces_of(LocalMethod.GET_MESSAGE.number, b"")))
        wait_until(lambda: lookups.connection_count == 0, "the thread")
        connection.close()


def test_descriptors_come_back_when_a_client_goes(address):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with commit_log(address, Answers(message_at)):
            client = CommitLogClient(address)
            client.get(1)
            client.socket(LOOKUPS).close()
            client.channel.close()
    # gRPC closes its own in the background.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 8, "descriptors")


def test_the_socket_of_a_service_goes_with_it(address, path):
    with commit_log(address, Answers(message_at)):
        assert Path(path).is_socket()

    assert not Path(path).exists()


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE])
def test_a_service_that_is_older_than_a_local_method_was_an_internal_error_instead_of_a_call_over_grpc(address, code):
    """Before it was UNAVAILABLE, an unknown method was INTERNAL."""
    status = Answers(lambda request: pb.GetStatusResponse(readable_offset=17, state="serving"))
    with commit_log_server(address, get_status=status) as server:
        assert serve_lookups(address, message_at, server) is not None
        client = CommitLogClient(address)
        if code is grpc.StatusCode.INTERNAL:
            text = f"method {LocalMethod.COMMITLOG_STATUS.number} is not known here"

            def older(*arguments):
                raise StatusError(to_status(errors.StoreError(text)))

            client.socket(LOOKUPS).call = older
        assert [client.readable_offset() for _ in range(2)] == [17, 17]

    assert status.wires == ["grpc"] * 2
