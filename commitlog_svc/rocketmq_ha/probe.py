"""Finds out what a master has, with connections of their own; its log is not copied by them.

A master answers the first report of a connection in one of these ways (`DefaultHAConnection` of RocketMQ 5.3.3):

    report        the byte is in its log        the byte is not, or not yet
    0             it sends from the begin of its LAST file on
    n > 0         it sends from n on, at once   only heartbeats

So a file's first byte answers whether the master has that file, except for the file at 0, of which byte 1 is asked for.
"""

import contextlib
import socket
import time
from collections.abc import Callable

from services.rocketmq.address import Address
from services.rocketmq.ha_frames import HEARTBEAT_SECONDS, REPORT, SILENCE_SECONDS_MAX, Piece, TransferDecoder
from store.errors import StoreCorruptedError

CONNECT_SECONDS_MAX = 5.0
# A heartbeat that comes this long after the report says that the master has nothing to send; one that comes sooner may come
# from its flow control.
NOTHING_SECONDS = HEARTBEAT_SECONDS * 0.9
HEADER_BYTES_AT_ONCE = 4096  # a probe takes no more than the kernel has already received

Connect = Callable[[], socket.socket]


def connect_to(address: Address) -> socket.socket:
    """A connection; OSError when there is none."""
    connection = socket.create_connection(address, CONNECT_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Probe:
    """Asks a master.

    Args:
        connect: makes a connection.
        nothing_seconds: see NOTHING_SECONDS.
    """

    def __init__(self, connect: Connect, *, nothing_seconds: float = NOTHING_SECONDS) -> None:
        self._connect = connect
        self._nothing_seconds = nothing_seconds

    def last_file_begin(self) -> int:
        """Where the master's last file begins; 0 for an empty log too. OSError without an answer."""
        return self._first_answer(0).offset

    def has(self, offset: int) -> bool:
        """Whether the byte at an offset greater than 0 is in the master's log; OSError without an answer."""
        return len(self._first_answer(offset).data) > 0

    def first_offset(self, file_size_bytes: int) -> int:
        """Where the master's log begins (bytes), by asking for its files; takes 5 seconds for each answer that is no.

        Raises:
            StoreCorruptedError: its files have another size.
            OSError: it did not answer.
        """
        last = self.last_file_begin()
        if last == 0 or self.has(1):
            return 0
        if last % file_size_bytes:
            raise StoreCorruptedError(
                f"the last log file of the broker begins at {last}, which is no multiple of file_size_bytes "
                f"({file_size_bytes}): set REPUT_COMMITLOG_FILE_SIZE_BYTES to the broker's mappedFileSizeCommitLog",
                offset=last,
            )
        low, high = 1, last // file_size_bytes  # the first file is one of these
        while low < high:
            middle = (low + high) // 2
            if self.has(middle * file_size_bytes):
                high = middle
            else:
                low = middle + 1
        return low * file_size_bytes

    def _first_answer(self, offset: int) -> Piece:
        decoder, asked_at = TransferDecoder(), time.monotonic()
        with contextlib.closing(self._connect()) as connection:
            connection.settimeout(SILENCE_SECONDS_MAX)
            connection.sendall(REPORT.pack(offset))
            while True:
                data = connection.recv(HEADER_BYTES_AT_ONCE)
                if not data:
                    raise ConnectionError("the broker closed the connection")
                for piece in decoder.feed(memoryview(data)):
                    if piece.data or time.monotonic() - asked_at >= self._nothing_seconds:
                        return piece
