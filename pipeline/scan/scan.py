"""The records of one split, run by run, as tables of places and numbers over the bytes that were read.

    file    ...|--- read into a buffer ---|...        read again from the first record that did not fit
    run            one column a record: numbers, and the places of topic, body and properties in the buffer

The walk is the cursor of `store/walk/cursor.py`. It must end exactly where the split ends; otherwise the scan reports why.
Damage is an error that names its first byte. With `over_damage` the walk goes on at the next record that is whole, correct,
and states its own offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import InputPartition

from pipeline.scan.boundaries import as_array, kernel, refusal
from pipeline.scan.log_files import LogFile
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import MappedFile
from store.format.record import Buffer, decode_record
from store.walk.cursor import Gap, OneFile, PieceBuffer, RecordCursor
from store.walk.scan_layout import (
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


@dataclass(frozen=True)
class Split(InputPartition):
    """A stretch of one log file, from a record's start on; offsets are commit-log offsets in bytes.

    Attributes:
        file: the log file.
        begin: start of the first record.
        end: where the records must end; exclusive.
        is_to_file_end: whether the split ends with the file: with a blank, or exactly with its last byte.
        time_millis_min: least store time, milliseconds since 1970 UTC; None when it is not known.
        time_millis_max: greatest store time, likewise.
    """

    file: LogFile
    begin: int
    end: int
    is_to_file_end: bool = False
    time_millis_min: int | None = None
    time_millis_max: int | None = None


# Bytes read at once. It also bounds a batch, far below the 2 GiB of Arrow's offsets, and most of it stays in the CPU's cache
# between the passes over it.
READ_BYTES = 8 << 20
# Addresses that are one way apart share a place in a first-level cache with ways of 4 KiB and lines of 64 bytes. Both in
# numbers of 32 bits.
CACHE_WAY_ROWS, CACHE_LINE_ROWS = (4 << 10) // 4, 64 // 4
# The first bytes of damage that a row shows; a batch of 256 such rows has 16 MiB.
DAMAGE_BYTES_SHOWN = 64 << 10

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]


class SplitBoundaryError(RecordCorruptedError):
    """A split's records do not end where the next split's begin: the file changed after it was walked."""


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records; valid until the next run is asked for.

    Attributes:
        data: the bytes that places refer to.
        base_offset: commit-log offset of the first of these bytes.
        rows_32: 32-bit numbers, one row for each field of `store/walk/scan_layout.py`, one column for each record.
        rows_64: 64-bit numbers, likewise.
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
        """The records that a mask, or their places, choose."""
        return RecordRun(
            self.data, self.base_offset, self.rows_32[:, chosen], self.rows_64[:, chosen], self.topics, self.hosts
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of the log that is not a record, or a record that is damaged.

    Attributes:
        offset: commit-log offset of its first byte.
        size_bytes: its length.
        why: the reason.
        head: its first bytes.
    """

    offset: int
    size_bytes: int
    why: str
    head: bytes


