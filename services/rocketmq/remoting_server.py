"""RemotingServer: connections of RocketMQ's clients and brokers, and their commands (services/rocketmq/command.py).

    client ══════▶ socket ──▶ one thread: epoll, TLS, frames ──▶ Handler.on_command(connection, command)     must not block
    client ◀══════ socket ◀── Connection.send(command), from any thread, at once; what the socket does not take waits for it

A connection costs no thread. Both sides may ask, and answers come in any order: `Connection.ask` sends a request to a client
and gives its answer to a callback.

What bounds a connection:

| limit | what happens beyond it |
| --- | --- |
| CONNECTION_COUNT_MAX, or ADDRESS_PART of them from one address | a new connection is closed at once |
| DESCRIPTOR_PART of the descriptors of the process | likewise: the rest is for files and for the other ports |
| REQUEST_COUNT_MAX requests, or REQUEST_BYTES_MAX of their frames, without an answer | no further command is begun |
| ALL_REQUEST_BYTES_MAX of them over all connections, or ADDRESS_PART of that from one address | likewise, of that address |
| OUTGOING_BYTES_MAX that its client does not take | no further command is begun |
| a whole frame that is not begun | nothing more is read, so its client is slowed down by TCP |
| of ALL_OUTGOING_BYTES_MAX: as much of one address as is left, at most ADDRESS_PART | likewise, of that address |
| ALL_OUTGOING_BYTES_MAX of them, of all | the one with most, of the address with most, is closed |
| OUTGOING_BYTES_LIMIT that its client does not take, of answers that come late and of requests to it | it is closed |
| STALL_SECONDS_MAX in which its client takes none of them | it is closed |
| FRAME_SECONDS_MAX for a frame, or a TLS handshake, that it began | it is closed |
| INCOMING_BYTES_MAX of bytes that are no command yet, of all | the one with most, of the address with most, is closed |
| IDLE_SECONDS_MAX in which neither side sends anything | it is closed; RocketMQ's clients and servers do the same |
| CERTIFIED_SECONDS_MAX since its client has shown a certificate | it is closed: the certificate may have ended meanwhile |
| a frame that is none | it is closed, and a log line says why |

The limits of all connections are lower where the process has little memory: see `part_of_memory`.
Log lines about clients are limited, too (services/rocketmq/line_limit.py).

A first byte of 0x16 begins TLS; no frame begins so. A client that begins without TLS where it is needed is told so in the
answer to its first request, and its connection is closed. Source: `NettyRemotingServer` of RocketMQ 5.3.3.
"""

import contextlib
import errno
import itertools
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import structlog

from services.rocketmq.address import Address
from services.rocketmq.command import ONEWAY, Command, FrameError, FrameReader, decode, encode_head
from services.rocketmq.line_limit import LineLimit
from services.rocketmq.proxy_header import is_in, parse_header, parse_networks
from store.files.memory_limit import memory_limit_bytes
from store.files.open_files import open_file_limit

if TYPE_CHECKING:
    import ssl

CONNECTION_COUNT_MAX = 20_000
# What one address may have of what all connections share. A proxy, or a cluster's network, has many clients behind it.
ADDRESS_PART = 0.75
# New sockets get the lowest free descriptor, so its number tells how many are in use.
DESCRIPTOR_PART = 0.75
REQUEST_COUNT_MAX = 4_096
OUTGOING_BYTES_MAX = 4 << 20
OUTGOING_BYTES_LIMIT = 64 << 20
ALL_OUTGOING_BYTES_MAX = 256 << 20
REQUEST_BYTES_MAX = 32 << 20
ALL_REQUEST_BYTES_MAX = 512 << 20
# Each of the limits of all connections is a part of the memory of the process, too; half of it together, because what is kept
# has objects beside its bytes. Two frames always have room.
REQUEST_MEMORY_DIVISOR, OUTGOING_MEMORY_DIVISOR, INCOMING_MEMORY_DIVISOR = 4, 8, 8
ROOM_BYTES_MIN = 32 << 20
# Of what is made here of a request, besides its frame.
REQUEST_OVERHEAD_BYTES = 2_048
INCOMING_BYTES_MAX = 256 << 20
# So many commands of one connection are begun, then it is the turn of the others.
TURN_COUNT = 64
STALL_SECONDS_MAX = 30.0
FRAME_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 120.0
# How often connections are looked at for the limits of time.
LOOK_SECONDS = 1.0
READ_BYTES = 256 << 10
BACKLOG = 1_024
TLS_FIRST_BYTE = 0x16
# As of gRPC's connections (CERTIFIED_AGE_SECONDS); one with requests gets so much longer to answer them.
CERTIFIED_SECONDS_MAX = 3_600.0
CERTIFIED_REQUEST_SECONDS_MAX = 60.0
NO_PERMISSION = 16

