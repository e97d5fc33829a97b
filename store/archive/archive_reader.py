"""The archive of one shard: point lookups over all its segments, newest first, without an engine.

A segment that is published while the archive is open is seen by the next lookup.
"""

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import numpy as np

from store.archive.lookups import ArchivedUnit, LogFileLookups
from store.archive.manifest import Segment, SegmentList, damaged, reading
from store.archive.parquet_files import ParquetFiles
from store.archive.segment_index import QueueRun, SegmentIndex
from store.errors import RecordCorruptedError, RecordNotFoundError, StoreCorruptedError, StoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.record import Record, decode_record

# Each takes a descriptor and the front of an index in memory. All segments of a log of 128 GiB in files of 1 GiB stay open, and
# most of a process's usual 1,024 descriptors are left.
OPEN_SEGMENT_COUNT_MAX = 128


class ArchiveReader(LogFileLookups[Segment]):
    """Reads the segments of one shard; thread-safe.

    Args:
        root: the archive.
        broker_name: the shard.
        fs: the disk port.
        parquet: reads Parquet files; the archives of several shards may share one.
        clock_nanos: nanoseconds since 1970, as the file system counts them.
    """

    NAME = "archive"

    def __init__(
        self,
        root: Path,
        broker_name: str,
        fs: FileSystem | None = None,
        parquet: ParquetFiles | None = None,
        clock_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(root, broker_name)
        self._directory = root
        self._fs = fs or RealFileSystem()
        self._parquet = parquet or ParquetFiles(self._fs)
        self._segments = SegmentList(root, broker_name, self._fs, self._keep_readers, clock_nanos)
        self._lock = Lock()
        self._readers: OrderedDict[tuple[int, int], SegmentReader] = OrderedDict()

    def segments(self) -> list[Segment]:
        """The manifests, by offset; StoreCorruptedError when one is damaged, UnsupportedStoreError without an archive."""
        whole: list[Segment] = []
        for manifest in self._listed():
            if isinstance(manifest, StoreError):
                raise manifest
            whole.append(manifest)
        return whole

    def _listed(self) -> list[Segment | StoreError]:
        return self._segments.load()

    @contextmanager
    def _opened(self, log_file: Segment) -> Iterator["SegmentReader"]:
        """Makes a refusal of the file system a ServiceUnavailableError, and closes a file that cannot be read or is damaged.

        The next lookup opens the file anew: a stale descriptor stays stale, and a file may be restored from a copy.
        """
        with reading(self._directory):
            try:
                yield self.reader(log_file)
            except OSError as error:
                if error.errno == errno.ESTALE:
                    self._keep_readers(())  # the file system's server was restarted: all descriptors are stale
                else:
                    self._drop_reader(log_file)
                raise
            except StoreCorruptedError:
                self._drop_reader(log_file)
                raise

    def reader(self, segment: Segment) -> "SegmentReader":
        """One segment of this archive, opened; StoreCorruptedError when its index is missing or damaged."""
        key = _key_of(segment)
        with self._lock:
            reader = self._readers.get(key)
            if reader is not None:
                self._readers.move_to_end(key)
                return reader
        with reading(self._directory):
            reader = SegmentReader(self._fs, self._directory, segment, self._parquet)
        with self._lock:
            self._readers[key] = reader
            self._readers.move_to_end(key)
            while len(self._readers) > OPEN_SEGMENT_COUNT_MAX:
                self._readers.popitem(last=False)  # its file closes with its last user
        return reader

    def _drop_reader(self, segment: Segment) -> None:
        with self._lock:
            self._readers.pop(_key_of(segment), None)

    def _keep_readers(self, segments: Iterable[Segment]) -> None:
        kept = {_key_of(segment) for segment in segments}
        with self._lock:
            self._readers = OrderedDict((key, reader) for key, reader in self._readers.items() if key in kept)


class SegmentReader:
    """Reads one segment.

    Args:
        fs: the disk port.
        root: the archive.
        segment: the manifest.
        parquet: reads its Parquet files.

    Raises:
        StoreCorruptedError: the segment's index is missing or damaged.
    """

    def __init__(self, fs: FileSystem, root: Path, segment: Segment, parquet: ParquetFiles) -> None:
        self.segment = segment
        self._root = root
        self._parquet = parquet
        path = root / segment.keys_path
        try:
            self._file = _IndexFile(fs, path)
        except FileNotFoundError as error:
            raise damaged(path, 0, "it is missing") from error
        self._index = SegmentIndex(path, self._file.read)
        if self._index.record_count != segment.record_count:
            raise damaged(
                path, 8, f"it has {self._index.record_count} records, its manifest says {segment.record_count}"
            )
        self._first_rows = np.cumsum([0, *(file.row_count for file in segment.files)], dtype=np.int64)
        self._runs: dict[tuple[str, int], list[QueueRun]] = {}
        for run in self._index.runs:
            self._runs.setdefault((segment.files[run.file_number].topic, run.queue_id), []).append(run)
        for runs in self._runs.values():
            runs.sort(key=lambda run: run.first_queue_offset)

    def frame(self, commit_log_offset: int) -> bytes:
        """The bytes of the record that starts at an offset inside the segment.

        Raises:
            RecordNotFoundError: none starts there.
            StoreCorruptedError: a file is missing or damaged.
        """
        row = self._index.row_at(commit_log_offset - self.segment.first_offset)
        if row is None:
            raise RecordNotFoundError(
                f"No record starts at commit-log offset {commit_log_offset} of the archive.",
                commitLogOffset=commit_log_offset,
            )
        number = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        if number >= len(self.segment.files):
            raise damaged(self._root / self.segment.keys_path, 0, f"it names row {row}, which does not exist")
        return self._parquet.frame(self._path(number), row - int(self._first_rows[number]))

    def record(self, commit_log_offset: int) -> Record:
        """That record; also RecordCorruptedError when it was damaged in the log before it was archived."""
        frame = self.frame(commit_log_offset)
        try:
            return decode_record(frame, commit_log_offset=commit_log_offset)
        except RecordCorruptedError as error:
            raise RecordCorruptedError(
                f"{error.message} It was archived with this damage.",
                **{**error.metadata, "file": str(self._root / self.segment.keys_path)},
            ) from error

    def offsets_of_key(self, hash_: int, below_offset: int | None) -> Iterator[int]:
        """Commit-log offsets of records with a key of that hash, falling, below an offset (None: all)."""
        first_offset = self.segment.first_offset
        below = None
        if below_offset is not None and below_offset < self.segment.records_end_offset:
            below = below_offset - first_offset
        for position in self._index.positions_of_key(hash_, below):
            yield first_offset + position

    def queues(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first and last queue offset of each queue with a message here."""
        for (topic, queue_id), runs in self._runs.items():
            yield topic, queue_id, runs[0].first_queue_offset, max(run.last_queue_offset for run in runs)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[ArchivedUnit]:
        """Up to `count` messages of a queue from a queue offset on, rising."""
        found: list[ArchivedUnit] = []
        for run in self._runs.get((topic, queue_id), ()):
            if run.last_queue_offset < queue_offset:
                continue
            path = self._path(run.file_number)
            begin = run.first_row - int(self._first_rows[run.file_number])
            end = begin + run.row_count
            if run.is_dense:
                begin += max(queue_offset - run.first_queue_offset, 0)
            else:
                begin = self._parquet.first_row_from(path, begin, end, queue_offset)
            places = self._parquet.places(path, begin, min(end, begin + count))
            found.extend(ArchivedUnit(*place) for place in places if place[0] >= queue_offset)
        # Days overlap where a clock stepped back, and a damaged log may have two records with one queue offset.
        found.sort()
        return found[:count]

    def time_span(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Store times in milliseconds of a queue's first and last message here; None without any."""
        runs = self._runs.get((topic, queue_id))
        if not runs:
            return None
        return self._time_at(runs[0], 0), self._time_at(runs[-1], runs[-1].row_count - 1)

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool) -> int | None:
        """The queue offset of the first message stored at or after a time, or of the last at or before it; None if none.

        Store times may fall, and runs may overlap.
        """
        found: list[int] = []
        for run in self._runs.get((topic, queue_id), ()):
            path = self._path(run.file_number)
            begin = run.first_row - int(self._first_rows[run.file_number])
            row = self._parquet.row_at_time(path, begin, begin + run.row_count, time_millis, is_upper=is_upper)
            if row is not None:
                found.append(self._parquet.places(path, row, row + 1)[0][0])
        return (max if is_upper else min)(found, default=None)

    def _time_at(self, run: QueueRun, row: int) -> int:
        """Store time in milliseconds of a row of a run."""
        first_row = run.first_row - int(self._first_rows[run.file_number])
        return self._parquet.store_time_millis(self._path(run.file_number), first_row + row)

    def all_offsets(self) -> list[int]:
        """Commit-log offsets of all records, rising."""
        offsets: list[int] = (self._index.all_positions().astype(np.int64) + self.segment.first_offset).tolist()
        return offsets

    def check_blocks(self) -> None:
        """Reads all of the segment's index; StoreCorruptedError for the first damaged block."""
        self._index.check_blocks()

    def _path(self, file_number: int) -> Path:
        return self._root / self.segment.files[file_number].path


class _IndexFile:
    """A file kept open; closed with its last user."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._fd = fs.open(path, os.O_RDONLY)

    def read(self, position: int, size_bytes: int) -> bytes:
        try:
            return self._fs.pread(self._fd, size_bytes, position)
        except OSError as error:
            error.filename = str(self._path)  # an error of a descriptor has no file name
            raise

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self._fs.close(self._fd)


def _key_of(segment: Segment) -> tuple[int, int]:
    return segment.first_offset, segment.records_end_offset
