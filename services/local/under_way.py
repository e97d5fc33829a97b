"""CallsUnderWay: calls over a local socket whose callers wait in no thread; one thread takes the answers to all of them.

Theory of operation: the caller's own thread writes the request and goes on. No other thread has to be woken for it: in a
gateway that is the thread that polls for all calls, and it would lose the interpreter's lock with each such wake-up. The
thread of this class waits for all connections, and hands out what comes. Each connection has one call at a time, because a
service answers the requests of a connection in their order.

    free ──begin──▶ request sent ──answer──▶ free          the caller's thread; this thread
                         │ late, broken, silent ──▶ closed

A further connection is opened by a short-lived thread, which also writes the first request on it. The thread of the answers
looks every LOOK_SECONDS for calls that are late while there are calls, and sleeps without limit when there are none.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import structlog

from services.local.client import CONNECT_SECONDS_MAX, KEEPALIVE_SECONDS, Connection, LocalClient, answer_of
from services.local.wire import LocalMethod, Piece, WireError, pieces_of, unsent
from services.methods import Retry
from services.observing import tracing
from services.status import StatusError
from store.errors import StoreError

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
        return None if line.method.retry is Retry.SAFE else line.connection.peer.broken()

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
