"""ColumnBatches: the log as columns for its followers, each stretch decoded once for those who are at about the same place.

Both builders follow the end of the log side by side, so the second one finds what the first one asked for. Followers at
different places share nothing, and only so many decode at a time: each holds a piece of the log meanwhile. During a
recovery its walk leaves batches here ahead of those who ask (`recovery_feed.py`).
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from commitlog_svc.reput import BATCH_BYTES_MAX, find_file, read_batch
from store.dispatch_columns import DispatchColumns
from store.files.mapped_file_queue import MappedFileQueue
from store.kernels import loading
from store.kernels.dispatch_walk import KERNEL, Chunk, walk_columns

# Of answer, as ANSWER_BYTES_MAX of requests: about 4,000 records, so 4 MiB of log with bodies of 1 KiB.
COLUMN_BYTES_MAX = 256 << 10
RECORD_COLUMN_BYTES = 48  # of a record in an answer, without its keys
KEY_COLUMN_BYTES = 8
RECORD_COUNT_MAX = COLUMN_BYTES_MAX // RECORD_COLUMN_BYTES
# Two builders that start together and catch up: the one behind takes what it finds here faster than the one ahead makes
# more, as long as it finds it. Some 250 MiB of log with bodies of 1 KiB.
CACHE_BYTES_MAX = 16 << 20
# What a recovery's walk left ahead: for builders that open their files while it has begun. About 0.5 GiB of log with bodies
# of 1 KiB, which it takes a quarter of a second for.
AHEAD_BYTES_MAX = 32 << 20
CACHE_SECONDS = 2.0  # what was not asked for again by then, is not: dropped with the next batch
DECODER_COUNT_MAX = 2  # at a time, each with up to 4 MiB of log
READ_BYTES_MIN = 64 << 10
# Who is so far behind, or so many records altogether, are worth the second and the 65 MB that a kernel takes.
KERNEL_LAG_BYTES = 8 << 20
KERNEL_RECORD_COUNT = 20_000
WAIT_SECONDS = 1.0  # who waits for another's decoding looks around so often, should it ever miss a call


class Kept(NamedTuple):
    """A batch that was decoded, where to go on behind it, and when that was."""

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
        # Who decodes holds one; it is read into, since a piece that is given back with every batch scatters the heap.
        self._buffers: SimpleQueue[_Buffer] = SimpleQueue()
        for _ in range(DECODER_COUNT_MAX):
            self._buffers.put(_Buffer())
        self._batches: OrderedDict[tuple[int, int], Kept] = OrderedDict()
        self._cached_bytes = 0
        self._ahead_offsets: deque[int] = deque()  # where batches begin that nobody asked for, rising
        self._decoding: set[tuple[int, int]] = set()
        self._record_bytes = 1024.0  # of log, on average of the last batch: how much to read for the next
        self._record_count = 0

    def read(self, offset: int, end_offset: int, batch_bytes_max: int) -> tuple[DispatchColumns, int]:
        """Records from `offset` on, about `batch_bytes_max` bytes of log at most; and where to go on.

        There is at least one record, or else a blank closes the file there.

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

    def decode(self, chunk: Chunk, at: int, commit_log_offset: int) -> tuple[DispatchColumns, int]:
        """As many records from chunk[at] on as fit into an answer, and where to go on; none where the plain way must look."""
        columns, next_offset, _ = walk_columns(chunk, at, commit_log_offset, RECORD_COUNT_MAX)
        fitting_count = _fitting_count(columns)
        if fitting_count < len(columns):
            columns, next_offset, _ = walk_columns(chunk, at, commit_log_offset, fitting_count)
        return columns, next_offset

    def keep_ahead(self, columns: DispatchColumns, next_offset: int) -> None:
        """Keeps a batch of the usual size for those who will ask; the oldest go when there are too many."""
        offset = int(columns.commit_log_offsets[0])
        with self._changed:
            self._ahead_offsets.append(offset)
            self._keep((offset, BATCH_BYTES_MAX), (columns, next_offset))

    def _decode(
        self, buffer: "_Buffer", offset: int, end_offset: int, batch_bytes_max: int
    ) -> tuple[DispatchColumns, int]:
        if end_offset - offset >= KERNEL_LAG_BYTES or self._record_count >= KERNEL_RECORD_COUNT:
            loading.load_in_background(KERNEL)
        file = find_file(self._files, offset, end_offset)
        end_offset = self._next_ahead(offset, end_offset)
        wanted_bytes = max(int(self._record_bytes * RECORD_COUNT_MAX), READ_BYTES_MIN)
        room = buffer.first(min(wanted_bytes, batch_bytes_max, end_offset - offset))
        chunk = room[: file.read_into(offset, room)]
        columns, next_offset = self.decode(chunk, 0, offset)
        if not len(columns):
            # A blank, a record larger than the piece, or damage: the plain way knows which.
            requests, next_offset = read_batch(self._files, offset, end_offset, batch_bytes_max)
            return DispatchColumns.of(requests), next_offset
        self._record_count += len(columns)
        self._record_bytes = (next_offset - offset) / len(columns)
        return columns, next_offset

    def _next_ahead(self, offset: int, end_offset: int) -> int:
        """Where a batch begins that is kept behind `offset`, so that whoever reads up to there finds it; else the end."""
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
    """Bytes to read into, as many as were ever wanted."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def first(self, size_bytes: int) -> memoryview:
        """So many of them."""
        if len(self._bytes) < size_bytes:
            self._bytes = bytearray(size_bytes)
        return memoryview(self._bytes)[:size_bytes]


def _fitting_count(columns: DispatchColumns) -> int:
    """How many of the records fit into an answer, 1 at least: each may have thousands of keys."""
    if size_bytes(columns) <= COLUMN_BYTES_MAX:
        return len(columns)
    ends = np.arange(1, len(columns) + 1)
    key_counts = np.searchsorted(columns.key_records, ends)
    fits = ends * RECORD_COLUMN_BYTES + key_counts * KEY_COLUMN_BYTES <= COLUMN_BYTES_MAX
    return max(1, int(np.count_nonzero(fits)))


def size_bytes(columns: DispatchColumns) -> int:
    """What columns take in an answer."""
    return len(columns) * RECORD_COLUMN_BYTES + len(columns.key_records) * KEY_COLUMN_BYTES
