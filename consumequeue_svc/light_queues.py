"""LightQueues: the units of all light queues (LMQ) of a store, in a few files of our own (ADR 0154).

    reput/consumequeue/light/units.<first entry>    entries of all queues, in the order of the log; see `light_unit.py`
    reput/consumequeue/light/names.<first entry>    the names of the queues that have entries there

The files are a function of the log, as all queues: what a broker has in `consumequeue/%LMQ%...` is neither read nor changed.
A queue costs what it holds: an entry for each unit, its name once in a file, and a small object in memory. Files whose records
retention has removed are removed whole, with the names that are only there.

In memory are the newest entry and the end of each queue. A position, or the first unit behind an offset of the log, is found on
the way back from the newest entry, over pointers that lead far back (a skip list that only grows at its end, Myers 1983).
Its next pointer follows from the entries that the newest one leads to, jump by jump. The first of these are kept for
the queues that were written lately: to write a unit of such a queue reads nothing.
"""

import logging
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.derive.queue_placement import LightUnit, Placement, QueuePlacement, light_position_max
from store.errors import StoreCorruptedError
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.light_unit import (
    ENTRY_SIZE_BYTES,
    LightEntry,
    decode_light_entry,
    decode_light_names,
    encode_light_entry,
    encode_light_name,
)
from store.format.derived.queue_unit import FILLER, QueueUnit, encode_queue_unit
from store.format.topic import LIGHT_QUEUE_COUNT_MAX, TOPIC_NAME_SHOWN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# Entries of a file (59 MB): retention removes whole files, and a start reads all of them.
FILE_ENTRY_COUNT = 1 << 20
# Before the end of what a checkpoint has; their CRC says whether the files are those of the checkpoint.
TAIL_ENTRY_COUNT = 64
# Queues that were written lately: those of the last half of it, and what was written before those; at most 900 bytes each.
HOT_QUEUE_COUNT = 1 << 15
# Entries that are kept of such a queue; what lies behind them is read again when the next units come to it.
WAY_ENTRY_COUNT_MAX = 8
# What is read from a file at once: queues that take turns have their entries side by side.
BLOCK_ENTRY_COUNT = 64
CACHED_BLOCK_COUNT = 64
_UNITS, _NAMES = "units.", "names."
UP_TO_DATE = -1  # `next_offset` of light queues that lack nothing
# Number and position of a queue's newest entry, of the entry that this one jumps to, and so on; last, the number that the
# last of these jumps to: its own for the queue's first entry.
_Way = tuple[int, ...]
_log = logging.getLogger("reput.consumequeue")


@dataclass(slots=True)
class _Queue:
    """Number of a queue, number of its newest entry, and the position behind it (in messages)."""

    number: int
    newest: int
    end: int


