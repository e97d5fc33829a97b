r"""LightOffsets: the next position of each light queue (LMQ), as appends need it; LightJournal: the same on the disk.

    reput/commitlog/light-positions.<n>     blocks, one behind the other; `snapshot.json` says which file counts, and how far

    block    u32 size of the rows | u32 CRC-32 of what follows | i64 end of the log (bytes) | i64 floor | rows
    row      16 bytes of BLAKE2b of the name | i64 next position | i64 offset of its newest record, in bytes      32 bytes

A safe point writes the rows that have changed since the last one, so it costs what was appended and not what there is. A file
with more old rows than live ones is followed by one that has each row once. A million queues take 64 MB of memory and as much
on the disk at most; LIGHT_QUEUE_COUNT_MAX of the settings bounds them.

A queue is forgotten when retention has removed its newest record. Positions never go back, because groups have positions, too:
a queue that is not known begins at the floor, which is no smaller than the position of any queue that was forgotten.

A recovery reads the file up to the byte that the snapshot names, and the log behind the snapshot. Without a snapshot it walks
the whole log; the newest file then knows the queues that have no record any more.
"""

import os
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from store.derive.queue_placement import light_position_max
from store.errors import LightQueueLimitError
from store.files.file_system import FileSystem
from store.format.topic import LIGHT_QUEUE_COUNT_MAX

if TYPE_CHECKING:
    from commitlog_svc.append.layout import Int64s

NAME = "light-positions."
ROW = struct.Struct("<16sqq")
_KEY = struct.Struct("<qq")
_HEAD = struct.Struct("<II")
_PLACE = struct.Struct("<qq")
TABLE_COUNT = 256  # a table that grows is copied while appends wait: so a small one
_SLOT_COUNT_MIN = 8
_WORD_COUNT = 4  # of a slot: a row
_NUMBERS = "<i8"
# Keys of queues that were written lately: an append needs one twice, and takes 0.6 us to make it. 300 bytes each.
KEPT_KEY_COUNT = 1 << 14
# A journal with fewer rows is not written anew, however few of them count.
_OLD_ROW_COUNT_MIN = 1 << 15


class Changes(NamedTuple):
    """What a safe point writes.

    Attributes:
        rows: those that have changed, by key: next position and offset of the newest record.
        tables: all rows, as tables; None: only the changed ones count.
        floor: see the top of this file.
    """

    rows: Mapping[bytes, tuple[int, int]]
    tables: list[bytes] | None
    floor: int


