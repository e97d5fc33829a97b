"""Append calls between real clients and servers on a socket: what is sent, sent once, refused, and given up."""

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services import append_server
from services.append_calls import GREETING, HEAD, REQUEST_BYTES_MAX, SOCKET_SUFFIX, STATUS, Append
from services.append_server import AppendServer, serve_appends
from services.clients import appends
from services.clients.appends import AppendClient, AppendStatusError, AppendStream
from services.open_work import OpenWork
from services.status import from_status, to_status
from store.errors import (
    DeadlineExceededError,
    DiskFullError,
    FlushFailedError,
    InvalidMessageError,
    ServiceUnavailableError,
    StoreError,
)
from tests.services.loopback import commit_log_server

WAIT_SECONDS_MAX = 30
ERRORS = [
    InvalidMessageError("message 3 is bad", field="body", index=3),
    DiskFullError("no room", freeBytes=7),
    FlushFailedError("the log is fenced"),
    StoreError("something else"),
]


class Log:
    """Echoes requests and keeps them; can be held, and fails with what it is given."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.arrived = threading.Semaphore(0)
        self.release = threading.Event()
        self.release.set()
        self.error: Exception | None = None

    def unary(self, request: bytes) -> bytes:
        self.requests.append(request)
        self.arrived.release()
        assert self.release.wait(WAIT_SECONDS_MAX)
        if self.error is not None:
            raise self.error
        return b"unary " + request[:100]

    def on_stream(self, request: bytes) -> bytes:
        try:
            return self.unary(request).replace(b"unary", b"stream")
        except StoreError as error:
            return b"error " + error.message.encode()

    def wait_for_one(self) -> None:
        assert self.arrived.acquire(timeout=WAIT_SECONDS_MAX)


def begun(client: AppendClient, requests: Iterator[bytes]) -> AppendStream | None:
    """A stream whose requests a thread gives, as fast as they come."""
    stream = client.open_stream()

    def give() -> None:
        for request in requests:
            stream.give(request)
        stream.give(None)

    if stream is not None:
        threading.Thread(target=give, daemon=True).start()
    return stream


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(WAIT_SECONDS_MAX * 100):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail(f"waited for {what}")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s.sock"


@pytest.fixture
def path(address: str) -> str:
    return address.removeprefix("unix:") + SOCKET_SUFFIX


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.release.set()


@pytest.fixture
def work() -> OpenWork:
    return OpenWork()


@contextlib.contextmanager
def serving(path: str, log: Log, work: OpenWork, **limits: int) -> Iterator[AppendServer]:
    server = AppendServer(path, {Append.UNARY: log.unary, Append.ON_STREAM: log.on_stream}, work, **limits)
    server.start()
    try:
        yield server
    finally:
        log.release.set()
        server.close()
        wait_until(lambda: server.connection_count == 0, "connections to end")


@pytest.fixture
def server(path, log, work) -> Iterator[AppendServer]:
    with serving(path, log, work) as running:
        yield running


@pytest.fixture
def client(address, server) -> Iterator[AppendClient]:
    made = AppendClient(address)
    yield made
    made.close()


class Requests:
    """A stream's requests, given one by one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def give(self, *requests: bytes | None) -> None:
        for request in requests:
            self._queue.put(request)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._queue.get, None)


