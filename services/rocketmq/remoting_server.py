"""RemotingServer: connections of RocketMQ's clients and brokers, and their commands (services/rocketmq/command.py).

    client ══════▶ socket ──▶ one thread: epoll, TLS, frames ──▶ Handler.on_command(connection, command)     must not block
    client ◀══════ socket ◀── Connection.send(command), from any thread, at once; what the socket does not take waits for it

A connection costs no thread. Both sides may ask, and answers come in any order: `Connection.ask` sends a request to a client
and gives its answer to a callback.

What bounds a connection:

| limit | what happens beyond it |
| --- | --- |
| CONNECTION_COUNT_MAX | a new connection is closed at once |
| REQUEST_COUNT_MAX requests that are not answered | no more is read from it, until some are |
| OUTGOING_BYTES_MAX that its client does not take | no more is read from it |
| STALL_SECONDS_MAX in which its client takes none of them | it is closed |
| FRAME_SECONDS_MAX for a frame, or a TLS handshake, that it began | it is closed |
| INCOMING_BYTES_MAX of frames that are not whole, over all connections | one that adds to a long frame is closed |
| IDLE_SECONDS_MAX in which neither side sends anything | it is closed; RocketMQ's clients and servers do the same |
| a frame that is none | it is closed, and a log line says why |

A first byte of 0x16 begins TLS; no frame begins so. Source: `NettyRemotingServer` of RocketMQ 5.3.3.
"""

import contextlib
import errno
import itertools
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import structlog

from services.rocketmq.address import Address
from services.rocketmq.command import ONEWAY, Command, FrameError, FrameReader, encode_head

if TYPE_CHECKING:
    import ssl

CONNECTION_COUNT_MAX = 20_000
REQUEST_COUNT_MAX = 4_096
OUTGOING_BYTES_MAX = 4 << 20
INCOMING_BYTES_MAX = 256 << 20
LONG_FRAME_BYTES = 256 << 10
STALL_SECONDS_MAX = 30.0
FRAME_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 120.0
# How often connections are looked at for the limits of time.
LOOK_SECONDS = 1.0
READ_BYTES = 256 << 10
BACKLOG = 1_024
TLS_FIRST_BYTE = 0x16
# Descriptors ran out: the listener rests, so that the thread does not spin.
REST_SECONDS = 0.1

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_CLIENT_IS_GONE = {errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED, errno.EBADF}

_log = structlog.get_logger("reput.remoting")

# Gets the answer to a request, or None when its connection ended or its time was over before there was one.
Then = Callable[[Command | None], object]


class Handler(Protocol):
    """What is done with connections; called by the thread of the server, one call after the other."""

    def on_command(self, connection: "Connection", command: Command) -> None:
        """A request came. It must not block; its answer is sent by `connection.answer`, soon or later, once."""

    def on_close(self, connection: "Connection") -> None:
        """A connection has ended."""


