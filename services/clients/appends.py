"""The caller's side of append calls (services/append_calls.py): to a commitlog of this machine, where it lets us in.

Theory of operation: whatever can fail before a request's first byte was sent (no socket, no room, no greeting) is answered
with None, and the caller takes gRPC. After that byte there is no other way: the answer, the commitlog's status, or an error
that leaves open whether the messages were appended.

A commitlog that hangs is found out as gRPC does it, by asking for a sign of life when nothing came for KEEPALIVE_SECONDS:
it greets whoever connects. So an append that is only slow, as behind a disk that is, is waited for.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from services import append_calls as wire
from services.append_calls import Append
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# Connections kept for the next unary calls: as many as a gateway's senders, and some for calls that go alone.
IDLE_CONNECTION_COUNT_MAX = 16
# A door that was shut is tried again after so long: a service that restarts is found again soon.
CLOSED_SECONDS = 1.0
# Who is there greets at once.
CONNECT_SECONDS_MAX = 1.0
# As services/channel.py.
KEEPALIVE_SECONDS = 20
KEEPALIVE_TIMEOUT_SECONDS = 10.0
DOOR_POLL_SECONDS = 0.05
# As much as eight batches of 32 KiB: what the kernel has room for is sent by whoever has it. The kernel's own limit is lower on
# many machines, and holds.
STREAM_SEND_BYTES = 512 * 1024
TIMEVAL = struct.Struct("@ll")  # struct timeval: seconds, microseconds


class AppendStatusError(Exception):
    """What a commitlog answered instead of receipts.

    Args:
        status: the google.rpc.Status, as it came.
    """

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


class AppendClient:
    """Appends at one commitlog; thread-safe.

    Args:
        target: its address; everything goes over gRPC unless it is a unix socket.
        service: who is called, for error texts.
    """

    def __init__(self, target: str, service: str = "commitlog") -> None:
        self._path = wire.append_socket_path(target)
        self._service = service
        self._idle: list[socket.socket] = []
        self._closed_until = 0.0

    def append(self, request: bytes, timeout_seconds: float) -> bytes | None:
        """The answer of AppendMessages; None when nothing was sent and gRPC shall be asked.

        Raises:
            AppendStatusError: what the commitlog says.
            DeadlineExceededError: the time is over; the messages may be appended later.
            ServiceUnavailableError: the connection broke; they may have been appended.
        """
        if self._path is None or timeout_seconds <= 0 or len(request) > wire.REQUEST_BYTES_MAX:
            return None
        deadline = time.monotonic() + timeout_seconds
        connection = self._take_idle() or self._connect(min(timeout_seconds, CONNECT_SECONDS_MAX))
        if connection is None:
            return None
        try:
            call = _UnaryCall(connection, deadline, self)
            call.send(request)
            frame = wire.FrameReader(call.receive, wire.ANSWER_BYTES_MAX).read()
            if frame is None:
                raise self.broken()
            if frame[0] != wire.ANSWER:
                raise _status_error(frame[1])
        except AppendStatusError:
            self._keep(connection)
            raise
        except (OSError, wire.AppendWireError, DecodeError) as error:
            connection.close()
            raise self.broken() from error
        except BaseException:
            connection.close()  # in the middle of a call: no other may find it
            raise
        self._keep(connection)
        return frame[1]

    def open_stream(self) -> "AppendStream | None":
        """An append stream that has begun; None when nothing was sent and gRPC shall be asked."""
        if self._path is None:
            return None
        connection = self._connect(CONNECT_SECONDS_MAX)
        return AppendStream(connection, self) if connection is not None else None

    def lives(self, timeout_seconds: float = KEEPALIVE_TIMEOUT_SECONDS) -> bool:
        """Whether the commitlog does not hang: then its door says something in time, or is shut.

        One that is gone needs no such question: its connections end.
        """
        deadline = time.monotonic() + timeout_seconds
        while (seconds := deadline - time.monotonic()) > 0:
            try:
                with self._dial(seconds) as connection:
                    connection.recv(1)  # also when it says nothing and hangs up, because it has no room
                    return True
            except BlockingIOError:  # many wait before the door
                time.sleep(DOOR_POLL_SECONDS)
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def broken(self) -> ServiceUnavailableError:
        """What is told when a connection broke."""
        return ServiceUnavailableError(
            f"{self._service}: the connection broke", code="UNAVAILABLE", service=self._service
        )

    def late(self) -> DeadlineExceededError:
        """What is told when the time is over."""
        return DeadlineExceededError(
            f"{self._service}: Deadline Exceeded", code="DEADLINE_EXCEEDED", service=self._service
        )

    def close(self) -> None:
        """Close idle connections; later calls go over gRPC."""
        self._path = None
        while (connection := self._pop_idle()) is not None:
            connection.close()

    def _take_idle(self) -> socket.socket | None:
        """An idle connection on which nothing has happened: one that ended, or speaks unasked, is of no use."""
        while (connection := self._pop_idle()) is not None:
            waiting = select.poll()
            waiting.register(connection, select.POLLIN)
            if not waiting.poll(0):
                return connection
            connection.close()
        return None

    def _pop_idle(self) -> socket.socket | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _keep(self, connection: socket.socket) -> None:
        if self._path is None or len(self._idle) >= IDLE_CONNECTION_COUNT_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _dial(self, timeout_seconds: float) -> socket.socket:
        path = self._path
        if path is None:
            raise OSError("closed")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, timeout_seconds: float) -> socket.socket | None:
        """A connection that was greeted; None where there is none, or was none a moment ago."""
        if time.monotonic() < self._closed_until:
            return None
        deadline = time.monotonic() + timeout_seconds
        try:
            connection = self._dial(timeout_seconds)
            greeting = b""
            try:
                while data := connection.recv(len(wire.GREETING) - len(greeting)):
                    greeting += data
                    if greeting == wire.GREETING:
                        return connection
                    if time.monotonic() >= deadline:
                        break
            except BaseException:
                connection.close()
                raise
            connection.close()
        except OSError:
            pass
        self._closed_until = time.monotonic() + CLOSED_SECONDS
        return None


class AppendStream:
    """A stream under way: iterate over its answers, in a thread; made by `AppendClient.open_stream`.

    Requests are given ahead of the answers, as far as whoever gives them wants to go, and no giver waits: what the connection
    does not take at once is sent by a thread that lives only as long as something is left.

    Raises (while iterating):
        AppendStatusError: what the commitlog says instead of an answer; the stream is over.
        ServiceUnavailableError: the connection broke, or its peer hangs: what was not answered may have been appended.
    """

    def __init__(self, connection: socket.socket, client: AppendClient) -> None:
        self._connection = connection
        self._client = client
        self._lock = threading.Lock()
        self._user_count = 1  # who closes a descriptor under another thread's hands closes a stranger's
        self._left: deque[memoryview] = deque()  # to be sent by a thread, while there is one
        self._is_leaving_some = False
        self._is_all_given = False
        self._given_count = 0
        self._answered_count = 0
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(KEEPALIVE_SECONDS, 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_SEND_BYTES)
        self._reader = wire.FrameReader(self._receive, wire.ANSWER_BYTES_MAX)

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (frame := self._next_frame()) is not None:
                if frame[0] != wire.ANSWER:
                    raise _status_error(frame[1])
                self._answered_count += 1
                yield frame[1]
                del frame
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
                if not self._is_leaving_some:
                    self._shut_holding(socket.SHUT_WR)
                return
            self._given_count += 1
            try:
                left = (
                    wire.frame(Append.ON_STREAM, request)
                    if self._is_leaving_some
                    else wire.send_now(self._connection, Append.ON_STREAM, request)
                )
            except OSError:
                self._shut_holding(socket.SHUT_RDWR)  # the reader is told
                return
            self._left.extend(left)
            if left and not self._is_leaving_some:
                self._is_leaving_some = True
                self._user_count += 1
                threading.Thread(target=self._send_left, name="append-stream", daemon=True).start()

    def cancel(self) -> None:
        """End it now, from any thread; what was sent may still be appended."""
        with self._lock:
            self._shut_holding(socket.SHUT_RDWR)

    def _next_frame(self) -> tuple[int, bytes] | None:
        """The next answer's frame; None at the end that was agreed upon."""
        try:
            frame = self._reader.read()
        except (OSError, wire.AppendWireError) as error:
            raise self._client.broken() from error
        if frame is None and not (self._is_all_given and self._answered_count == self._given_count):
            raise self._client.broken()
        return frame

    def _receive(self, size_bytes: int, _is_begun: bool) -> bytes:
        while True:
            try:
                return self._connection.recv(size_bytes)
            except BlockingIOError:
                if not self._client.lives():
                    raise TimeoutError("no sign of life") from None

    def _send_left(self) -> None:
        try:
            while (left := self._next_left()) is not None:
                self._connection.sendall(left)
        except OSError:
            self.cancel()  # the reader is told
        finally:
            self._leave()

    def _next_left(self) -> memoryview | None:
        with self._lock:
            if self._left:
                return self._left.popleft()
            self._is_leaving_some = False
            if self._is_all_given:
                self._shut_holding(socket.SHUT_WR)
            return None

    def _shut_holding(self, how: int) -> None:
        """Shuts the connection; holding the lock."""
        with contextlib.suppress(OSError):
            if self._user_count:
                self._connection.shutdown(how)

    def _leave(self) -> None:
        with self._lock:
            self._user_count -= 1
            if not self._user_count:
                self._connection.close()


