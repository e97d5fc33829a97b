"""Appends at a commitlog of this machine: over its local socket, where it accepts us (services/local/wire.py).

An append is not idempotent. Once the first byte of a request was given to a connection, that request is not sent again, by
no way. A connection that breaks fails the requests that were under way.
"""

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator

from services.local.client import KEEPALIVE_SECONDS, Connection, LocalClient, answer_of
from services.local.under_way import CallsUnderWay, Ended
from services.local.wire import APPENDS, TIMEVAL, LocalMethod, Piece, WireError, pieces_of, unsent

# As much as eight batches of 32 KiB, so that nearly all requests are sent without waiting. The kernel's own limit is lower
# on many machines, and holds.
STREAM_SEND_BYTES = 512 * 1024
# Appends that wait in no thread: as many as a gateway makes at the same time, two for each flush mode.
LATER_COUNT_MAX = 8
STREAM_NUMBER = LocalMethod.APPEND_ON_STREAM.number


class AppendClient:
    """Appends at one commitlog; thread-safe.

    Args:
        target: its address; see LocalClient.
        service: its name, for error texts.
    """

    def __init__(self, target: str, service: str = "commitlog") -> None:
        self._local = LocalClient(APPENDS, target, service)
        self._under_way = CallsUnderWay(self._local, LATER_COUNT_MAX)

    def append(self, request: bytes, timeout_seconds: float) -> bytes | None:
        """The answer of AppendMessages; None when nothing was sent and gRPC shall be used. Errors as LocalClient.call."""
        return self._local.call(LocalMethod.APPEND, request, timeout_seconds)

    def append_later(self, request: bytes, timeout_seconds: float, ended: Ended) -> bool:
        """Append without waiting; see CallsUnderWay.begin."""
        return self._under_way.begin(LocalMethod.APPEND, request, timeout_seconds, ended)

    def open_stream(self) -> "AppendStream | None":
        """An append stream that has begun; None when gRPC shall be used."""
        connection = self._local.connect()
        return AppendStream(connection) if connection is not None else None

    def close(self) -> None:
        """Close idle connections; later calls are answered with None."""
        self._under_way.close()
        self._local.close()


class AppendStream:
    """A stream under way: iterate over its answers in one thread; made by `AppendClient.open_stream`.

    `give` takes requests ahead of the answers, as far as the caller likes, and never waits: what the connection does not
    take at once is sent by a thread that lives only as long as something is left.

    Raises (while iterating):
        StatusError: the commitlog's status instead of an answer; the stream is over.
        ServiceUnavailableError: the connection broke, or the commitlog hangs: what was not answered may have been appended.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.plain
        self._reader = connection.reader
        self._peer = connection.peer
        self._lock = threading.Lock()
        self._user_count = 1  # threads that use the connection; the last one closes it, so that no descriptor is reused
        self._left: deque[Piece] = deque()  # to be sent by the thread, while there is one
        self._has_sender = False
        self._is_all_given = False
        self._given_count = 0
        self._answered_count = 0
        self._connection.settimeout(None)
        keepalive = TIMEVAL.pack(int(KEEPALIVE_SECONDS), 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, keepalive)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_SEND_BYTES)

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (answer := self._next_answer()) is not None:
                self._answered_count += 1
                yield answer
                del answer  # not kept until the next one comes
        finally:
            self.cancel()
            self._leave()

    def give(self, request: bytes | None) -> None:
        """Send a request, None behind the last one; never waits. Without effect once the stream is over."""
        with self._lock:
            if not self._user_count:
                return
            if request is None:
                self._is_all_given = True
                if not self._has_sender:
                    self._shut_holding(socket.SHUT_WR)
                return
            self._given_count += 1
            pieces = pieces_of(STREAM_NUMBER, request)
            if not self._has_sender:
                try:
                    pieces = unsent(pieces, self._connection.sendmsg(pieces, (), socket.MSG_DONTWAIT))
                except BlockingIOError:
                    pass
                except OSError:
                    self._shut_holding(socket.SHUT_RDWR)  # the reader sees it
                    return
            self._left.extend(pieces)
            if pieces and not self._has_sender:
                self._has_sender = True
                self._user_count += 1
                threading.Thread(target=self._send_left, name="append-stream", daemon=True).start()

    def cancel(self) -> None:
        """End it now, from any thread; what was sent may still be appended."""
        with self._lock:
            self._shut_holding(socket.SHUT_RDWR)

    def _next_answer(self) -> bytes | None:
        """The next answer; None at the end, when each request has been answered."""
        try:
            frame = self._reader.read(self._receive)
            if frame is None and self._is_all_given and self._answered_count == self._given_count:
                return None
            return answer_of(frame)
        except (OSError, WireError) as error:
            raise self._peer.broken() from error

    def _receive(self, size_bytes: int, _is_begun: bool) -> bytes:
        while True:
            try:
                return self._connection.recv(size_bytes)
            except BlockingIOError:  # SO_RCVTIMEO
                if not self._peer.lives():
                    raise TimeoutError("no sign of life") from None

    def _send_left(self) -> None:
        try:
            while (piece := self._next_left()) is not None:
                self._connection.sendall(piece)
        except OSError:
            self.cancel()  # the reader sees it
        finally:
            self._leave()

    def _next_left(self) -> Piece | None:
        with self._lock:
            if self._left:
                return self._left.popleft()
            self._has_sender = False
            if self._is_all_given:
                self._shut_holding(socket.SHUT_WR)
            return None

    def _shut_holding(self, how: int) -> None:
        """Shut the connection down; the caller holds the lock."""
        with contextlib.suppress(OSError):
            if self._user_count:
                self._connection.shutdown(how)

    def _leave(self) -> None:
        with self._lock:
            self._user_count -= 1
            if not self._user_count:
                self._connection.close()