class Connection:
    """A connection of a client; thread-safe.

    Attributes:
        peer: the client's address.
        is_closed: nothing is sent any more.
        state: what the handler keeps about it.
    """

    def __init__(self, server: "RemotingServer", connected: socket.socket, peer: Address, now: float) -> None:
        self.peer = peer
        self.is_closed = False
        self.state: dict[str, object] = {}
        self._server = server
        self._socket = connected
        self._fd = connected.fileno()
        self._lock = threading.Lock()
        self._reader = FrameReader()
        self._tls: _Tls | None = None
        self._is_first = True
        self._outgoing: deque[memoryview] = deque()
        self._outgoing_bytes = 0
        self._request_count = 0
        self._interest = _READ
        self._active_at = now  # when either side last sent something
        self._stalled_since: float | None = None  # bytes wait for its client since then
        self._frame_since: float | None = None  # a frame or handshake is under way since then
        self._opaques = itertools.count(1)
        self._asked: dict[int, tuple[float, Then]] = {}

    @property
    def request_count(self) -> int:
        """Requests that are not answered."""
        return self._request_count

    def send(self, command: Command) -> None:
        """Send a command; nothing happens when the connection has ended."""
        head = encode_head(command, len(command.body))
        with self._lock:
            if self.is_closed:
                return
            if self._tls is not None:
                self._write([self._tls.wrap(head + command.body)])
            else:
                self._write([head, command.body] if command.body else [head])

    def answer(self, request: Command, answer: Command) -> None:
        """Send the answer to a request; not to one that wants none."""
        with self._lock:
            self._request_count -= 1
            self._watch()
        if request.is_oneway:
            return
        try:
            self.send(answer)
        except FrameError as error:
            self.send(request.answer(1, f"the answer cannot be sent: {error}"))

    def tell(self, command: Command) -> None:
        """Send a request that wants no answer to the client."""
        self.send(replace(command, opaque=next(self._opaques), flag=command.flag | ONEWAY))

    def ask(self, command: Command, seconds: float, then: Then) -> None:
        """Send a request to the client; `then` gets its answer, once, in the thread of the server or in this one."""
        opaque = next(self._opaques)
        with self._lock:
            is_closed = self.is_closed
            if not is_closed:
                self._asked[opaque] = (self._server.clock() + seconds, then)
        if is_closed:
            then(None)
            return
        self.send(replace(command, opaque=opaque))

    def close(self) -> None:
        """End the connection; from any thread."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._outgoing.clear()
            # The thread of the server sees the end of what it reads, and forgets the connection.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._server.wake()

    # --- called by the thread of the server

    def on_ready(self, events: int, handler: Handler) -> bool:
        """Read or write; False when the connection has ended."""
        if events & _WRITE:
            with self._lock:
                if not self.is_closed:
                    self._write([])
        if events & ~_WRITE:
            return self._read(handler)
        return not self.is_closed

    def _read(self, handler: Handler) -> bool:
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return not self.is_closed
        except OSError as error:
            if error.errno not in _CLIENT_IS_GONE:
                _log.warning("remoting.read_failed", peer=str(self.peer), error=str(error))
            return False
        if not data:
            return False
        self._active_at = self._server.clock()
        try:
            if self._is_first:
                self._begin(data)
            if self._tls is not None:
                with self._lock:
                    data, reply = self._tls.unwrap(data)
                    if reply and not self.is_closed:
                        self._write([reply])
            before = self._reader.size_bytes
            for command in self._reader.feed(data):
                self._frame_since = None
                self._on_command(command, handler)
            self._note_frame(self._reader.size_bytes - before)
        except FrameError as error:
            _log.warning("remoting.bad_frame", peer=str(self.peer), error=str(error))
            return False
        return not self.is_closed

    def _note_frame(self, more_bytes: int) -> None:
        if not self._reader.size_bytes and not (self._tls is not None and self._tls.is_beginning):
            self._frame_since = None
        elif self._frame_since is None:
            self._frame_since = self._active_at
        self._server.incoming_bytes += more_bytes
        if self._server.incoming_bytes > INCOMING_BYTES_MAX and self._reader.size_bytes > LONG_FRAME_BYTES:
            raise FrameError(f"frames that are not whole take {INCOMING_BYTES_MAX} bytes already; send it again")

    def _begin(self, data: bytes) -> None:
        self._is_first = False
        if data[0] != TLS_FIRST_BYTE:
            if self._server.tls_only:
                raise FrameError("it does not begin with TLS, which this server asks for")
            return
        context = self._server.tls_context()
        if context is None:
            raise FrameError("it begins with TLS, and this server has no certificate: set REPUT_TLS_CERTIFICATE")
        self._tls = _Tls(context)

    def _on_command(self, command: Command, handler: Handler) -> None:
        if command.is_answer:
            with self._lock:
                asked = self._asked.pop(command.opaque, None)
            if asked is not None:
                asked[1](command)
            return
        with self._lock:
            self._request_count += 1
            self._watch()
        handler.on_command(self, command)

    def why_over(self, now: float) -> str:
        """Why the connection is to be closed now; empty: it is not. Requests to the client that are too old are given up."""
        with self._lock:
            late = [opaque for opaque, (until, _) in self._asked.items() if until <= now]
            given_up = [self._asked.pop(opaque)[1] for opaque in late]
        for then in given_up:
            then(None)
        if self._stalled_since is not None and now - self._stalled_since > STALL_SECONDS_MAX:
            return f"its client took nothing for {STALL_SECONDS_MAX:.0f} s"
        if self._frame_since is not None and now - self._frame_since > FRAME_SECONDS_MAX:
            return f"a frame was not whole after {FRAME_SECONDS_MAX:.0f} s"
        if now - self._active_at > IDLE_SECONDS_MAX:
            return "idle"
        return ""

    def end(self) -> None:
        """Close the socket; requests to the client get no answer."""
        with self._lock:
            self.is_closed = True
            self._outgoing.clear()
            self._socket.close()
            self._server.incoming_bytes -= self._reader.size_bytes
            asked, self._asked = list(self._asked.values()), {}
        for _, then in asked:
            then(None)

    # --- with the lock held

    def _write(self, pieces: list[bytes]) -> None:
        """Send what waits and these pieces, as far as the socket takes them."""
        for piece in pieces:
            if piece:
                self._outgoing.append(memoryview(piece))
                self._outgoing_bytes += len(piece)
        try:
            while self._outgoing:
                batch = list(itertools.islice(self._outgoing, 64))
                sent = self._socket.sendmsg(batch)
                self._active_at = self._stalled_since = self._server.clock()
                self._outgoing_bytes -= sent
                while sent:
                    first = self._outgoing[0]
                    if sent < len(first):
                        self._outgoing[0] = first[sent:]
                        break
                    sent -= len(first)
                    self._outgoing.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._outgoing.clear()
            self._outgoing_bytes = 0
            self.is_closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._server.wake()
            return
        if not self._outgoing:
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = self._server.clock()
        self._watch()

    def _watch(self) -> None:
        """Ask the kernel for what can be done now: reading with room for requests, writing when something waits."""
        has_room = self._request_count < REQUEST_COUNT_MAX and self._outgoing_bytes < OUTGOING_BYTES_MAX
        interest = (_READ if has_room else 0) | (_WRITE if self._outgoing else 0)
        if interest != self._interest and not self.is_closed:
            self._interest = interest
            with contextlib.suppress(OSError):  # it was closed meanwhile
                self._server.modify(self._fd, interest)


class _Tls:
    """TLS between a socket's bytes and those of the protocol."""

    def __init__(self, context: "ssl.SSLContext") -> None:
        import ssl  # takes 10 ms, only with TLS

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._errors = ssl.SSLError
        self._wants_more = (ssl.SSLWantReadError, ssl.SSLZeroReturnError)  # or the client has said its last
        self._waiting: list[bytes] = []
        self.is_beginning = True

    def unwrap(self, data: bytes) -> tuple[bytes, bytes]:
        """What the client said, and what TLS itself answers.

        Raises:
            FrameError: it is no TLS that this server takes.
        """
        self._incoming.write(data)
        plain: list[bytes] = []
        try:
            if self.is_beginning:
                self._object.do_handshake()
                self.is_beginning = False
                for waiting in self._waiting:
                    self._object.write(waiting)
                self._waiting = []
            while piece := self._object.read(READ_BYTES):
                plain.append(piece)
        except self._wants_more:
            pass
        except self._errors as error:
            raise FrameError(f"TLS failed: {error.reason or error}") from error
        return b"".join(plain), self._outgoing.read()

    def wrap(self, data: bytes) -> bytes:
        """The bytes of a message; those before the end of the handshake are sent at its end."""
        if self.is_beginning:
            self._waiting.append(data)
            return b""
        self._object.write(data)
        return self._outgoing.read()


