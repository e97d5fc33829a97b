"""The cold tier of one shard: the lookups of `store/archive/lookups.py` over its log files in an object store."""

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from store.archive.lookups import ArchivedUnit, LogFileLookups
from store.archive.sorted_rows import Rows, SortedRows
from store.cold.manifest import ColdQueue, ColdSegment, decode_manifest
from store.cold.objects import CachedObjects, Objects, PageCache, damaged, index_name, log_name, manifest_name
from store.cold.pages import KEY, PAGE_BYTES, POSITION, UNIT, decode_page, is_page, page_count, rows_per_page
from store.errors import (
    RecordCorruptedError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreError,
    UnsupportedStoreError,
)
from store.format.record import Record, decode_record

# A log file that is shipped is seen after so long.
LOOK_SECONDS = 60.0
# While the store is away, a query is not held up by another attempt.
AWAY_SECONDS = 30.0
_MANIFEST_BYTES_MAX = 1 << 28
# One request brings the neighbours of a record, too.
LOG_BLOCK_BYTES = 64 << 10
PLACE_COUNT_MAX = 4096
# Pages of units in one request, where times may fall: 1 MiB. A log file of 1 GiB has some 30 MiB of them at most.
TIME_PAGE_COUNT = 256


class ColdReader(LogFileLookups[ColdSegment]):
    """Reads the cold tier of one shard; thread-safe.

    Args:
        root: where it is, for answers and errors.
        broker_name: the shard.
        objects: the object store.
        cache: keeps what was read.
        clock: seconds, of a clock that only rises.
    """

    NAME = "cold tier"

    def __init__(
        self,
        root: str,
        broker_name: str,
        objects: Objects,
        cache: PageCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(root, broker_name)
        self._objects = _Patient(objects, clock)
        self._cached = CachedObjects(self._objects, cache)
        self._clock = clock
        self._lock = Lock()
        self._stamp: str | None = None
        self._readers: dict[ColdSegment, ColdSegmentReader] | None = None
        self._look_at = 0.0

    def _listed(self) -> list[ColdSegment | StoreError]:
        return list(self._load())

    def _opened(self, log_file: ColdSegment) -> AbstractContextManager["ColdSegmentReader"]:
        known = (self._readers or {}).get(log_file)
        return nullcontext(known or ColdSegmentReader(self._cached, self.broker_name, log_file))

    def _load(self) -> dict[ColdSegment, "ColdSegmentReader"]:
        """The log files of the manifest, which is read again after a while; without the store, those read before."""
        known = self._readers
        if known is not None and self._clock() < self._look_at:
            return known
        # Reading the manifest may take long; other threads go on with what was read before.
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            return self._look()
        finally:
            self._lock.release()

    def _look(self) -> dict[ColdSegment, "ColdSegmentReader"]:
        """The log files as the manifest has them now, unless another thread has just read it."""
        if self._readers is None or self._clock() >= self._look_at:
            name = manifest_name(self.broker_name)
            try:
                stamp = self._objects.stamp(name)
                if stamp is None:
                    raise UnsupportedStoreError(
                        f"{self.root} has no {name}: run `reput pipeline ship-cold` for this shard, or name another place",
                        directory=self.root,
                    )
                if stamp != self._stamp or self._readers is None:
                    known = self._readers or {}
                    self._readers = {
                        segment: known.get(segment) or ColdSegmentReader(self._cached, self.broker_name, segment)
                        for segment in decode_manifest(self._objects.read_at(name, 0, _MANIFEST_BYTES_MAX), name)
                    }
                    self._stamp = stamp
            except ServiceUnavailableError:
                if self._readers is None:
                    raise
            self._look_at = self._clock() + LOOK_SECONDS
        return self._readers


class _Patient:
    """Objects: after a failure, no request for a while."""

    def __init__(self, objects: Objects, clock: Callable[[], float]) -> None:
        self._objects = objects
        self._clock = clock
        self._failure: StoreError | None = None
        self._again_at = 0.0

    def stamp(self, name: str) -> str | None:
        """See the port."""
        self._refuse_while_away()
        try:
            return self._objects.stamp(name)
        except ServiceUnavailableError as error:
            self._failed(error)
            raise

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes:
        """See the port."""
        self._refuse_while_away()
        try:
            return self._objects.read_at(name, position, size_bytes)
        except ServiceUnavailableError as error:
            self._failed(error)
            raise

    def _refuse_while_away(self) -> None:
        failure = self._failure
        if failure is not None and self._clock() < self._again_at:
            raise ServiceUnavailableError(failure.message, **failure.metadata)

    def _failed(self, error: ServiceUnavailableError) -> None:
        self._failure = error
        self._again_at = self._clock() + AWAY_SECONDS


class ColdSegmentReader:
    """Reads one log file. Thread-safe: what it remembers is replaced whole.

    Args:
        objects: reads objects.
        broker_name: the shard.
        segment: its row of the manifest.
    """

    def __init__(self, objects: CachedObjects, broker_name: str, segment: ColdSegment) -> None:
        self.segment = segment
        self._objects = objects
        self._log = log_name(broker_name, segment.first_offset)
        self._index = index_name(broker_name, segment.first_offset)
        self._queues = {(queue.topic, queue.queue_id): queue for queue in segment.queues}
        counts = ((UNIT, segment.unit_count), (KEY, segment.key_count), (POSITION, segment.record_count))
        self._pages = [page_count(dtype, count) for dtype, count in counts]
        self._units, self._keys, self._positions = (
            SortedRows(
                count,
                rows_per_page(dtype),
                partial(self._read_pages, dtype, count, sum(self._pages[:at])),
                partial(self._fences_of, at),
            )
            for at, (dtype, count) in enumerate(counts)
        )
        self._fences: tuple[Rows, Rows, Rows] | None = None
        self._places: dict[int, tuple[int, int]] = {}  # size and CRC-32 by position, of what was found last

    def record(self, commit_log_offset: int) -> Record:
        """The record that starts there; RecordNotFoundError, StoreCorruptedError, RecordCorruptedError."""
        position = commit_log_offset - self.segment.first_offset
        size, crc32 = self._places.get(position) or self._place(position)
        data = self._objects.read(self._log, position, size, LOG_BLOCK_BYTES, lambda data: zlib.crc32(data) == crc32)
        try:
            return decode_record(data, commit_log_offset=commit_log_offset)
        except RecordCorruptedError as error:
            raise RecordCorruptedError(
                f"{error.message} It was shipped with this damage.", **{**error.metadata, "file": self._log}
            ) from error

    def offsets_of_key(self, hash_: int, below_offset: int | None) -> Iterator[int]:
        """Commit-log offsets of records with a key of that hash, falling, each once, below an offset (None: all)."""
        first = self.segment.first_offset
        last = -1
        for _, rows in self._keys.equal(hash_, "hash"):
            self._remember(rows)
            for position in rows["position"][::-1].tolist():
                if position != last and (below_offset is None or first + position < below_offset):
                    yield first + position
                last = position

    def queues(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first and last queue offset of each queue with a message here."""
        for queue in self.segment.queues:
            yield queue.topic, queue.queue_id, queue.first_queue_offset, queue.last_queue_offset

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[ArchivedUnit]:
        """Up to `count` messages of a queue from a queue offset on, rising."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or queue_offset > queue.last_queue_offset:
            return []
        row, end = queue.first_row, queue.first_row + queue.row_count
        if queue.is_dense:
            row += max(queue_offset - queue.first_queue_offset, 0)
        else:
            row = self._units.search(queue_offset, "queue_offset", begin=row, end=end)
        end = min(end, row + count)
        if row >= end:
            return []
        rows = self._units.rows(row, end)
        self._remember(rows)
        return [
            ArchivedUnit(offset, self.segment.first_offset + position, size)
            for offset, position, size in zip(
                rows["queue_offset"].tolist(), rows["position"].tolist(), rows["size_bytes"].tolist(), strict=True
            )
        ]

    def time_span(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Store times in milliseconds of a queue's first and last message here; None without any."""
        queue = self._queues.get((topic, queue_id))
        return (queue.begin_time_millis, queue.end_time_millis) if queue else None

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool) -> int | None:
        """The queue offset of the first message stored at or after a time, or of the last at or before it; None if none."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return None
        # The greatest time of the file; that of the queue's last message may be lower.
        if is_upper and self.segment.end_time_millis <= time_millis:
            return queue.last_queue_offset
        if not queue.times_rise:
            return self._at_time_by_reading(queue, time_millis, is_upper=is_upper)
        begin, end = queue.first_row, queue.first_row + queue.row_count
        row = self._units.search(time_millis, "store_time_millis", right=is_upper, begin=begin, end=end) - is_upper
        return int(self._units.rows(row, row + 1)["queue_offset"][0]) if begin <= row < end else None

    def _at_time_by_reading(self, queue: ColdQueue, time_millis: int, *, is_upper: bool) -> int | None:
        count = rows_per_page(UNIT) * TIME_PAGE_COUNT
        begins = range(queue.first_row, queue.first_row + queue.row_count, count)
        for begin in reversed(begins) if is_upper else begins:
            rows = self._units.rows(begin, min(begin + count, queue.first_row + queue.row_count))
            times = rows["store_time_millis"]
            fitting = np.flatnonzero(times <= time_millis if is_upper else times >= time_millis)
            if len(fitting):
                return int(rows["queue_offset"][fitting[-1 if is_upper else 0]])
        return None

    def _place(self, position: int) -> tuple[int, int]:
        """Size and CRC-32 of the record that starts there."""
        found = self._positions.find(position, "position")
        if found is not None:
            return int(found[1]["size_bytes"]), int(found[1]["crc32"])
        offset = self.segment.first_offset + position
        raise RecordNotFoundError(
            f"No record starts at commit-log offset {offset} of the cold tier.", commitLogOffset=offset
        )

    def _remember(self, rows: Rows) -> None:
        rows = rows[-PLACE_COUNT_MAX:]
        places = zip(
            rows["position"].tolist(),
            zip(rows["size_bytes"].tolist(), rows["crc32"].tolist(), strict=True),
            strict=True,
        )
        kept = self._places if len(self._places) + len(rows) <= PLACE_COUNT_MAX else {}
        self._places = {**kept, **dict(places)}

    def _read_pages(self, dtype: "np.dtype[Any]", row_count: int, first_page: int, begin: int, end: int) -> Rows:
        """The rows of pages [begin, end) of a section, which are read in one request."""
        at = (first_page + begin) * PAGE_BYTES
        data = self._objects.read(self._index, at, (end - begin) * PAGE_BYTES, PAGE_BYTES, _are_pages)
        per_page = rows_per_page(dtype)
        pages = [
            decode_page(
                data[(number - begin) * PAGE_BYTES : (number - begin + 1) * PAGE_BYTES],
                dtype,
                min(per_page, row_count - number * per_page),
            )
            for number in range(begin, end)
        ]
        return pages[0] if len(pages) == 1 else np.concatenate(pages)

    def _fences_of(self, section: int, field: str) -> Rows:
        fences = self._fence(section)
        return fences[:, 0 if field == "queue_offset" else 1] if fences.ndim > 1 else fences

    def _fence(self, number: int) -> Rows:
        """The fences of units (rows of queue offset and time), keys or positions."""
        fences = self._fences
        if fences is None:
            segment = self.segment
            data = self._objects.read(
                self._index,
                segment.fences_position,
                segment.fences_size_bytes,
                PAGE_BYTES,
                lambda data: zlib.crc32(data) == segment.fences_crc32,
            )
            units, keys, positions = self._pages
            if len(data) != 16 * units + 4 * keys + 4 * positions:
                raise damaged(self._index, segment.fences_position, "it has another number of fences than pages")
            fences = (
                np.frombuffer(data, dtype="<i8", count=2 * units).reshape(-1, 2),
                np.frombuffer(data, dtype="<u4", count=keys, offset=16 * units),
                np.frombuffer(data, dtype="<u4", count=positions, offset=16 * units + 4 * keys),
            )
            self._fences = fences
        return fences[number]


def _are_pages(data: bytes) -> bool:
    return all(is_page(data[at : at + PAGE_BYTES]) for at in range(0, len(data), PAGE_BYTES))
