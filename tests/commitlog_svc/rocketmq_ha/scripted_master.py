"""A master that does what DefaultHAConnection of RocketMQ 5.3.3 does, over bytes in memory, and what a test tells it."""

import contextlib
import socket
import threading
import time
from types import TracebackType

from services.rocketmq.address import Address
from tests.support.waiting import WAIT_SECONDS_MAX

HEARTBEAT_SECONDS = 0.05


class ScriptedMaster:
    """Sends the bytes of a log.

    Args:
        log: the bytes from offset 0 on.
        file_size_bytes: size of its files.

    Attributes:
        log: may be changed while it runs.
        first_offset: what comes before it was removed.
        batch_bytes: body of a transfer.
        close_after_bytes: a connection is closed once so many bytes of bodies were sent on it, by its place in `requests`.
        skip_bytes: the offset of each body is so much greater than it should be.
        is_silent: it sends nothing at all.
        requests: the first report of each connection.
        reports: all reports.
    """

    def __init__(self, log: bytes, file_size_bytes: int) -> None:
        self.log = log
        self.file_size_bytes = file_size_bytes
        self.first_offset = 0
        self.batch_bytes = 1000
        self.close_after_bytes: dict[int, int] = {}
        self.skip_bytes = 0
        self.is_silent = False
        self.requests: list[int] = []
        self.reports: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(*self._listener.getsockname())

    def __enter__(self) -> "ScriptedMaster":
        self._listener.settimeout(0.05)
        self._begin(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _begin(self, target: object, *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(WAIT_SECONDS_MAX)
            connection.recv(8, socket.MSG_WAITALL | socket.MSG_PEEK)
            self._stopping.wait(
                0.02
            )  # the real one, too, looks a little later, and takes the last report that has come
            asked = int.from_bytes(connection.recv(4096)[-8:], "big")
            self.requests.append(asked)
            close_after_bytes = self.close_after_bytes.get(len(self.requests) - 1)
            self._begin(self._read_reports, connection.dup())
            self._send(connection, asked, close_after_bytes)

    def _read_reports(self, connection: socket.socket) -> None:
        connection.settimeout(0.05)
        with connection, contextlib.suppress(ConnectionError):
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    report = connection.recv(8, socket.MSG_WAITALL)
                    if not report:
                        return
                    self.reports.append(int.from_bytes(report, "big"))

    def _send(self, connection: socket.socket, asked: int, close_after_bytes: int | None) -> None:
        at = asked if asked else len(self.log) // self.file_size_bytes * self.file_size_bytes
        heartbeat_at, sent = time.monotonic() + HEARTBEAT_SECONDS, 0
        while not self._stopping.is_set():
            body = b""
            if self.first_offset <= at and not self.is_silent:
                body = self.log[
                    at : min(at + self.batch_bytes, (at // self.file_size_bytes + 1) * self.file_size_bytes)
                ]
            if close_after_bytes is not None:
                body = body[: close_after_bytes - sent]
            if body:
                offset = at + self.skip_bytes
                connection.sendall(offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body)
                at, sent = at + len(body), sent + len(body)
                heartbeat_at = time.monotonic() + HEARTBEAT_SECONDS
            elif not self.is_silent and time.monotonic() >= heartbeat_at:
                connection.sendall(at.to_bytes(8, "big") + bytes(4))
                heartbeat_at = time.monotonic() + HEARTBEAT_SECONDS
            elif not body:
                self._stopping.wait(0.01)  # the real one waits 100 ms for more
            if sent == close_after_bytes:
                connection.shutdown(socket.SHUT_RDWR)
                return
