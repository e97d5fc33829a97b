"""RocketMQ's HA protocol as bytes: how a slave copies the log of its master over one TCP connection; numbers are big-endian.

A slave sends reports, one after the other:

    0   i64   offset: the slave has the log up to here (bytes)

The first report of a connection also says where the master begins to send. There is one exception: after a first report of 0
the master begins with its last file. A master closes a connection on which it has heard nothing for 20 seconds
(`haHousekeepingInterval`).

A master sends transfers, one after the other:

    0   i64   offset of the first byte (bytes)
    8   i32   size of the body (bytes); 0 is a heartbeat, which comes after 5 seconds without a body (`haSendHeartbeatInterval`)
    12        body: bytes of the log; it may begin and end inside a record

Sources: `DefaultHAConnection` and `DefaultHAClient` of RocketMQ 5.3.3.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from store.errors import RecordCorruptedError

REPORT = struct.Struct(">q")
TRANSFER_HEADER = struct.Struct(">qi")
HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS_MAX = 20.0  # both sides close the connection then

assert REPORT.size == 8
assert TRANSFER_HEADER.size == 12


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a transfer's body, or a heartbeat.

    Attributes:
        offset: where the bytes lie in the log; of a heartbeat: where the next body will begin.
        data: empty for a heartbeat. It is valid until the next call of the decoder.
    """

    offset: int
    data: memoryview


class TransferDecoder:
    """Takes what a master sends, in pieces of any size; holds at most one unfinished header."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._offset = 0
        self._size_left = 0

    def feed(self, data: memoryview) -> Iterator[Piece]:
        """The pieces in the next bytes of the connection.

        Raises:
            RecordCorruptedError: a header that no master sends; the connection is of no use any more.
        """
        while data:
            if self._size_left:
                taken = data[: self._size_left]
                yield Piece(self._offset, taken)
                self._offset += len(taken)
                self._size_left -= len(taken)
                data = data[len(taken) :]
                continue
            missing = TRANSFER_HEADER.size - len(self._header)
            self._header += data[:missing]
            data = data[missing:]
            if len(self._header) < TRANSFER_HEADER.size:
                return
            self._offset, self._size_left = TRANSFER_HEADER.unpack(self._header)
            self._header.clear()
            if self._offset < 0 or self._size_left < 0:
                raise RecordCorruptedError(
                    f"a transfer of {self._size_left} bytes at offset {self._offset} is none of RocketMQ's HA protocol: check "
                    "that the address is the HA port of a broker (haListenPort)",
                    offset=self._offset,
                )
            if not self._size_left:
                yield Piece(self._offset, memoryview(b""))


class ReportDecoder:
    """Takes what a slave sends, in pieces of any size."""

    def __init__(self) -> None:
        self._report = bytearray()

    def feed(self, data: bytes) -> int | None:
        """The last offset that these bytes complete; None when they complete none."""
        self._report += data
        whole_size = len(self._report) // REPORT.size * REPORT.size
        if not whole_size:
            return None
        (offset,) = REPORT.unpack_from(self._report, whole_size - REPORT.size)
        del self._report[:whole_size]
        return int(offset)
