"""Calls on a local socket of a service (services/local/wire.py): with a waiting thread, without one, and appends.

LocalClient: each call takes a connection from a pool, and its thread waits. What can fail before the first byte of a request
(no socket, no room, no greeting) is answered with None: the caller uses gRPC. After that byte, a broken connection is answered
with None for methods that are Retry.SAFE, and raises for the others.

A service that hangs is detected as by gRPC's keepalive: when nothing came for KEEPALIVE_SECONDS, a new connection has to be
greeted within KEEPALIVE_TIMEOUT_SECONDS. So a call that is only slow, for example on a slow disk, is waited for.

CallsUnderWay: calls whose callers wait in no thread; one thread takes the answers to all of them.

Theory of operation: the caller's own thread writes the request and goes on. No other thread has to be woken for it: in a
gateway that is the thread that polls for all calls, and it would lose the interpreter's lock with each such wake-up. The
thread of this class waits for all connections, and hands out what comes. Each connection has one call at a time, because a
service answers the requests of a connection in their order.

    free ──begin──▶ request sent ──answer──▶ free          the caller's thread; this thread
                         │ late, broken, silent ──▶ closed

A further connection is opened by a short-lived thread, which also writes the first request on it. The thread of the answers
looks every LOOK_SECONDS for calls that are late while there are calls, and sleeps without limit when there are none.

AppendClient: appends at a commitlog of this machine, where it accepts us. An append is not idempotent. Once the first byte of
a request was given to a connection, that request is not sent again, by no way. A connection that breaks fails the requests
that were under way.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

import structlog
from google.protobuf.message import DecodeError

from services.local import in_process
from services.local.wire import (
    ANSWER,
    ANSWER_BYTES_MAX,
    APPENDS,
    GREETING,
    TIMEVAL,
    Frame,
    FrameReader,
    LocalMethod,
    LocalSocket,
    Piece,
    WireError,
    pieces_of,
    unsent,
)
from services.methods import Retry
from services.observing import tracing
from services.status import StatusError
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# Connections kept for later calls: as many as a gateway has workers.
IDLE_CONNECTION_COUNT_MAX = 64
# After a failed connection, gRPC is used for so long: a service that restarts is found again soon.
CLOSED_SECONDS = 1.0
# A service that runs greets at once.
CONNECT_SECONDS_MAX = 1.0
# As services/calling/channel.py.
KEEPALIVE_SECONDS = 20.0
KEEPALIVE_TIMEOUT_SECONDS = 10.0
LISTENER_POLL_SECONDS = 0.05
# A connection's limit of waiting is set to this part of what a call allows. So it fits later calls that allow as much, and is
# set again only for others.
LIMIT_PART = 0.75


class Peer:
    """A service at the other end: how it is reached, and whether it hangs.

    Args:
        path: of its socket.
        service: its name, for error texts.
    """

    def __init__(self, path: str, service: str) -> None:
        self.service = service
        self._path = path

    def dial(self, timeout_seconds: float) -> socket.socket:
        """A connection that was not greeted yet; OSError when there is none."""
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            plain.settimeout(timeout_seconds)
            plain.connect(self._path)
        except BaseException:
            plain.close()
            raise
        return plain

    def lives(self, timeout_seconds: float = KEEPALIVE_TIMEOUT_SECONDS) -> bool:
        """Whether the service does not hang: its listener greets or closes a new connection in time, or is gone.

        The connections of a process that is gone end by themselves.
        """
        deadline = time.monotonic() + timeout_seconds
        while (seconds := deadline - time.monotonic()) > 0:
            try:
                with self.dial(seconds) as plain:
                    plain.recv(1)  # also b"", when the server has no room and closes
                    return True
            except BlockingIOError:  # the listener's backlog is full
                time.sleep(LISTENER_POLL_SECONDS)
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def broken(self, method: LocalMethod) -> ServiceUnavailableError:
        """The error for a connection that broke during a call."""
        outcome = "the call may have been carried out" if method.retry is Retry.NEVER else "make the call again"
        return ServiceUnavailableError(
            f"the connection to {self.service} broke before it answered: {outcome}",
            code="UNAVAILABLE",
            service=self.service,
        )

    def late(self) -> DeadlineExceededError:
        """The error for a deadline that has passed."""
        return DeadlineExceededError(
            f"{self.service} did not answer in time: allow more time, or ask for less at once",
            code="DEADLINE_EXCEEDED",
            service=self.service,
        )


class Connection:
    """A connection that was greeted, for one call at a time.

    Attributes:
        plain: its socket.
        peer: the service at its other end.
        reader: takes the answers' frames.
    """

    def __init__(self, plain: socket.socket, peer: Peer) -> None:
        self.plain = plain
        self.peer = peer
        self.reader = FrameReader(ANSWER_BYTES_MAX)
        self._incoming = select.poll()
        self._incoming.register(plain, select.POLLIN)
        self._deadline = 0.0
        self._limit_seconds = 0.0
        self._fds: list[int] | None = None
        # The kernel's own limits: with those of Python's sockets, each send and receive is two system calls.
        plain.settimeout(None)

    def is_silent(self) -> bool:
        """Whether it is open and nothing came, as between two calls; asked by the thread that will make the next call."""
        return not self.reader.has_rest and not self._incoming.poll(0)

    def call(self, method: LocalMethod, request: bytes, deadline: float, fds: list[int] | None = None) -> bytes:
        """The answer's bytes. Close the connection when this raises anything but StatusError.

        Args:
            method: what is called.
            request: the proto's bytes.
            deadline: on the monotonic clock.
            fds: gets a descriptor that comes with the answer, also when this raises; the caller closes it.

        Raises:
            StatusError: the service's status.
            DeadlineExceededError: the time is over; the call may still be carried out.
            OSError, WireError: the connection broke, or the service hangs.
        """
        self._deadline, self._fds = deadline, fds
        self._set_timeout()
        pieces = pieces_of(method.number, request, tracing.current_traceparent())
        while pieces:
            try:
                pieces = unsent(pieces, self.plain.sendmsg(pieces))
            except BlockingIOError:
                self._check()
        return answer_of(self.reader.read(self._receive))

    def close(self) -> None:
        """Close it."""
        self.plain.close()

    def _receive(self, size_bytes: int, _is_begun: bool) -> bytes:
        while True:
            try:
                if self._fds is None:
                    return self.plain.recv(size_bytes)
                data, fds, _, _ = socket.recv_fds(self.plain, size_bytes, 1)
                self._fds += fds
                return data
            except BlockingIOError:
                self._check()

    def _check(self) -> None:
        """Nothing came or went for a while: raise when the time is over or the service hangs."""
        seconds = self._deadline - time.monotonic()
        is_alive = seconds > 0 and self.peer.lives(min(seconds, KEEPALIVE_TIMEOUT_SECONDS))
        if time.monotonic() >= self._deadline:
            raise self.peer.late()
        if not is_alive:
            raise WireError("no sign of life")
        self._set_timeout()

    def _set_timeout(self) -> None:
        """Set how long one send or receive may wait: never longer than the call, so that `_check` is in time."""
        seconds = max(0.001, min(KEEPALIVE_SECONDS, self._deadline - time.monotonic()))
        if LIMIT_PART * LIMIT_PART * seconds <= self._limit_seconds <= seconds:
            return
        self._limit_seconds = seconds if seconds >= KEEPALIVE_SECONDS else max(0.001, LIMIT_PART * seconds)
        limit = TIMEVAL.pack(int(self._limit_seconds), int(self._limit_seconds % 1 * 1_000_000))
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


class LocalClient:
    """Calls one service on one of its local sockets; thread-safe.

    Args:
        kind: which of its sockets.
        target: the service's address. A service on a port has no such socket: then each call is answered with None.
        service: its name, for error texts.
    """

    def __init__(self, kind: LocalSocket, target: str, service: str) -> None:
        self.service = service
        self._request_bytes_max = kind.request_bytes_max
        self._path = path = kind.path(target)
        self._peer = Peer(path, service) if path is not None else None
        self._idle: list[Connection] = []
        self._closed_until = 0.0

    @property
    def has_socket(self) -> bool:
        """Whether the service is one that may have the socket."""
        return self._peer is not None

    @property
    def may_connect(self) -> bool:
        """Whether a connection has not failed a moment ago."""
        return self._peer is not None and time.monotonic() >= self._closed_until

    def takes(self, request: bytes) -> bool:
        """Whether a request may go over the socket, if the service has it."""
        return self._peer is not None and len(request) <= self._request_bytes_max

    def call(self, method: LocalMethod, request: bytes, timeout_seconds: float) -> bytes | None:
        """The answer's bytes; None when the call may and should be made over gRPC.

        Raises:
            StatusError, DeadlineExceededError: as Connection.call.
            ServiceUnavailableError: the connection broke, and the method is Retry.NEVER.
        """
        if timeout_seconds <= 0 or not self.takes(request):
            return None
        if method.retry is Retry.SAFE and self._path is not None and (here := in_process.server_at(self._path)):
            return here(method, request)
        deadline = time.monotonic() + timeout_seconds
        connection = self._take_idle() or self.connect(timeout_seconds)
        if connection is None:
            return None
        try:
            answer = connection.call(method, request, deadline)
        except StatusError:
            self._keep(connection)
            raise
        except (OSError, WireError) as error:
            connection.close()
            if method.retry is Retry.SAFE:
                return None
            raise connection.peer.broken(method) from error
        except BaseException:
            connection.close()  # in the middle of a call: no other call may use it
            raise
        self._keep(connection)
        return answer

    def connect(self, timeout_seconds: float = CONNECT_SECONDS_MAX, *, is_lasting: bool = False) -> Connection | None:
        """A connection that is not of the pool; None where there is none, or was none a moment ago.

        One that will last is tried for in any case: over gRPC it would last as long.
        """
        peer = self._peer
        if peer is None or not (is_lasting or self.may_connect):
            return None
        timeout_seconds = min(timeout_seconds, CONNECT_SECONDS_MAX)
        deadline = time.monotonic() + timeout_seconds
        greeting = b""
        with contextlib.ExitStack() as failed, contextlib.suppress(OSError):
            plain = failed.enter_context(peer.dial(timeout_seconds))
            while time.monotonic() < deadline and (data := plain.recv(len(GREETING) - len(greeting))):
                greeting += data
                if greeting == GREETING:
                    failed.pop_all()
                    return Connection(plain, peer)
        self._closed_until = time.monotonic() + CLOSED_SECONDS
        return None

    def close(self) -> None:
        """Close idle connections; later calls are answered with None."""
        self._peer = None
        while (connection := self._pop_idle()) is not None:
            connection.close()

    def _take_idle(self) -> Connection | None:
        """An idle connection; those that ended meanwhile, or got bytes that were not asked for, are closed."""
        while (connection := self._pop_idle()) is not None and not connection.is_silent():
            connection.close()
        return connection

    def _pop_idle(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _keep(self, connection: Connection) -> None:
        if self._peer is None or len(self._idle) >= IDLE_CONNECTION_COUNT_MAX:
            connection.close()
        else:
            self._idle.append(connection)


def answer_of(frame: Frame | None) -> bytes:
    """The bytes of an answer; StatusError when it is a status, WireError when the connection ended or it is none."""
    if frame is None:
        raise WireError("the connection ended")
    kind, payload, _ = frame
    if kind == ANSWER:
        return payload
    try:
        raise StatusError.from_bytes(payload)
    except DecodeError as error:
        raise WireError("an answer that is no status") from error


# How late a call may be ended whose time is over: little beside what a caller allows, at least a second.
LOOK_SECONDS = 0.05
# After so many looks without a call the thread sleeps without limit: a second, so a caller with a call a second wakes nobody.
QUIET_LOOK_COUNT = 20

# The answer's bytes; the service's status, or why there is no answer; None when gRPC may and should be used.
Outcome: TypeAlias = "bytes | StatusError | StoreError | None"
Ended: TypeAlias = Callable[[Outcome], object]

_log = structlog.get_logger("reput.rpc")


class _Line:
    """A connection, and the call that is under way on it.

    Attributes:
        connection: see Connection.
        ended: of the call; None: the connection is free.
        method: of the call.
        deadline: of the call, on the monotonic clock.
        heard_at: when the call began, or when the service gave its last sign of life.
        is_sending: whether the caller's thread is writing the request: it is the one that sees whether that was possible.
        left: what the connection has not taken of the request.
    """

    __slots__ = ("connection", "deadline", "ended", "heard_at", "is_sending", "left", "method")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ended: Ended | None = None
        self.method = LocalMethod.APPEND
        self.deadline = self.heard_at = 0.0
        self.is_sending = False
        self.left: list[Piece] = []

    def receive(self, size_bytes: int, _is_begun: bool) -> bytes:
        """See FrameReader; BlockingIOError when nothing is there."""
        return self.connection.plain.recv(size_bytes)


class CallsUnderWay:
    """See the top of this file; thread-safe.

    Args:
        local: to the socket.
        call_count_max: calls under way at the same time, and connections.
    """

    def __init__(self, local: LocalClient, call_count_max: int) -> None:
        self._local = local
        self._call_count_max = call_count_max
        self._lock = threading.Lock()
        self._free: list[_Line] = []
        self._lines: dict[int, _Line] = {}  # by descriptor
        self._line_count = 0  # with those that are being opened
        self._call_count = 0
        self._is_closed = False
        self._is_asleep = False
        self._is_looking = False  # whether a thread asks for a sign of life
        self._ready: select.epoll | None = None  # while there is the thread
        self._waker = -1

    def begin(self, method: LocalMethod, request: bytes, timeout_seconds: float, ended: Ended) -> bool:
        """Send a request; never waits.

        Args:
            method: what is called.
            request: the proto's bytes.
            timeout_seconds: for the call.
            ended: gets the outcome, once, if this returns True: in the thread of the answers, or in this one when the
                connection takes no request. It must not block.

        Returns:
            Whether there is room for the call, and a socket; otherwise nothing was done.
        """
        if timeout_seconds <= 0 or not self._local.takes(request):
            return False
        now = time.monotonic()
        pieces = pieces_of(method.number, request, tracing.current_traceparent())
        with self._lock:
            if self._is_closed:
                return False
            line = self._free.pop() if self._free else None
            if line is not None:
                self._note_begun(line, method, now, now + timeout_seconds, ended)
                wakes, self._is_asleep = self._is_asleep, False
            elif self._line_count < self._call_count_max and self._local.may_connect:
                self._line_count += 1
            else:
                return False
        if line is None:
            return self._begin_on_another(method, pieces, now, timeout_seconds, ended)
        self._send(line, pieces)
        if wakes:
            self._wake()
        return True

    def close(self) -> None:
        """Take no more calls; the thread ends after those that are under way."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for line in free:
            self._break(line, None)
        self._wake()

    # In the caller's thread, or in one that opens a connection.

    def _begin_on_another(
        self, method: LocalMethod, pieces: list[Piece], began: float, timeout_seconds: float, ended: Ended
    ) -> bool:
        def begin() -> None:
            line = None
            try:
                connection = self._local.connect(min(timeout_seconds, CONNECT_SECONDS_MAX))
                line = None if connection is None else self._added(connection)
            except Exception:  # the call would have no end
                _log.exception("rpc.failed")
            if line is None:
                self._drop_place()
                self._tell(ended, None)
                return
            with self._lock:
                self._note_begun(line, method, began, began + timeout_seconds, ended)
                self._is_asleep = False
            self._send(line, pieces)
            self._wake()

        try:
            threading.Thread(target=begin, name=f"{self._local.service}-connects", daemon=True).start()
        except RuntimeError:  # no room for a thread
            self._drop_place()
            return False
        return True

    def _added(self, connection: Connection) -> _Line | None:
        """A new connection, watched from now on; None when that cannot be."""
        connection.plain.settimeout(0)
        line = _Line(connection)
        try:
            with self._lock:
                if self._is_closed:
                    raise OSError("closed")
                if self._ready is None:
                    self._start()
                assert self._ready is not None
                self._ready.register(connection.plain, select.EPOLLIN)
                self._lines[connection.plain.fileno()] = line
        except (OSError, RuntimeError):  # no descriptors, or no room for a thread
            connection.close()
            return None
        return line

    def _start(self) -> None:
        waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            ready = select.epoll()
            ready.register(waker, select.EPOLLIN)
            self._ready, self._waker = ready, waker
            threading.Thread(target=self._run, name=f"{self._local.service}-answers", daemon=True).start()
        except BaseException:
            self._ready, self._waker = None, -1
            os.close(waker)
            raise

    def _note_begun(self, line: _Line, method: LocalMethod, now: float, deadline: float, ended: Ended) -> None:
        line.method, line.heard_at, line.deadline, line.ended = method, now, deadline, ended
        line.is_sending = True
        self._call_count += 1

    def _send(self, line: _Line, pieces: list[Piece]) -> None:
        try:
            left = unsent(pieces, line.connection.plain.sendmsg(pieces))
        except BlockingIOError:
            left = pieces
        except OSError:  # the service has closed the connection, so it has nothing of the request
            line.is_sending = False
            self._break(line, None)
            return
        line.is_sending = False
        if left:
            with self._lock, contextlib.suppress(OSError, ValueError):  # it has broken meanwhile, and was closed
                assert self._ready is not None
                line.left = left
                self._ready.modify(line.connection.plain, select.EPOLLIN | select.EPOLLOUT)

    def _drop_place(self) -> None:
        with self._lock:
            self._line_count -= 1

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._waker >= 0:
                os.eventfd_write(self._waker, 1)

    # In the thread of the answers.

    def _run(self) -> None:
        ready, waker = self._ready, self._waker
        assert ready is not None
        quiet_count = 0
        look_at = 0.0
        while True:
            with self._lock:
                if self._is_closed and not self._lines:
                    self._ready, self._waker = None, -1
                    break
                self._is_asleep = quiet_count >= QUIET_LOOK_COUNT and not self._call_count
                seconds = None if self._is_asleep else LOOK_SECONDS
            events = ready.poll(seconds)
            for fd, event in events:
                line = self._lines.get(fd)
                if line is not None:
                    self._take_safely(line, event)
                elif fd == waker:
                    with contextlib.suppress(OSError):
                        os.eventfd_read(waker)
            quiet_count = 0 if events else quiet_count + 1
            now = time.monotonic()
            if now >= look_at:
                look_at = now + LOOK_SECONDS
                self._look(now)
        ready.close()
        os.close(waker)

    def _take_safely(self, line: _Line, event: int) -> None:
        try:
            self._take(line, event)
        except Exception:  # it would end the thread of all calls
            _log.exception("rpc.failed")
            self._end(line, self._broken(line))

    def _take(self, line: _Line, event: int) -> None:
        if event & select.EPOLLOUT:
            self._send_left(line)
        if not event & ~select.EPOLLOUT:
            return
        outcome: Outcome
        connection = line.connection
        try:
            outcome = answer_of(connection.reader.read(line.receive))
        except BlockingIOError:  # the answer has begun
            line.heard_at = time.monotonic()
            return
        except StatusError as error:
            outcome = error
        except (OSError, WireError):
            if not line.is_sending:  # else the next look at it
                self._end(line, self._broken(line))
            return
        with self._lock:
            ended, line.ended = line.ended, None
            self._call_count -= ended is not None
            stays = ended is not None and not (line.left or connection.reader.has_rest or self._is_closed)
            if stays:
                self._free.append(line)
        if not stays:  # it sent what was not asked for, or is not needed any more
            self._close(line)
        self._tell(ended, outcome)

    def _send_left(self, line: _Line) -> None:
        try:
            while line.left:
                line.left = unsent(line.left, line.connection.plain.sendmsg(line.left))
            if self._ready is not None:
                self._ready.modify(line.connection.plain, select.EPOLLIN)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._end(line, self._broken(line))

    def _look(self, now: float) -> None:
        """End the calls that are late; ask for a sign of life where nothing came for long."""
        with self._lock:
            calls = [line for line in self._lines.values() if line.ended is not None]
        silent: list[_Line] = []
        for line in calls:
            if now >= line.deadline:
                self._end(line, line.connection.peer.late())
            elif now - line.heard_at >= KEEPALIVE_SECONDS:
                silent.append(line)
        if silent and not self._is_looking:
            self._is_looking = True
            try:
                threading.Thread(target=self._ask, args=(silent,), name="keepalive", daemon=True).start()
            except RuntimeError:  # no room for a thread: the next look asks again
                self._is_looking = False

    def _ask(self, silent: list[_Line]) -> None:
        try:
            if silent[0].connection.peer.lives():
                now = time.monotonic()
                for line in silent:
                    line.heard_at = max(line.heard_at, now)
                return
            for line in silent:
                if time.monotonic() - line.heard_at >= KEEPALIVE_SECONDS:
                    self._break(line, self._broken(line))
        finally:
            self._is_looking = False

    def _end(self, line: _Line, outcome: Outcome) -> None:
        """Close a connection, and end its call if it has one."""
        ended = self._taken(line)
        self._close(line)
        self._tell(ended, outcome)

    def _close(self, line: _Line) -> None:
        with self._lock:
            if self._lines.pop(line.connection.plain.fileno(), None) is not None:
                self._line_count -= 1
                line.connection.close()  # which also ends its registration

    # In any thread.

    def _broken(self, line: _Line) -> Outcome:
        return None if line.method.retry is Retry.SAFE else line.connection.peer.broken(line.method)

    def _break(self, line: _Line, outcome: Outcome) -> None:
        """End the call of a connection. The thread of the answers closes it: it may be reading from the descriptor now."""
        ended = self._taken(line)
        with contextlib.suppress(OSError):
            line.connection.plain.shutdown(socket.SHUT_RDWR)
        self._tell(ended, outcome)

    def _taken(self, line: _Line) -> Ended | None:
        """The call of a connection, which it has no more; nor is the connection free."""
        with self._lock:
            ended, line.ended = line.ended, None
            self._call_count -= ended is not None
            if ended is None and line in self._free:
                self._free.remove(line)
        return ended

    @staticmethod
    def _tell(ended: Ended | None, outcome: Outcome) -> None:
        if ended is None:
            return
        try:
            ended(outcome)
        except Exception:  # the others are told all the same
            _log.exception("rpc.callback_failed")