IDLE, AGED = "idle", "its certificate was shown long ago"
LOOPBACK = parse_networks("127.0.0.0/8,::1")
NEEDS_TLS = "this port takes TLS only: start the client with -Dtls.enable=true, or its like"

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_CLIENT_IS_GONE = {errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED, errno.EBADF}

_log = structlog.get_logger("reput.remoting")

# Takes a frame of a connection before it is decoded: returns what begins it, when its request is counted, or None.
Take = Callable[["Connection", bytes], "Callable[[], object] | None"]
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
        peer: the client's address; of a proxy until its header has come.
        local: ours, as the client has reached it.
        fd: of its socket.
        is_closed: nothing is sent any more.
        certificate: that the client has shown, as PEM; None: none.
    """

    def __init__(self, server: "RemotingServer", connected: socket.socket, peer: Address, now: float) -> None:
        self.peer = peer
        self.local = Address(*connected.getsockname()[:2])
        self.is_closed = False
        self.certificate: bytes | None = None
        self._certified_at = now
        self._needs_tls = False
        self._server = server
        self._socket = connected
        self.fd = connected.fileno()
        self._lock = threading.Lock()
        self._reader = FrameReader()
        self._tls: _Tls | None = None
        self._is_first = True
        self._header: bytes | None = b"" if server.is_proxy(peer.host) else None  # what has come of a proxy's header
        self._is_proxied = self._header is not None
        self._outgoing: deque[memoryview] = deque()
        self._outgoing_bytes = 0
        self._counted_outgoing_bytes = 0  # of them, as the server counts them
        self._request_count = 0
        self._request_bytes = 0  # of the frames of those requests
        self._has_ended = False
        self._has_frame = False  # a whole frame waits to be begun
        self._is_held = False  # commands wait for room
        self._counted_bytes = 0  # of what came and is no command yet, as the server counts it
        self._interest = _READ
        self._active_at = now  # when either side last sent something
        self._stalled_since: float | None = None  # bytes wait for its client since then
        self._frame_since: float | None = None  # a frame or handshake is under way since then
        self._opaques = itertools.count(1)
        self._asked: dict[int, tuple[float, Then]] = {}

    @property
    def outgoing_bytes(self) -> int:
        """What its client has not taken."""
        return self._outgoing_bytes

    @property
    def request_count(self) -> int:
        """Requests that are not answered."""
        return self._request_count

    def send(self, command: Command) -> None:
        """Send a command; nothing happens when the connection has ended."""
        pieces = _pieces_of(command)
        with self._lock:
            self._put(pieces)

    def answer(self, request: Command, answer: Command) -> None:
        """Send the answer to a request; not to one that wants none."""
        self.answer_all([(request, answer)])

    def answer_all(self, answered: Sequence[tuple[Command, Command]]) -> None:
        """Send the answers to several requests, each with its request, in one write; see `answer`."""
        pieces: list[bytes] = []
        size = 0
        for request, answer in answered:
            size += request.frame_bytes
            if request.is_oneway:
                continue
            try:
                pieces += _pieces_of(answer)
            except FrameError as error:
                pieces += _pieces_of(request.answer(1, f"the answer cannot be sent: {error}"))
        self.answer_encoded(len(answered), size, pieces)

    def answer_encoded(self, count: int, frame_bytes: int, pieces: list[bytes]) -> None:
        """Send the answers to several requests, which are encoded, in one write; see `answer`.

        Args:
            count: of the requests.
            frame_bytes: of them (bytes).
            pieces: the bytes of the answers.
        """
        size = frame_bytes + count * REQUEST_OVERHEAD_BYTES
        with self._lock:
            is_counted = not self._has_ended
            if is_counted:
                self._request_bytes -= size
            self._request_count -= count
            if pieces:
                self._put(pieces)
            else:
                self._watch()
        if is_counted:
            self._server.count_request(self.peer.host, -size)

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
        try:
            self.send(replace(command, opaque=opaque))
        except FrameError:
            with self._lock:
                self._asked.pop(opaque, None)
            raise

    def close(self) -> None:
        """End the connection; from any thread."""
        with self._lock:
            if not self.is_closed:
                self._break()

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
                self._server.warn("remoting.read_failed", peer=str(self.peer), error=str(error))
            return False
        if not data:
            return False
        self._active_at = self._server.clock()
        try:
            if self._header is not None:
                data = self._without_header(self._header + data)
                if not data:
                    return not self.is_closed
            if self._is_first:
                self._begin(data)
            if self._tls is not None:
                data = self._unwrap(self._tls, data)
        except FrameError as error:
            return self._refuse(error)
        self._reader.add(data)
        return self.go_on(handler) and not (self._tls is not None and self._tls.is_over)

    def _without_header(self, data: bytes) -> bytes:
        """What is behind the header of a proxy; empty: nothing yet. FrameError when it is none, or its client has no room."""
        header = parse_header(data)
        if header is None:
            self._header = data
            self._frame_since = self._frame_since or self._active_at
            return b""
        self._header = self._frame_since = None
        if header.client is not None:
            self._server.move(self, header.client)
        return data[header.size_bytes :]

    def _unwrap(self, tls: "_Tls", data: bytes) -> bytes:
        was_beginning = tls.is_beginning
        with self._lock:
            try:
                data, reply = tls.unwrap(data)
            except FrameError:
                if not self.is_closed:  # the alert says why
                    self._write([tls.last_words()])
                raise
            if reply and not self.is_closed:
                self._write([reply])
        if was_beginning and not tls.is_beginning:
            self.certificate = tls.certificate()
            self._certified_at = self._server.clock()
        return data

    def go_on(self, handler: Handler) -> bool:
        """Begin the commands that have come, as far as there is room; False when the connection has ended."""
        has_begun = False
        try:
            for _ in range(TURN_COUNT):
                if not self._has_room():
                    return not self.is_closed
                frame = self._reader.next_frame()
                if frame is None:
                    return not self.is_closed
                self._frame_since = None
                has_begun = True
                self._on_frame(frame, handler)
        except FrameError as error:
            return self._refuse(error)
        finally:
            self._note_frame(has_begun=has_begun)
        self._server.look_at(self)
        return not self.is_closed

    def _has_room(self) -> bool:
        if not self._is_held and self._may_begin():  # this thread alone takes room
            return True
        with self._lock:
            self._is_held = not self._may_begin()
            is_held = self._is_held
        if is_held and not self._server.has_room(self.peer.host):
            self._server.hold(self)
        return not is_held

    def _refuse(self, error: FrameError) -> bool:
        self._server.warn("remoting.bad_frame", peer=str(self.peer), error=str(error))
        return False

    def _note_frame(self, *, has_begun: bool) -> None:
        size, has_frame = self._reader.size_bytes, self._reader.has_frame
        if has_begun or has_frame != self._has_frame:  # the kernel is asked once for all commands that were begun
            with self._lock:
                self._has_frame = has_frame
                self._watch()
        if not size and not (self._tls is not None and self._tls.is_beginning):
            self._frame_since = None
        elif self._frame_since is None and not self._is_held:
            self._frame_since = self._active_at
        more_bytes = self._reader.held_bytes - self._counted_bytes
        self._counted_bytes += more_bytes
        self._server.count_incoming(self.peer.host, more_bytes)

    @property
    def is_private(self) -> bool:
        """Whether no network carries it in plain text: it has TLS, or is of the loopback addresses, without a proxy."""
        ends = self.peer.host, self.local.host
        is_here = not self._is_proxied and all(is_in(host, LOOPBACK) for host in ends)
        return is_here or self._tls is not None

    @property
    def counted_bytes(self) -> int:
        """What is kept of what came as bytes."""
        return self._counted_bytes

    def _begin(self, data: bytes) -> None:
        self._is_first = False
        if data[0] != TLS_FIRST_BYTE:
            self._needs_tls = self._server.tls_only
            return
        context = self._server.tls_context()
        if context is None:
            raise FrameError("it begins with TLS, and this server has no certificate: set REPUT_TLS_CERTIFICATE")
        self._tls = _Tls(context)

    def _on_frame(self, frame: bytes, handler: Handler) -> None:
        begin = None if self._needs_tls else self._server.take(self, frame)
        if begin is None:
            self._on_command(decode(frame), handler)
        else:
            self._count_request(len(frame))
            begin()

    def _count_request(self, frame_bytes: int) -> None:
        size = frame_bytes + REQUEST_OVERHEAD_BYTES
        with self._lock:
            self._request_count += 1
            self._request_bytes += size
        self._server.count_request(self.peer.host, size)

    def _on_command(self, command: Command, handler: Handler) -> None:
        if command.is_answer:
            with self._lock:
                asked = self._asked.pop(command.opaque, None)
            if asked is not None:
                _give(asked[1], command)
            return
        self._count_request(command.frame_bytes)
        if self._needs_tls:
            self.answer(command, command.answer(NO_PERMISSION, NEEDS_TLS))
            raise FrameError("it does not begin with TLS, which this server asks for")
        handler.on_command(self, command)

    def why_over(self, now: float) -> str:
        """Why the connection is to be closed now; empty: it is not. Requests to the client that are too old are given up."""
        with self._lock:
            late = [opaque for opaque, (until, _) in self._asked.items() if until <= now]
            given_up = [self._asked.pop(opaque)[1] for opaque in late]
        for then in given_up:
            _give(then, None)
        stalled_since = self._stalled_since
        if stalled_since is not None and now - stalled_since > STALL_SECONDS_MAX:
            return f"its client took nothing for {STALL_SECONDS_MAX:.0f} s"
        if self._frame_since is not None and now - self._frame_since > FRAME_SECONDS_MAX:
            return f"a frame was not whole after {FRAME_SECONDS_MAX:.0f} s"
        if now - self._active_at > IDLE_SECONDS_MAX:
            return IDLE
        if self.certificate is not None:
            over = now - self._certified_at - CERTIFIED_SECONDS_MAX
            if over > (CERTIFIED_REQUEST_SECONDS_MAX if self._request_count else 0):
                return AGED
        return ""

    def end(self) -> None:
        """Close the socket; requests to the client get no answer."""
        with self._lock:
            self.is_closed = True
            self._drop_outgoing()
            self._socket.close()
            asked, self._asked = list(self._asked.values()), {}
            request_bytes, self._request_bytes = self._request_bytes, 0
            self._has_ended = True
        self._server.count_request(self.peer.host, -request_bytes)
        self._server.count_incoming(self.peer.host, -self._counted_bytes)
        self._counted_bytes = 0
        for _, then in asked:
            _give(then, None)

    # --- with the lock held

    def _put(self, pieces: list[bytes]) -> None:
        """Send these pieces through TLS, where the connection has it; nothing when it has ended."""
        if self.is_closed:
            return
        if self._tls is not None:
            try:
                pieces = [self._tls.wrap(b"".join(pieces))]
            except OSError:  # TLS has failed, and the thread of the server has not ended the connection yet
                self._break()
                return
        self._write(pieces)

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
            self._break()
            return
        if self._outgoing_bytes > OUTGOING_BYTES_LIMIT:
            why = f"its client left {self._outgoing_bytes} bytes"
            self._server.warn("remoting.closed", peer=str(self.peer), why=why)
            self._break()
            return
        self._count_outgoing()
        if not self._outgoing:
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = self._server.clock()
        self._watch()

    def _break(self) -> None:
        """Nothing is sent any more, and the thread of the server forgets the connection."""
        self._drop_outgoing()
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._server.look_at(self)

    def _drop_outgoing(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._count_outgoing()

    def _count_outgoing(self) -> None:
        more_bytes = self._outgoing_bytes - self._counted_outgoing_bytes
        self._counted_outgoing_bytes += more_bytes
        self._server.count_outgoing(self.peer.host, more_bytes)

    def _may_begin(self) -> bool:
        return (
            self._request_count < REQUEST_COUNT_MAX
            and self._request_bytes < REQUEST_BYTES_MAX
            and self._outgoing_bytes < OUTGOING_BYTES_MAX
            and self._server.has_room(self.peer.host)
        )

    def _watch(self) -> None:
        """Ask the kernel for what can be done now: reading with room for requests, writing when something waits."""
        has_room = self._may_begin()
        if has_room and self._is_held:
            self._is_held = False
            self._server.look_at(self)
        interest = (_READ if has_room and not self._has_frame else 0) | (_WRITE if self._outgoing else 0)
        if interest != self._interest and not self.is_closed:
            self._interest = interest
            with contextlib.suppress(OSError):  # it was closed meanwhile
                self._server.modify(self.fd, interest)


def _pieces_of(command: Command) -> list[bytes]:
    """The bytes of a command; FrameError when it has no frame."""
    head = encode_head(command, len(command.body))
    return [head, command.body] if command.body else [head]


class _Divided:
    """An amount that all connections share, and how much of it each address has; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_host: dict[str, int] = {}
        self.sum = 0

    def add(self, host: str, amount: int) -> None:
        """So much more, or less, is in use."""
        if not amount:
            return
        with self._lock:
            self.sum += amount
            of_host = self._by_host.get(host, 0) + amount
            if of_host:
                self._by_host[host] = of_host
            else:
                self._by_host.pop(host, None)

    def of(self, host: str) -> int:
        """What an address has."""
        return self._by_host.get(host, 0)

    def has_room(self, host: str, amount_max: int) -> bool:
        """Whether an address may have more."""
        return self.sum < amount_max and self.of(host) < amount_max * ADDRESS_PART

    def has_share(self, host: str, amount_max: int) -> bool:
        """Whether an address has at most as much as is left, and as an address may have; one that has nothing has room."""
        of_host = self.of(host)
        return not of_host or of_host <= min(amount_max - self.sum, amount_max * ADDRESS_PART)


