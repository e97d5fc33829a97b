"""The records of one split, run by run, as tables of positions and numbers over the bytes that were read.

    file    ...|--- read into a buffer ---|...        read again from the first record that did not fit
    run            one row a record: numbers, and where topic, body and properties lie in the buffer

The walk ends exactly where the split ends, or it says why not. Bytes that are no record are an error that names the first
of them, or, if told so, are passed over up to the next record that is whole, right, and knows its place.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.boundaries import is_closing_blank, is_record_head, kernel
from pipeline.split import Split
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_file import MappedFile
from store.format.record import BLANK_SIZE_BYTES, decode_dispatch, decode_record
from store.kernels.scan_layout import (
    AT,
    IS_DOUBTFUL,
    LENGTHS,
    NAME_AT,
    NAME_COUNT_MAX,
    NAME_ROW_COUNT,
    NAME_SIZE,
    NAME_SLOT_COUNT,
    ROW_COUNT_32,
    ROW_COUNT_64,
    SIZE,
    SUMS,
)
from store.readers.log_walk import find_record_in

# What is read at once. It bounds a batch too, far below the 2 GiB of Arrow's offsets, and most of it stays in the CPU's
# cache between the passes over it.
READ_BYTES = 8 << 20
# What lies that far apart has the same place in a first-level cache of 4 KiB a way, and what one of its lines holds; in
# numbers of 32 bits.
CACHE_WAY_ROWS, CACHE_LINE_ROWS = (4 << 10) // 4, 64 // 4
# Behind damage less is read, and twice as much each time that goes well: it seldom comes alone.
READ_BYTES_MIN = 64 << 10
# What a row about damage shows of it.
DAMAGE_BYTES_SHOWN = 64 << 10

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]


class SplitBoundaryError(RecordCorruptedError):
    """A split's records do not end where the next split's begin: the file is not the one that was walked."""


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Records one behind the other; valid until the next one is asked for.

    Attributes:
        data: the bytes that positions refer to.
        base_offset: commit-log offset of their first.
        rows_32: see `store/kernels/scan_layout.py`.
        rows_64: likewise.
        topics: the topics that occur, by number, as stored.
        hosts: the hosts that occur, by number, as stored; empty unless asked for.
    """

    data: Bytes
    base_offset: int
    rows_32: Rows
    rows_64: Rows
    topics: list[bytes]
    hosts: list[bytes]

    def __len__(self) -> int:
        return int(self.rows_32.shape[1])

    def only(self, chosen: Rows) -> "RecordRun":
        """The rows that a mask or their places choose."""
        return RecordRun(
            self.data, self.base_offset, self.rows_32[:, chosen], self.rows_64[:, chosen], self.topics, self.hosts
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of the log that is no record, or a record that is wrong.

    Attributes:
        offset: commit-log offset of its first byte.
        size_bytes: its length.
        why: what is wrong.
        head: its first bytes.
    """

    offset: int
    size_bytes: int
    why: str
    head: bytes


class _Tables:
    """What the kernel fills, of one scan.

    A record is a column of these tables, so that it is written to as many places as there are rows. Were those a power of
    two apart, as rows of 8192 are, a first-level cache would have the same few lines for all of them: the rows are a
    little longer.
    """

    def __init__(self, row_count: int) -> None:
        row_count = -(-row_count // CACHE_WAY_ROWS) * CACHE_WAY_ROWS + CACHE_LINE_ROWS
        self.rows_32: Rows = np.empty((ROW_COUNT_32, row_count), dtype=np.int32)
        self.rows_64: Rows = np.empty((ROW_COUNT_64, row_count), dtype=np.int64)
        self.topics: Rows = np.empty((NAME_ROW_COUNT, NAME_COUNT_MAX), dtype=np.int64)
        self.hosts: Rows = np.empty((NAME_ROW_COUNT, NAME_COUNT_MAX), dtype=np.int64)
        self.topic_slots: Rows = np.empty(NAME_SLOT_COUNT, dtype=np.int32)
        self.host_slots: Rows = np.empty(NAME_SLOT_COUNT, dtype=np.int32)


class SplitScan:
    """A walk over one split.

    Args:
        split: what to read.
        check: LENGTHS, PLACE or SUMS (`store/kernels/scan_layout.py`).
        row_count_max: records in a run, at most.
        with_hosts: whether runs say which hosts occur.
        over_damage: pass over what is no record, and yield it as Damage; otherwise it is an error.
        fs: the door to the disk.
    """

    def __init__(
        self,
        split: Split,
        *,
        check: int,
        row_count_max: int,
        with_hosts: bool = False,
        over_damage: bool = False,
        fs: FileSystem | None = None,
    ) -> None:
        self._split = split
        self._check = check
        self._row_count_max = row_count_max
        self._with_hosts = with_hosts
        self._over_damage = over_damage
        self._fs = fs or RealFileSystem()

    def __iter__(self) -> Iterator[RecordRun | Damage]:
        """The runs in log order, and damage where it lies.

        Raises:
            LogFileGoneError: the file was deleted since the scan was planned.
            RecordCorruptedError: something is no record; it names the commit-log offset.
            SplitBoundaryError: the records do not end where the split ends.
        """
        file = self._split.file.open(self._fs)
        try:
            yield from self._runs(file)
        finally:
            file.close()

    def _runs(self, file: MappedFile) -> Iterator[RecordRun | Damage]:
        tables = _Tables(self._row_count_max)
        offset, end = self._split.begin, self._split.end
        buffer = bytearray(min(READ_BYTES, end - offset))
        window = len(buffer)
        while offset < end:
            size_bytes = file.read_into(offset, memoryview(buffer)[: min(window, end - offset)])
            data = np.frombuffer(buffer, dtype=np.uint8)
            data.flags.writeable = False  # one kind of array, one compiled kernel
            at = 0
            while (run := self._run(tables, data, at, size_bytes, offset)) is not None:
                at = int(run.rows_64[AT, -1]) + int(run.rows_32[SIZE, -1])
                yield from self._judged(run)
            if at:
                offset += at
                window = min(2 * window, len(buffer))
                continue
            head = data[:size_bytes]
            if self._split.is_to_file_end and is_closing_blank(bytes(head[:BLANK_SIZE_BYTES]), end - offset):
                return
            frame_bytes = int.from_bytes(bytes(head[:4]), "big", signed=True)
            if size_bytes < frame_bytes <= end - offset and self._is_head(head, offset):
                if frame_bytes > len(buffer):
                    buffer = bytearray(frame_bytes)
                if window < frame_bytes:
                    window = frame_bytes
                    continue
            offset = yield from self._over(file, offset)
            window = min(READ_BYTES_MIN, len(buffer))

    def _run(self, tables: _Tables, data: Bytes, at: int, end: int, offset: int) -> RecordRun | None:
        """The run that begins at data[at], which is not empty; None without a record there."""
        if at >= end:
            return None
        count, topic_count, host_count, _ = kernel().fill_rows(
            data,
            at,
            end,
            offset + at,
            self._check,
            self._with_hosts,
            self._row_count_max,
            tables.rows_32,
            tables.rows_64,
            tables.topics,
            tables.topic_slots,
            tables.hosts,
            tables.host_slots,
        )
        if not count:
            return None
        return RecordRun(
            data,
            offset,
            tables.rows_32[:, :count],
            tables.rows_64[:, :count],
            _names(data, tables.topics, topic_count),
            _names(data, tables.hosts, host_count),
        )

    def _judged(self, run: RecordRun) -> Iterator[RecordRun | Damage]:
        """The run without records that are wrong; those as Damage."""
        doubtful = np.flatnonzero(run.rows_32[IS_DOUBTFUL]) if self._check == SUMS else ()
        wrong = [damage for place in doubtful if (damage := self._wrong(run, int(place))) is not None]
        if wrong:
            places = [int(place) for place, _ in wrong]
            if not self._over_damage:
                raise RecordCorruptedError(
                    self._named(wrong[0][1].why), commitLogOffset=wrong[0][1].offset, file=self._split.file.path
                )
            run = run.only(np.delete(np.arange(len(run)), places))
        if len(run):
            yield run
        yield from (damage for _, damage in wrong)

    def _wrong(self, run: RecordRun, place: int) -> tuple[int, Damage] | None:
        """A doubtful record, judged by the plain codec."""
        at, size = int(run.rows_64[AT, place]), int(run.rows_32[SIZE, place])
        frame = run.data[at : at + size].tobytes()
        try:
            decode_record(frame, commit_log_offset=run.base_offset + at)
        except RecordCorruptedError as error:
            return place, Damage(run.base_offset + at, size, error.message, frame[:DAMAGE_BYTES_SHOWN])
        return None

    def _is_head(self, head: Bytes, offset: int) -> bool:
        return is_record_head(head, None if self._check == LENGTHS else offset)

    def _over(self, file: MappedFile, offset: int) -> Generator[Damage, None, int]:
        """Yields what lies from `offset` to the next record, and returns where that begins.

        Raises:
            RecordCorruptedError: damage is not to be passed over.
            SplitBoundaryError: a sound record stands here, and reaches beyond the split.
        """
        end = self._split.end
        why, reaches = self._reason(file, offset)
        if reaches is not None:
            raise SplitBoundaryError(
                f"The record at commit-log offset {offset} of {file.path} reaches to {reaches}, beyond {end}, where the "
                "next task begins: the file changed while it was read, or is not the one that was walked. Read again; "
                "with boundaryCache=off nothing is believed of an earlier walk.",
                commitLogOffset=offset,
                file=file.path,
            )
        if not self._over_damage:
            raise RecordCorruptedError(self._named(why), commitLogOffset=offset, file=file.path)
        behind = find_record_in(file, offset)
        behind = end if behind is None else min(behind, end)
        head = file.read(offset, min(DAMAGE_BYTES_SHOWN, behind - offset))
        yield Damage(offset, behind - offset, why, head)
        return behind

    def _reason(self, file: MappedFile, offset: int) -> tuple[str, int | None]:
        """Why no record of this split stands here, and where it ends if it is one that reaches out of the split."""
        head = file.read(offset, 8)
        if not head:
            return f"the file ends at commit-log offset {offset}", None
        size_bytes = int.from_bytes(head[:4], "big", signed=True)
        data = file.read(offset, max(size_bytes, 128) if size_bytes <= file.last_offset - offset else 128)
        try:
            stated = int.from_bytes(data[28:36], "big", signed=True) if self._check == LENGTHS else offset
            return "", decode_dispatch(data, 0, stated).next_offset - stated + offset
        except RecordCorruptedError as error:
            return error.message, None

    def _named(self, why: str) -> str:
        return f"{why.rstrip('.')}; file {self._split.file.path}. Read with corrupt=skip or report to go on behind it."


def _names(data: Bytes, table: Rows, count: int) -> list[bytes]:
    return [
        data[at : at + size].tobytes()
        for at, size in zip(table[NAME_AT, :count].tolist(), table[NAME_SIZE, :count].tolist(), strict=True)
    ]
