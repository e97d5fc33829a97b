"""The archive of one shard: point lookups over all its segments, newest first, without an engine.

A segment that is published while the archive is open is seen by the next lookup. If a part of the archive cannot be read, the
answer has the rest, and its `problem` says that it is not complete.
"""

import errno
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Lock

from store.archive.hits import KeyHits, QueueHits, TimeHit
from store.archive.manifest import Segment, reading
from store.archive.parquet_files import ParquetFiles
from store.archive.segment_list import SegmentList
from store.archive.segment_reader import ArchivedUnit, SegmentReader
from store.errors import OffsetOutOfRangeError, StoreCorruptedError, StoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.derived.index_layout import index_key, key_hash
from store.format.record import Record

# Each takes a descriptor and the front of an index in memory. All segments of a log of 128 GiB in files of 1 GiB stay open, and
# most of a process's usual 1,024 descriptors are left.
OPEN_SEGMENT_COUNT_MAX = 128


class ArchiveReader:
    """Reads the segments of one shard; thread-safe.

    Args:
        root: the archive.
        broker_name: the shard.
        fs: the disk port.
        parquet: reads Parquet files; the archives of several shards may share one.
        clock_nanos: nanoseconds since 1970, as the file system counts them.
    """

    def __init__(
        self,
        root: Path,
        broker_name: str,
        fs: FileSystem | None = None,
        parquet: ParquetFiles | None = None,
        clock_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        self.root = root
        self.broker_name = broker_name
        self._fs = fs or RealFileSystem()
        self._parquet = parquet or ParquetFiles(self._fs)
        self._segments = SegmentList(root, broker_name, self._fs, self._keep_readers, clock_nanos)
        self._lock = Lock()
        self._readers: OrderedDict[tuple[int, int], SegmentReader] = OrderedDict()

    def segments(self) -> list[Segment]:
        """The manifests, by offset; StoreCorruptedError when one is damaged, UnsupportedStoreError without an archive."""
        whole: list[Segment] = []
        for manifest in self._segments.load():
            if isinstance(manifest, StoreError):
                raise manifest
            whole.append(manifest)
        return whole

    def problem(self) -> StoreError | None:
        """Why the archive is not complete: it is not an archive, a manifest is damaged, or log is missing between segments.

        The files that the manifests name are not read.
        """
        try:
            manifests = self._segments.load()
        except StoreError as error:
            return error
        damaged = next((manifest for manifest in manifests if isinstance(manifest, StoreError)), None)
        return damaged or _hole([manifest for manifest in manifests if isinstance(manifest, Segment)])

    def range(self) -> tuple[int, int]:
        """First and end commit-log offset of its segments (bytes); (0, 0) without any."""
        whole = [manifest for manifest in self._segments.load() if isinstance(manifest, Segment)]
        return (whole[0].first_offset, whole[-1].end_offset) if whole else (0, 0)

    def record(self, commit_log_offset: int) -> Record:
        """The record that starts there.

        Raises:
            OffsetOutOfRangeError: no segment holds the offset.
            RecordNotFoundError: no record starts there.
            StoreCorruptedError, RecordCorruptedError: it cannot be read; metadata has `file`.
            UnsupportedStoreError: the directory is not an archive.
            ServiceUnavailableError: the file system refuses to read it; metadata has `file`.
        """
        manifests = self._segments.load()
        for manifest in manifests:
            if isinstance(manifest, Segment) and manifest.first_offset <= commit_log_offset < manifest.end_offset:
                with self._reading(manifest):
                    return self._reader(manifest).record(commit_log_offset)
        problem = self.problem()
        if problem is not None:
            raise problem
        first, end = self.range()
        raise OffsetOutOfRangeError(
            f"Commit-log offset {commit_log_offset} is not in the archive, which goes from {first} to {end}.",
            commitLogOffset=commit_log_offset,
            firstOffset=first,
            lastOffset=end,
        )

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int | None = None,
        end_millis: int | None = None,
        count: int = 64,
    ) -> KeyHits:
        """Records with a key, or a unique key, of the same hash; the caller compares topic, key and time.

        Args:
            topic: the topic.
            key: the key.
            below_offset: only records that start below it, in bytes; None: all.
            begin_millis: only segments with a record stored at or after this.
            end_millis: only segments with a record stored at or before this.
            count: the most records.
        """
        hash_ = key_hash(index_key(topic, key))
        found: list[int] = []
        problem = self.problem()
        try:
            manifests = self._segments.load()
        except StoreError:
            return KeyHits((), False, problem)
        for segment in reversed([manifest for manifest in manifests if isinstance(manifest, Segment)]):
            if below_offset is not None and segment.first_offset >= below_offset:
                continue
            if begin_millis is not None and segment.end_time_millis < begin_millis:
                continue
            if end_millis is not None and segment.begin_time_millis > end_millis:
                continue
            if all(file.topic != topic for file in segment.files):
                continue
            try:
                with self._reading(segment):
                    for offset in self._reader(segment).offsets_of_key(hash_, below_offset):
                        if len(found) == count:
                            return KeyHits(tuple(found), True, problem)
                        found.append(offset)
            except StoreError as error:
                problem = problem or error
        return KeyHits(tuple(found), False, problem)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> QueueHits:
        """Up to `count` messages of a queue from a queue offset on; missing places are skipped."""
        found: list[ArchivedUnit] = []
        problem = self.problem()
        try:
            readers = self._readers_with(topic)
            for reader in readers:
                if len(found) >= count:
                    break
                if isinstance(reader, StoreError):
                    problem = problem or reader
                else:
                    with self._reading(reader.segment):
                        found.extend(reader.units(topic, queue_id, queue_offset, count - len(found)))
        except StoreError as error:
            problem = problem or error
        return QueueHits(tuple(found), problem)

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool = False) -> TimeHit:
        """The first message of a queue stored at or after a time, or the last at or before it, also where times fall.

        Args:
            topic: the topic.
            queue_id: the queue.
            time_millis: since 1970 UTC.
            is_upper: return the last at or before it.
        """
        found: int | None = None
        spans: list[tuple[int, int]] = []
        problem = self.problem()
        try:
            for reader in self._readers_with(topic):
                if isinstance(reader, StoreError):
                    problem = problem or reader
                    continue
                try:
                    with self._reading(reader.segment):
                        span = reader.time_span(topic, queue_id)
                        if span is None:
                            continue
                        spans.append(span)
                        if is_upper:
                            may_hold = reader.segment.begin_time_millis <= time_millis
                        else:
                            may_hold = found is None and reader.segment.end_time_millis >= time_millis
                        if may_hold:
                            here = reader.at_time(topic, queue_id, time_millis, is_upper=is_upper)
                            found = found if here is None else here
                except StoreError as error:
                    problem = problem or error
        except StoreError as error:
            problem = problem or error
        return TimeHit(found, spans[0][0] if spans else None, spans[-1][1] if spans else None, problem)

    def queues(self, topic: str | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """First queue offset and the one behind the last, by topic and queue id, of one topic or all.

        Raises:
            StoreError: part of the archive cannot be read.
        """
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for reader in self._readers_with(topic):
            if isinstance(reader, StoreError):
                raise reader
            with self._reading(reader.segment):
                for name, queue_id, first, last in reader.queues():
                    if topic in (None, name):
                        known = ranges.get((name, queue_id), (first, last + 1))
                        ranges[name, queue_id] = (min(known[0], first), max(known[1], last + 1))
        return ranges

    def reader(self, segment: Segment) -> SegmentReader:
        """One segment of this archive, opened; StoreCorruptedError when its index is missing or damaged."""
        return self._reader(segment)

    def _readers_with(self, topic: str | None) -> Iterator[SegmentReader | StoreError]:
        for manifest in self._segments.load():
            if isinstance(manifest, StoreError):
                yield manifest
            elif topic is None or any(file.topic == topic for file in manifest.files):
                try:
                    yield self._reader(manifest)
                except StoreError as error:
                    yield error

    def _reader(self, segment: Segment) -> SegmentReader:
        key = _key_of(segment)
        with self._lock:
            reader = self._readers.get(key)
            if reader is not None:
                self._readers.move_to_end(key)
                return reader
        with reading(self.root):
            reader = SegmentReader(self._fs, self.root, segment, self._parquet)
        with self._lock:
            self._readers[key] = reader
            self._readers.move_to_end(key)
            while len(self._readers) > OPEN_SEGMENT_COUNT_MAX:
                self._readers.popitem(last=False)  # its file closes with its last user
        return reader

    @contextmanager
    def _reading(self, segment: Segment) -> Iterator[None]:
        """Makes a refusal of the file system a ServiceUnavailableError, and closes a file that cannot be read or is damaged.

        The next lookup opens the file anew: a stale descriptor stays stale, and a file may be restored from a copy.
        """
        with reading(self.root):
            try:
                yield
            except OSError as error:
                if error.errno == errno.ESTALE:
                    self._keep_readers(())  # the file system's server was restarted: all descriptors are stale
                else:
                    self._drop_reader(segment)
                raise
            except StoreCorruptedError:
                self._drop_reader(segment)
                raise

    def _drop_reader(self, segment: Segment) -> None:
        with self._lock:
            self._readers.pop(_key_of(segment), None)

    def _keep_readers(self, segments: Iterable[Segment]) -> None:
        kept = {_key_of(segment) for segment in segments}
        with self._lock:
            self._readers = OrderedDict((key, reader) for key, reader in self._readers.items() if key in kept)


def _key_of(segment: Segment) -> tuple[int, int]:
    return segment.first_offset, segment.records_end_offset


def _hole(segments: list[Segment]) -> StoreError | None:
    for before, after in pairwise(segments):
        if before.end_offset < after.first_offset:
            return missing_log(before.end_offset, after.first_offset)
    return None


def missing_log(begin_offset: int, end_offset: int) -> StoreCorruptedError:
    """The error for bytes of the log that are neither in the archive nor in the log."""
    return StoreCorruptedError(
        f"The log from {begin_offset} to {end_offset} is not in the archive or cold tier and no longer in the log: its "
        "messages are missing. Archive or ship more often than retention removes files",
        offset=begin_offset,
        beginOffset=begin_offset,
        endOffset=end_offset,
    )
