"""A client of HTTP/2 that does what no library would: half requests, windows of 0, thousands of connections. Frames by hand.

    RFC 9113: 9 bytes of head (24 bits size, type, flags, 31 bits stream), then the payload
    RFC 7541: headers as literals without index and without Huffman's code: 00, size, name, size, value

One thread answers SETTINGS and PING of all connections and notes which streams have ended.
"""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 0x4
FRAME_BYTES_MAX = 16_384


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream_id) + payload


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers as HPACK."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes((len(data),)) + data
    size, rest = bytearray(b"\x7f"), len(data) - 127
    while rest >= 128:
        size.append(rest % 128 + 128)
        rest //= 128
    return bytes(size) + bytes((rest,)) + data


def announced(size_bytes: int, sent: bytes) -> bytes:
    """The begin of a gRPC message that says it has so many bytes."""
    return struct.pack(">BI", 0, size_bytes) + sent


class RawConnection:
    """One connection; made by `RawClient.connect`.

    Attributes:
        ended: streams that the server has ended.
        statuses: the raw header blocks of trailers, by stream.
        is_closed: the server has closed the connection.
    """

    def __init__(self, sock: socket.socket, window_bytes: int | None) -> None:
        self.socket = sock
        self.ended: set[int] = set()
        self.statuses: dict[int, bytes] = {}
        self.is_closed = False
        self._buffer = b""
        self._next_id = 1
        self._left: dict[int, int] = {}  # bytes to send as windows allow, by stream
        self._windows: dict[int, int] = {}
        self._stream_window = self._window = 65_535
        self._lock = threading.RLock()
        settings = b"" if window_bytes is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window_bytes)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> None:
        """Send frames; a closed connection is noted."""
        with self._lock:
            try:
                self.socket.sendall(data)
            except OSError:
                self.is_closed = True

    def call(
        self, path: str, data: bytes = b"", *, is_whole: bool = False, headers: Iterable[tuple[str, str]] = ()
    ) -> int:
        """Open a stream and send these bytes on it; its id.

        Args:
            path: of the RPC.
            data: a gRPC message, or the begin of one.
            is_whole: nothing follows.
            headers: more of them.
        """
        stream_id = self._next_id
        self._next_id += 2
        block = header_block(
            [
                *((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test")),
                *(("content-type", "application/grpc"), ("te", "trailers")),
                *headers,
            ]
        )
        frames = frame(HEADERS, END_HEADERS, stream_id, block)
        if data or is_whole:
            frames += frame(DATA, END_STREAM if is_whole else 0, stream_id, data)
        self.send(frames)
        return stream_id

    def send_zeros(self, stream_id: int, size_bytes: int) -> None:
        """Send so many bytes on a stream, as fast as the server's windows allow; returns at once."""
        with self._lock:
            self._windows[stream_id] = self._stream_window
            self._left[stream_id] = size_bytes
            self._send_left()

    def _send_left(self) -> None:
        """Called with the lock held."""
        for stream_id, left in list(self._left.items()):
            size = min(left, self._window, self._windows[stream_id], FRAME_BYTES_MAX)
            while size > 0:
                self.send(frame(DATA, 0, stream_id, bytes(size)))
                self._window -= size
                self._windows[stream_id] -= size
                self._left[stream_id] -= size
                size = min(self._left[stream_id], self._window, self._windows[stream_id], FRAME_BYTES_MAX)
            if not self._left[stream_id] or stream_id in self.ended:
                del self._left[stream_id]

    def take(self) -> bool:
        """Read what is there; False at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
            return False
        self._buffer += data
        while len(self._buffer) >= HEAD_BYTES:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < HEAD_BYTES + size:
                break
            kind, flags = self._buffer[3], self._buffer[4]
            stream_id = int.from_bytes(self._buffer[5:9], "big") & 0x7FFF_FFFF
            payload = self._buffer[HEAD_BYTES : HEAD_BYTES + size]
            self._buffer = self._buffer[HEAD_BYTES + size :]
            with self._lock:
                self._take_frame(kind, flags, stream_id, payload)
        return True

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for place in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, place)
                if name == INITIAL_WINDOW_SIZE:
                    for each in self._windows:
                        self._windows[each] += value - self._stream_window
                    self._stream_window = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == HEADERS and flags & END_STREAM:
            self.statuses[stream_id] = payload
            self.ended.add(stream_id)
        elif kind == RST_STREAM:
            self.ended.add(stream_id)
        elif kind == WINDOW_UPDATE:
            size = int.from_bytes(payload, "big")
            if stream_id == 0:
                self._window += size
            elif stream_id in self._windows:
                self._windows[stream_id] += size
            self._send_left()


class RawClient:
    """Many connections and the thread that reads them.

    Args:
        address: `HOST:PORT`.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._selector = selectors.DefaultSelector()
        self._connections: list[RawConnection] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="raw-http2", daemon=True)
        self._thread.start()

    def connect(self, window_bytes: int | None = None, source: str = "127.0.0.1") -> RawConnection:
        """One more connection.

        Args:
            window_bytes: what the server may send on a stream; None: HTTP/2's own 65,535.
            source: the address that it comes from, such as 127.0.0.2.
        """
        sock = socket.create_connection(self._target, timeout=30, source_address=(source, 0))
        connection = RawConnection(sock, window_bytes)
        self._connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        return connection

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._thread.join()
        for connection in self._connections:
            connection.socket.close()
        self._selector.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.05):
                if not key.data.take():
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(key.fileobj)
