"""Answers calls on a local socket (services/local/wire.py), beside the gRPC server of a service.

One thread accepts; each connection has a thread that answers one request after the other. On an append stream it begins the
next requests while answers wait for a disk (services/serving/calls/later_answers.py). More connections than the limit
are closed without a greeting, and their callers use gRPC, whose lanes say which call waits and which is refused.

A request that must not be made again, from the moment it has arrived until its answer was sent, is open work, for which a
clean stop waits. The others are short, and are made again over gRPC. Requests that arrive during a clean stop are answered
UNAVAILABLE.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from operator import methodcaller
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from services.local import in_process
from services.local.wire import (
    ANSWER,
    GREETING,
    LOOKUPS,
    NOT_KNOWN,
    STATUS,
    TAILS,
    TIMEVAL,
    Frame,
    FrameReader,
    LocalMethod,
    LocalSocket,
    WireError,
    send_answer,
)
from services.methods import Retry
from services.observing import tracing
from services.serving.admission.lane import Lane
from services.serving.calls.call_end import as_store_error
from services.serving.calls.later_answers import BEGUN_COUNT_MAX, LaterAnswer
from services.serving.calls.open_work import OpenWork
from services.serving.server import ServiceServer
from services.serving.stall_watch import ANSWER_SECONDS_MAX
from services.status import StatusError, code_of, to_status
from store.errors import ServiceUnavailableError, StoreError
from store.files.socket_file import SocketFile

# A request that was begun comes from the same machine: half a minute, as long as gRPC waits for a silent peer.
REQUEST_SECONDS_MAX = 30.0

_log = structlog.get_logger("reput.rpc")


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """An answer with a file.

    Attributes:
        payload: the proto's bytes.
        fd: a descriptor; the server closes it after sending.
    """

    payload: bytes
    fd: int


@dataclass(frozen=True, slots=True)
class RevocableAnswer:
    """An answer that has to be taken back when its caller has gone.

    Attributes:
        payload: the proto's bytes.
        revoke: called when it was not sent.
    """

    payload: bytes
    revoke: Callable[[], object]


@dataclass(frozen=True, slots=True)
class TailAnswer:
    """Answers without end.

    Attributes:
        payloads: the protos' bytes; closed when their receiver has gone. A StoreError that it raises ends them with its status.
    """

    payloads: Generator[bytes, None, None]


Answer = bytes | FileAnswer | RevocableAnswer | LaterAnswer | TailAnswer
# Takes a request's bytes and returns the answer's. A StoreError becomes its status; a WireError ends the connection.
Handler = Callable[[bytes], Answer]


class LocalServer:
    """Answers calls on one local socket of a service.

    Args:
        kind: which of its sockets.
        path: where it listens; a socket that a dead process left there is removed.
        handlers: by method; called from many threads.
        work: counts open work, and says when no more requests are taken.
        lane: has the calls of this kind over gRPC, and counts those of the socket with them; None: they are not counted.
    """

    def __init__(
        self,
        kind: LocalSocket,
        path: str,
        handlers: Mapping[LocalMethod, Handler],
        work: OpenWork,
        lane: Lane | None = None,
    ) -> None:
        self._kind = kind
        self._lane = lane
        if lane is not None:
            lane.elsewhere = lambda: len(self._connections)
        self._path = path
        self._handlers = {method.number: (method, handler) for method, handler in handlers.items()}
        self._work = work
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._file: SocketFile | None = None

    @property
    def connection_count(self) -> int:
        """Connections served now."""
        return len(self._connections)

    def start(self) -> None:
        """Listen from now on; OSError when the socket cannot be made."""
        file = SocketFile(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(file.bind_path)
            listener.listen(self._kind.connection_count_max)
            file.publish()
        except OSError:
            listener.close()
            raise
        self._file, self._listener = file, listener
        thread = threading.Thread(target=self._accept, args=(listener,), name=f"{self._kind.name}-accept", daemon=True)
        self._thread = thread
        thread.start()

    def answer_here(self, method: LocalMethod, request: bytes) -> bytes:
        """The answer to a lookup of another service in this process; StatusError as a connection raises it."""
        known = self._handlers.get(method.number)
        try:
            if known is None:
                raise ServiceUnavailableError(NOT_KNOWN.format(method.number))
            if self._work.stopping.is_set():
                raise ServiceUnavailableError("the service is stopping", service=method.service)
            with tracing.local_call(method.rpc, tracing.current_traceparent()):
                answer = known[1](request)
        except Exception as error:
            raise StatusError(to_status(as_store_error(error, method.rpc))) from error
        assert isinstance(answer, bytes), "a lookup without a file"
        return answer

    def shut(self) -> None:
        """Accept no more connections; those that are open stay."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if self._file is not None:
            self._file.remove()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends the wait of the thread
        if self._thread is not None and self._thread is not threading.current_thread():
            # Its next system call would be on the descriptor's next owner, which may be the socket of another stack.
            self._thread.join()
        listener.close()

    def close(self) -> None:
        """Stop listening and end every connection; callers see it at once."""
        self.shut()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._listener is not None and not self._work.stopping.is_set():
                    # No descriptors left: callers use gRPC.
                    _log.warning(f"{self._kind.name}.closed", error=str(error))
                    self.shut()
                return
            with self._lock:
                has_room = self._listener is not None and len(self._connections) < self._kind.connection_count_max
                if has_room:
                    self._connections.add(connection)
            if not has_room:
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name=self._kind.name, daemon=True).start()
            except RuntimeError as error:  # no room for a thread
                _log.warning(f"{self._kind.name}.refused", error=str(error))
                self._forget(connection)

    def _serve(self, connection: socket.socket) -> None:
        # WireError and OSError: the caller has gone, does not receive, or speaks another protocol.
        try:
            with contextlib.suppress(OSError, WireError):
                self._answer_all(connection)
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()

    def _answer_all(self, connection: socket.socket) -> None:
        owed = _Owed(connection, self._work)
        is_broken = True
        try:
            self._begin_all(connection, owed)
            is_broken = False
        finally:
            owed.close(is_broken=is_broken)

    def _begin_all(self, connection: socket.socket, owed: "_Owed") -> None:
        # Not `settimeout`, which bounds receiving too: a caller may be idle without limit.
        send_timeout = TIMEVAL.pack(int(ANSWER_SECONDS_MAX), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, send_timeout)
        connection.sendall(GREETING)
        incoming = _Incoming(connection)
        reader = FrameReader(self._kind.request_bytes_max)
        while (request := reader.read(incoming.receive)) is not None:
            method, handler = self._handlers.get(request[0], (None, None))
            if method is None or handler is None:
                owed.wait_until_sent()
                # UNAVAILABLE: the caller uses gRPC, which knows what is not implemented.
                _send_status(connection, ServiceUnavailableError(NOT_KNOWN.format(request[0])))
                return
            is_counted = method.retry is Retry.NEVER
            if is_counted:
                self._work.add(1)
            outcome = _Outcome.SENT
            try:
                outcome = self._answer(connection, method, handler, request, owed)
            finally:
                if is_counted and outcome is not _Outcome.OWED:
                    self._work.add(-1)
            if outcome is _Outcome.LAST:
                return
            del request  # not kept until the next one comes
            incoming.end_frame()

    def _answer(
        self, connection: socket.socket, method: LocalMethod, handler: Handler, request: Frame, owed: "_Owed"
    ) -> "_Outcome":
        """Answer a request after those that are owed, or owe its answer, too."""
        _, payload, traceparent = request
        try:
            # Checked after an append counts as open work, so that none begins behind a clean stop.
            if self._work.stopping.is_set():
                raise ServiceUnavailableError("the service is stopping", service=method.service)
            if method.is_stream:  # over gRPC, a span is that of a stream, not of its requests
                answer = handler(payload)
            else:
                with tracing.local_call(method.rpc, traceparent):
                    answer = handler(payload)
            if isinstance(answer, TailAnswer):
                return self._send_tail(connection, method, answer.payloads)
        except StoreError as error:
            return self._fail(connection, method, error, owed)
        except WireError:
            raise
        except Exception as error:
            return self._fail(connection, method, as_store_error(error, method.rpc), owed)
        if isinstance(answer, LaterAnswer):
            owed.add(answer, is_counted=method.retry is Retry.NEVER)
            return _Outcome.OWED
        if isinstance(answer, FileAnswer):
            try:
                owed.wait_until_sent()
                send_answer(connection, ANSWER, answer.payload, answer.fd)
            finally:
                os.close(answer.fd)
            return _Outcome.SENT
        owed.wait_until_sent()
        if isinstance(answer, RevocableAnswer):
            _send_revocable(connection, answer)
        else:
            send_answer(connection, ANSWER, answer)
        return _Outcome.SENT

    def _send_tail(
        self, connection: socket.socket, method: LocalMethod, payloads: Generator[bytes, None, None]
    ) -> "_Outcome":
        """Send answers until their receiver has gone or the service stops; what `payloads` raises goes to the caller."""
        with contextlib.closing(payloads):
            while not self._work.stopping.is_set() and (payload := next(payloads, None)) is not None:
                try:
                    send_answer(connection, ANSWER, payload)
                except OSError as error:
                    is_stalled = isinstance(error, BlockingIOError)  # SO_SNDTIMEO
                    if is_stalled:
                        _log.warning("rpc.stalled", method=method.rpc, seconds=ANSWER_SECONDS_MAX)
                    self._note_end(method, grpc.StatusCode.CANCELLED, is_stalled=is_stalled)
                    raise WireError("the receiver has gone or does not receive") from error
                del payload  # not kept until the receiver takes the next one
        raise ServiceUnavailableError("the service is stopping", service=method.service)

    def _note_end(self, method: LocalMethod, code: grpc.StatusCode, *, is_stalled: bool = False) -> None:
        if self._lane is not None:
            self._lane.note_ended(method.rpc, code.value[0], is_stalled=is_stalled)

    def _fail(self, connection: socket.socket, method: LocalMethod, error: StoreError, owed: "_Owed") -> "_Outcome":
        """A stream ends with a status."""
        self._note_end(method, code_of(error))
        owed.wait_until_sent()
        _send_status(connection, error)
        return _Outcome.LAST if method.is_stream else _Outcome.SENT


