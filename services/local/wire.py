"""The local wire: requests and answers between services of one machine, as bytes on a unix socket.

Why: a gRPC call between two Python processes takes about half a millisecond, nearly all of it in the libraries and in
waking their threads. The same bytes over a plain socket take a fifteenth of that.

Rules:
- Methods are RPCs of the protos, or read a log file. Requests and answers are the protos' bytes, and errors the same
  `google.rpc.Status`, as over gRPC.
- The sockets exist only where the service itself listens on a unix socket: at `<its path>.lookups`, `.appends`, `.deliveries`,
  `.verdicts`, `.tails`.
  Each has its own limit of connections, so one kind of call cannot starve the other. The file mode admits the service's
  user only.
- A caller that gets no greeting (no socket, no room) calls over gRPC. What happens when a connection breaks later is a
  property of the method: `LocalMethod.retry`.
- Both ends come from one installation, so the format may change with any release; the greeting then changes, too.

    connection  server: GREETING, then for each request its answer, in the order of the requests; on `.tails` one request, then
                answers without end
    frame       [u32 size of payload][u8 kind][u8 flags][55 bytes traceparent, if TRACED][payload]      big-endian
    request     kind: the number of a LocalMethod; payload: the proto
    answer      kind: ANSWER, payload: the proto; or kind: STATUS, payload: a google.rpc.Status

The traceparent is W3C's. Only services that were told to trace send it; all understand it. The answer to OPEN_LOG_FILE
carries a file descriptor beside its bytes (SCM_RIGHTS).
"""

import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from services.methods import (
    COMMITLOG_SERVICE,
    CONSUMEQUEUE_SERVICE,
    CONSUMER_SERVICE,
    INDEX_SERVICE,
    METHODS,
    SCHEDULE_SERVICE,
    Retry,
)

GREETING = b"reput-local-1\n"
HEAD = struct.Struct(">IBB")
ANSWER, STATUS = 0, 1
# The status of a method that the service does not have; one of an earlier release sends it as INTERNAL, with this text.
NOT_KNOWN = "method {} is not known here"
TRACED = 0x01
TRACEPARENT_BYTES = 55
# As services/calling/channel.py: a page of bodies with the properties of 1,000 messages.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
# One read takes so much: nearly every lookup, a usual batch, or several small ones.
READ_BYTES = 64 * 1024
LARGE_READ_BYTES = 1024 * 1024
TIMEVAL = struct.Struct("@ll")  # struct timeval of SO_RCVTIMEO and SO_SNDTIMEO: seconds, microseconds

Piece = bytes | memoryview
# A frame's kind, payload, and traceparent, empty when the caller has no span. A plain tuple: it is made for each request.
Frame = tuple[int, bytes, str]


@dataclass(frozen=True, slots=True, eq=False)
class LocalSocket:
    """One of a service's local sockets.

    Attributes:
        name: the suffix of its path; stands in log events and thread names.
        request_bytes_max: payload of one request.
        connection_count_max: connections served at the same time. Each holds a thread and at most one request and answer.
    """

    name: str
    request_bytes_max: int
    connection_count_max: int = 64  # as many as a gateway has workers

    def path(self, address: str) -> str | None:
        """Where it is for a service at that address; None for a service on a port."""
        scheme, _, path = address.partition(":")
        return f"{path}.{self.name}" if scheme == "unix" and path else None


# A request is a key or at most 1,000 offsets.
LOOKUPS = LocalSocket("lookups", 256 * 1024)
# As services/serving/server.py: what a commitlog takes over gRPC.
APPENDS = LocalSocket("appends", 4 * 1024 * 1024 + 128 * 1024)

# What consumers ask of a consumer service; a longer list of receipt handles goes over gRPC.
DELIVERIES = LocalSocket("deliveries", 256 * 1024)

# What producers of transactions decide. A verdict takes 200 bytes with usual names; a larger batch goes over gRPC.
VERDICTS = LocalSocket("verdicts", 256 * 1024)

# What followers follow: a connection for each, as many as gRPC has lanes for (services/serving/lanes.py).
TAILS = LocalSocket("tails", 4 * 1024, connection_count_max=32)


