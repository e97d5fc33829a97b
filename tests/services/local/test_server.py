"""The server's end of the local wire: limits, clean stop, its socket file, and hostile callers."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from google.rpc import status_pb2

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.local import server as local_server
from services.local.server import FileAnswer, LocalServer, over_bytes, serve_local
from services.local.wire import APPENDS, HEAD, LOOKUPS, STATUS, LocalMethod, pieces_of
from services.status import from_status
from store.errors import RecordNotFoundError, ServiceUnavailableError
from tests.services.local.support import WAIT_SECONDS_MAX, Log, caller, rest_of, serving
from tests.services.loopback import commit_log_server
from tests.support.waiting import wait_until

APPEND_NUMBER = LocalMethod.APPEND.number


def request_of(payload: bytes, method: LocalMethod = LocalMethod.APPEND) -> bytes:
    return b"".join(pieces_of(method.number, payload))


def answer_of(payload: bytes) -> bytes:
    return b"".join(pieces_of(0, payload))


def open_count(path: Path) -> int:
    """How many descriptors of this process are of a file."""
    names = [entry.path for entry in os.scandir("/proc/self/fd")]
    return sum(os.path.lexists(name) and os.path.realpath(name) == str(path) for name in names)


class TestAnswers:
    """What a request is answered with."""

    def test_several_requests_at_once_are_answered_in_order(self, path, log, server):
        with caller(path) as connection:
            connection.sendall(request_of(b"a") + request_of(b"b") + request_of(b"c"))
            connection.shutdown(socket.SHUT_WR)

            assert rest_of(connection) == answer_of(b"unary a") + answer_of(b"unary b") + answer_of(b"unary c")
        assert log.requests == [b"a", b"b", b"c"]

    @pytest.mark.parametrize(
        ("error", "reason"),
        [(RecordNotFoundError("none"), "none"), (ZeroDivisionError("a bug"), "failed unexpectedly")],
    )
    def test_a_failure_is_a_status_and_the_connection_goes_on(self, path, log, server, error, reason):
        with caller(path) as connection:
            log.error = error
            connection.sendall(request_of(b"x"))
            head = connection.recv(HEAD.size)
            size_bytes, kind, _ = HEAD.unpack(head)
            status = status_pb2.Status.FromString(connection.recv(size_bytes))
            log.error = None
            connection.sendall(request_of(b"y"))
            after = connection.recv(64)

        assert kind == STATUS
        assert reason in from_status(status).message
        assert after == answer_of(b"unary y")

    def test_a_file_travels_with_its_answer_and_is_closed_here(self, path, log, work, tmp_path):
        (tmp_path / "file").write_bytes(b"content")
        opened = []

        def open_file(_request: pb.GetMessageRequest, _context: object) -> FileAnswer:
            opened.append(os.open(tmp_path / "file", os.O_RDONLY))
            return FileAnswer(b"answer", opened[0])

        handlers = {LocalMethod.OPEN_LOG_FILE: over_bytes(pb.GetMessageRequest, open_file)}
        server = LocalServer(LOOKUPS, path, handlers, work)
        server.start()
        with caller(path) as connection:
            connection.sendall(request_of(b"", LocalMethod.OPEN_LOG_FILE))
            data, fds, _, _ = socket.recv_fds(connection, 64, 4)
            wait_until(lambda: open_count(tmp_path / "file") == len(fds), "the server to close its descriptor")
            with os.fdopen(fds[0], "rb") as received:
                content = received.read()
        server.close()

        assert (data, content, len(fds)) == (answer_of(b"answer"), b"content", 1)


class TestCleanStop:
    """Open work, and what comes behind it."""

    def test_an_answer_that_was_not_sent_is_open_work(self, path, log, work, server):
        log.release.clear()
        with caller(path) as connection:
            connection.sendall(request_of(b"x"))
            log.wait_for_one()
            assert not work.wait_until_done(0.0)
            log.release.set()
            assert work.wait_until_done(WAIT_SECONDS_MAX)
            assert connection.recv(64) == answer_of(b"unary x")

    @pytest.mark.parametrize("method", [LocalMethod.APPEND, LocalMethod.APPEND_ON_STREAM, LocalMethod.SEARCH_KEY])
    def test_what_comes_later_is_refused_as_unavailable(self, path, log, work, server, method):
        with caller(path) as connection:
            work.stopping.set()
            connection.sendall(request_of(b"late", method))
            size_bytes, kind, _ = HEAD.unpack(connection.recv(HEAD.size))
            status = status_pb2.Status.FromString(connection.recv(size_bytes))

        assert kind == STATUS
        assert type(from_status(status)) is ServiceUnavailableError
        assert log.requests == []


class TestTheSocket:
    """Where calls are answered."""

    def test_goes_with_the_service(self, address, path):
        with commit_log_server(address) as server:
            assert serve_local(APPENDS, address, {}, server) is not None
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

        assert not os.path.exists(path)

    def test_takes_the_place_of_one_that_a_dead_process_left(self, path, log, work):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        with serving(path, log, work), caller(path) as connection:
            connection.sendall(request_of(b"x"))
            assert connection.recv(64) == answer_of(b"unary x")

    def test_never_takes_the_place_of_a_file(self, address, path):
        Path(path).write_text("mine")
        with commit_log_server(address) as server:
            assert serve_local(APPENDS, address, {}, server) is None

        assert Path(path).read_text() == "mine"

    def test_there_is_none_for_a_service_on_a_port(self):
        with commit_log_server() as server:
            assert serve_local(LOOKUPS, server.address, {}, server) is None

    def test_more_connections_than_are_served_are_closed_without_a_greeting(self, path, log, work):
        with serving(path, log, work, connection_count_max=1) as server:
            with caller(path), socket.socket(socket.AF_UNIX) as other:
                other.settimeout(WAIT_SECONDS_MAX)
                other.connect(path)
                assert other.recv(64) == b""
            wait_until(lambda: server.connection_count == 0, "room")
            with caller(path):
                pass


class TestHostileCallers:
    """They lose their connections, and no other caller loses anything."""

    @pytest.mark.parametrize(
        "junk",
        [
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 64,
            HEAD.pack(APPENDS.request_bytes_max + 1, APPEND_NUMBER, 0),
            HEAD.pack(1, APPEND_NUMBER, 2) + b"x",
        ],
        ids=["another protocol", "all ones", "too long", "unknown flag"],
    )
    def test_junk_ends_its_own_connection_only(self, path, log, server, junk):
        with caller(path) as other, caller(path) as stranger:
            stranger.sendall(junk)
            assert rest_of(stranger) == b""
            other.sendall(request_of(b"x"))
            assert other.recv(64) == answer_of(b"unary x")

        assert log.requests == [b"x"]

    def test_a_request_that_is_no_message_ends_the_connection(self, path, work):
        handlers = {LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, lambda *_: pytest.fail("called"))}
        server = LocalServer(LOOKUPS, path, handlers, work)
        server.start()
        with caller(path) as stranger:
            stranger.sendall(request_of(b"\xff\xff\xff", LocalMethod.GET_MESSAGE))
            assert rest_of(stranger) == b""
        server.close()

    def test_a_trace_that_is_no_text_harms_nothing(self, path, log, server):
        with caller(path) as stranger:
            stranger.sendall(HEAD.pack(1, APPEND_NUMBER, 1) + b"\xff" * 55 + b"x")
            assert stranger.recv(64) == answer_of(b"unary x")

    @pytest.mark.parametrize("number", [0, LocalMethod.OPEN_LOG_FILE.number, 255])
    def test_a_method_that_is_not_served_is_refused(self, path, log, server, number):
        with caller(path) as stranger:
            stranger.sendall(HEAD.pack(1, number, 0) + b"x")
            answer = rest_of(stranger)

        assert HEAD.unpack_from(answer)[1] == STATUS
        error = from_status(status_pb2.Status.FromString(answer[HEAD.size :]))
        assert (type(error), error.message) == (ServiceUnavailableError, f"method {number} is not known here")
        assert log.requests == []

    @pytest.mark.parametrize(
        "begun", [b"\0", HEAD.pack(4 << 20, APPEND_NUMBER, 0), HEAD.pack(4 << 20, APPEND_NUMBER, 0) + bytes(100_000)]
    )
    def test_a_request_that_is_begun_and_does_not_come_is_given_up(self, path, log, server, begun, monkeypatch):
        monkeypatch.setattr(local_server, "REQUEST_SECONDS_MAX", 0.05)
        with caller(path) as idle, caller(path) as silent:
            silent.sendall(begun)
            assert rest_of(silent) == b""
            idle.sendall(request_of(b"x"))  # one that has begun nothing may be silent without limit

            assert idle.recv(64) == answer_of(b"unary x")
        assert log.requests == [b"x"]

    @pytest.mark.parametrize("begun_bytes", [1, HEAD.size, HEAD.size + 2])
    def test_a_request_that_is_cut_off_is_not_carried_out(self, path, log, server, begun_bytes):
        with caller(path) as stranger:
            stranger.sendall(request_of(b"abc")[:begun_bytes])
            stranger.shutdown(socket.SHUT_WR)
            assert rest_of(stranger) == b""

        assert log.requests == []

    def test_a_caller_that_takes_no_answer_gives_its_thread_back(self, path, work, monkeypatch):
        monkeypatch.setattr(local_server, "ANSWER_SECONDS_MAX", 1)
        server = LocalServer(APPENDS, path, {LocalMethod.APPEND: lambda _request: bytes(4_000_000)}, work)
        server.start()
        with caller(path) as sleeper:
            sleeper.sendall(request_of(b"x"))
            wait_until(lambda: server.connection_count == 0, "the thread")
            assert work.wait_until_done(WAIT_SECONDS_MAX)
        server.close()

    def test_many_that_come_and_go_leave_no_thread(self, path, log, server):
        before = threading.active_count()
        for _ in range(100):
            with caller(path):
                pass
        wait_until(lambda: threading.active_count() <= before, "threads to end")


def test_a_log_that_is_held_serves_the_others(path, work):
    log, other = Log(), Log()
    log.release.clear()
    server = LocalServer(APPENDS, path, {LocalMethod.APPEND: log.unary, LocalMethod.SEARCH_KEY: other.unary}, work)
    server.start()
    with caller(path) as held, caller(path) as free:
        held.sendall(request_of(b"held"))
        log.wait_for_one()
        free.sendall(request_of(b"x", LocalMethod.SEARCH_KEY))
        assert free.recv(64) == answer_of(b"unary x")
        log.release.set()
        assert held.recv(64) == answer_of(b"unary held")
    server.close()