class LightOffsets:
    """See the top of this file; for one thread at a time.

    Args:
        count_max: of queues that appends may make.

    Attributes:
        count: of the queues.
        floor: where a queue begins that is not known.
        left_out_count: queues of the log that are not known, because there were too many.
    """

    def __init__(self, count_max: int = LIGHT_QUEUE_COUNT_MAX) -> None:
        self.count = self.floor = self.left_out_count = 0
        self._count_max = count_max
        self._tables: list[array[int]] = []
        self._counts: list[int] = []
        self._changed: dict[bytes, tuple[int, int]] = {}
        self._rows_in_journal = 0
        self._wants_all = False

    def next_of(self, queue: str) -> int | None:
        """The next position of a queue; None: it is not known."""
        if not self._tables:
            return None
        table, at = self._find(_key_of(queue))
        return table[at + 2] if table[at] or table[at + 1] else None

    def refuse_beyond(self, new_count: int) -> None:
        """LightQueueLimitError when so many more queues are too many."""
        if self.count + new_count > self._count_max:
            raise LightQueueLimitError(
                f"the shard has {self.count} light queues, and {self._count_max} are allowed: use fewer, wait until retention "
                "has removed the messages of old ones, or set REPUT_COMMITLOG_LIGHT_QUEUE_COUNT_MAX",
                count=self.count,
                countMax=self._count_max,
            )

    def note(self, queue: str, next_offset: int, commit_log_offset: int) -> None:
        """Sets the next position of a queue, and where its newest record lies (bytes)."""
        self._put(_key_of(queue), next_offset, commit_log_offset)

    def see(self, queue: str, next_offset: int, commit_log_offset: int) -> None:
        """`note` for what a record of the log states; positions never go back, whatever it says."""
        known = self.next_of(queue)
        if known is None or next_offset >= known:
            self.note(queue, next_offset, commit_log_offset)

    def update(self, places: Mapping[str, tuple[int, int]]) -> None:
        """`see` for several queues: next position and offset of the newest record."""
        for queue, place in places.items():
            self.see(queue, *place)

    def begin_at(self, log_first_offset: int) -> None:
        """The log begins at this byte, and nothing is known of light queues whose records came before."""
        if log_first_offset > 0:
            self.floor = max(self.floor, light_position_max(log_first_offset))
            self._wants_all = True

    def forget_before(self, log_first_offset: int, number: int) -> None:
        """Forgets the queues of one of TABLE_COUNT tables whose newest record lies before the log's first byte."""
        if not self._tables:
            return
        rows = _rows_of(self._tables[number])
        is_gone = rows[:, 3] < log_first_offset
        if is_gone.any():
            self.floor = max(self.floor, int(rows[is_gone, 2].max()))
            self._wants_all = True
            kept = rows[~is_gone]
            self.count -= len(rows) - len(kept)
            self._tables[number], self._counts[number] = _table_of(kept, len(kept)), len(kept)

    def take_changes(self) -> Changes:
        """What has changed since the last call, for the journal."""
        changed, self._changed = self._changed, {}
        old_row_count = self._rows_in_journal + len(changed) - self.count
        if self._wants_all or old_row_count > max(self.count, _OLD_ROW_COUNT_MIN):
            self._wants_all = False
            self._rows_in_journal = self.count
            return Changes({}, [table.tobytes() for table in self._tables], self.floor)
        self._rows_in_journal += len(changed)
        return Changes(changed, None, self.floor)

    def give_back(self, changes: Changes) -> None:
        """The changes were not written: the next call of `take_changes` has them again."""
        self._changed = {**changes.rows, **self._changed}
        self._wants_all = self._wants_all or changes.tables is not None

    def load(self, rows: bytes, floor: int) -> None:
        """Sets rows of a journal, before all others; of two of a queue the later counts."""
        import numpy as np

        fresh = np.frombuffer(rows, _NUMBERS).reshape(-1, _WORD_COUNT)
        self._rows_in_journal += len(fresh)
        self.floor = max(self.floor, floor)
        every = np.concatenate([*map(_rows_of, self._tables), fresh])
        # Table by table, as the first byte of a key says; stable, so the latest row of a key is its last one.
        every = every[np.lexsort((every[:, 1], every[:, 0].astype(_NUMBERS).byteswap().view(np.uint64)))]
        is_latest = np.ones(len(every), np.bool_)
        is_latest[:-1] = (every[1:, :2] != every[:-1, :2]).any(axis=1)
        every = every[is_latest]
        self.left_out_count += max(0, len(every) - self._count_max)
        every = every[: self._count_max]
        self.count = len(every)
        ends = np.searchsorted(every[:, 0] % TABLE_COUNT, np.arange(TABLE_COUNT + 1)).tolist()
        self._counts = [end - begin for begin, end in pairwise(ends)]
        self._tables = [_table_of(every[begin:end], end - begin) for begin, end in pairwise(ends)]
        self._changed = {}

    def write_all(self) -> None:
        """The next changes are all rows."""
        self._wants_all = self.count > 0 or self.floor > 0

    def _put(self, key: bytes, next_offset: int, commit_log_offset: int) -> None:
        if not self._tables:
            self._tables = [array("q", bytes(8 * _WORD_COUNT * _SLOT_COUNT_MIN)) for _ in range(TABLE_COUNT)]
            self._counts = [0] * TABLE_COUNT
        table, at = self._find(key)
        if not (table[at] or table[at + 1]):
            if self.count >= self._count_max:
                self.left_out_count += 1
                return
            number = key[0]
            self._counts[number] += 1
            self.count += 1
            if self._counts[number] * _WORD_COUNT * 3 > len(table) * 2:
                self._tables[number] = _table_of(_rows_of(table), self._counts[number])
                table, at = self._find(key)
            table[at], table[at + 1] = _KEY.unpack(key)
        table[at + 2], table[at + 3] = next_offset, commit_log_offset
        self._changed[key] = (next_offset, commit_log_offset)

    def _find(self, key: bytes) -> tuple["array[int]", int]:
        """The table and the place of a key's slot in it, or of the empty one that it would take."""
        high, low = _KEY.unpack(key)
        table = self._tables[key[0]]
        mask = len(table) - _WORD_COUNT
        at = (high >> 8) * _WORD_COUNT & mask
        while (found := table[at]) != high or table[at + 1] != low:
            if not (found or table[at + 1]):
                break
            at = at + _WORD_COUNT & mask
        return table, at


def _rows_of(table: "array[int] | bytes") -> "Int64s":
    """The rows of a table, in no order; shape (rows, 4)."""
    import numpy as np

    slots = np.frombuffer(table, _NUMBERS).reshape(-1, _WORD_COUNT)
    rows: Int64s = slots[(slots[:, 0] | slots[:, 1]) != 0]
    return rows


