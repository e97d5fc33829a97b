"""ColumnBatches: the log as columns for its followers; followers at the same place share what is decoded.

Both builders follow the end of the log side by side, so the second one finds the batch that the first one asked for.
Followers at different places share nothing. At most DECODER_COUNT_MAX decode at a time, because each holds a piece of the
log meanwhile. A recovery's walk leaves batches here ahead of the followers (`recovery_feed.py`).
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from commitlog_svc.reput.reput import BATCH_BYTES_MAX, find_file, read_batch
from store.derive.dispatch_columns import DispatchColumns
from store.derive.dispatch_walk import Chunk, walk_columns
from store.files.mapped_files import MappedFileQueue

# Limit of an answer, as ANSWER_BYTES_MAX is for requests: about 4,000 records, so 4 MiB of log with bodies of 1 KiB.
COLUMN_BYTES_MAX = 256 << 10
RECORD_COLUMN_BYTES = 52  # bytes of a record in an answer, without its keys
KEY_COLUMN_BYTES = 8
LIGHT_UNIT_BYTES = 48  # of a unit in a light queue in an answer, without the queue's name: a record may name thousands
RECORD_COUNT_MAX = COLUMN_BYTES_MAX // RECORD_COLUMN_BYTES
# Two builders that start together and catch up: as long as the one behind finds its batches here, it is faster than the
# one ahead. About 250 MiB of log with bodies of 1 KiB.
CACHE_BYTES_MAX = 16 << 20
# Limit of the batches that a recovery's walk leaves ahead for builders that still open their files. About 0.5 GiB of log with
# bodies of 1 KiB, a quarter of a second of the walk.
AHEAD_BYTES_MAX = 32 << 20
CACHE_SECONDS = 2.0  # older batches are dropped with the next one: a second follower reads a batch sooner
DECODER_COUNT_MAX = 2  # at a time, each with up to 4 MiB of log
READ_BYTES_MIN = 64 << 10
WAIT_SECONDS = 1.0  # a thread that waits for another one's batch checks this often, in case it missed a wake-up


class Kept(NamedTuple):
    """A decoded batch, the offset behind it, and the time at which it was decoded."""

    columns: DispatchColumns
    next_offset: int
    kept_at: float


class ColumnBatches:
    """Batches of one log, for any number of threads.

    Args:
        files: the log.
        clock: seconds, rising.
    """

    def __init__(self, files: MappedFileQueue, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files = files
        self._changed = threading.Condition()
        # A decoding thread holds one and reads into it: freeing memory with each batch would fragment the heap.
        self._buffers: SimpleQueue[_Buffer] = SimpleQueue()
        for _ in range(DECODER_COUNT_MAX):
            self._buffers.put(_Buffer())
        self._batches: OrderedDict[tuple[int, int], Kept] = OrderedDict()
        self._cached_bytes = 0
        self._ahead_offsets: deque[int] = deque()  # where batches begin that were kept ahead, rising
        self._decoding: set[tuple[int, int]] = set()
        # Bytes of log for RECORD_COLUMN_BYTES of the last answer (a record without keys): decides how much is read next.
        self._record_bytes = 1024.0

    def read(self, offset: int, end_offset: int, batch_bytes_max: int) -> tuple[DispatchColumns, int]:
        """Records from `offset` on, about `batch_bytes_max` bytes of log at most; and the offset behind them.

        There is at least one record, unless a blank closes the file there.

        Raises:
            OffsetOutOfRangeError, RecordCorruptedError: as `follow_log`.
        """
        find_file(self._files, offset, end_offset)
        key = offset, batch_bytes_max
        with self._changed:
            while key in self._decoding:
                self._changed.wait(WAIT_SECONDS)
            found = self._batches.get(key)
            if found is not None:
                return found.columns, found.next_offset
            self._decoding.add(key)
        batch = None
        buffer = self._buffers.get()
        try:
            batch = self._decode(buffer, offset, end_offset, batch_bytes_max)
        finally:
            self._buffers.put(buffer)
            with self._changed:
                self._decoding.discard(key)
                if batch is not None:
                    self._keep(key, batch)
                self._changed.notify_all()
        return batch

    def decode(
        self, chunk: Chunk, at: int, commit_log_offset: int, record_count_max: int = RECORD_COUNT_MAX
    ) -> tuple[DispatchColumns, int]:
        """Records from chunk[at] on that fit into an answer, and the offset behind them; none if the plain path is needed."""
        columns, next_offset, _ = walk_columns(chunk, at, commit_log_offset, record_count_max)
        fitting_count = _fitting_count(columns)
        if fitting_count < len(columns):
            columns, next_offset, _ = walk_columns(chunk, at, commit_log_offset, fitting_count)
        return columns, next_offset

    def keep_ahead(self, columns: DispatchColumns, next_offset: int) -> None:
        """Keeps a batch of the usual size for later followers; drops the oldest ones when there are too many."""
        offset = int(columns.commit_log_offsets[0])
        with self._changed:
            self._ahead_offsets.append(offset)
            self._keep((offset, BATCH_BYTES_MAX), (columns, next_offset))

    def _decode(
        self, buffer: "_Buffer", offset: int, end_offset: int, batch_bytes_max: int
    ) -> tuple[DispatchColumns, int]:
        file = find_file(self._files, offset, end_offset)
        end_offset = self._next_ahead(offset, end_offset)
        wanted_bytes = max(int(self._record_bytes * RECORD_COUNT_MAX), READ_BYTES_MIN)
        room = buffer.first(min(wanted_bytes, batch_bytes_max, end_offset - offset))
        chunk = room[: file.read_into(offset, room)]
        columns, next_offset = self.decode(chunk, 0, offset)
        if not len(columns):
            # A blank, a record larger than the piece, or damage: the plain path handles each.
            requests, next_offset = read_batch(self._files, offset, end_offset, batch_bytes_max)
            return DispatchColumns.of(requests), next_offset
        self._record_bytes = (next_offset - offset) * RECORD_COLUMN_BYTES / size_bytes(columns)
        return columns, next_offset

    def _next_ahead(self, offset: int, end_offset: int) -> int:
        """The begin of the next kept batch behind `offset`, so that a follower that reads up to it finds it; else the end."""
        with self._changed:
            behind = next((begin for begin in self._ahead_offsets if begin > offset), end_offset)
        return min(behind, end_offset)

    def _keep(self, key: tuple[int, int], batch: tuple[DispatchColumns, int]) -> None:
        now = self._clock()
        bytes_max = AHEAD_BYTES_MAX if self._ahead_offsets else CACHE_BYTES_MAX
        self._batches[key] = Kept(*batch, now)
        self._cached_bytes += size_bytes(batch[0])
        while self._batches:
            (offset, _), oldest = next(iter(self._batches.items()))
            if self._cached_bytes <= bytes_max and now - oldest.kept_at <= CACHE_SECONDS:
                break
            self._batches.popitem(last=False)
            self._cached_bytes -= size_bytes(oldest.columns)
            while self._ahead_offsets and self._ahead_offsets[0] <= offset:
                self._ahead_offsets.popleft()


class _Buffer:
    """A buffer to read into; it only grows."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def first(self, size_bytes: int) -> memoryview:
        """Its first `size_bytes` bytes."""
        if len(self._bytes) < size_bytes:
            self._bytes = bytearray(size_bytes)
        return memoryview(self._bytes)[:size_bytes]


def _fitting_count(columns: DispatchColumns) -> int:
    """How many of the records fit into an answer, at least 1: a record may have thousands of keys or of light queues."""
    if size_bytes(columns) <= COLUMN_BYTES_MAX:
        return len(columns)
    ends = np.arange(1, len(columns) + 1)
    key_counts = np.searchsorted(columns.key_records, ends)
    sizes = ends * RECORD_COLUMN_BYTES + key_counts * KEY_COLUMN_BYTES
    if columns.light_units:
        offsets = [unit.commit_log_offset for unit in columns.light_units]
        of_units = np.cumsum([0, *(LIGHT_UNIT_BYTES + len(unit.queue) for unit in columns.light_units)])
        sizes += of_units[np.searchsorted(offsets, columns.commit_log_offsets, side="right")]
    return max(1, int(np.count_nonzero(sizes <= COLUMN_BYTES_MAX)))


def size_bytes(columns: DispatchColumns) -> int:
    """The size of columns in an answer (bytes)."""
    of_light_units = sum(LIGHT_UNIT_BYTES + len(unit.queue) for unit in columns.light_units)
    return len(columns) * RECORD_COLUMN_BYTES + len(columns.key_records) * KEY_COLUMN_BYTES + of_light_units