class _Tables:
    """The tables that the kernel fills in one scan.

    A record is a column of these tables, so the kernel writes it to as many places as there are rows. With rows a power of
    two long (8192), all these places would share a few lines of the first-level cache, so the rows are a little longer.
    """

    def __init__(self, row_count: int) -> None:
        row_count = -(-row_count // CACHE_WAY_ROWS) * CACHE_WAY_ROWS + CACHE_LINE_ROWS
        self.rows_32: Rows = np.empty((ROW_COUNT_32, row_count), dtype=np.int32)
        self.rows_64: Rows = np.empty((ROW_COUNT_64, row_count), dtype=np.int64)
        self.topics: Rows = np.empty((NAME_ROW_COUNT, NAME_COUNT_MAX), dtype=np.int64)
        self.hosts: Rows = np.empty((NAME_ROW_COUNT, NAME_COUNT_MAX), dtype=np.int64)
        self.topic_slots: Rows = np.empty(NAME_SLOT_COUNT, dtype=np.int32)
        self.host_slots: Rows = np.empty(NAME_SLOT_COUNT, dtype=np.int32)


class RowCheck:
    """Takes records as rows of tables, as many as the tables hold; see `SplitScan`."""

    def __init__(self, check: int, row_count_max: int, *, with_hosts: bool) -> None:
        self._check = check
        self._row_count_max = row_count_max
        self._with_hosts = with_hosts
        self._tables = _Tables(row_count_max)

    def begin(self, offset: int) -> None:
        """Does nothing: this check keeps no state of a stretch (`store.walk.cursor.Check`)."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[RecordRun, int]:
        """The records from `at` on as a run, and the place after them (`store.walk.cursor.Check`)."""
        data, tables = as_array(piece), self._tables
        count, topic_count, host_count, next_at = kernel().fill_rows(
            data,
            at,
            len(data),
            offset,
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
            raise refusal(piece, at, offset, self._check)
        run = RecordRun(
            data,
            offset - at,
            tables.rows_32[:, :count],
            tables.rows_64[:, :count],
            _names(data, tables.topics, topic_count),
            _names(data, tables.hosts, host_count),
        )
        return run, int(next_at)


class SplitScan:
    """A walk over one split.

    Args:
        split: what to read.
        check: LENGTHS, PLACE or SUMS (`store/walk/scan_layout.py`).
        row_count_max: records in a run, at most.
        with_hosts: whether runs have the hosts.
        over_damage: yield damage as Damage and go on; otherwise it is an error.
        fs: the port to the disk.
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
            RecordCorruptedError: bytes are not a record; it names the commit-log offset.
            SplitBoundaryError: the records do not end where the split ends.
        """
        file = self._split.file.open(self._fs)
        try:
            file.will_read(self._split.begin, self._split.end)
            yield from self._runs(file)
        except FileNotFoundError:  # an object, unlike an open file, can go while it is read
            raise self._split.file.gone() from None
        finally:
            file.close()

    def _runs(self, file: MappedFile) -> Iterator[RecordRun | Damage]:
        begin, end = self._split.begin, self._split.end
        damages: list[Damage] = []

        def skip(gap: Gap) -> None:
            damages.append(self._damage(file, gap.begin, gap.end))

        cursor = RecordCursor(
            OneFile(file),
            begin,
            RowCheck(self._check, self._row_count_max, with_hosts=self._with_hosts),
            end_offset=end,
            skip=skip if self._over_damage else None,
            piece_bytes=READ_BYTES,
            read=PieceBuffer().read,
        )
        reached = begin
        for run in cursor:
            yield from damages
            damages.clear()
            reached = cursor.offset
            yield from self._judged(run)
        yield from damages
        if damages:
            reached = max(reached, damages[-1].offset + damages[-1].size_bytes)
        if cursor.offset > end:  # the cursor passed a blank; this split ends before its file does
            yield self._damage(file, reached, end)
        elif cursor.offset < end:
            yield self._damage(file, cursor.offset, end)

    def _judged(self, run: RecordRun) -> Iterator[RecordRun | Damage]:
        """The run without damaged records, then these as Damage."""
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
        """The place and the damage of a doubtful record; None if the plain codec accepts it."""
        at, size = int(run.rows_64[AT, place]), int(run.rows_32[SIZE, place])
        frame = run.data[at : at + size].tobytes()
        try:
            decode_record(frame, commit_log_offset=run.base_offset + at)
        except RecordCorruptedError as error:
            return place, Damage(run.base_offset + at, size, error.message, frame[:DAMAGE_BYTES_SHOWN])
        return None

    def _damage(self, file: MappedFile, offset: int, end: int) -> Damage:
        """The stretch of damage from `offset` to the next record, or to the split's end.

        Raises:
            RecordCorruptedError: there is damage, and `over_damage` is off.
            SplitBoundaryError: a sound record begins here and reaches beyond the split.
        """
        why, reaches = self._reason(file, offset)
        if reaches is not None:
            raise SplitBoundaryError(
                f"The record at commit-log offset {offset} of {file.path} reaches to {reaches}, beyond "
                f"{self._split.end}, where the next task begins: the file changed while it was read, or after its "
                "boundaries were cached. Read again, with boundaryCache=off if it repeats, and in an object store with "
                "splitBytes as large as a file.",
                commitLogOffset=offset,
                file=file.path,
            )
        if not self._over_damage:
            raise RecordCorruptedError(self._named(why), commitLogOffset=offset, file=file.path)
        return Damage(offset, end - offset, why, file.read(offset, min(DAMAGE_BYTES_SHOWN, end - offset)))

    def _reason(self, file: MappedFile, offset: int) -> tuple[str, int | None]:
        """The reason why no record of this split begins here, and the end of a record that reaches beyond the split."""
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
        return f"{why.rstrip('.')}; file {self._split.file.path}. To go on after it, read with corrupt=skip or report."


def _names(data: Bytes, table: Rows, count: int) -> list[bytes]:
    return [
        data[at : at + size].tobytes()
        for at, size in zip(table[NAME_AT, :count].tolist(), table[NAME_SIZE, :count].tolist(), strict=True)
    ]
