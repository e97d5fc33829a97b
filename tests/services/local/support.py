"""A log of appends behind a local server, and connections by hand."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Iterator, Mapping

from services.local.server import Handler, LocalServer
from services.local.wire import APPENDS, GREETING, LocalMethod, LocalSocket
from services.serving.calls.open_work import OpenWork
from store.errors import StoreError
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


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

    def handlers(self) -> Mapping[LocalMethod, Handler]:
        return {
            LocalMethod.APPEND: self.unary,
            LocalMethod.APPEND_ON_STREAM: self.on_stream,
            LocalMethod.SEARCH_KEY: self.unary,
        }

    def wait_for_one(self) -> None:
        assert self.arrived.acquire(timeout=WAIT_SECONDS_MAX)


@contextlib.contextmanager
def serving(path: str, log: Log, work: OpenWork, kind: LocalSocket = APPENDS, **limits: int) -> Iterator[LocalServer]:
    """A server for a log's appends, with other limits than those of the socket if they are given."""
    server = LocalServer(dataclasses.replace(kind, **limits), path, log.handlers(), work)
    server.start()
    try:
        yield server
    finally:
        log.release.set()
        server.close()
        wait_until(lambda: server.connection_count == 0, "connections to end")


@contextlib.contextmanager
def caller(path: str) -> Iterator[socket.socket]:
    """A connection by hand, greeted."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_SECONDS_MAX)
        connection.connect(path)
        assert connection.recv(64) == GREETING
        yield connection


@contextlib.contextmanager
def listening(path: str, backlog: int = 8) -> Iterator[socket.socket]:
    """A listener that does nothing by itself."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(backlog)
        yield listener


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):  # it closed before it had read everything
        while data := connection.recv(65536):
            received += data
    return received