# As much as eight batches of 32 KiB, so that nearly all requests are sent without waiting. The kernel's own limit is lower
# on many machines, and holds.
STREAM_SEND_BYTES = 512 * 1024
# Appends that wait in no thread: two of small requests for each flush mode, and large ones beside them.
LATER_COUNT_MAX = 8


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

    def open_stream(self) -> "LocalStream | None":
        """An append stream that has begun; None when gRPC shall be used."""
        connection = self._local.connect()
        return LocalStream(connection, LocalMethod.APPEND_ON_STREAM) if connection is not None else None

    def close(self) -> None:
        """Close idle connections; later calls are answered with None."""
        self._under_way.close()
        self._local.close()


class LocalStream:
    """A stream under way, of appends or of a tail: iterate over its answers in one thread.

    `give` takes requests ahead of the answers, as far as the caller likes, and never waits: what the connection does not
    take at once is sent by a thread that lives only as long as something is left.

    Raises (while iterating):
        StatusError: the service's status instead of an answer; the stream is over.
        ServiceUnavailableError: the connection broke, or the service hangs: what was not answered may have been appended.
    """

    def __init__(self, connection: Connection, method: LocalMethod) -> None:
        self._method = method
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
            pieces = pieces_of(self._method.number, request)
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
            raise self._peer.broken(self._method) from error

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