def _give(then: Then, answer: Command | None) -> None:
    try:
        then(answer)
    except Exception:  # a bug of the caller
        _log.exception("remoting.failed")


class _Tls:
    """TLS between a socket's bytes and those of the protocol."""

    def __init__(self, context: "ssl.SSLContext") -> None:
        import ssl  # takes 10 ms, only with TLS

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._errors = ssl.SSLError
        self._wants_read, self._is_last = ssl.SSLWantReadError, ssl.SSLZeroReturnError
        self._waiting: list[bytes] = []
        self.is_beginning = True
        self.is_over = False  # the client has said its last
        self._to_pem = ssl.DER_cert_to_PEM_cert

    def certificate(self) -> bytes | None:
        """That of the client, as PEM, after the handshake; None: it has shown none."""
        der = self._object.getpeercert(binary_form=True)
        return None if der is None else self._to_pem(der).encode()

    def last_words(self) -> bytes:
        """What TLS says when it has failed."""
        return self._outgoing.read()

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
            self.is_over = True
        except self._wants_read:
            pass
        except self._is_last:
            self.is_over = True
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


@lru_cache(maxsize=64)
def part_of_memory(bytes_max: int, memory_bytes: int, divisor: int) -> int:
    """A limit of all connections (bytes): lower than `bytes_max` where the process has little memory."""
    return min(bytes_max, max(memory_bytes // divisor, ROOM_BYTES_MIN))


def kept_bytes_max(memory_bytes: int) -> int:
    """The bytes that all connections of a server may have it keep."""
    return sum(
        part_of_memory(bytes_max, memory_bytes, divisor)
        for bytes_max, divisor in (
            (ALL_REQUEST_BYTES_MAX, REQUEST_MEMORY_DIVISOR),
            (ALL_OUTGOING_BYTES_MAX, OUTGOING_MEMORY_DIVISOR),
            (INCOMING_BYTES_MAX, INCOMING_MEMORY_DIVISOR),
        )
    )


class RemotingServer:
    """Serves one or several ports with one handler.

    Args:
        name: of its thread.
        handler: takes the commands.
        tls_context: the context of each new TLS connection, or None; called for each.
        tls_only: connections without TLS are closed.
        failed: called when the thread cannot go on; nothing is served any more.
        turn_ended: called by the thread when all commands that have come were begun, before it waits for more.
        take: called by the thread with each frame before it is decoded; what it takes is a request. See Take.
        clock: seconds, rising.
        server_count: of the servers of this process whose connections share its memory.
        is_proxy: tells whether connections from an address begin with the header of a proxy (proxy_header.py).

    Attributes:
        memory_bytes: what the connections have a part of.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        tls_context: "Callable[[], ssl.SSLContext | None]" = lambda: None,
        *,
        tls_only: bool = False,
        failed: Callable[[Exception], object] = lambda error: None,
        turn_ended: Callable[[], object] = lambda: None,
        take: Take = lambda connection, frame: None,
        clock: Callable[[], float] = time.monotonic,
        server_count: int = 1,
        is_proxy: Callable[[str], bool] = lambda host: False,
    ) -> None:
        self.is_proxy = is_proxy
        self.memory_bytes = memory_limit_bytes() // server_count
        self._turn_ended = turn_ended
        self.take = take
        self.tls_context = tls_context
        self.tls_only = tls_only
        self.clock = clock
        self._failed = failed
        self._incoming = _Divided()
        self._requests = _Divided()
        self._outgoing = _Divided()
        self._connected = _Divided()
        self._lines = LineLimit(clock)
        self._held: dict[Connection, None] = {}  # they wait for room of all
        self._has_given_back = False
        self._to_look_at: deque[Connection] = deque()
        self._rests = False
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
    def incoming_bytes(self) -> int:
        """What is kept of what came over all connections as bytes."""
        return self._incoming.sum

    @property
    def request_bytes(self) -> int:
        """Of requests without an answer, over all connections."""
        return self._requests.sum

    @property
    def outgoing_bytes(self) -> int:
        """What clients do not take, over all connections."""
        return self._outgoing.sum

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
            self._wake()
            if self._thread is not threading.current_thread():
                self._thread.join()
        else:
            self._end_all()

    def look_at(self, connection: Connection) -> None:
        """Have the thread go on with a connection, or forget it if it has ended."""
        self._to_look_at.append(connection)
        if threading.current_thread() is not self._thread:  # it looks before it waits
            self._wake()

    def count_incoming(self, host: str, more_bytes: int) -> None:
        """So many bytes more, or less, are kept for an address; for the thread of the server."""
        self._incoming.add(host, more_bytes)
        if more_bytes > 0 and self._incoming.sum > self._part(INCOMING_BYTES_MAX, INCOMING_MEMORY_DIVISOR):
            most = max(
                self._connections.values(), key=lambda each: (self._incoming.of(each.peer.host), each.counted_bytes)
            )
            self.warn("remoting.closed", peer=str(most.peer), why=f"it has {most.counted_bytes} bytes of a command")
            most.close()

    def count_request(self, host: str, more_bytes: int) -> None:
        """So many bytes more, or less, are in requests of an address; from any thread."""
        self._requests.add(host, more_bytes)
        self._note_given_back(more_bytes)

    def count_outgoing(self, host: str, more_bytes: int) -> None:
        """So many bytes more, or less, wait for clients of an address; from any thread."""
        self._outgoing.add(host, more_bytes)
        self._note_given_back(more_bytes)
        if more_bytes > 0 and self._outgoing.sum > self._outgoing_bytes_max:
            self._wake()  # its thread closes one: here another connection's lock may be held

    def _note_given_back(self, more_bytes: int) -> None:
        if more_bytes < 0 and self._held and not self._has_given_back:
            self._has_given_back = True
            self._wake()

    def has_room(self, host: str) -> bool:
        """Whether an address may begin another request."""
        request_bytes_max = self._part(ALL_REQUEST_BYTES_MAX, REQUEST_MEMORY_DIVISOR)
        return self._requests.has_room(host, request_bytes_max) and self._outgoing.has_share(
            host, self._outgoing_bytes_max
        )

    def _part(self, bytes_max: int, divisor: int) -> int:
        return part_of_memory(bytes_max, self.memory_bytes, divisor)

    @property
    def _outgoing_bytes_max(self) -> int:
        return self._part(ALL_OUTGOING_BYTES_MAX, OUTGOING_MEMORY_DIVISOR)

    def warn(self, event: str, **fields: object) -> None:
        """Write a log line about a client, unless there are too many."""
        more = self._lines.take()
        if more is not None:
            _log.warning(event, **fields, **more)

    def _close_fullest(self) -> None:
        """Close connections until what clients do not take is below its limit."""
        while self._outgoing.sum > self._outgoing_bytes_max:
            most = max(
                self._connections.values(),
                key=lambda each: (self._outgoing.of(each.peer.host), each.outgoing_bytes),
                default=None,
            )
            if most is None or not most.outgoing_bytes:
                return  # what is counted is being given back
            why = f"its client left {most.outgoing_bytes} of the {self._outgoing.sum} bytes that wait for all"
            self.warn("remoting.closed", peer=str(most.peer), why=why)
            most.close()

    def hold(self, connection: Connection) -> None:
        """A connection waits for room of all; for the thread of the server."""
        self._held[connection] = None

    def _go_on_with_held(self) -> None:
        self._has_given_back = False
        held, self._held = self._held, {}
        for connection in held:
            self._go_on(connection)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is full of such bytes, or closed
            self._waker.send(b"\0")

    def modify(self, fd: int, interest: int) -> None:
        """Change what a connection waits for."""
        self._epoll.modify(fd, interest)

    def _run(self) -> None:
        next_look = self.clock() + LOOK_SECONDS
        try:
            while not self._is_over:
                for fd, events in self._epoll.poll(0 if self._to_look_at else LOOK_SECONDS):
                    self._on_event(fd, events)
                for _ in range(len(self._to_look_at)):
                    self._go_on(self._to_look_at.popleft())
                if self._outgoing.sum > self._outgoing_bytes_max:
                    self._close_fullest()
                if self._has_given_back:
                    self._go_on_with_held()
                self._turn_ended()
                now = self.clock()
                if now >= next_look:
                    next_look = now + LOOK_SECONDS
                    self._go_on_with_held()  # one may have begun to wait while room was given back
                    self._look(now)
        except Exception as error:
            _log.exception("remoting.ended")
            self._failed(error)
        finally:
            self._end_all()

    def _go_on(self, connection: Connection) -> None:
        fd = connection.fd
        if self._connections.get(fd) is connection and not self._is_alive(connection, 0):
            self._forget(fd, connection)

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

    def _is_alive(self, connection: Connection, events: int) -> bool:
        try:
            if not events:
                return not connection.is_closed and connection.go_on(self._handler)
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
                    self._rest(error)
                return
            why = self._why_refused(connected.fileno(), peer[0])
            if why:
                self.warn("remoting.refused", peer=str(peer[0]), why=why)
                connected.close()
                continue
            connected.setblocking(False)
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, connected, Address(peer[0], peer[1]), self.clock())
            try:
                self._epoll.register(connected.fileno(), _READ)
            except OSError as error:
                connected.close()
                self._rest(error)
                return
            self._connections[connected.fileno()] = connection
            self._connected.add(connection.peer.host, 1)

    def move(self, connection: Connection, client: Address) -> None:
        """A proxy says whose connection it is; FrameError when that client may have no further one."""
        why = self._why_refused(connection.fd, client.host)
        if why:
            raise FrameError(f"{client.host}: {why}")
        self._connected.add(connection.peer.host, -1)
        connection.peer = client
        self._connected.add(client.host, 1)

    def _why_refused(self, fd: int, host: str) -> str:
        """Why a new connection is to be closed; empty: it is not."""
        descriptor_count = int(open_file_limit() * DESCRIPTOR_PART)
        if fd >= descriptor_count:
            return f"{descriptor_count} descriptors are in use, the rest is for files: raise the limit of open files"
        count_max = min(CONNECTION_COUNT_MAX, descriptor_count)
        if self._connected.has_room(host, count_max):
            return ""
        return f"{self._connected.sum} of {count_max} connections are open, {self._connected.of(host)} of this address"

    def _rest(self, error: OSError) -> None:
        """Accept nothing until the next look: no descriptors or no memory is left."""
        self.warn("remoting.accept_failed", error=str(error), hint="raise the limit of open files")
        self._rests = True
        for fd in self._listeners:
            self._epoll.modify(fd, 0)

    def _look(self, now: float) -> None:
        if self._rests:
            self._rests = False
            for fd in self._listeners:
                self._epoll.modify(fd, _READ)
        for fd, connection in [*self._connections.items()]:
            why = connection.why_over(now)
            if why:
                if why not in (IDLE, AGED):
                    self.warn("remoting.closed", peer=str(connection.peer), why=why)
                self._forget(fd, connection)

    def _forget(self, fd: int, connection: Connection) -> None:
        del self._connections[fd]
        self._held.pop(connection, None)
        self._connected.add(connection.peer.host, -1)
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)
        try:
            connection.end()
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
