"""Where the log of a master that lost its end and went on still agrees with the log of its mirror.

    mirror   |===== equal =====|-- lost by the master --|
    master   |===== equal =====|-- written since ----------|
                               ^ the mirror goes on here; what only it has is kept aside (replication/cut.py)

A broker loses the end of its log when its machine crashes before a flush, and writes other records there afterwards. What a
master has not written over is not cut: it may come back, and here it can be found.
"""

import contextlib
import socket
import time
from collections.abc import Callable

from commitlog_svc.commit_log import CommitLog
from services.rocketmq.ha_frames import REPORT, TransferDecoder

# A broker flushes every half second, and has more than this to write in that time only when it is restored from a copy.
CUT_BYTES_MAX = 256 << 20
RECEIVE_BYTES = 1 << 20


def agreed_offset(log: CommitLog, connect: Callable[[], socket.socket], quiet_seconds: float) -> int | None:
    """The end of the last record that is in both logs, when the master has other bytes behind it.

    Args:
        log: the mirror's.
        connect: makes a connection to the master.
        quiet_seconds: a master that sends no bytes for so long has no more.

    Returns:
        A commit-log offset; None when it has no other bytes, or when more than CUT_BYTES_MAX would be cut.

    Raises:
        OSError: it did not answer.
    """
    end_offset = log.status.end_offset
    begin_offset = max(log.status.first_offset, end_offset - CUT_BYTES_MAX)
    differs_at = _first_difference(log, connect, max(1, begin_offset), end_offset, quiet_seconds)
    if differs_at is None:
        return None
    agreed = log.record_end_before(differs_at)
    return agreed if agreed > begin_offset else None


def _first_difference(
    log: CommitLog, connect: Callable[[], socket.socket], asked_offset: int, end_offset: int, quiet_seconds: float
) -> int | None:
    at, decoder, data_at = asked_offset, TransferDecoder(), time.monotonic()
    with contextlib.closing(connect()) as connection:
        connection.settimeout(quiet_seconds)
        connection.sendall(REPORT.pack(asked_offset))
        while at < end_offset and time.monotonic() - data_at < quiet_seconds:
            try:
                received = connection.recv(RECEIVE_BYTES)
            except TimeoutError:
                break
            if not received:
                raise ConnectionError("the broker closed the connection")
            for piece in decoder.feed(memoryview(received)):
                if not piece.data:
                    continue
                if piece.offset != at:
                    return None  # it does not send what it was asked for
                known = log.read_bytes(at, min(len(piece.data), end_offset - at))
                for index, (own, other) in enumerate(zip(known, piece.data, strict=False)):
                    if own != other:
                        return at + index
                at, data_at = at + len(known), time.monotonic()
                if at >= end_offset:
                    break
    return None