class LocalMethod(Enum):
    """The methods: number on the wire, socket and RPC; services/methods.py says whether a call may be made again."""

    GET_MESSAGE = (1, LOOKUPS, COMMITLOG_SERVICE + "GetMessage")
    BATCH_GET_MESSAGES = (2, LOOKUPS, COMMITLOG_SERVICE + "BatchGetMessages")
    GET_QUEUE_UNITS = (3, LOOKUPS, CONSUMEQUEUE_SERVICE + "GetQueueUnits")
    SEARCH_KEY = (4, LOOKUPS, INDEX_SERVICE + "SearchKey")
    # No RPC: takes a GetMessageRequest, answers with a GetStatusResponse (first offset, end offset, file size, broker name)
    # and a read-only descriptor of the file that holds the offset.
    OPEN_LOG_FILE = (5, LOOKUPS, COMMITLOG_SERVICE + "OpenLogFile", Retry.SAFE)
    APPEND = (6, APPENDS, COMMITLOG_SERVICE + "AppendMessages")
    # A connection for this one carries one stream. Requests may be sent ahead of their answers; a STATUS ends the stream.
    APPEND_ON_STREAM = (7, APPENDS, COMMITLOG_SERVICE + "AppendMessageStream")
    COMMITLOG_STATUS = (8, LOOKUPS, COMMITLOG_SERVICE + "GetStatus")
    APPEND_INTERNAL = (9, APPENDS, COMMITLOG_SERVICE + "AppendInternal")
    POP_MESSAGES = (10, DELIVERIES, CONSUMER_SERVICE + "PopMessages")
    ACK_MESSAGES = (11, DELIVERIES, CONSUMER_SERVICE + "AckMessages")
    CHANGE_INVISIBLE_DURATION = (12, DELIVERIES, CONSUMER_SERVICE + "ChangeInvisibleDuration")
    PULL_MESSAGES = (13, DELIVERIES, CONSUMER_SERVICE + "PullMessages")
    END_TRANSACTIONS = (14, VERDICTS, SCHEDULE_SERVICE + "EndTransactions")
    # Tools of RocketMQ ask for each topic or group in turn, so the time of one answer counts.
    LIST_QUEUES = (15, LOOKUPS, CONSUMEQUEUE_SERVICE + "ListQueues")
    CONSUMEQUEUE_STATUS = (16, LOOKUPS, CONSUMEQUEUE_SERVICE + "GetStatus")
    LIST_GROUPS = (17, DELIVERIES, CONSUMER_SERVICE + "ListGroups")
    GET_GROUP = (18, DELIVERIES, CONSUMER_SERVICE + "GetGroup")
    GET_FIGURES = (19, DELIVERIES, CONSUMER_SERVICE + "GetFigures")
    # Answers without end; a STATUS ends them.
    REPUT = (20, TAILS, COMMITLOG_SERVICE + "Reput")
    WATCH_ARRIVALS = (21, TAILS, CONSUMER_SERVICE + "WatchArrivals")
    # A page of the console and `reput find` with tracks ask for message after message.
    TRACK_MESSAGE = (22, DELIVERIES, CONSUMER_SERVICE + "TrackMessage")

    def __init__(self, number: int, socket: LocalSocket, rpc: str, retry: Retry | None = None) -> None:
        self.number = number
        self.socket = socket
        self.rpc = rpc
        self.retry = retry or METHODS[rpc].retry
        self.service = rpc.split(".")[1]
        self.is_stream = rpc.endswith("Stream") or socket is TAILS


LOCAL_METHODS: Mapping[str, LocalMethod] = {method.rpc: method for method in LocalMethod}


class WireError(Exception):
    """The connection is of no further use: it closed inside a frame, or its peer does not speak this protocol."""


def pieces_of(kind: int, payload: bytes, traceparent: str = "") -> list[Piece]:
    """The bytes of a frame, as pieces to be sent one after the other."""
    if traceparent:
        return [HEAD.pack(len(payload), kind, TRACED) + traceparent.encode("ascii"), payload]
    return [HEAD.pack(len(payload), kind, 0), payload]