def _table_of(rows: "Int64s", count: int) -> "array[int]":
    """A table with these rows, and room for twice `count`."""
    import numpy as np

    slot_count = _SLOT_COUNT_MIN
    while slot_count < 2 * count:
        slot_count *= 2
    # As if each were put in the order of the slots that they want: it gets that one, or the one behind the row before.
    wanted = rows[:, 0] >> 8 & slot_count - 1
    order = np.argsort(wanted, kind="stable")
    rows, places = rows[order], np.arange(len(rows))
    slots = np.maximum.accumulate(wanted[order] - places) + places
    does_fit = slots < slot_count
    table = np.zeros((slot_count, _WORD_COUNT), _NUMBERS)
    table[slots[does_fit]] = rows[does_fit]
    # Behind the last slot comes the first one; at most half of the slots are taken.
    free = np.flatnonzero((table[:, 0] | table[:, 1]) == 0)
    table[free[: len(rows) - does_fit.sum()]] = rows[~does_fit]
    return array("q", table.tobytes())


@lru_cache(maxsize=KEPT_KEY_COUNT)
def _key_of(queue: str) -> bytes:
    return blake2b(queue.encode("utf-8", "surrogatepass"), digest_size=ROW.size - _PLACE.size).digest()


def _load_blocks(blocks: "list[_Block]", light: LightOffsets) -> None:
    light.load(b"".join(block.rows for block in blocks), max(block.floor for block in blocks))


class _Block(NamedTuple):
    """A good block of a journal, and where it ends in its file (bytes)."""

    end: int
    rows: memoryview
    floor: int


class JournalPlace(NamedTuple):
    """Which file counts, and up to which byte; 0 and 0 when there is no light queue."""

    number: int
    size_bytes: int


class LightJournal:
    """Writes and reads the files; for one thread at a time.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.

    Attributes:
        place: what the next snapshot has to name.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory
        self.place = JournalPlace(0, 0)

    def write(self, changes: Changes, log_end_offset: int) -> None:
        """Writes changes and flushes them; the snapshot of `log_end_offset` (bytes) may then name `place`.

        Raises:
            DiskFullError, OSError: `place` is what it was.
        """
        number, size_bytes = self.place
        if changes.tables is not None:
            rows = b"".join(_rows_of(table).tobytes() for table in changes.tables)
            number, size_bytes = max([number, *self._numbers()]) + 1, 0
        elif changes.rows:
            rows = b"".join(ROW.pack(key, *place) for key, place in changes.rows.items())
            number = number or max([0, *self._numbers()]) + 1
        else:
            return
        data = _PLACE.pack(log_end_offset, changes.floor) + rows
        path = self._path(number)
        is_new = not self._fs.exists(path)
        fd = self._fs.open(path, os.O_RDWR | os.O_CREAT)
        try:
            self._fs.ftruncate(fd, size_bytes)  # left by a write that no snapshot names
            self._fs.pwrite(fd, _HEAD.pack(len(rows), zlib.crc32(data)) + data, size_bytes)
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
        if is_new:
            self._fs.fsync_dir(self._directory)
        self.place = JournalPlace(number, size_bytes + _HEAD.size + len(data))

    def remove_old(self) -> None:
        """Removes the files that no snapshot names any more."""
        for number in self._numbers():
            if number != self.place.number:
                self._fs.unlink(self._path(number))

    def load(self, place: JournalPlace, light: LightOffsets) -> bool:
        """Reads what a snapshot names; False when it is not there: then `light` is as it was."""
        if place == JournalPlace(0, 0):
            return True
        blocks = list(self._blocks(place.number))
        ends = [block.end for block in blocks]
        if place.size_bytes not in ends:
            return False
        _load_blocks(blocks[: ends.index(place.size_bytes) + 1], light)
        self.place = place
        return True

    def load_newest(self, light: LightOffsets) -> None:
        """Reads the newest file with a good block, as far as it is good: the whole log is walked next."""
        for number in sorted(self._numbers(), reverse=True):
            blocks = list(self._blocks(number))
            if blocks:
                _load_blocks(blocks, light)
                break
        light.write_all()

    def _blocks(self, number: int) -> Iterator[_Block]:
        """The good blocks of a file, up to the first that is none."""
        path = self._path(number)
        if not self._fs.is_file(path):
            return
        fd = self._fs.open(path, os.O_RDONLY)
        try:
            data = memoryview(self._fs.pread(fd, self._fs.stat_size(path), 0))
        finally:
            self._fs.close(fd)
        at, least = 0, _HEAD.size + _PLACE.size
        while at + least <= len(data):
            size_bytes, crc = _HEAD.unpack_from(data, at)
            end = at + least + size_bytes
            if end > len(data) or size_bytes % ROW.size or zlib.crc32(data[at + _HEAD.size : end]) != crc:
                return
            yield _Block(end, data[at + least : end], _PLACE.unpack_from(data, at + _HEAD.size)[1])
            at = end

    def _numbers(self) -> list[int]:
        names = self._fs.listdir(self._directory) if self._fs.is_dir(self._directory) else []
        return [int(name.removeprefix(NAME)) for name in names if name.startswith(NAME) and name[len(NAME) :].isdigit()]

    def _path(self, number: int) -> Path:
        return self._directory / f"{NAME}{number}"