class TestUnary:
    """AppendMessages."""

    @pytest.mark.parametrize("size_bytes", [0, 1, 40_000, 300_000, REQUEST_BYTES_MAX])
    def test_a_request_arrives_whole_and_once(self, client, log, size_bytes):
        request = os.urandom(size_bytes)

        assert client.append(request, WAIT_SECONDS_MAX) == b"unary " + request[:100]
        assert log.requests == [request]

    def test_a_request_that_no_commitlog_takes_is_not_sent(self, client, log):
        assert client.append(bytes(REQUEST_BYTES_MAX + 1), WAIT_SECONDS_MAX) is None
        assert log.requests == []

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_is_the_status_that_was_made_and_the_connection_goes_on(self, client, log, server, error):
        client.append(b"first", WAIT_SECONDS_MAX)
        connections = set(server._connections)
        log.error = error
        with pytest.raises(AppendStatusError) as raised:
            client.append(b"x", WAIT_SECONDS_MAX)
        log.error = None

        assert raised.value.status == to_status(error)
        assert client.append(b"y", WAIT_SECONDS_MAX) == b"unary y"
        assert set(server._connections) == connections

    def test_a_bug_is_told_as_one(self, client, log):
        log.error = ZeroDivisionError("a bug")
        with pytest.raises(AppendStatusError, match="AppendMessages failed unexpectedly"):
            client.append(b"x", WAIT_SECONDS_MAX)

    def test_many_callers_get_their_own_answers_over_few_connections(self, client, log, server):
        requests = [b"%d" % number for number in range(500)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda request: client.append(request, WAIT_SECONDS_MAX), requests))

        assert answers == [b"unary " + request for request in requests]
        assert sorted(log.requests) == sorted(requests)
        assert server.connection_count <= 8

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_without_time_nothing_is_sent(self, client, log, seconds):
        assert client.append(b"x", seconds) is None
        assert log.requests == []

    def test_a_deadline_ends_the_wait_and_the_late_answer_reaches_nobody(self, client, log):
        log.release.clear()
        with pytest.raises(DeadlineExceededError) as raised:
            client.append(b"slow", 0.05)
        log.release.set()

        assert raised.value.metadata == {"code": "DEADLINE_EXCEEDED", "service": "commitlog"}
        assert client.append(b"next", WAIT_SECONDS_MAX) == b"unary next"
        assert log.requests == [b"slow", b"next"]

    def test_a_slow_append_is_waited_for_while_the_commitlog_lives(self, client, log, monkeypatch):
        monkeypatch.setattr(appends, "KEEPALIVE_SECONDS", 0.01)
        asked = threading.Semaphore(0)
        lives = client.lives
        monkeypatch.setattr(client, "lives", lambda seconds=5: (asked.release(), lives(seconds))[1])
        log.release.clear()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(client.append, b"slow", WAIT_SECONDS_MAX)
            for _ in range(3):
                assert asked.acquire(timeout=WAIT_SECONDS_MAX)
            log.release.set()

            assert slow.result(WAIT_SECONDS_MAX) == b"unary slow"

    def test_a_door_that_was_shut_ends_nothing_that_is_under_way(self, client, log, server, monkeypatch):
        monkeypatch.setattr(appends, "KEEPALIVE_SECONDS", 0.01)
        assert client.append(b"first", WAIT_SECONDS_MAX) == b"unary first"
        log.wait_for_one()
        log.release.clear()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(client.append, b"slow", WAIT_SECONDS_MAX)
            log.wait_for_one()
            server.shut()
            assert client.lives()
            threading.Event().wait(0.1)  # several questions
            log.release.set()

            assert slow.result(WAIT_SECONDS_MAX) == b"unary slow"

    def test_a_full_house_before_a_silent_door_is_a_peer_that_hangs(self, address, path):
        with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
            listener.bind(path)
            listener.listen(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                    one.setblocking(False)
                    one.connect(path)

            assert not AppendClient(address).lives(0.2)


class TestStreams:
    """AppendMessageStream."""

    def test_answers_come_in_order_also_when_requests_are_sent_ahead(self, client, log):
        requests = [b"%d " % number + os.urandom(number * 37 % 9_000) for number in range(300)]

        assert list(begun(client, iter(requests))) == [b"stream " + request[:100] for request in requests]
        assert log.requests == requests

    def test_a_refused_request_is_an_answer_and_the_stream_goes_on(self, client, log):
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"a")
        assert next(answers) == b"stream a"
        log.error = ERRORS[0]
        given.give(b"b")
        assert next(answers) == b"error message 3 is bad"
        log.error = None
        given.give(b"c", None)

        assert list(answers) == [b"stream c"]

    def test_a_bug_ends_the_stream_and_what_was_sent_ahead_is_not_appended(self, client, log):
        log.release.clear()
        answers = iter(begun(client, iter([b"a", b"b", b"c"])))
        log.wait_for_one()
        log.error = ZeroDivisionError("a bug")
        log.release.set()
        with pytest.raises(AppendStatusError, match="AppendMessageStream failed unexpectedly"):
            next(answers)

        assert log.requests == [b"a"]

    def test_a_stream_without_requests_ends_at_once(self, client, server):
        assert list(begun(client, iter([]))) == []
        wait_until(lambda: server.connection_count == 0, "the connection to end")

    def test_cancelled_it_ends_at_once_while_the_log_works(self, client, log):
        log.release.clear()
        stream = begun(client, iter([b"a"]))
        log.wait_for_one()
        stream.cancel()
        with pytest.raises(ServiceUnavailableError):
            list(stream)
        stream.cancel()  # and again, when nothing is left to cancel

    def test_an_idle_one_is_told_when_the_commitlog_goes(self, client, server):
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"a")
        assert next(answers) == b"stream a"
        server.close()
        with pytest.raises(ServiceUnavailableError):
            next(answers)
        given.give(None)

    def test_a_peer_that_hangs_is_found_out(self, address, path, monkeypatch):
        """Greets and reads, and does nothing more, as a stopped process; then the door is silent too."""
        monkeypatch.setattr(appends, "KEEPALIVE_SECONDS", 1)
        monkeypatch.setattr(AppendClient.lives, "__defaults__", (0.05,))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            with ThreadPoolExecutor(1) as pool:
                accepted = pool.submit(lambda: (one := listener.accept()[0], one.sendall(GREETING))[0])
                stream = begun(AppendClient(address), iter([b"a"]))
                with accepted.result(WAIT_SECONDS_MAX), pytest.raises(ServiceUnavailableError):
                    list(stream)

    def test_its_descriptors_and_threads_come_back(self, client, server):
        def held() -> tuple[int, int]:
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        before = held()
        for number in range(20):
            stream = begun(client, iter([b"a", b"b"]))
            if number % 2:
                list(stream)
            else:
                for _ in stream:
                    break
        wait_until(lambda: held() <= before, "descriptors and threads to come back")


