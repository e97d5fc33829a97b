"""Makes calls on a local socket of a service (services/local/wire.py); each call takes a connection from a pool.

What can fail before the first byte of a request (no socket, no room, no greeting) is answered with None: the caller uses
gRPC. After that byte, a broken connection is answered with None for methods that are Retry.SAFE, and raises for the others.

A service that hangs is detected as by gRPC's keepalive: when nothing came for KEEPALIVE_SECONDS, a new connection has to be
greeted within KEEPALIVE_TIMEOUT_SECONDS. So a call that is only slow, for example on a slow disk, is waited for.
"""

import contextlib
import select
import socket
import time

from google.protobuf.message import DecodeError

from services.local import in_process
from services.local.wire import (
    ANSWER,
    ANSWER_BYTES_MAX,
    GREETING,
    TIMEVAL,
    Frame,
    FrameReader,
    LocalMethod,
    LocalSocket,
    WireError,
    pieces_of,
    unsent,
)
from services.methods import Retry
from services.observing import tracing
from services.status import StatusError
from store.errors import DeadlineExceededError, ServiceUnavailableError

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

    def broken(self) -> ServiceUnavailableError:
        """The error for a connection that broke."""
        return ServiceUnavailableError(
            f"the connection to {self.service} broke before it answered: the call may have been carried out",
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
            raise connection.peer.broken() from error
        except BaseException:
            connection.close()  # in the middle of a call: no other call may use it
            raise
        self._keep(connection)
        return answer

    def connect(self, timeout_seconds: float = CONNECT_SECONDS_MAX) -> Connection | None:
        """A connection that is not of the pool; None where there is none, or was none a moment ago."""
        peer = self._peer
        if peer is None or not self.may_connect:
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