class _Queues:
    """The queues by name, in the order of their numbers; in columns, because an object for each takes twice the memory.

    One thread writes, any may read: a row never changes its place, and is written before its name. A reader takes the end
    first, then the newest entry; the writer sets them in the other order. So the entry is never older than the end.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._numbers, self._newest, self._ends = array("q"), array("q"), array("q")

    @classmethod
    def of(cls, names: list[str], columns: "Sequence[Int64s]") -> "_Queues":
        """Queues with these names; `columns` are their numbers, which rise, their newest entries and their ends."""
        found = cls()
        found._rows, found._names = dict(zip(names, range(len(names)), strict=True)), names
        found._numbers, found._newest, found._ends = (array("q", column.tobytes()) for column in columns)
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: str) -> _Queue | None:
        """A queue as it is now."""
        row = self._rows.get(name)
        return None if row is None else self._at(row)

    def update(self, queues: Mapping[str, tuple[int, _Way]]) -> None:
        """Changes queues, and adds those that are new, which have greater numbers than all others; with number and way."""
        rows, newest, ends = self._rows, self._newest, self._ends
        for name, (number, way) in queues.items():
            row = rows.get(name)
            if row is None:
                self._numbers.append(number)
                newest.append(way[0])
                ends.append(way[1] + 1)
                self._names.append(name)
                rows[name] = len(rows)
            else:
                newest[row] = way[0]
                ends[row] = way[1] + 1

    def part(self, number: int, count_max: int) -> list[tuple[str, _Queue]]:
        """The first queues from a number on."""
        first = bisect_left(self._numbers, number)
        return [(self._names[row], self._at(row)) for row in range(first, min(first + count_max, len(self._rows)))]

    def from_entry(self, number: int) -> "_Queues":
        """Those whose newest entry has at least this number."""
        import numpy as np

        columns = [np.array(column) for column in (self._numbers, self._newest, self._ends)]
        rows = np.flatnonzero(columns[1] >= number)
        return _Queues.of([self._names[row] for row in rows.tolist()], [column[rows] for column in columns])

    def _at(self, row: int) -> _Queue:
        end = self._ends[row]
        return _Queue(self._numbers[row], self._newest[row], end)


class _Staged:
    """What one call of `apply` writes.

    Attributes:
        queues: that it changes, by name, as they are then: number and way.
        entries: encoded, from the number `first` on.
        names: number of the entry, number and name of its queue, where the entry's file may lack the name.
        next_number: of the next new queue.
        new_count: of new queues.
        told: units that are remarkable, by what is said of them.
    """

    def __init__(self, first: int, next_number: int) -> None:
        self.first = first
        self.queues: dict[str, tuple[int, _Way]] = {}
        self.entries: list[bytes] = []
        self.names: list[tuple[int, int, str]] = []
        self.next_number = next_number
        self.new_count = 0
        self.told: dict[str, list[LightUnit]] = {}

    def tell(self, why: str, unit: LightUnit) -> None:
        """Counts a unit of which the log says one line."""
        self.told.setdefault(why, []).append(unit)


class LightQueues:
    """See the top of this file. One thread writes, any may read.

    Args:
        files: opens them.
        directory: where they lie; it need not exist.
        file_entry_count: entries of a file.
        count_max: queues; units of further ones are left out.

    Attributes:
        next_offset: units of records from it on (bytes of the log) are missing, until a LightCatchUp has read them; UP_TO_DATE:
            none are.
        aim_offset: up to where they are missing (bytes), as was heard last.
        dirty: files that were written since they were flushed.
        dirty_directories: likewise folders in which files were made.
    """

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        *,
        file_entry_count: int = FILE_ENTRY_COUNT,
        count_max: int = LIGHT_QUEUE_COUNT_MAX,
    ) -> None:
        self.next_offset = UP_TO_DATE
        self.aim_offset = 0
        self.dirty: set[Path] = set()
        self.dirty_directories: set[Path] = set()
        self._files = files
        self._directory = directory
        self._file_entry_count = file_entry_count
        self._count_max = count_max
        # Of the thread that writes: numbers and ways of the queues that were written lately, and of those before them.
        self._hot: dict[str, tuple[int, _Way]] = {}
        self._older: dict[str, tuple[int, _Way]] = {}
        self._blocks: dict[int, bytes] = {}  # entries as they lie in the files; by the number of their first one
        self._queues = _Queues()
        self._next_number = 0
        self._begin = self._end = 0
        self._names_size_bytes = 0  # of the newest file

    # -- read

    def get(self, queue: str) -> "LightQueue | None":
        """A queue; None when it has no unit."""
        found = self._queues.get(queue)
        return None if found is None or found.newest < self._begin else LightQueue(self, queue)

    def names(self) -> list[str]:
        """The queues that have a unit."""
        return sorted(name for name, queue in self._queues.part(0, len(self._queues)) if queue.newest >= self._begin)

    def newest(self, queue: str) -> tuple[int, int]:
        """Number of the newest entry of a queue, and the position behind it (in messages); -1 and 0 when it has none."""
        found = self._queues.get(queue)
        return (-1, 0) if found is None else (found.newest, found.end)

    def page(self, prefix: str, first_number: int, count_max: int) -> tuple[list[tuple[str, int]], int]:
        """Names and ends (in messages) of the queues whose names begin so, from a number on; and the next number, 0 at the end.

        In the order in which the queues came. At most `count_max` queues are looked at.
        """
        part = self._queues.part(first_number, count_max)
        rows = [(name, queue.end) for name, queue in part if name.startswith(prefix) and queue.newest >= self._begin]
        return rows, part[-1][1].number + 1 if len(part) == count_max else 0

    def entry(self, number: int) -> LightEntry | None:
        """An entry; None when retention removed it.

        Raises:
            StoreCorruptedError: it is damaged.
        """
        if not self._begin <= number < self._end:
            return None
        first = self._first_of(number)
        path, at = self._path(_UNITS, first), (number - first) * ENTRY_SIZE_BYTES
        try:
            data = self._files.get(path).read(at, ENTRY_SIZE_BYTES)
        except FileNotFoundError:
            data = b""
        found = self._sound(number, data)
        if number < self._begin:
            return None  # removed meanwhile
        if found is None:
            raise self._damaged(path, at, "it has no unit of a light queue there")
        return found

    @staticmethod
    def _sound(number: int, data: bytes) -> LightEntry | None:
        """The entry with a number; None when these are not the bytes of one."""
        found = decode_light_entry(data)
        # A queue's entries point back, so no walk over them goes round.
        return None if found is None or found.previous >= number or found.jump > number else found

    # -- write

    def apply(self, units: Iterable[LightUnit]) -> None:
        """Writes the next units, in log order: all of them, or none when it raises.

        Raises:
            StoreCorruptedError: an entry that leads to older ones is damaged.
        """
        staged = _Staged(self._end, self._next_number)
        for unit in units:
            self._stage(unit, staged)
        self._write_entries(staged)
        self._hot.update(staged.queues)
        if len(self._hot) > HOT_QUEUE_COUNT // 2:
            self._older, self._hot = self._hot, {}
        self._end += len(staged.entries)
        self._next_number = staged.next_number
        self._queues.update(staged.queues)
        for why, told in staged.told.items():
            first = told[0]
            _log.warning(
                "light queues: %d messages %s; the first is the record at %d, position %d of %s",
                len(told),
                why,
                first.commit_log_offset,
                first.queue_offset,
                first.queue[:TOPIC_NAME_SHOWN],
            )

    def _stage(self, unit: LightUnit, staged: _Staged) -> None:
        name, position, commit_log_offset, size_bytes, tags_code = unit
        queue = staged.queues.get(name) or self._hot.get(name) or self._older.get(name) or self._cold(name)
        is_anew = False
        if queue is None or position != queue[1][1] + 1:
            if queue is None and len(self._queues) + staged.new_count >= self._count_max:
                staged.tell("are in more light queues than REPUT_CONSUMEQUEUE_LIGHT_QUEUE_COUNT_MAX allows", unit)
                return
            placement = self._placement(unit, queue, staged)
            if placement is Placement.TAKEN:
                # Of a record that is known it is no news: a follower may hear of the end of the log twice.
                if commit_log_offset > self._newest_record(staged):
                    staged.tell("state a position that is taken and are left out", unit)
                return
            if placement is Placement.DAMAGED:
                staged.tell("state a position for which the log has no room and are left out", unit)
                return
            is_anew = placement is Placement.ANEW
            if is_anew:
                staged.tell("begin a queue anew, as if a broker had removed its files", unit)
        entry_number = staged.first + len(staged.entries)
        rest: _Way
        if queue is None:
            number, previous, rest = staged.next_number, -1, (entry_number,)
            staged.next_number += 1
            staged.new_count += 1
        elif is_anew:
            number, previous, rest = queue[0], -1, (entry_number,)
        else:
            number, way = queue
            previous, rest = way[0], self._way_of_next(way, staged)
        staged.queues[name] = (number, (entry_number, position, *rest))
        staged.entries.append(
            encode_light_entry((commit_log_offset, size_bytes, tags_code, position, previous, rest[0], number))
        )
        if previous < self._first_of(entry_number):  # a queue that has an older entry in the file has its name there
            staged.names.append((entry_number, number, name))

    def _cold(self, name: str) -> tuple[int, _Way] | None:
        """Number and way of a queue that was not written lately; None for one that there is not."""
        queue = self._queues.get(name)
        if queue is None:
            return None
        newest = self._entry_of_block(queue.newest)
        assert newest is not None, "a queue whose newest entry was removed is removed with it"
        return queue.number, (queue.newest, newest.queue_offset, newest.jump)

    def _way_of_next(self, way: _Way, staged: _Staged) -> _Way:
        """Where the entry behind the newest one jumps to, so that any way back is short, and the way from there."""
        while len(way) < 7 and way[-1] != way[-3]:
            entry = self._known_entry(way[-1], staged)
            # Retention may have removed it: then the way ends before it.
            way = (*way[:-1], way[-3]) if entry is None else (*way[:-1], way[-1], entry.queue_offset, entry.jump)
        if len(way) > 5 and way[1] - way[3] == way[3] - way[5]:
            return way[4:]
        return way[: 2 * WAY_ENTRY_COUNT_MAX - 1]

    def _newest_record(self, staged: _Staged) -> int:
        """Offset of the newest record that has a unit (bytes); -1 without one."""
        newest = self._known_entry(staged.first + len(staged.entries) - 1, staged)
        return -1 if newest is None else newest.commit_log_offset

    def _known_entry(self, number: int, staged: _Staged) -> LightEntry | None:
        if number >= staged.first:
            return decode_light_entry(staged.entries[number - staged.first])
        return self._entry_of_block(number)

    def _entry_of_block(self, number: int) -> LightEntry | None:
        """`entry`, for the thread that writes."""
        if not self._begin <= number < self._end:
            return None
        file_first = self._first_of(number)
        first = number - (number - file_first) % BLOCK_ENTRY_COUNT
        at = (number - first) * ENTRY_SIZE_BYTES
        block = self._blocks.get(first, b"")
        if len(block) <= at:  # not read yet, or before there was this entry
            count = min(self._end, file_first + self._file_entry_count) - first
            file = self._files.get(self._path(_UNITS, file_first))
            size_bytes = min(count, BLOCK_ENTRY_COUNT) * ENTRY_SIZE_BYTES
            block = file.read((first - file_first) * ENTRY_SIZE_BYTES, size_bytes)
            if len(self._blocks) >= CACHED_BLOCK_COUNT:
                self._blocks.clear()
            self._blocks[first] = block
        return self._sound(number, block[at : at + ENTRY_SIZE_BYTES]) or self.entry(number)

    def _placement(self, unit: LightUnit, queue: tuple[int, _Way] | None, staged: _Staged) -> Placement:
        if unit.queue_offset > light_position_max(unit.commit_log_offset):
            return Placement.DAMAGED  # the commit log does not go on behind it either

        def number_0() -> bytes:
            assert queue is not None
            find = partial(self._known_entry, staged=staged)
            found = oldest_that(find, queue[1][0], lambda entry: True)
            return b"" if found is None or found[1].queue_offset else encode_queue_unit(QueueUnit(*found[1][:3]))

        # A gap costs nothing here, so a queue that was forgotten may go on at any position that the log has had room for.
        judge = QueuePlacement(1, None if queue is None else queue[1][1] + 1, number_0=number_0)
        return judge.judge(unit.queue_offset, encode_queue_unit(QueueUnit(*unit[2:])))

    def _write_entries(self, staged: "_Staged") -> None:
        """Writes entries, and before them the names of their queues that their file does not have."""
        count = self._file_entry_count
        begin, end = self._end, self._end + len(staged.entries)
        names_size_bytes = self._names_size_bytes
        while begin < end:
            first = self._first_of(begin)
            stop = min(end, first + count)
            if begin == first:
                names_size_bytes = 0
            fresh = {number: name for entry, number, name in staged.names if begin <= entry < stop}
            if fresh:
                names = b"".join(encode_light_name(*name) for name in fresh.items())
                self._open(self._path(_NAMES, first)).write(names_size_bytes, names)
                names_size_bytes += len(names)
            data = b"".join(staged.entries[begin - staged.first : stop - staged.first])
            self._open(self._path(_UNITS, first)).write((begin - first) * ENTRY_SIZE_BYTES, data)
            begin = stop
        self._names_size_bytes = names_size_bytes  # not before all is written: a full disk, and the same units again

    def _open(self, path: Path) -> OpenFile:
        if not self._files.fs.is_file(path):
            self._files.create(path, 0)
            self.dirty_directories.add(self._directory)
        self.dirty.add(path)
        return self._files.get(path, writing=True)

    # -- start, checkpoint, cut, expiry

    def state(self) -> dict[str, Any]:
        """For the checkpoint: what the files hold now; write it when they are flushed."""
        return {
            "begin": self._begin,
            "end": self._end,
            "names_size_bytes": self._names_size_bytes,
            "crc": self._tail_crc(self._begin, self._end),
            "file_entry_count": self._file_entry_count,
            "next_offset": self.next_offset,
        }

    def resume(self, state: Mapping[str, Any]) -> bool:
        """Cuts the files back to a checkpoint; False when they do not hold what it says: build them again."""
        try:
            begin, end, names_size_bytes, crc, count = (
                int(state[name]) for name in ("begin", "end", "names_size_bytes", "crc", "file_entry_count")
            )
            next_offset = int(state.get("next_offset", UP_TO_DATE))
        except (KeyError, TypeError, ValueError):
            return False
        if count != self._file_entry_count or not 0 <= begin <= end or begin % count:
            return False
        if state.get("from_offset"):  # of a version that built them from there on
            return False
        fs = self._files.fs
        for first in range(begin, end, count):
            entries = min(end - first, count) * ENTRY_SIZE_BYTES
            names = names_size_bytes if first + count >= end else 1
            for path, size in ((self._path(_UNITS, first), entries), (self._path(_NAMES, first), names)):
                if not fs.is_file(path) or fs.stat_size(path) < size:
                    return False
        if self._tail_crc(begin, end) != crc:
            return False
        self._begin, self.next_offset = begin, next_offset
        self._cut_files(end, names_size_bytes)
        try:
            self._load()
        except StoreCorruptedError as error:
            _log.warning("light queues are built again from the log: %s", error.message)
            self.clear()
            return False
        return True

    def clear(self) -> None:
        """Removes everything: the whole log is applied anew."""
        self._begin, self.next_offset = 0, UP_TO_DATE
        self._cut_files(0, 0)
        self._load()

    def begin_at(self, next_offset: int) -> None:
        """Removes everything: a LightCatchUp applies the log from an offset on (bytes)."""
        self.clear()
        self.next_offset = next_offset

    def cut(self, log_end_offset: int) -> None:
        """Removes the units whose record ends behind this offset (bytes): the log was cut."""
        end = self._end
        while end > self._begin:
            entry = self.entry(end - 1)
            if entry is None or entry.commit_log_offset + entry.record_size_bytes <= log_end_offset:
                break
            end -= 1
        if end < self._end:
            # Names without an entry are harmless. Behind a cut at the border of a file there are none.
            self._cut_files(end, self._names_size_bytes if self._first_of(end) == self._first_of(self._end) else None)
            self._load()

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files before the log's first record out; see ConsumeQueueTable.hide_expired."""
        hidden: list[Path] = []
        while self._begin + self._file_entry_count < self._end and len(hidden) < file_count_max:
            last = self.entry(self._begin + self._file_entry_count - 1)
            if last is None or last.commit_log_offset >= log_first_offset:
                break
            hidden += [self._path(_UNITS, self._begin), self._path(_NAMES, self._begin)]
            self._begin += self._file_entry_count
        if hidden:
            self._queues = self._queues.from_entry(self._begin)
            self._hot, self._older = {}, {}
        return hidden

    def remove_hidden(self, paths: Iterable[Path]) -> None:
        """Removes files that `hide_expired` gave; no checkpoint has them any more."""
        for path in paths:
            self._files.forget(path)
            with suppress(FileNotFoundError):
                self._files.fs.unlink(path)

    def _cut_files(self, end: int, names_size_bytes: int | None) -> None:
        """Makes the files end at an entry; those before the first one are left over from an expiry."""
        fs = self._files.fs
        for path, kind, first in self._paths():
            size = (end - first) * ENTRY_SIZE_BYTES if kind == _UNITS else names_size_bytes
            if first < self._begin or first >= end:
                self.remove_hidden([path])
            elif first == self._first_of(end) and size is not None and size < fs.stat_size(path):
                file = self._files.get(path, writing=True)
                fs.ftruncate(file.fd, size)
                self.dirty.add(path)
        self._end = end

    def _load(self) -> None:
        """Finds the newest entry of each queue."""
        import numpy as np  # with the first light queue: it takes memory

        dtype = np.dtype(
            [
                ("skipped", ">i8,>i4,>i8"),
                ("queue_offset", ">i8"),
                ("pointers", ">i8,>i8"),
                ("queue", ">i8"),
                ("crc", ">u4"),
            ]
        )
        assert dtype.itemsize == ENTRY_SIZE_BYTES
        named, names = array("q"), list[str]()  # numbers and names of all files
        rows = [np.empty((3, 0), np.int64)]
        self._names_size_bytes = 0
        for first in range(self._begin, self._end, self._file_entry_count):
            data = self._read(self._path(_NAMES, first))
            before = len(named)
            for number, name in decode_light_names(data):
                named.append(number)
                names.append(name)
            count = min(self._end - first, self._file_entry_count)
            entries = np.frombuffer(self._read(self._path(_UNITS, first))[: count * ENTRY_SIZE_BYTES], dtype)
            numbers, from_the_end = np.unique(entries["queue"][::-1], return_index=True)
            places = count - 1 - from_the_end
            rows.append(np.stack([numbers, first + places, entries["queue_offset"][places] + 1]))
            nameless = numbers[~np.isin(numbers, np.array(named[before:]))]
            if len(nameless):
                raise self._damaged(self._path(_NAMES, first), 0, f"it has no name of queue {nameless[0]}")
            if self._end < first + self._file_entry_count:
                self._names_size_bytes = len(data)
        every = np.concatenate(rows, axis=1)
        numbers, from_the_end = np.unique(every[0, ::-1], return_index=True)
        numbers_named, places = np.unique(np.array(named), return_index=True)
        places = places[np.searchsorted(numbers_named, numbers)]
        columns = every[:, every.shape[1] - 1 - from_the_end]
        self._queues = _Queues.of([names[place] for place in places.tolist()], list(columns))
        self._next_number, self._hot, self._older = max(named, default=-1) + 1, {}, {}
        self._blocks.clear()

    def _tail_crc(self, begin: int, end: int) -> int:
        first = self._first_of(end - 1) if end else 0
        tail = max(begin, first, end - TAIL_ENTRY_COUNT)
        if tail >= end:
            return 0
        size = (end - tail) * ENTRY_SIZE_BYTES
        return zlib.crc32(self._files.get(self._path(_UNITS, first)).read((tail - first) * ENTRY_SIZE_BYTES, size))

    def _paths(self) -> list[tuple[Path, str, int]]:
        fs = self._files.fs
        names = fs.listdir(self._directory) if fs.is_dir(self._directory) else []
        return [
            (self._directory / name, name[: len(_UNITS)], int(name[len(_UNITS) :]))
            for name in names
            if name.startswith((_UNITS, _NAMES)) and name[len(_UNITS) :].isdecimal()
        ]

    def _path(self, kind: str, first: int) -> Path:
        return self._directory / f"{kind}{first:020d}"

    def _first_of(self, number: int) -> int:
        return number - number % self._file_entry_count

    def _read(self, path: Path) -> bytes:
        return self._files.get(path).read(0, self._files.fs.stat_size(path))

    def _damaged(self, path: Path, at: int, what: str) -> StoreCorruptedError:
        return StoreCorruptedError(
            f"{path} is damaged at byte {at}, {what}: stop the service and remove the folder {self._directory}; the queues are "
            "built again from the log",
            file=path,
            offset=at,
        )