def unsent(pieces: list[Piece], sent_bytes: int) -> list[Piece]:
    """The pieces that are left after so many bytes of them were sent."""
    if sent_bytes == sum(map(len, pieces)):
        return []
    for index, piece in enumerate(pieces):
        if sent_bytes < len(piece):
            return [memoryview(piece)[sent_bytes:], *pieces[index + 1 :]]
        sent_bytes -= len(piece)
    return []


def send_answer(connection: socket.socket, kind: int, payload: bytes, fd: int | None = None) -> None:
    """Send an answer, all of it, with a descriptor if there is one, which stays open here.

    Raises:
        OSError: it failed, and any part may have been sent; BlockingIOError when the peer does not receive in time.
    """
    pieces = pieces_of(kind, payload)
    ancillary = () if fd is None else ((socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("@i", fd)),)
    sent_bytes = connection.sendmsg(pieces, ancillary)
    if sent_bytes < HEAD.size + len(payload):
        for piece in unsent(pieces, sent_bytes):
            connection.sendall(piece)


class FrameReader:
    """Takes frames, which may follow one another without a pause, from a connection.

    What came of a frame is kept when `receive` raises, so `read` may be called again after a BlockingIOError.

    Args:
        payload_bytes_max: a frame with more is refused before its payload is read.
    """

    def __init__(self, payload_bytes_max: int) -> None:
        self._payload_bytes_max = payload_bytes_max
        self._rest = b""
        self._partial: _PartialFrame | None = None

    @property
    def has_rest(self) -> bool:
        """Whether bytes came behind the last frame."""
        return bool(self._rest)

    def read(self, receive: Callable[[int, bool], bytes]) -> Frame | None:
        """The next frame; None when the peer closed the connection between two frames.

        Args:
            receive: returns at most so many bytes, b"" at the end; told whether a frame has begun.

        Raises:
            WireError: the connection ended inside a frame, or the bytes are no frame.
            OSError: what `receive` raises.
        """
        if self._partial is not None:
            return self._finish(self._partial, receive)
        data, self._rest = self._rest, b""
        try:
            if not data:
                data = receive(READ_BYTES, False)
                if not data:
                    return None
            while len(data) < HEAD.size:
                data += _more(receive, HEAD.size - len(data))
            size_bytes, kind, flags = HEAD.unpack_from(data)
            if size_bytes > self._payload_bytes_max or flags & ~TRACED:
                raise WireError(
                    f"no frame: size {size_bytes} of at most {self._payload_bytes_max} bytes, flags {flags:#04x}"
                )
            begin = HEAD.size
            traceparent = ""
            if flags & TRACED:
                begin += TRACEPARENT_BYTES
                while len(data) < begin:
                    data += _more(receive, begin - len(data))
                traceparent = data[HEAD.size : begin].decode("ascii", "replace")
        except BlockingIOError:
            self._rest = data
            raise
        end = begin + size_bytes
        payload = data[begin:end]
        missing = size_bytes - len(payload)
        if missing:
            self._partial = _PartialFrame(kind, traceparent, [payload], missing)
            return self._finish(self._partial, receive)
        if len(data) > end:
            self._rest = data[end:]
        return kind, payload, traceparent

    def _finish(self, partial: "_PartialFrame", receive: Callable[[int, bool], bytes]) -> Frame:
        while partial.missing_bytes:
            data = _more(receive, partial.missing_bytes)
            partial.pieces.append(data)
            partial.missing_bytes -= len(data)
        self._partial = None
        return partial.kind, b"".join(partial.pieces), partial.traceparent


@dataclass(slots=True)
class _PartialFrame:
    """A frame of which a part is still to come."""

    kind: int
    traceparent: str
    pieces: list[bytes]
    missing_bytes: int


def _more(receive: Callable[[int, bool], bytes], size_bytes: int) -> bytes:
    data = receive(min(size_bytes, LARGE_READ_BYTES), True)
    if not data:
        raise WireError("the connection ended inside a frame")
    return data