class TestNothingIsSentTwice:
    """A connection that breaks fails what was under way, exactly that."""

    def test_a_connection_that_breaks_under_a_call(self, client, log, path, work, server):
        assert client.append(b"first", WAIT_SECONDS_MAX) == b"unary first"
        log.release.clear()
        log.wait_for_one()
        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(client.append, b"lost", WAIT_SECONDS_MAX)
            log.wait_for_one()
            server.close()
            with pytest.raises(ServiceUnavailableError) as raised:
                lost.result(WAIT_SECONDS_MAX)
            log.release.set()

        assert raised.value.metadata == {"code": "UNAVAILABLE", "service": "commitlog"}
        assert client.append(b"over gRPC", WAIT_SECONDS_MAX) is None
        assert log.requests == [b"first", b"lost"]

    def test_a_connection_that_broke_before_a_call_is_replaced(self, client, log, path, work, server):
        assert client.append(b"first", WAIT_SECONDS_MAX) == b"unary first"
        server.close()
        with serving(path, log, work):
            assert client.append(b"second", WAIT_SECONDS_MAX) == b"unary second"

        assert log.requests == [b"first", b"second"]

    @pytest.mark.parametrize("take_bytes", [1, HEAD.size + 1, 100_000])
    def test_a_request_of_which_a_part_was_taken(self, address, path, take_bytes):
        connections = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def take_a_part() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        connection, _ = listener.accept()
                        connections.append(connection)
                        connection.sendall(GREETING)
                        left = take_bytes
                        while left:
                            left -= len(connection.recv(left))
                        connection.close()

            taking = threading.Thread(target=take_a_part)
            taking.start()
            with pytest.raises(ServiceUnavailableError):
                AppendClient(address).append(bytes(1_000_000), WAIT_SECONDS_MAX)
            with pytest.raises(ServiceUnavailableError):
                list(begun(AppendClient(address), iter([bytes(1_000_000)])))
            listener.shutdown(socket.SHUT_RDWR)
            taking.join()

        assert len(connections) == 2  # one for each of them


class TestOverGrpcInstead:
    """Whatever goes wrong before the first byte."""

    def test_no_socket(self, address):
        client = AppendClient(address)

        assert client.append(b"x", WAIT_SECONDS_MAX) is None
        assert begun(client, iter([b"x"])) is None

    def test_a_service_on_a_port(self, log):
        with commit_log_server() as server:
            assert serve_appends(server.address, {}, server) is None
            assert AppendClient(server.address).append(b"x", WAIT_SECONDS_MAX) is None

    def test_a_door_that_was_shut_is_tried_again_soon_but_not_each_time(self, address, path, log, work, monkeypatch):
        client = AppendClient(address)
        assert client.append(b"x", WAIT_SECONDS_MAX) is None
        with serving(path, log, work):
            monkeypatch.setattr(client, "_closed_until", time.monotonic() + WAIT_SECONDS_MAX)
            assert client.append(b"x", WAIT_SECONDS_MAX) is None
            monkeypatch.setattr(client, "_closed_until", 0.0)
            assert client.append(b"x", WAIT_SECONDS_MAX) == b"unary x"
            client.close()

    @pytest.mark.parametrize("greeting", [b"", b"reput-appends-2\n", GREETING[:3]])
    def test_who_greets_otherwise_is_sent_nothing(self, address, path, greeting):
        with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
            listener.bind(path)
            listener.listen()

            def greet() -> bytes:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)
                    return connection.recv(64)

            received = pool.submit(greet)

            assert AppendClient(address).append(b"x", WAIT_SECONDS_MAX) is None
            assert received.result(WAIT_SECONDS_MAX) == b""

    def test_who_does_not_greet_is_not_waited_for(self, address, path):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            assert AppendClient(address).append(b"x", 0.05) is None
            assert begun(AppendClient(address), iter([b"x"])) is None

    def test_more_connections_than_are_served(self, address, path, log, work):
        count_max = 4
        log.release.clear()
        client = AppendClient(address)
        with serving(path, log, work, connection_count_max=count_max) as server:
            streams = [begun(client, iter([b"x"])) for _ in range(count_max)]
            for _ in streams:
                log.wait_for_one()
            refused = []
            for _ in range(count_max):
                other = AppendClient(address)
                refused += [other.append(b"y", WAIT_SECONDS_MAX), begun(AppendClient(address), iter([b"y"]))]

            assert refused == [None] * 2 * count_max
            assert server.connection_count == count_max
            log.release.set()
            assert [list(stream) for stream in streams] == [[b"stream x"]] * count_max
            wait_until(lambda: server.connection_count == 0, "room")
            assert AppendClient(address).append(b"z", WAIT_SECONDS_MAX) == b"unary z"

        assert log.requests == [b"x"] * count_max + [b"z"]


