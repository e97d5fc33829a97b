"""Reput: what the builders need of each flushed record, in log order, for ever.

Nothing beyond the flushed offset is shown: a queue must never point at a record that a power cut could still take. The
receiver keeps its own place; the same records may be shown again.

A receiver may be as slow as it likes. So a follower keeps nothing but its offset from one batch to the next, no batch and
no open file, and a batch is small enough that all places that there are may hold one (services/lanes.py).

A batch is a list of requests, or for receivers that take them columns (`column_batches.py`), which cost a fraction.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from store.builders.progress import END_UNKNOWN
from store.dispatch import DispatchRequest
from store.errors import OffsetOutOfRangeError, RecordCorruptedError
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import BLANK_SIZE_BYTES, IncompleteRecordError, decode_dispatch, decode_header

if TYPE_CHECKING:
    from store.dispatch_columns import DispatchColumns

BATCH_BYTES_MAX = 4 << 20
# A request is about 1 KiB of objects before it is bytes, and several followers may be filling a batch.
BATCH_REQUEST_COUNT_MAX = 4096
READ_BYTES = 1 << 20  # of log at once; a batch is no larger, unless its one record is
# Of answer: what a receiver that does not read makes us hold, about four times over (bytes, gRPC's copy, the heap's gaps).
ANSWER_BYTES_MAX = 256 << 10
REQUEST_OVERHEAD_BYTES = 96  # of a request in an answer, besides its texts
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReputBatch:
    """Some records, as requests or as columns, where to go on behind them, and the log's bounds (bytes, END_UNKNOWN)."""

    requests: list[DispatchRequest]
    next_offset: int
    log_first_offset: int
    log_end_offset: int
    columns: "DispatchColumns | None" = None


# Columns of records from an offset to the flushed one, of about so many bytes of log; and where to go on.
ReadColumns = Callable[[int, int, int], "tuple[DispatchColumns, int]"]


class FlushProgress(Protocol):
    """Who knows what is on the disk."""

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk."""

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The flushed offset, once it is greater than `offset` or the time is up."""


class Recovering(FlushProgress, Protocol):
    """The same of a log that is being recovered: `recovery_feed.py`."""

    @property
    def is_over(self) -> bool:
        """Whether the log is recovered; StoreRecoveringError when it could not be."""


class LogFollower:
    """Batches from an offset on; made by `follow_log`."""

    def __init__(
        self,
        files: MappedFileQueue,
        flushes: FlushProgress,
        start_offset: int,
        batch_bytes_max: int,
        read_columns: ReadColumns | None = None,
        recovering: Recovering | None = None,
    ) -> None:
        self._recovering = recovering
        self._files = files
        self._read_columns = read_columns
        self._flushes = flushes
        self._offset = start_offset
        self._batch_bytes_max = batch_bytes_max
        # Who begins at the end has caught up, and may say so now instead of a heartbeat later.
        self._is_end_news = recovering is None

    def __iter__(self) -> Iterator[ReputBatch]:
        return self

    def __next__(self) -> ReputBatch:
        flushes = self._flushes
        if self._recovering is not None:
            if self._recovering.is_over:
                self._recovering, self._is_end_news = None, True
            else:
                flushes = self._recovering
        flushed_offset = flushes.flushed_offset
        if self._offset >= flushed_offset and not self._is_end_news:
            flushed_offset = flushes.wait_beyond(self._offset, HEARTBEAT_SECONDS)
        self._is_end_news = False
        requests: list[DispatchRequest] = []
        columns = None
        if self._offset < flushed_offset:
            if self._read_columns is not None:
                columns, self._offset = self._read_columns(self._offset, flushed_offset, self._batch_bytes_max)
            else:
                requests, self._offset = read_batch(self._files, self._offset, flushed_offset, self._batch_bytes_max)
        end_offset = flushed_offset if self._recovering is None else END_UNKNOWN
        return ReputBatch(requests, self._offset, self._files.first_offset, end_offset, columns)


def follow_log(
    files: MappedFileQueue,
    flushes: FlushProgress,
    start_offset: int,
    batch_bytes_max: int,
    read_columns: ReadColumns | None = None,
    recovering: Recovering | None = None,
) -> Iterator[ReputBatch]:
    """Batches from `start_offset` (a record's or blank's start) on; an empty one when nothing came for a second, or at
    once when the log ends there.

    With `read_columns` they are columns, else requests. With `recovering` it goes before `flushes`, until it is over.

    Raises:
        OffsetOutOfRangeError: retention took the next record away before it was shown.
        RecordCorruptedError: a record on the way is damaged.
        StoreRecoveringError: the log could not be recovered.
    """
    return LogFollower(files, flushes, start_offset, batch_bytes_max, read_columns, recovering)


def find_file(files: MappedFileQueue, offset: int, end_offset: int) -> MappedFile:
    """The file that holds the next record of a follower; errors as `follow_log`."""
    file = files.find(offset)
    if file is None and offset < files.first_offset:
        raise OffsetOutOfRangeError(
            f"commit-log offset {offset} was removed by retention; the log now begins at {files.first_offset}",
            offset=offset,
            firstOffset=files.first_offset,
            lastOffset=end_offset,
        )
    if file is None:
        raise RecordCorruptedError(f"no log file holds offset {offset}", commitLogOffset=offset)
    return file


def read_batch(
    files: MappedFileQueue, offset: int, end_offset: int, batch_bytes_max: int
) -> tuple[list[DispatchRequest], int]:
    """Records from `offset` on, about `batch_bytes_max` bytes of log, at least one; and where to go on.

    Raises:
        OffsetOutOfRangeError, RecordCorruptedError: as `follow_log`.
    """
    requests: list[DispatchRequest] = []
    answer_bytes = 0
    file = find_file(files, offset, end_offset)
    # Less than a blank's head would show neither a blank nor how long a record is.
    chunk = file.read(offset, min(max(batch_bytes_max, BLANK_SIZE_BYTES), READ_BYTES, end_offset - offset))
    base, at = offset, 0
    while base + at < end_offset and len(requests) < BATCH_REQUEST_COUNT_MAX and answer_bytes < ANSWER_BYTES_MAX:
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
        answer_bytes += _answer_bytes(request)
        at += request.record_size_bytes
    return requests, base + at


def _answer_bytes(request: DispatchRequest) -> int:
    texts = len(request.topic) + len(request.unique_key) + sum(map(len, request.keys)) + 2 * len(request.keys)
    return texts + REQUEST_OVERHEAD_BYTES


def _blank_end(chunk: bytes, at: int, offset: int, file_end: int) -> int | None:
    """Where the next file begins, if a blank closes this one here."""
    try:
        header = decode_header(chunk, at)
    except RecordCorruptedError:
        return None
    return file_end if header.is_blank and offset + header.size_bytes == file_end else None
