"""One log file of the cold tier: lookups in its index object, and records of its log object."""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from store.archive.segment_reader import ArchivedUnit
from store.cold.manifest import ColdQueue, ColdSegment
from store.cold.objects import CachedObjects, damaged, index_name, log_name
from store.cold.pages import (
    KEY,
    PAGE_BYTES,
    POSITION,
    UNIT,
    Rows,
    decode_page,
    is_page,
    page_count,
    rows_per_page,
)
from store.errors import RecordCorruptedError, RecordNotFoundError
from store.format.record import Record, decode_record

# One request brings the neighbours of a record, too.
LOG_BLOCK_BYTES = 64 << 10
PLACE_COUNT_MAX = 4096
# Pages of units in one request, where times may fall: 1 MiB. A log file of 1 GiB has some 30 MiB of them at most.
TIME_PAGE_COUNT = 256


class SegmentLookups:
    """Lookups in one log file. Thread-safe: what it remembers is replaced whole.

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
        counts = ((UNIT, segment.unit_count), (KEY, segment.key_count), (POSITION, segment.record_count))
        pages = [page_count(dtype, count) for dtype, count in counts]
        self._begins = dict(zip((UNIT, KEY, POSITION), np.cumsum([0, *pages[:2]]).tolist(), strict=True))
        self._counts = dict(counts)
        self._pages = pages
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
        fences = self._fence(1)
        if not len(fences):
            return
        number = int(np.searchsorted(fences, np.uint32(hash_), side="right")) - 1
        last = -1
        while number >= 0:
            page = self._page(KEY, number)
            begin = int(np.searchsorted(page["hash"], np.uint32(hash_), side="left"))
            end = int(np.searchsorted(page["hash"], np.uint32(hash_), side="right"))
            self._remember(page[begin:end])
            for position in page["position"][begin:end][::-1].tolist():
                if position != last and (below_offset is None or first + position < below_offset):
                    yield first + position
                last = position
            if begin:
                return
            number -= 1

    def units(self, queue: ColdQueue, queue_offset: int, count: int) -> list[ArchivedUnit]:
        """Up to `count` messages of a queue from a queue offset on, rising."""
        if queue_offset > queue.last_queue_offset:
            return []
        if queue.is_dense:
            row = queue.first_row + max(queue_offset - queue.first_queue_offset, 0)
        else:
            row = self._first_row(queue, "queue_offset", queue_offset, "left")
        end = min(queue.first_row + queue.row_count, row + count)
        rows = self._rows(row, end)
        self._remember(rows)
        return [
            ArchivedUnit(offset, self.segment.first_offset + position, size)
            for offset, position, size in zip(
                rows["queue_offset"].tolist(), rows["position"].tolist(), rows["size_bytes"].tolist(), strict=True
            )
        ]

    def at_time(self, queue: ColdQueue, time_millis: int, *, is_upper: bool) -> int | None:
        """The queue offset of the first message stored at or after a time, or of the last at or before it; None if none."""
        if not queue.times_rise:
            return self._at_time_by_reading(queue, time_millis, is_upper=is_upper)
        row = self._first_row(queue, "store_time_millis", time_millis, "right" if is_upper else "left") - is_upper
        if not queue.first_row <= row < queue.first_row + queue.row_count:
            return None
        return int(self._rows(row, row + 1)["queue_offset"][0])

    def _at_time_by_reading(self, queue: ColdQueue, time_millis: int, *, is_upper: bool) -> int | None:
        count = rows_per_page(UNIT) * TIME_PAGE_COUNT
        begins = range(queue.first_row, queue.first_row + queue.row_count, count)
        for begin in reversed(begins) if is_upper else begins:
            rows = self._rows(begin, min(begin + count, queue.first_row + queue.row_count))
            times = rows["store_time_millis"]
            fitting = np.flatnonzero(times <= time_millis if is_upper else times >= time_millis)
            if len(fitting):
                return int(rows["queue_offset"][fitting[-1 if is_upper else 0]])
        return None

    def _first_row(self, queue: ColdQueue, field: str, value: int, side: Any) -> int:
        """The row of a queue at which a value belongs, by the fences and one page."""
        per_page = rows_per_page(UNIT)
        begin, end = queue.first_row, queue.first_row + queue.row_count
        column = 0 if field == "queue_offset" else 1
        # Fences of pages that begin inside the queue's rows.
        first = begin // per_page + 1
        fences = self._fence(0)[first : (end - 1) // per_page + 1, column]
        number = first - 1 + int(np.searchsorted(fences, value, side=side))
        page_begin = number * per_page
        low, high = max(begin, page_begin), min(end, page_begin + per_page)
        page = self._page(UNIT, number)[low - page_begin : high - page_begin]
        return low + int(np.searchsorted(page[field], value, side=side))

    def _place(self, position: int) -> tuple[int, int]:
        fences = self._fence(2)
        number = int(np.searchsorted(fences, position, side="right")) - 1 if position >= 0 else -1
        if number >= 0:
            page = self._page(POSITION, number)
            at = int(np.searchsorted(page["position"], np.uint32(position)))
            if at < len(page) and int(page["position"][at]) == position:
                return int(page["size_bytes"][at]), int(page["crc32"][at])
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

    def _rows(self, begin: int, end: int) -> Rows:
        """Units at [begin, end), whose pages are read in one request."""
        per_page = rows_per_page(UNIT)
        if begin >= end:
            return np.empty(0, dtype=UNIT)
        first, last = begin // per_page, (end - 1) // per_page
        pages = self._pages_of(UNIT, first, last + 1)
        return np.concatenate(pages)[begin - first * per_page : end - first * per_page]

    def _page(self, dtype: "np.dtype[Any]", number: int) -> Rows:
        return self._pages_of(dtype, number, number + 1)[0]

    def _pages_of(self, dtype: "np.dtype[Any]", begin: int, end: int) -> list[Rows]:
        at = (self._begins[dtype] + begin) * PAGE_BYTES
        data = self._objects.read(self._index, at, (end - begin) * PAGE_BYTES, PAGE_BYTES, _are_pages)
        per_page = rows_per_page(dtype)
        return [
            decode_page(
                data[(number - begin) * PAGE_BYTES : (number - begin + 1) * PAGE_BYTES],
                dtype,
                min(per_page, self._counts[dtype] - number * per_page),
            )
            for number in range(begin, end)
        ]

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