class _UnaryCall:
    """Sends and receives on a connection until a deadline (on the monotonic clock)."""

    def __init__(self, connection: socket.socket, deadline: float, client: AppendClient) -> None:
        self._connection = connection
        self._deadline = deadline
        self._client = client
        self._set_timeout()

    def send(self, request: bytes) -> None:
        """Send a request, all of it."""
        head = wire.HEAD.pack(len(request) + 1, Append.UNARY)
        rest: list[memoryview] = [memoryview(head), memoryview(request)]
        while rest:
            try:
                sent = self._connection.sendmsg(rest)
            except TimeoutError:
                self._still_waits()
                continue
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def receive(self, size_bytes: int, _is_begun: bool) -> bytes:
        """See FrameReader."""
        while True:
            try:
                return self._connection.recv(size_bytes)
            except TimeoutError:
                self._still_waits()

    def _still_waits(self) -> None:
        """Nothing came or went for a while: raise when the time is over or the peer hangs."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise self._client.late()
        if not self._client.lives(min(seconds, KEEPALIVE_TIMEOUT_SECONDS)):
            raise self._client.late() if time.monotonic() >= self._deadline else self._client.broken()
        self._set_timeout()

    def _set_timeout(self) -> None:
        self._connection.settimeout(max(0.001, min(KEEPALIVE_SECONDS, self._deadline - time.monotonic())))


def _status_error(payload: bytes) -> Exception:
    try:
        return AppendStatusError(status_pb2.Status.FromString(payload))
    except DecodeError:
        return StoreError("the commitlog's answer is no status")