class _Outcome(Enum):
    """What became of a request."""

    SENT = auto()  # its answer
    OWED = auto()  # its answer
    LAST = auto()  # sent, and the connection ends


class _Owed:
    """The answers of a connection that wait, and those behind them, sent by a thread in the order of their requests."""

    def __init__(self, connection: socket.socket, work: OpenWork) -> None:
        self._connection = connection
        self._work = work
        self._answers: deque[tuple[LaterAnswer, bool]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def add(self, answer: LaterAnswer, *, is_counted: bool) -> None:
        """One more, when there is room; if it is counted as open work, it stays so until it was sent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="owed-answers", daemon=True)
            self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers) < BEGUN_COUNT_MAX)
            self._answers.append((answer, is_counted))
            self._changed.notify_all()

    def wait_until_sent(self) -> None:
        """Returns when all are sent, or nobody takes them."""
        with self._changed:
            self._changed.wait_for(lambda: not self._answers)

    def close(self, *, is_broken: bool) -> None:
        """Ends the thread when all are sent, at once if the connection is broken."""
        if self._thread is None:
            return
        if is_broken:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._answers or self._is_over)
                if not self._answers:
                    return
                answer, is_counted = self._answers[0]
            try:
                send_answer(self._connection, ANSWER, answer.wait())
            except OSError:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)  # the reading thread sees it
            finally:
                if is_counted:
                    self._work.add(-1)
                with self._changed:
                    self._answers.popleft()
                    self._changed.notify_all()


class _Incoming:
    """Receives from a connection; the rest of a frame that was begun has to come within REQUEST_SECONDS_MAX."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)

    def receive(self, size_bytes: int, is_begun: bool) -> bytes:
        """See FrameReader; TimeoutError when the time for a frame is over."""
        if is_begun:
            now = time.monotonic()
            self._deadline = self._deadline or now + REQUEST_SECONDS_MAX
            if now >= self._deadline or not self._readable.poll((self._deadline - now) * 1000):
                raise TimeoutError("a request was begun and did not come in time")
        return self._connection.recv(size_bytes)

    def end_frame(self) -> None:
        """The bytes that come now belong to the next frame."""
        self._deadline = 0.0


def serve_local(
    kind: LocalSocket, address: str, handlers: Mapping[LocalMethod, Handler], server: ServiceServer
) -> LocalServer | None:
    """Answer calls beside the gRPC server of a service until it stops; None, with a log line, where that is not possible.

    Args:
        kind: which of the service's sockets.
        address: the service's, as configured; on a port it has no local sockets.
        handlers: by method.
        server: the service's.

    Raises:
        InvalidSettingError: another process has the service's address.
    """
    path = kind.path(address)
    if path is None:
        return None
    server.hold_address()
    local = LocalServer(kind, path, handlers, server.work, server.lanes.tails if kind is TAILS else None)
    try:
        local.start()
    except OSError as error:  # for example, a path that is too long with the suffix
        _log.warning(f"{kind.name}.not_served", path=path, error=str(error))
        return None
    server.on_stop(local.close)
    if server.is_hosted and kind is LOOKUPS:
        in_process.join(path, local.answer_here)
        server.on_stop(partial(in_process.leave, path, local.answer_here))
    return local


def over_bytes(
    request_class: type[Message],
    method: Callable[[Any, Any], Message | Iterator[Message] | bytes | FileAnswer | RevocableAnswer],
) -> Handler:
    """A servicer's method as a handler: `over_bytes(pb.SearchKeyRequest, servicer.SearchKey)`; it gets no context."""

    def handle(payload: bytes) -> Answer:
        try:
            request = request_class.FromString(payload)
        except DecodeError as error:
            raise WireError(f"the request is no {request_class.DESCRIPTOR.name}") from error
        answer = method(request, None)
        if isinstance(answer, Message):
            return answer.SerializeToString()
        return TailAnswer(_payloads(answer)) if isinstance(answer, Iterator) else answer

    return handle


def _payloads(answers: Iterator[Message]) -> Generator[bytes, None, None]:
    try:
        yield from map(methodcaller("SerializeToString"), answers)
    finally:
        if isinstance(answers, Generator):
            answers.close()


def _send_revocable(connection: socket.socket, answer: RevocableAnswer) -> None:
    gone = select.poll()
    gone.register(connection, select.POLLRDHUP)
    try:
        if gone.poll(0):
            raise ConnectionResetError("the caller has gone")
        send_answer(connection, ANSWER, answer.payload)
    except OSError:
        answer.revoke()
        raise


def _send_status(connection: socket.socket, error: StoreError) -> None:
    send_answer(connection, STATUS, to_status(error).SerializeToString())
