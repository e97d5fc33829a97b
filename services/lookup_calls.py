"""Lookup calls: the few short reads between services of one machine, over a plain unix socket beside the gRPC one.

Why: a gRPC call between two Python processes takes about half a millisecond, nearly all of it in the libraries and in
waking their threads; the same bytes over a socket of their own take a fifteenth of that. A query needs one or two such
calls, so they decide how long it takes.

Rules:
- The methods are those of the protos, answered by the same servicer; requests and answers are the protos' bytes, errors
  the same `google.rpc.Status`. Only the wire differs.
- It exists only where the service itself listens on a unix socket: at `<that path>.lookups`, in the same directory, and
  whoever may open that one may open this one. A service on a port has none.
- Nothing depends on it. A caller that does not find it, is not let in, or loses it asks over gRPC, under the one
  retry policy (services/retry.py); so does one whose answer says that asking again may help.

    connection  server: GREETING, then for each request its answer, in order
    request     [u32 size of what follows][u8 Lookup][proto]
    answer      [u32 size of what follows][u8 ANSWER or STATUS][proto]      big-endian

A request of a call that is traced has TRACED added to its Lookup, and before its proto the 55 characters of a W3C
`traceparent`. Only services that were told to trace send that; all understand it.

OPEN_LOG_FILE is the one that is no method: it takes a GetMessageRequest and answers with a GetStatusResponse (first offset,
end offset, file size and broker name) and, beside it, a descriptor of the file that holds the offset, for reading.
"""

import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from services.local_door import door_path

GREETING = b"reput-lookups-1\n"
HEAD = struct.Struct(">IB")
ANSWER, STATUS = 0, 1
# A request is a key or at most 1,000 offsets.
REQUEST_BYTES_MAX = 256 * 1024
# As services/channel.py: a page of bodies with the properties of 1,000 messages.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
# What one read takes: nearly every request and answer whole.
READ_BYTES = 64 * 1024
SOCKET_SUFFIX = ".lookups"
TRACED = 0x80
TRACEPARENT_BYTES = 55


class Lookup(IntEnum):
    """The methods that can be called so; the numbers are the wire's."""

    GET_MESSAGE = 1
    BATCH_GET_MESSAGES = 2
    GET_QUEUE_UNITS = 3
    SEARCH_KEY = 4
    OPEN_LOG_FILE = 5


# What they are called over gRPC, for spans.
METHOD_BY_LOOKUP = {
    Lookup.GET_MESSAGE: "/reput.commitlog.v1.CommitLogService/GetMessage",
    Lookup.BATCH_GET_MESSAGES: "/reput.commitlog.v1.CommitLogService/BatchGetMessages",
    Lookup.GET_QUEUE_UNITS: "/reput.consumequeue.v1.ConsumeQueueService/GetQueueUnits",
    Lookup.SEARCH_KEY: "/reput.index.v1.IndexService/SearchKey",
    Lookup.OPEN_LOG_FILE: "/reput.commitlog.v1.CommitLogService/OpenLogFile",
}


def with_traceparent(lookup: int, payload: bytes, traceparent: str) -> tuple[int, bytes]:
    """A request's kind and payload, with the caller's span when it has one."""
    return (lookup | TRACED, traceparent.encode("ascii") + payload) if traceparent else (lookup, payload)


def without_traceparent(kind: int, payload: bytes) -> tuple[int, bytes, str]:
    """A request's Lookup, its proto, and its caller's `traceparent`, empty when there is none."""
    if not kind & TRACED:
        return kind, payload, ""
    return kind & ~TRACED, payload[TRACEPARENT_BYTES:], payload[:TRACEPARENT_BYTES].decode("ascii", "replace")


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """An answer with a file: its proto, and a descriptor that whoever sends it closes."""

    message: Any
    fd: int


class LookupWireError(Exception):
    """The connection is of no use any more: closed by the other side, or not speaking this protocol."""


def lookup_socket_path(address: str) -> str | None:
    """Where the lookups of a service at that address are answered; None when they are not."""
    return door_path(address, SOCKET_SUFFIX)


def send_frame(connection: socket.socket, kind: int, payload: bytes) -> None:
    """Send one frame, all of it."""
    connection.sendall(HEAD.pack(len(payload) + 1, kind) + payload)


def receive_frame(connection: socket.socket, size_bytes_max: int) -> tuple[int, bytes] | None:
    """The next frame's kind and payload; None when the other side closed the connection between two frames.

    Frames never follow each other unasked, so what is read belongs to this one.

    Raises:
        LookupWireError: closed in the middle, or longer than `size_bytes_max`.
        TimeoutError: it took longer than the socket's timeout.
    """
    data = connection.recv(READ_BYTES)
    if not data:
        return None
    while len(data) < HEAD.size:
        data += _more(connection, HEAD.size - len(data))
    size_bytes, kind = HEAD.unpack_from(data)
    missing = size_bytes + HEAD.size - 1 - len(data)
    if not 1 <= size_bytes <= size_bytes_max or missing < 0:
        raise LookupWireError(f"a frame of {size_bytes} bytes, {len(data)} received")
    if not missing:
        return kind, data[HEAD.size :]
    whole = bytearray(data)
    while missing:
        data = _more(connection, missing)
        whole += data
        missing -= len(data)
    return kind, bytes(memoryview(whole)[HEAD.size :])


def send_file_frame(connection: socket.socket, payload: bytes, fd: int) -> None:
    """Send an ANSWER with a descriptor, which stays open here."""
    frame = HEAD.pack(len(payload) + 1, ANSWER) + payload
    sent = socket.send_fds(connection, [frame], [fd])
    connection.sendall(frame[sent:])


def receive_file_frame(connection: socket.socket) -> tuple[int, bytes, list[int]]:
    """The next frame's kind and payload, and the descriptors that came with it, which the caller closes.

    Raises:
        LookupWireError: closed, or not whole at once, as such a short frame is.
        TimeoutError: it took longer than the socket's timeout.
    """
    data, fds, _, _ = socket.recv_fds(connection, READ_BYTES, 1)
    if len(data) >= HEAD.size:
        size_bytes, kind = HEAD.unpack_from(data)
        if len(data) == size_bytes + HEAD.size - 1:
            return kind, data[HEAD.size :], list(fds)
    for fd in fds:
        os.close(fd)
    raise LookupWireError(f"{len(data)} bytes are no frame with a file")


def _more(connection: socket.socket, size_bytes: int) -> bytes:
    data = connection.recv(min(size_bytes, READ_BYTES * 16))
    if not data:
        raise LookupWireError("closed in the middle of a frame")
    return data