class TestCleanStop:
    """Open work, and what comes behind it."""

    def test_waits_for_what_is_under_way_and_takes_no_more(self, client, log, work):
        log.release.clear()
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"under way", b"too late")
        log.wait_for_one()
        work.stopping.set()

        assert not work.wait_until_done(0.0)
        log.release.set()
        assert work.wait_until_done(WAIT_SECONDS_MAX)
        assert next(answers) == b"stream under way"
        with pytest.raises(AppendStatusError) as raised:
            next(answers)
        assert type(from_status(raised.value.status)) is ServiceUnavailableError
        with pytest.raises(AppendStatusError) as raised:
            client.append(b"too late as well", WAIT_SECONDS_MAX)
        assert type(from_status(raised.value.status)) is ServiceUnavailableError
        assert log.requests == [b"under way"]
        given.give(None)

    def test_an_answer_that_was_not_sent_is_open_work(self, path, log, work, server):
        log.release.clear()
        with caller(path) as connection:
            connection.sendall(HEAD.pack(2, Append.UNARY) + b"x")
            log.wait_for_one()
            assert not work.wait_until_done(0.0)
            log.release.set()
            assert work.wait_until_done(WAIT_SECONDS_MAX)
            assert connection.recv(64) == HEAD.pack(8, 0) + b"unary x"

    def test_goes_with_the_service(self, address, path):
        with commit_log_server(address) as server:
            assert serve_appends(address, {}, server) is not None
            assert os.path.exists(path)

        assert not os.path.exists(path)


@contextlib.contextmanager
def caller(path: str) -> Iterator[socket.socket]:
    """A connection by hand."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_SECONDS_MAX)
        connection.connect(path)
        assert connection.recv(64) == GREETING
        yield connection


class TestHostileCallers:
    """They lose their connections, and nobody else anything."""

    @pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\0", b"\xff" * 64])
    def test_junk_ends_its_own_connection_only(self, client, log, path, junk):
        with caller(path) as stranger:
            stranger.sendall(junk)
            assert _rest_of(stranger) == b""

        assert client.append(b"x", WAIT_SECONDS_MAX) == b"unary x"
        assert log.requests == [b"x"]

    @pytest.mark.parametrize("number", [0, 3, 255])
    def test_an_append_that_there_is_not_is_refused(self, log, path, server, number):
        with caller(path) as stranger:
            stranger.sendall(HEAD.pack(2, number) + b"x")
            answer = _rest_of(stranger)

        assert answer[HEAD.size - 1] == STATUS
        assert log.requests == []

    @pytest.mark.parametrize("begun", [b"\0", HEAD.pack(4 << 20, 1), HEAD.pack(4 << 20, 1) + bytes(100_000)])
    def test_a_request_that_is_begun_and_does_not_come_is_given_up(self, log, path, server, begun, monkeypatch):
        monkeypatch.setattr(append_server, "REQUEST_SECONDS_MAX", 0.05)
        with caller(path) as idle, caller(path) as silent:
            silent.sendall(begun)
            assert _rest_of(silent) == b""
            idle.sendall(HEAD.pack(2, Append.UNARY) + b"x")  # who has begun nothing may be silent for ever

            assert idle.recv(64) == HEAD.pack(8, 0) + b"unary x"
        assert log.requests == [b"x"]

    def test_a_caller_that_takes_no_answer_gives_its_thread_back(self, path, work, monkeypatch):
        monkeypatch.setattr(append_server, "ANSWER_SECONDS_MAX", 1)
        handlers = {Append.UNARY: lambda _request: bytes(4_000_000)}
        server = AppendServer(path, handlers, work)
        server.start()
        with caller(path) as sleeper:
            sleeper.sendall(HEAD.pack(2, Append.UNARY) + b"x")
            wait_until(lambda: server.connection_count == 0, "the thread")
            assert work.wait_until_done(WAIT_SECONDS_MAX)
        server.close()


def _rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):  # it closed before it had read everything
        while data := connection.recv(65536):
            received += data
    return received
