"""Append calls: appends of a gateway to a commitlog of the same machine, over a plain unix socket beside the gRPC one.

Why: see services/lookup_calls.py. Of a batch of 32 messages the log itself takes a tenth; the rest of what gRPC takes for
one hop is the libraries'.

Rules:
- Requests and answers are the bytes that AppendMessages and AppendMessageStream have over gRPC, errors the same
  `google.rpc.Status`. Only the wire differs.
- It exists only where the commitlog listens on a unix socket: at `<that path>.appends`. Whoever is not let in, which the
  greeting says, appends over gRPC.
- An append is not idempotent: once the first byte of a request was given to a connection, that request is sent by no other
  way and not again. A connection that breaks fails what was under way.
- A connection is for unary calls, one at a time, or for one stream, whose requests may be sent ahead of their answers and
  whose end is the end of its connection.

    connection  server: GREETING, then for each request its answer, in order
    request     [u32 size of what follows][u8 Append][proto]
    answer      [u32 size of what follows][u8 ANSWER or STATUS][proto]      big-endian

After a STATUS on a stream nothing more is answered: a refused request of a stream is an ANSWER that holds the error.
"""

import socket
import struct
from collections.abc import Callable
from enum import IntEnum

from services.local_door import door_path

GREETING = b"reput-appends-1\n"
HEAD = struct.Struct(">IB")
ANSWER, STATUS = 0, 1
# As services/server.py: what a commitlog takes over gRPC.
REQUEST_BYTES_MAX = 4 * 1024 * 1024 + 128 * 1024
# As services/channel.py.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
# What one read takes: a usual batch, or several small ones.
READ_BYTES = 64 * 1024
LARGE_READ_BYTES = 1024 * 1024
SOCKET_SUFFIX = ".appends"


class Append(IntEnum):
    """The methods; the numbers are the wire's."""

    UNARY = 1
    ON_STREAM = 2


# What they are called over gRPC, for logs and errors.
METHOD_BY_APPEND = {
    Append.UNARY: "/reput.commitlog.v1.CommitLogService/AppendMessages",
    Append.ON_STREAM: "/reput.commitlog.v1.CommitLogService/AppendMessageStream",
}


class AppendWireError(Exception):
    """The connection is of no use any more: closed in the middle of a frame, or not speaking this protocol."""


def append_socket_path(address: str) -> str | None:
    """Where the commitlog service at that address takes appends; None when only over gRPC."""
    return door_path(address, SOCKET_SUFFIX)


def send_frame(connection: socket.socket, kind: int, payload: bytes) -> None:
    """Send one frame, all of it; OSError when that fails, however much of it was sent."""
    head = HEAD.pack(len(payload) + 1, kind)
    sent = connection.sendmsg((head, payload)) - HEAD.size
    if sent < len(payload):
        if sent < 0:
            connection.sendall(head[sent:])
            sent = 0
        connection.sendall(memoryview(payload)[sent:])


def frame(kind: int, payload: bytes) -> list[memoryview]:
    """One frame, as pieces to be sent one after the other."""
    return [memoryview(HEAD.pack(len(payload) + 1, kind)), memoryview(payload)]


def send_now(connection: socket.socket, kind: int, payload: bytes) -> list[memoryview]:
    """Send of one frame what the connection takes without waiting; the pieces that are left. OSError as `send_frame`."""
    pieces = frame(kind, payload)
    try:
        sent = connection.sendmsg(pieces, (), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return pieces
    if sent < HEAD.size:
        return [pieces[0][sent:], pieces[1]]
    rest = pieces[1][sent - HEAD.size :]
    return [rest] if rest else []


class FrameReader:
    """Takes frames, which may follow each other at once, from a connection.

    Args:
        receive: at most so many bytes, b"" at the end; told whether a frame was begun.
        size_bytes_max: of a payload.
    """

    def __init__(self, receive: Callable[[int, bool], bytes], size_bytes_max: int) -> None:
        self._receive = receive
        self._size_bytes_max = size_bytes_max
        self._rest = b""

    def read(self) -> tuple[int, bytes] | None:
        """The next frame's kind and payload; None when the other side closed the connection between two frames.

        Raises:
            AppendWireError: closed in the middle, or longer than it may be.
            OSError: what `receive` raises.
        """
        data, self._rest = self._rest, b""
        if not data:
            data = self._receive(READ_BYTES, False)
            if not data:
                return None
        while len(data) < HEAD.size:
            data += self._more(HEAD.size - len(data))
        size_bytes, kind = HEAD.unpack_from(data)
        if not 1 <= size_bytes <= self._size_bytes_max + 1:
            raise AppendWireError(f"a frame of {size_bytes} bytes")
        end = HEAD.size + size_bytes - 1
        if len(data) >= end:
            self._rest = data[end:]
            return kind, data[HEAD.size : end]
        pieces = [data[HEAD.size :]]
        missing = end - len(data)
        while missing:
            data = self._more(missing)
            pieces.append(data)
            missing -= len(data)
        return kind, b"".join(pieces)

    def _more(self, size_bytes: int) -> bytes:
        data = self._receive(min(size_bytes, LARGE_READ_BYTES), True)
        if not data:
            raise AppendWireError("closed in the middle of a frame")
        return data
