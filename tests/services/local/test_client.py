"""The caller's end of the local wire: what is sent once, what is called again over gRPC, deadlines, and the pool."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.local import client as local_client
from services.local.client import LocalClient, Peer
from services.local.wire import APPENDS, GREETING, HEAD, LocalMethod
from services.methods import Retry
from services.status import StatusError, to_status
from store.errors import DeadlineExceededError, DiskFullError, InvalidMessageError, ServiceUnavailableError, StoreError
from tests.services.local.support import WAIT_SECONDS_MAX, listening, rest_of, serving
from tests.services.loopback import commit_log_server
from tests.support.waiting import wait_until

ERRORS = [
    InvalidMessageError("message 3 is bad", field="body", index=3),
    DiskFullError("no room", freeBytes=7),
    StoreError("something else"),
]
NEVER, SAFE = LocalMethod.APPEND, LocalMethod.SEARCH_KEY


@pytest.fixture
def client(address, server) -> Iterator[LocalClient]:
    made = LocalClient(APPENDS, address, "commitlog")
    yield made
    made.close()


def call(client: LocalClient, request: bytes, method: LocalMethod = NEVER) -> bytes | None:
    return client.call(method, request, WAIT_SECONDS_MAX)


class TestCalls:
    """A request and its answer."""

    @pytest.mark.parametrize("size_bytes", [0, 1, 40_000, 300_000, APPENDS.request_bytes_max])
    def test_a_request_arrives_whole_and_once(self, client, log, size_bytes):
        request = os.urandom(size_bytes)

        assert call(client, request) == b"unary " + request[:100]
        assert log.requests == [request]

    def test_a_request_that_no_server_takes_is_not_sent(self, client, log):
        assert call(client, bytes(APPENDS.request_bytes_max + 1)) is None
        assert log.requests == []

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_is_the_status_that_was_made_and_the_connection_goes_on(self, client, log, server, error):
        call(client, b"first")
        connections = set(server._connections)
        log.error = error
        with pytest.raises(StatusError) as raised:
            call(client, b"x")
        log.error = None

        assert raised.value.status == to_status(error)
        assert call(client, b"y") == b"unary y"
        assert set(server._connections) == connections

    def test_a_bug_is_told_as_one(self, client, log):
        log.error = ZeroDivisionError("a bug")
        with pytest.raises(StatusError, match="AppendMessages failed unexpectedly"):
            call(client, b"x")

    def test_many_callers_get_their_own_answers_over_few_connections(self, client, log, server):
        requests = [b"%d" % number for number in range(500)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda request: call(client, request), requests))

        assert answers == [b"unary " + request for request in requests]
        assert sorted(log.requests) == sorted(requests)
        assert server.connection_count <= 8

    def test_after_close_nothing_is_kept_and_nothing_is_sent(self, client, log, server):
        assert call(client, b"x") == b"unary x"
        client.close()
        wait_until(lambda: server.connection_count == 0, "the connection to end")

        assert call(client, b"y") is None
        assert log.requests == [b"x"]


class TestDeadlines:
    """A call takes no longer than it may, and a slow one is waited for."""

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_without_time_nothing_is_sent(self, client, log, seconds):
        assert client.call(NEVER, b"x", seconds) is None
        assert log.requests == []

    @pytest.mark.parametrize("method", [NEVER, SAFE])
    def test_a_deadline_ends_the_wait_and_the_late_answer_reaches_no_other_call(self, client, log, method):
        log.release.clear()
        with pytest.raises(DeadlineExceededError) as raised:
            client.call(method, b"slow", 0.05)
        log.release.set()

        assert raised.value.metadata == {"code": "DEADLINE_EXCEEDED", "service": "commitlog"}
        assert call(client, b"next") == b"unary next"
        assert log.requests == [b"slow", b"next"]

    def test_a_slow_call_is_waited_for_while_the_service_lives(self, client, log, monkeypatch):
        monkeypatch.setattr(local_client, "KEEPALIVE_SECONDS", 0.01)
        asked = threading.Semaphore(0)
        lives = Peer.lives
        monkeypatch.setattr(Peer, "lives", lambda self, seconds=5: (asked.release(), lives(self, seconds))[1])
        log.release.clear()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(call, client, b"slow")
            for _ in range(3):
                assert asked.acquire(timeout=WAIT_SECONDS_MAX)
            log.release.set()

            assert slow.result(WAIT_SECONDS_MAX) == b"unary slow"

    def test_a_listener_that_was_shut_ends_nothing_that_is_under_way(self, client, log, server, path, monkeypatch):
        monkeypatch.setattr(local_client, "KEEPALIVE_SECONDS", 0.01)
        asked = threading.Semaphore(0)
        lives = Peer.lives
        assert call(client, b"first") == b"unary first"
        log.wait_for_one()
        log.release.clear()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(call, client, b"slow")
            log.wait_for_one()
            server.shut()
            assert Peer(path, "commitlog").lives()
            monkeypatch.setattr(Peer, "lives", lambda self, seconds=5: (asked.release(), lives(self, seconds))[1])
            for _ in range(3):
                assert asked.acquire(timeout=WAIT_SECONDS_MAX)
            log.release.set()

            assert slow.result(WAIT_SECONDS_MAX) == b"unary slow"

    def test_a_full_backlog_before_a_silent_listener_is_a_service_that_hangs(self, path):
        with listening(path, backlog=0), contextlib.ExitStack() as waiting:
            with contextlib.suppress(BlockingIOError):
                while True:
                    one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                    one.setblocking(False)
                    one.connect(path)

            assert not Peer(path, "commitlog").lives(0.2)

    @pytest.mark.parametrize("method", [NEVER, SAFE])
    def test_a_service_that_hangs_is_detected(self, address, path, monkeypatch, method):
        """It greets and does nothing more, as a stopped process; then its listener is silent, too."""
        monkeypatch.setattr(local_client, "KEEPALIVE_SECONDS", 0.05)
        monkeypatch.setattr(local_client, "KEEPALIVE_TIMEOUT_SECONDS", 0.05)
        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(lambda: (one := listener.accept()[0], one.sendall(GREETING))[0])
            client = LocalClient(APPENDS, address, "commitlog")
            if method.retry is Retry.SAFE:
                assert call(client, b"x", method) is None
            else:
                with pytest.raises(ServiceUnavailableError):
                    call(client, b"x", method)
            accepted.result(WAIT_SECONDS_MAX).close()


class TestAConnectionThatBreaks:
    """A call that is not idempotent fails and is not sent again; an idempotent one is left to gRPC."""

    @pytest.mark.parametrize("method", [NEVER, SAFE])
    def test_under_a_call_it_is_sent_again_only_if_that_is_safe(self, client, log, server, method):
        assert call(client, b"first") == b"unary first"
        log.wait_for_one()
        log.release.clear()
        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(call, client, b"lost", method)
            log.wait_for_one()
            server.close()
            if method.retry is Retry.SAFE:
                assert lost.result(WAIT_SECONDS_MAX) is None
            else:
                with pytest.raises(ServiceUnavailableError) as raised:
                    lost.result(WAIT_SECONDS_MAX)
                assert raised.value.metadata == {"code": "UNAVAILABLE", "service": "commitlog"}
            log.release.set()

        assert call(client, b"over gRPC", method) is None
        assert log.requests == [b"first", b"lost"]

    def test_before_a_call_is_replaced(self, client, log, path, work, server):
        assert call(client, b"first") == b"unary first"
        server.close()
        with serving(path, log, work):
            assert call(client, b"second") == b"unary second"

        assert log.requests == [b"first", b"second"]

    @pytest.mark.parametrize(
        "answer", [b"", b"\0\0", HEAD.pack(9, 0, 0) + b"abc", HEAD.pack(1, 7, 0) + b"x", b"\xff" * 9]
    )
    @pytest.mark.parametrize("method", [NEVER, SAFE])
    def test_with_an_answer_that_is_none(self, address, path, method, answer):
        def answer_so(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(GREETING)
                connection.recv(64)
                connection.sendall(answer)

        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            answering = pool.submit(answer_so, listener)
            client = LocalClient(APPENDS, address, "commitlog")
            if method.retry is Retry.SAFE:
                assert call(client, b"x", method) is None
            else:
                with pytest.raises(ServiceUnavailableError):
                    call(client, b"x", method)
            answering.result(WAIT_SECONDS_MAX)

    @pytest.mark.parametrize("take_bytes", [1, HEAD.size + 1, 100_000])
    def test_of_a_request_of_which_a_part_was_taken(self, address, path, take_bytes):
        taken: list[bytes] = []

        def take_a_part(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(GREETING)
                left = take_bytes
                while left:
                    taken.append(connection.recv(left))
                    left -= len(taken[-1])

        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            taking = pool.submit(take_a_part, listener)
            with pytest.raises(ServiceUnavailableError):
                call(LocalClient(APPENDS, address, "commitlog"), bytes(1_000_000))
            taking.result(WAIT_SECONDS_MAX)
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):  # no second connection
                listener.accept()


class TestNoConnection:
    """Before the first byte, gRPC is left."""

    def test_where_no_socket_is_there(self, address):
        assert call(LocalClient(APPENDS, address, "commitlog"), b"x") is None

    def test_a_service_on_a_port(self):
        with commit_log_server() as server:
            assert call(LocalClient(APPENDS, server.address, "commitlog"), b"x") is None

    def test_a_socket_that_was_away_is_tried_again_soon_but_not_each_time(self, address, path, log, work, monkeypatch):
        client = LocalClient(APPENDS, address, "commitlog")
        assert call(client, b"x") is None
        with serving(path, log, work):
            monkeypatch.setattr(client, "_closed_until", time.monotonic() + WAIT_SECONDS_MAX)
            assert call(client, b"x") is None
            monkeypatch.setattr(client, "_closed_until", 0.0)
            assert call(client, b"x") == b"unary x"
            client.close()

    @pytest.mark.parametrize("greeting", [b"", b"reput-local-0\n", b"reput-lookups-1\n", GREETING[:3]])
    def test_a_peer_with_another_greeting_is_sent_nothing(self, address, path, greeting):
        def greet(listener: socket.socket) -> bytes:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)
                connection.shutdown(socket.SHUT_WR)
                return rest_of(connection)

        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            received = pool.submit(greet, listener)

            assert call(LocalClient(APPENDS, address, "commitlog"), b"x") is None
            assert received.result(WAIT_SECONDS_MAX) == b""

    def test_a_greeting_in_pieces_is_one(self, address, path):
        def greet(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            with connection:
                for byte in GREETING:
                    connection.sendall(bytes([byte]))
                connection.recv(64)
                connection.sendall(HEAD.pack(1, 0, 0) + b"y")

        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            greeting = pool.submit(greet, listener)

            assert call(LocalClient(APPENDS, address, "commitlog"), b"x") == b"y"
            greeting.result(WAIT_SECONDS_MAX)

    def test_bytes_behind_an_answer_are_not_the_next_calls_answer(self, address, path):
        def answer_twice(listener: socket.socket) -> None:
            with listener.accept()[0] as first:
                first.sendall(GREETING)
                first.recv(64)
                first.sendall(HEAD.pack(1, 0, 0) + b"y" + HEAD.pack(5, 0, 0) + b"STALE")
                with listener.accept()[0] as second:
                    second.sendall(GREETING)
                    second.recv(64)
                    second.sendall(HEAD.pack(1, 0, 0) + b"z")

        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            listener.settimeout(WAIT_SECONDS_MAX)
            answering = pool.submit(answer_twice, listener)
            client = LocalClient(APPENDS, address, "commitlog")

            assert [b"y", b"z"] == [call(client, b"x"), call(client, b"x")]
            answering.result(WAIT_SECONDS_MAX)

    def test_a_peer_that_does_not_greet_is_not_waited_for(self, address, path):
        with listening(path):
            assert LocalClient(APPENDS, address, "commitlog").call(NEVER, b"x", 0.05) is None

    def test_where_the_service_has_no_room_for_another(self, address, path, log, work):
        with serving(path, log, work, connection_count_max=1):
            first = LocalClient(APPENDS, address, "commitlog")
            assert call(first, b"x") == b"unary x"
            assert call(LocalClient(APPENDS, address, "commitlog"), b"y") is None
            first.close()