class RemotingServer:
    """Serves one or several ports with one handler.

    Args:
        name: of its thread.
        handler: takes the commands.
        tls_context: the context of each new TLS connection, or None; called for each.
        tls_only: connections without TLS are closed.
        clock: seconds, rising.

    Attributes:
        incoming_bytes: of frames that are not whole; for the thread of the server.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        tls_context: "Callable[[], ssl.SSLContext | None]" = lambda: None,
        *,
        tls_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tls_context = tls_context
        self.tls_only = tls_only
        self.clock = clock
        self.incoming_bytes = 0
        self._name = name
        self._handler = handler
        self._listeners: dict[int, socket.socket] = {}
        self._connections: dict[int, Connection] = {}
        self._epoll = select.epoll()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._epoll.register(self._woken.fileno(), _READ)
        self._thread: threading.Thread | None = None
        self._is_over = False

    @property
    def connections(self) -> Mapping[int, Connection]:
        """Those that are open, by descriptor; for the handler's calls only."""
        return self._connections

    @property
    def connection_count(self) -> int:
        """Those that are open."""
        return len(self._connections)

    def listen(self, address: Address) -> Address:
        """Take a port, from now on; port 0 takes a free one. Before `start`.

        Returns:
            The address that was bound.

        Raises:
            OSError: it cannot be bound.
        """
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listeners[listener.fileno()] = listener
        self._epoll.register(listener.fileno(), _READ)
        return Address(*listener.getsockname()[:2])

    def start(self) -> None:
        """Begin to accept."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections and release the ports; returns when nothing calls the handler any more."""
        self._is_over = True
        if self._thread is not None:
            self.wake()
            if self._thread is not threading.current_thread():
                self._thread.join()
        else:
            self._end_all()

    def wake(self) -> None:
        """Have the thread look at its connections."""
        with contextlib.suppress(OSError):  # it is full of such bytes, or closed
            self._waker.send(b"\0")

    def modify(self, fd: int, interest: int) -> None:
        """Change what a connection waits for."""
        self._epoll.modify(fd, interest)

    def _run(self) -> None:
        next_look = self.clock() + LOOK_SECONDS
        try:
            while not self._is_over:
                for fd, events in self._epoll.poll(LOOK_SECONDS):
                    self._on_event(fd, events)
                now = self.clock()
                if now >= next_look:
                    next_look = now + LOOK_SECONDS
                    self._look(now)
        finally:
            self._end_all()

    def _on_event(self, fd: int, events: int) -> None:
        connection = self._connections.get(fd)
        if connection is not None:
            if not self._is_alive(connection, events):
                self._forget(fd, connection)
        elif fd in self._listeners:
            self._accept(self._listeners[fd])
        elif fd == self._woken.fileno():
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4_096)
            for other_fd, other in [*self._connections.items()]:
                if other.is_closed:
                    self._forget(other_fd, other)

    def _is_alive(self, connection: Connection, events: int) -> bool:
        try:
            return connection.on_ready(events, self._handler)
        except Exception:  # a bug in a handler costs its own connection
            _log.exception("remoting.failed", peer=str(connection.peer))
            return False

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connected, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _CLIENT_IS_GONE:
                    _log.warning("remoting.accept_failed", error=str(error))
                    time.sleep(REST_SECONDS)  # no descriptors are left
                return
            if len(self._connections) >= CONNECTION_COUNT_MAX:
                _log.warning("remoting.refused", peer=str(peer[0]), connections=CONNECTION_COUNT_MAX)
                connected.close()
                continue
            connected.setblocking(False)
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, connected, Address(peer[0], peer[1]), self.clock())
            self._connections[connected.fileno()] = connection
            self._epoll.register(connected.fileno(), _READ)

    def _look(self, now: float) -> None:
        for fd, connection in [*self._connections.items()]:
            why = connection.why_over(now)
            if why:
                if why != "idle":
                    _log.warning("remoting.closed", peer=str(connection.peer), why=why)
                self._forget(fd, connection)

    def _forget(self, fd: int, connection: Connection) -> None:
        del self._connections[fd]
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)
        connection.end()
        try:
            self._handler.on_close(connection)
        except Exception:  # a bug must not end the others
            _log.exception("remoting.failed", peer=str(connection.peer))

    def _end_all(self) -> None:
        for fd, connection in [*self._connections.items()]:
            self._forget(fd, connection)
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._epoll.close()
        self._woken.close()
        self._waker.close()