def oldest_that(
    find: Callable[[int], LightEntry | None], newest: int, holds: Callable[[LightEntry], bool]
) -> tuple[int, LightEntry] | None:
    """The oldest entry of a queue for which `holds` is true, with its number; it is true for all newer ones.

    Args:
        find: gives an entry by its number; None for one that is gone.
        newest: number of the queue's newest entry.
        holds: false for entries of that age on.
    """
    entry = find(newest)
    if entry is None or not holds(entry):
        return None
    number = newest
    while True:
        for older in (entry.jump, entry.previous):
            found = find(older) if 0 <= older < number else None
            if found is not None and holds(found):
                number, entry = older, found
                break
        else:
            return number, entry


class LightUnits:
    """The units of one light queue, with the methods of `QueueUnits`; positions without a unit are fillers."""

    def __init__(self, queues: LightQueues, queue: str) -> None:
        self._queues = queues
        self._queue = queue

    @property
    def end(self) -> int:
        """The position behind the newest unit."""
        return self._queues.newest(self._queue)[1]

    def min_offset(self, log_first_offset: int) -> int:
        """The first unit whose record is at or behind the log's first; `end` when there is none."""
        newest, end = self._queues.newest(self._queue)
        found = oldest_that(self._queues.entry, newest, lambda entry: entry.commit_log_offset >= log_first_offset)
        return end if found is None else found[1].queue_offset

    def real_from(self, queue_offset: int) -> int:
        """The first position from this one on that has a unit; `end` when there is none."""
        newest, end = self._queues.newest(self._queue)
        found = oldest_that(self._queues.entry, newest, lambda entry: entry.queue_offset >= queue_offset)
        return end if found is None else found[1].queue_offset

    def unit(self, queue_offset: int) -> QueueUnit:
        """The unit at a position, or a filler."""
        found = self.units(queue_offset, 1)
        return found[0][1] if found and found[0][0] == queue_offset else FILLER

    def units(self, queue_offset: int, count: int, log_first_offset: int = 0) -> list[tuple[int, QueueUnit]]:
        """Up to `count` units with their positions, from a position on.

        Raises:
            StoreCorruptedError: an entry is damaged.
        """
        begin = self.real_from(max(queue_offset, self.min_offset(log_first_offset)))
        stop = begin + count
        number, _ = self._queues.newest(self._queue)
        behind = oldest_that(self._queues.entry, number, lambda entry: entry.queue_offset >= stop)
        if behind is not None:
            number = behind[1].previous
        found: list[tuple[int, QueueUnit]] = []
        while (entry := self._queues.entry(number)) is not None and entry.queue_offset >= begin:
            found.append((entry.queue_offset, QueueUnit(*entry[:3])))
            if entry.queue_offset == begin:
                break
            number = entry.previous
        return found[::-1]


class LightQueue:
    """A light queue as the servicer asks for it: the methods of ConsumeQueue that read."""

    is_doubtful = False

    def __init__(self, queues: LightQueues, queue: str) -> None:
        self.units = LightUnits(queues, queue)

    def packed_units(self, begin: int, end: int) -> bytes:
        """The bytes of the units [begin, end); none when one of them is missing."""
        found = self.units.units(begin, end - begin)
        return b"".join(encode_queue_unit(unit) for _, unit in found) if len(found) == end - begin else b""

    def resolved(self, units: Iterable[tuple[int, QueueUnit]]) -> Iterable[QueueUnit]:
        """The units: a light queue has no ConsumeQueueExt."""
        return (unit for _, unit in units)
