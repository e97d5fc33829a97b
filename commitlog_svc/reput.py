"""Reput: what the builders need of each flushed record, in log order, for ever.

Nothing beyond the flushed offset is shown: a queue must never point at a record that a power cut could still take. The
receiver keeps its own place; the same records may be shown again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from store.dispatch import DispatchRequest
from store.errors import RecordCorruptedError
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import BLANK_SIZE_BYTES, IncompleteRecordError, decode_dispatch, decode_header

BATCH_BYTES_MAX = 4 << 20
BATCH_REQUEST_COUNT_MAX = 8192
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReputBatch:
    """Some records, where to go on behind them, and the log's bounds (bytes)."""

    requests: list[DispatchRequest]
    next_offset: int
    log_first_offset: int
    log_end_offset: int


class FlushProgress(Protocol):
    """Who knows what is on the disk."""

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk."""

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The flushed offset, once it is greater than `offset` or the time is up."""


def follow_log(
    files: MappedFileQueue, flushes: FlushProgress, start_offset: int, batch_bytes_max: int
) -> Iterator[ReputBatch]:
    """Batches from `start_offset` (a record's or blank's start) on; an empty one when nothing came for a second.

    Raises:
        RecordCorruptedError: a record on the way is damaged.
    """
    offset = start_offset
    while True:
        flushed_offset = flushes.flushed_offset
        if offset >= flushed_offset:
            flushed_offset = flushes.wait_beyond(offset, HEARTBEAT_SECONDS)
        requests: list[DispatchRequest] = []
        if offset < flushed_offset:
            requests, offset = read_batch(files, offset, flushed_offset, batch_bytes_max)
        yield ReputBatch(requests, offset, files.first_offset, flushed_offset)


def read_batch(
    files: MappedFileQueue, offset: int, end_offset: int, batch_bytes_max: int
) -> tuple[list[DispatchRequest], int]:
    """Records from `offset` on, about `batch_bytes_max` bytes of log, at least one; and where to go on."""
    requests: list[DispatchRequest] = []
    file = files.find(offset)
    if file is None:
        raise RecordCorruptedError(f"no log file holds offset {offset}", commitLogOffset=offset)
    chunk = file.read(offset, min(batch_bytes_max, end_offset - offset))
    base, at = offset, 0
    while base + at < end_offset and len(requests) < BATCH_REQUEST_COUNT_MAX:
        if at + BLANK_SIZE_BYTES > len(chunk):
            break
        try:
            request = decode_dispatch(chunk, at, base + at)
        except IncompleteRecordError:
            if requests:
                break
            size_bytes = int.from_bytes(chunk[at : at + 4], "big")
            if len(chunk) >= min(size_bytes, end_offset - offset):
                blank = _blank_end(chunk, at, base + at, file.last_offset)
                if blank is not None:
                    return requests, blank
                raise
            chunk = file.read(offset, size_bytes)
            continue
        except RecordCorruptedError:
            blank = _blank_end(chunk, at, base + at, file.last_offset)
            if blank is None:
                if requests:
                    break  # first what is good
                raise
            return requests, blank
        requests.append(request)
        at += request.record_size_bytes
    return requests, base + at


def _blank_end(chunk: bytes, at: int, offset: int, file_end: int) -> int | None:
    """Where the next file begins, if a blank closes this one here."""
    try:
        header = decode_header(chunk, at)
    except RecordCorruptedError:
        return None
    return file_end if header.is_blank and offset + header.size_bytes == file_end else None
