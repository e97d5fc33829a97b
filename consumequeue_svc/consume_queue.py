"""One consume queue being written: units at their positions, files created when their first unit comes.

`store/derive/queue_placement.py` decides which units stand in the queue and where gaps are filled. Unit n lies at byte
n * 20 of the queue's files laid end to end. A file is created in full size, sparse.

With more queues than files may be open, units of a queue whose file is not open wait in memory, and the next checkpoint writes
them: to open a file for each unit takes longer than all else. Readers find them there. A crash loses what waits, and the log,
which is followed from the checkpoint on, gives it again.

Replay: after a foreign or doubtful stop the log is applied again from its first record. A unit that the files hold
already is compared and kept; a unit that differs is written; what lies behind the last confirmed unit is cut off. So a
rebuild never removes what was right. What it overwrites or cuts and the log does not explain is kept aside (`unexplained.py`).

With ConsumeQueueExt the tags codes lie in files of their own (`queue_ext_files.py`), and are written before the units that
point to them.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from consumequeue_svc.queue_ext_files import NOTHING_WRITTEN, QueueExtFiles, folders_to_flush
from consumequeue_svc.unexplained import Keeper
from store.derive.queue_placement import Buffer, PlacedUnits, Placement, QueuePlacement, UnitRun, fillers
from store.errors import StoreRecoveringError
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.queue_ext import HEAD_SIZE_BYTES, bare_unit_offset, is_ext_address
from store.format.derived.queue_unit import FILLER_SIZE_BYTES, UNIT_SIZE_BYTES, QueueUnit, decode_queue_unit
from store.format.paths import log_file_name
from store.readers.queue_reader import QueueExtUnits, QueueUnits, file_offsets

UNCONFIRMED = "the log has no record for these units"
OVERWRITTEN = "units of it point to other records than the log gives"
TOO_LONG = "it is longer than queue files are"
EXT_OF_A_BROKER = "a broker's files of ConsumeQueueExt, which is off"
EXT_OF_OTHERS = "the files of ConsumeQueueExt are not laid out as ours"
# A queue with more units than this in memory is busy: its file is opened, in place of another one.
WAITING_UNIT_COUNT_MAX = 256
NOTHING_WAITS = UnitRun(0, b"")
# Sets of first bytes of files are replaced, not changed: nearly all queues share these two.
NO_FILES: frozenset[int] = frozenset()
FIRST_FILE = frozenset({0})


def do_nothing() -> None:
    """There is no checkpoint under way."""


@dataclass(slots=True)
class Unflushed:
    """What queues changed since they were last flushed; shared by those of a table.

    Attributes:
        files: files written.
        directories: folders whose entries changed.
        waiting: queues with units that wait for the next checkpoint.
        waiting_count: those units.
        settle: returns when no checkpoint is under way; raises what made the last one fail.
    """

    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    waiting: "set[ConsumeQueue]" = field(default_factory=set)
    waiting_count: int = 0
    settle: Callable[[], None] = do_nothing


class SavedQueue(NamedTuple):
    """What a checkpoint says of a queue.

    Attributes:
        first_byte: the first byte that the files have room for.
        end: the position behind the last unit.
        crc: of the last units, see `QueueUnits.tail_crc`.
        next_offset: where the record of the last unit ends, at most (bytes of the log).
    """

    first_byte: int
    end: int
    crc: int
    next_offset: int


class WaitingUnits(QueueUnits):
    """The units of a queue that is written: some wait in memory until a checkpoint has written them.

    They go from `young` to `old` with the begin of a checkpoint, and from there to the file. So a reader that looks into
    `young`, `old` and the file, in this order, misses none. One thread changes `young`, and moves it; that of the checkpoint
    ends `old`.

    Attributes:
        young: units behind all others.
        old: those that the checkpoint under way writes.
    """

    __slots__ = ("old", "young")

    def __init__(self, files: OpenFiles, directory: Path | str, file_size_bytes: int) -> None:
        super().__init__(files, directory, file_size_bytes)
        self.young = NOTHING_WAITS
        self.old = NOTHING_WAITS

    @property
    def is_waiting(self) -> bool:
        """Whether units wait."""
        return bool(self.young.units or self.old.units)

    @property
    def written_end(self) -> int:
        """The position behind the last unit that the files hold."""
        end = self.end  # first: what is added from now on waits, or is written
        for run in (self.young, self.old)[::-1]:
            if run.units:
                return run.queue_offset
        return end

    def read_bytes(self, begin: int, end: int) -> bytes:
        """See QueueUnits."""
        waiting = [run for run in (self.young, self.old) if run.units]  # in this order, see above
        first = min((run.queue_offset for run in waiting), default=end)
        data = super().read_bytes(begin, min(first, end)) if begin < first else b""
        position = max(begin, first)
        for run in sorted(waiting):
            at = (position - run.queue_offset) * UNIT_SIZE_BYTES
            part = run.units[at : (end - run.queue_offset) * UNIT_SIZE_BYTES] if position < end else b""
            data += part
            position += len(part) // UNIT_SIZE_BYTES
        return data if position >= end else data + super().read_bytes(position, end)


class ConsumeQueue:
    """One queue of the table.

    Args:
        files: opens files, shared by all queues.
        directory: the queue's folder.
        file_size_bytes: size of its files.
        ext_file_size_bytes: size of its files of ConsumeQueueExt; 0: it is off, and none are written.
        keeper: keeps what the log does not explain; None: nothing is kept.
        unflushed: gets what changes, shared by all queues; None: one of its own.

    Attributes:
        units: the queue as readers see it.
        ext_files: what ConsumeQueueExt adds to it; None while it is off.
        noted: end, CRC-32 of the last units and `written_now` when a checkpoint had written what waited.
        doubtful_files: first bytes of files that are known to be damaged, or may be.
        sealed_crcs: CRC-32 of files that became full since the start, by first byte, until they are taken from here.
        write_count: changes before and after each write.
        own_end: position behind the last unit that is certainly ours: Reput wrote it, or compared it with the log. What is cut
            off or overwritten before it is not kept aside.
        generation: changes when files may get other bytes at the same places: a replay begins, the queue begins anew.
        was_replayed: the files were compared with the log since the start, or are now.
        replayed: position behind the last unit that the replay confirmed; None if no replay runs, or if it has not come
            to this queue yet.
    """

    __slots__ = (
        "_damaged_offsets",
        "_ext_units",
        "_file_offsets",
        "_file_unit_count",
        "_files",
        "_keeper",
        "_may_wait",
        "_own_ext",
        "_tail_crc",
        "_unflushed",
        "_written",
        "doubtful_files",
        "ext_files",
        "generation",
        "noted",
        "own_crc",
        "own_end",
        "replayed",
        "sealed_crcs",
        "units",
        "was_replayed",
        "write_count",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: Path | str,
        file_size_bytes: int,
        *,
        ext_file_size_bytes: int = 0,
        keeper: Keeper | None = None,
        unflushed: Unflushed | None = None,
    ) -> None:
        self._keeper = keeper or Keeper()
        self.units = WaitingUnits(files, directory, file_size_bytes)
        self._unflushed = unflushed or Unflushed()
        self._files = files
        self._ext_units: QueueExtUnits | None = None
        self.ext_files: QueueExtFiles | None = None
        if ext_file_size_bytes:
            self.ext_files = QueueExtFiles(
                files,
                self._ext.directory,
                ext_file_size_bytes,
                self._unflushed.files,
                self._unflushed.directories,
                self._keeper,
            )
            self.ext_files.is_ours = self._is_own_ext
        self._file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
        self._file_offsets = NO_FILES
        self._damaged_offsets = NO_FILES
        self.doubtful_files = NO_FILES
        self.sealed_crcs: dict[int, int] = {}
        self.write_count = 1
        self.generation = 0
        self.was_replayed = False
        self._written = NOTHING_WRITTEN  # (first byte, bytes written, their CRC) of the file that is being filled
        self.own_end = 0
        self.own_crc = 0  # of the last units before it, when it was noted
        self._may_wait = False  # units of the batch that is being applied
        self._own_ext = 0, -1  # size and first byte of the files of ConsumeQueueExt that belong to them
        self._tail_crc: tuple[int, int] | None = None  # (end, CRC up to there)
        self.replayed: int | None = None
        self.noted = 0, 0, NOTHING_WRITTEN

    @property
    def _ext(self) -> QueueExtUnits:
        """Also while it is off: a broker may have had it on."""
        if self._ext_units is None:
            self._ext_units = QueueExtUnits(self._files, self.units.directory)
        return self._ext_units

    def note_own(self, end: int) -> None:
        """Notes that all units before a position are ours, and their units of ConsumeQueueExt."""
        if end > self.own_end:
            self.own_end, self.own_crc = end, self.units.tail_crc(end)
            if self.ext_files is not None:
                self._own_ext = self.ext_files.file_size_bytes, self.ext_files.first_byte

    def note_own_row(self, first_byte: int, end: int, crc: int, ext_file_size_bytes: int, ext_first_byte: int) -> None:
        """Notes the same when the queue has what a checkpoint says of it.

        Args:
            first_byte: the first byte that the files had room for.
            end: the end of the queue.
            crc: of the last units, with those of ConsumeQueueExt.
            ext_file_size_bytes: size of the files of ConsumeQueueExt; 0: there were none.
            ext_first_byte: their first byte; -1: there were none.
        """
        size, end_byte = self.units.file_size_bytes, end * UNIT_SIZE_BYTES
        needed = range(first_byte, max(end_byte, first_byte + 1), size)
        if self.units.end < end or not self._file_offsets.issuperset(needed):
            return
        found = self.units.tail_crc(end)
        if ext_file_size_bytes:
            ext = QueueExtFiles(self._files, self._ext.directory, ext_file_size_bytes, set(), set())
            ext.load()
            found = ext.tail_crc(end, found)
        if found == crc and end > self.own_end:
            self.own_end, self.own_crc = end, self.units.tail_crc(end)
            self._own_ext = ext_file_size_bytes, ext_first_byte

    def _is_own_file(self, first_byte: int) -> bool:
        """Whether a file has no units but those that are certainly ours."""
        size, own_byte = self.units.file_size_bytes, self.own_end * UNIT_SIZE_BYTES
        if own_byte >= first_byte + size:
            return True
        return own_byte > first_byte and not self._files.get(self.units.path_of(first_byte)).has_bytes(
            own_byte - first_byte
        )

    def _is_own_ext(self, first_byte: int) -> bool:
        """The same of a file of ConsumeQueueExt."""
        size, first = self._own_ext
        path = self._ext.directory / log_file_name(first_byte)
        if not size or not 0 <= first <= first_byte or first_byte % size or self._files.fs.stat_size(path) != size:
            return False
        end_byte = bare_unit_offset(self.own_end - 1, size) + HEAD_SIZE_BYTES
        if end_byte > first_byte + size:
            return True
        return end_byte > first_byte and not self._files.get(path).has_bytes(end_byte - first_byte)

    def load(self, found_offsets: Sequence[int] | None = None, saved: SavedQueue | None = None) -> bool:
        """Finds out what the files hold; a file of a wrong length is brought to its full length.

        Args:
            found_offsets: first bytes of the files of the folder, rising, where they are known already.
            saved: what a checkpoint says of the queue; None: it is not known.

        Returns:
            whether the files hold what the checkpoint says, and nothing behind it; then they are opened and read once.
        """
        size = self.units.file_size_bytes
        if found_offsets is None:
            found_offsets = file_offsets(self._files.fs, self.units.directory)
        offsets = [offset for offset in found_offsets if offset % size == 0]
        for offset in offsets:
            if (found := self._files.fs.stat_size(self.units.name_of(offset))) != size:
                path = self.units.path_of(offset)
                if found > size and self._files.get(path).has_bytes(size):
                    self._keeper.copy(path, size, TOO_LONG)
                self._files.create(path, size)
                self._unflushed.files.add(str(path))
                self._damaged_offsets |= {offset}
        self._file_offsets = _shared(offsets)
        if self.ext_files is not None:
            self.units.load(offsets)
            self.ext_files.load()
        elif saved is None or not (tail := self.units.load_expected(offsets, saved.end)):
            self.units.load(offsets)
        else:
            self._tail_crc = saved.end, zlib.crc32(tail)
            last = decode_queue_unit(tail, len(tail) - UNIT_SIZE_BYTES)
            is_before = last.is_filler or last.next_offset <= saved.next_offset
            is_whole = self.first_file_offset == saved.first_byte and self.is_whole(saved.first_byte, saved.end)
            return is_before and self._tail_crc[1] == saved.crc and is_whole
        return False

    def files_on_disk(self) -> list[Path]:
        """The files of the queue's folder, in order; names that no file of this size can have are left out."""
        size = self.units.file_size_bytes
        offsets = file_offsets(self._files.fs, self.units.directory)
        return [self.units.path_of(offset) for offset in offsets if offset % size == 0]

    def paths(self) -> list[Path]:
        """The files, in order; those of ConsumeQueueExt last."""
        ext = self.ext_files.paths() if self.ext_files is not None else []
        return [*(self.units.path_of(offset) for offset in sorted(self._file_offsets)), *ext]

    @property
    def is_doubtful(self) -> bool:
        """Whether a file is known to be damaged, or may be."""
        return bool(self.doubtful_files or (self.ext_files is not None and self.ext_files.doubtful_files))

    @property
    def ext_first_byte(self) -> int:
        """The first byte that the files of ConsumeQueueExt have room for; -1 without any."""
        return self.ext_files.first_byte if self.ext_files is not None else -1

    def doubt(self, first_byte: int, is_doubtful: bool) -> None:
        """Notes whether a file may be damaged."""
        others = self.doubtful_files - {first_byte}
        self.doubtful_files = others | {first_byte} if is_doubtful else others

    def has_own_layout(self) -> bool:
        """Whether the last unit's tags code lies where it does in queues of ours: in ConsumeQueueExt, or not."""
        if self.ext_files is None or self.units.end <= self.units.begin:
            return True
        code = self.units.unit(self.units.end - 1).tags_code
        return is_ext_address(code) and self.ext_files.is_own(self.units.end - 1, code)

    def is_whole(self, first_byte: int, end: int, ext_first_byte: int = -1) -> bool:
        """Whether all files from this byte to this unit are there, and none had a wrong length; so with ConsumeQueueExt."""
        if self.ext_files is not None and not self.ext_files.is_whole(ext_first_byte, end):
            return False
        size, end_byte = self.units.file_size_bytes, end * UNIT_SIZE_BYTES
        needed = range(first_byte, max(end_byte, first_byte + 1), size)
        return all(offset in self._file_offsets and offset not in self._damaged_offsets for offset in needed)

    @property
    def first_file_offset(self) -> int:
        """The first byte that the files have room for."""
        return min(self._file_offsets, default=0)

    def resolved(self, units: Iterable[tuple[int, QueueUnit]]) -> Iterator[QueueUnit]:
        """Units with their tags codes in place of addresses in ConsumeQueueExt.

        An address stays where nothing is found. While we write these files, so does one that the unit's position has not: a
        replay has not come to it yet, and may have written another unit there.
        """

        def is_readable(position: int, unit: QueueUnit) -> bool:
            return self.ext_files is None or self.ext_files.is_own(position, unit.tags_code)

        rows = [(unit, is_readable(position, unit)) for position, unit in units]
        found = self._ext.resolved(unit for unit, is_readable in rows if is_readable)
        return (next(found) if is_readable else unit for unit, is_readable in rows)

    def packed_units(self, begin: int, end: int) -> bytes:
        """The bytes of the units [begin, end); none when one of them is empty or a filler."""
        import numpy as np  # with the first pull of many messages: it takes memory

        from store.derive.queue_runs import UNIT_DTYPE

        data = self.units.read_bytes(begin, end)
        sizes = np.frombuffer(data, dtype=UNIT_DTYPE)["record_size_bytes"]
        return data if ((sizes > 0) & (sizes < FILLER_SIZE_BYTES)).all() else b""

    def append(self, run: UnitRun) -> bool:
        """Writes units that stand right behind the last one (Placement.NEXT), as nearly all do; does nothing with others.

        Returns:
            whether it wrote them.
        """
        if run.queue_offset != self.units.end or not run.queue_offset or self.ext_files is not None:
            return False
        self._may_wait = True
        self._write(run.queue_offset, (run.units,))
        return True

    def apply(self, runs: "Iterable[tuple[UnitRun, Buffer]]", *, is_replay: bool) -> QueuePlacement:
        """Writes the next units, in log order.

        Args:
            runs: see UnitRun; each with its units of ConsumeQueueExt, or none.
            is_replay: compare with what the files hold, see the top of this file.

        Returns:
            what was decided about the units.
        """
        # In this order: a checkpoint makes files of what waits.
        has_units = self.units.is_waiting or bool(self._file_offsets)
        end = self.replayed if is_replay else self.units.end if has_units else None
        self._may_wait = not is_replay and self.ext_files is None

        def log_end_offset() -> int:
            return self.units.next_log_offset_before(end) if end is not None else 0

        def number_0() -> bytes:
            # A replay has confirmed the unit at 0 only if it placed it itself; a file may hold an older one.
            return b"" if is_replay or self.units.begin else self.units.read_bytes(0, 1)

        placement = QueuePlacement(self._file_unit_count, end, log_end_offset=log_end_offset, number_0=number_0)
        parts: list[Buffer] = []
        parts_at = 0
        placed_units = ((placed, ext_part) for run, ext_part in runs for placed in placement.place((run,)))
        for placed, ext_part in placed_units:
            if placed.placement is not Placement.NEXT:
                self._write(parts_at, parts)
                parts = []
                self._prepare(placed)
            if not parts:
                parts_at = placed.queue_offset
            parts.append(placed.units)
            if ext_part:
                assert self.ext_files is not None
                self.write_count += 1
                self.ext_files.write(placed.queue_offset, ext_part[-len(placed.units) :], is_replay=is_replay)
                self.write_count += 1
        self._write(parts_at, parts)
        if is_replay:
            self.replayed = placement.end
        return placement

    def tail_crc(self) -> int:
        """CRC-32 over the last units, see `QueueUnits.tail_crc`; read again only if the end has moved."""
        end = self.units.end
        if self._tail_crc is None or self._tail_crc[0] != end:
            self._tail_crc = end, self.tail_crc_before(end)
        return self._tail_crc[1]

    def tail_crc_before(self, end: int) -> int:
        """CRC-32 over the last units before a position, those of ConsumeQueueExt included."""
        crc = self.units.tail_crc(end)
        return crc if self.ext_files is None else self.ext_files.tail_crc(end, crc)

    def mark_all_dirty(self) -> None:
        """The next flush takes every file and folder: what was read from them may be in the page cache only."""
        self._unflushed.files.update(map(str, self.paths()))
        self._mark_directories_dirty(self._unflushed.directories)
        if self.ext_files is not None:
            self.ext_files.mark_directories_dirty()

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files out of the queue whose units all point before the log's first record, never the last file.

        Returns:
            at most so many paths. Remove them (`remove_hidden`) when a checkpoint without them is written.
        """
        ext_file_count = len(self.ext_files.file_offsets()) if self.ext_files is not None else 0
        if len(self._file_offsets) < 2 and ext_file_count < 2:
            return []
        offsets = sorted(self._file_offsets)
        first = self.units.min_offset(log_first_offset)
        end_byte = first * UNIT_SIZE_BYTES
        expired = [n for n in offsets[:-1] if n + self.units.file_size_bytes <= end_byte][:file_count_max]
        self._hide(expired)
        ext = self.ext_files.hide_before(first, file_count_max - len(expired)) if self.ext_files is not None else []
        return [*(self.units.path_of(offset) for offset in expired), *ext]

    def drop_before(self, first_byte: int, ext_first_byte: int = -1) -> None:
        """Removes the files before these bytes: they had expired, and a crash came before they were removed."""
        if self.ext_files is not None:
            self.ext_files.drop_before(ext_first_byte)
        expired = [offset for offset in self._file_offsets if offset < first_byte]
        self._hide(expired)
        self.remove_hidden(self.units.path_of(offset) for offset in expired)

    def remove_hidden(self, paths: Iterable[Path]) -> None:
        """Removes files that `hide_expired` returned."""
        for path in paths:
            self._files.forget(path)
            with suppress(FileNotFoundError):
                self._files.fs.unlink(path)
            self._unflushed.directories.add(str(path.parent))

    def _hide(self, offsets: list[int]) -> None:
        if offsets:
            self._file_offsets = _shared(self._file_offsets.difference(offsets))
            self._unflushed.files.difference_update(map(self.units.name_of, offsets))
            self.doubtful_files -= set(offsets)
            self.units.begin = min(self._file_offsets) // UNIT_SIZE_BYTES
            self.units.forget_front()

    def begin_replay(self) -> None:
        """A replay begins or goes on: what is known of the files is forgotten, and the next flush takes all of them."""
        self.write_waiting()
        self.generation += 1
        self.was_replayed = True
        self.doubtful_files = NO_FILES
        self.sealed_crcs.clear()
        self._written = NOTHING_WRITTEN
        if self.ext_files is not None:
            if not self.has_own_layout():
                for path in self.ext_files.paths():
                    if not self._is_own_ext(int(path.name)):
                        self._keeper.copy_whole(path, EXT_OF_OTHERS)
            self.ext_files.begin_replay()
        # What it keeps it must find on the disk, and what only memory holds must get there.
        self.mark_all_dirty()

    def forget_replay(self) -> None:
        """Forgets what a replay confirmed: it begins, or begins anew."""
        self.replayed = None

    def end_replay(self, log_first_offset: int) -> bool:
        """Cuts off what the replay did not confirm; returns whether anything was cut off.

        Args:
            log_first_offset: units that point before it cannot be confirmed, and stay (bytes).
        """
        end = self.replayed
        if end is None:
            end = self.units.end_before(log_first_offset)
            if self.ext_files is not None:
                self.ext_files.clear(UNCONFIRMED)  # of expired units only
        self.replayed = None
        if self.ext_files is None:
            self._remove_ext()
        return self.cut(end, why_aside=UNCONFIRMED)

    def cut(self, end: int, *, why_aside: str = "") -> bool:
        """Makes `end` the queue's end; returns whether anything was cut off.

        Args:
            end: in units.
            why_aside: why what is cut off is kept aside; empty: it is ours, and the log gives it again.
        """
        self.write_waiting()
        size = self.units.file_size_bytes
        end_byte = end * UNIT_SIZE_BYTES
        was = self.units.end
        self.units.end = min(end, was)
        self._tail_crc = None
        if end < was or end_byte != sum(self._written[:2]):
            self._written = NOTHING_WRITTEN
        for offset in sorted(self._file_offsets, reverse=True):
            path = self.units.path_of(offset)
            if offset >= end_byte:
                self._remove(offset, why_aside)
            elif offset + size > end_byte:
                self.sealed_crcs.pop(offset, None)
                # Also behind the known end: after a power cut units may stand there behind an empty one.
                if self._files.get(path).has_bytes(end_byte - offset):
                    begin = max(end_byte, self.own_end * UNIT_SIZE_BYTES) - offset
                    if why_aside and begin < size and self._files.get(path).has_bytes(begin):
                        self._keeper.copy(path, begin, why_aside)
                    self._files.get(path, writing=True).zero_from(end_byte - offset, size)
                    self._unflushed.files.add(str(path))
            else:
                break
        if self.ext_files is not None:
            self.ext_files.cut(end if self._file_offsets else 0)
        self.units.forget_front()
        if not self._file_offsets:
            self.units.begin = self.units.end = 0
        if self.own_end > self.units.end:
            self.own_end, self.own_crc = self.units.end, self.units.tail_crc(self.units.end)
        return end < was

    def _prepare(self, placed: PlacedUnits) -> None:
        """Clears the queue if it begins anew, and writes the fillers before units."""
        self.write_waiting()
        begin, position = placed.fill_begin, placed.queue_offset
        file_begin = position - position % self._file_unit_count
        if placed.placement is Placement.ANEW:
            self._clear()
        if not self._file_offsets:
            begin = self.units.begin = self.units.end = file_begin
        elif position < self.units.begin:
            # A replay writes the files again that are missing at the front.
            begin = self.units.begin = file_begin
        elif placed.placement is Placement.FIRST:
            # A replay comes to this queue: what lies before its first record stays, if it is connected with it.
            begin = min(self.units.end, position)
        if self.ext_files is not None:
            self.write_count += 1
            if placed.placement is Placement.BEHIND_GAP:
                self.ext_files.fill(placed.fill_begin, position)
            else:
                self.ext_files.fill_front(position)
            self.write_count += 1
        for run in fillers(begin, position):
            self._write(run.queue_offset, [run.units])

    def _write(self, position: int, parts: Sequence[Buffer]) -> None:
        if not parts:
            return
        self._tail_crc = None
        data = b"".join(parts)
        if position < self.units.end:
            present = self.units.read_bytes(position, min(position + len(data) // UNIT_SIZE_BYTES, self.units.end))
            if data.startswith(present):
                # Already there: only what lies behind is new.
                position += len(present) // UNIT_SIZE_BYTES
                data = data[len(present) :]
            elif self._keeper.keeps:
                self._keep_unexplained(position, present, data)
        elif self._may_wait and self._wait(position, data):
            return
        self._write_files(position, data, self._unflushed.files, self._unflushed.directories)
        self.units.end = max(self.units.end, position + len(data) // UNIT_SIZE_BYTES)

    def _wait(self, position: int, data: bytes) -> bool:
        """Lets the queue's next units wait in memory; False, and nothing waits, when they are to be written now."""
        units, count = self.units, len(data) // UNIT_SIZE_BYTES
        if units.is_waiting:
            is_busy = len(units.young.units) + len(data) > WAITING_UNIT_COUNT_MAX * UNIT_SIZE_BYTES
            if is_busy and not units.old.units:
                self.write_waiting()
                return False
        elif count > WAITING_UNIT_COUNT_MAX or self._files.is_room_for(self._name_at(position)):
            return False
        begin, before = units.young if units.young.units else UnitRun(position, b"")
        units.young = UnitRun(begin, bytes(before) + data)
        units.end = position + count
        self._unflushed.waiting.add(self)
        self._unflushed.waiting_count += count
        return True

    def write_waiting(self) -> None:
        """Writes the units that wait in memory, and keeps the file open; waits for a checkpoint that is writing some."""
        if self.units.old.units:
            self._unflushed.settle()
        begin, data = self.units.young
        if data:
            self._write_files(begin, data, self._unflushed.files, self._unflushed.directories)
            self.units.young = NOTHING_WAITS
            self._unflushed.waiting_count -= len(data) // UNIT_SIZE_BYTES
        self._unflushed.waiting.discard(self)

    def age(self) -> None:
        """A checkpoint begins: the units that wait are those that it writes, by `write_old`."""
        assert not self.units.old.units
        self.units.old = self.units.young
        self.units.young = NOTHING_WAITS

    def write_old(self, files: set[str], directories: set[str]) -> None:
        """Writes what waited when the checkpoint began; its thread may call it while more units are applied.

        Args:
            files: gets those that are written.
            directories: gets those whose entries change.
        """
        begin, data = self.units.old
        self._write_files(begin, data, files, directories, is_kept=False)
        end = begin + len(data) // UNIT_SIZE_BYTES
        tail_crc = self.units.tail_crc(end)
        self._tail_crc = end, tail_crc  # the other thread may have taken more units, and does not rely on it then
        self.noted = end, tail_crc, self._written
        self.units.old = NOTHING_WAITS

    def _write_files(
        self, position: int, data: Buffer, files: set[str], directories: set[str], *, is_kept: bool = True
    ) -> None:
        size = self.units.file_size_bytes
        byte, view = position * UNIT_SIZE_BYTES, memoryview(data)
        self.write_count += 1
        while view:
            within = byte % size
            part = view[: size - within]
            self._file(byte - within, files, directories, is_kept=is_kept).write(within, part)
            self._note(byte - within, within, part)
            byte += len(part)
            view = view[len(part) :]
        self.write_count += 1

    def _keep_unexplained(self, begin: int, present: bytes, wanted: bytes) -> None:
        """Keeps the files in which units of other records are about to be overwritten that are not explained."""
        import numpy as np  # in a replay over files that differ only

        from store.derive.queue_runs import UNIT_DTYPE

        there = np.frombuffer(present, dtype=UNIT_DTYPE)
        new = np.frombuffer(wanted, dtype=UNIT_DTYPE, count=len(there))
        sizes = there["record_size_bytes"]
        # Another tags code of the same record is no other unit: ConsumeQueueExt was switched on or off.
        is_other = (there["commit_log_offset"] != new["commit_log_offset"]) | (sizes != new["record_size_bytes"])
        rows = np.flatnonzero(is_other & (sizes > 0) & (sizes < FILLER_SIZE_BYTES))
        rows = rows[begin + rows >= self.own_end]
        numbers, firsts = np.unique((begin + rows) // self._file_unit_count, return_index=True)
        for number, first in zip(numbers.tolist(), rows[firsts].tolist(), strict=True):
            unit = QueueUnit._make(there[first].tolist())
            try:
                is_own = self._keeper.is_own(self.units.directory, begin + first, unit)
            except StoreRecoveringError:
                is_own = False  # not known yet
            if not is_own:
                self._keeper.copy_whole(self.units.path_of(number * self.units.file_size_bytes), OVERWRITTEN)

    def _note(self, first_byte: int, within: int, part: memoryview) -> None:
        """Goes on with the checksum of the file that is being filled."""
        known, end, crc = self._written
        if within == 0:
            crc = 0
        elif (known, end) != (first_byte, within):
            self._written = NOTHING_WRITTEN  # what lies before is not known
            return
        end, crc = within + len(part), zlib.crc32(part, crc)
        self._written = first_byte, end, crc
        if end == self.units.file_size_bytes:
            self.sealed_crcs[first_byte] = crc

    @property
    def written_now(self) -> tuple[int, int, int]:
        """First byte, bytes written and their CRC-32 of the file that is being filled; -1 when unknown."""
        return self._written

    def file_offsets(self) -> list[int]:
        """First bytes of the files; any thread may ask."""
        return sorted(self._file_offsets)

    def is_open(self, first_byte: int) -> bool | None:
        """Whether a file is being filled; False when it is full, None when there is no such file or it is empty."""
        end_byte = self.units.written_end * UNIT_SIZE_BYTES
        if first_byte not in self._file_offsets or first_byte >= end_byte:
            return None
        return end_byte < first_byte + self.units.file_size_bytes

    def written(self, first_byte: int) -> tuple[int, int | None]:
        """How many bytes of a file hold units, and their CRC-32; None when that is not known."""
        known, end, crc = self._written
        if known == first_byte:
            return end, crc
        return min(self.units.written_end * UNIT_SIZE_BYTES - first_byte, self.units.file_size_bytes), None

    def learn(self, first_byte: int, size_bytes: int, crc: int) -> None:
        """Takes the CRC-32 of the first bytes of the file that is being filled; later ones are read now."""
        if self.is_open(first_byte) and self._written[0] != first_byte:
            end = self.units.written_end * UNIT_SIZE_BYTES - first_byte
            rest = b""
            if end > size_bytes:
                rest = self._files.get(self.units.path_of(first_byte)).read(size_bytes, end - size_bytes)
            if size_bytes + len(rest) == end:
                self._written = first_byte, end, zlib.crc32(rest, crc)

    def rewrite(self, first_byte: int, data: bytes) -> None:
        """Makes a full file again, which was damaged or is missing."""
        path, old = self.units.path_of(first_byte), None
        if self._files.fs.is_file(path):
            # The disk may not read it any more. It stays open until there is a new one, so that no block of it is used again.
            old = self._files.get(path)
            self._files.fs.unlink(path)
        self._create(path, self._unflushed.directories).write(0, data)
        del old
        self._unflushed.files.add(str(path))
        self._tail_crc = None
        self.units.forget_front()

    def _name_at(self, position: int) -> str:
        byte = position * UNIT_SIZE_BYTES
        return self.units.name_of(byte - byte % self.units.file_size_bytes)

    def _file(self, first_byte: int, files: set[str], directories: set[str], *, is_kept: bool) -> OpenFile:
        name = self.units.name_of(first_byte)
        files.add(name)
        if first_byte in self._file_offsets:
            return self._files.get(name, writing=True) if is_kept else self._files.get_once(name)
        file = self._create(Path(name), directories, is_kept=is_kept)
        self._file_offsets = _shared({*self._file_offsets, first_byte})
        return file

    def _create(self, path: Path, directories: set[str], *, is_kept: bool = True) -> OpenFile:
        """Makes a file. Its folders are flushed by the next checkpoint: with many new queues the disk would set the pace."""
        self._mark_directories_dirty(directories)
        return self._files.create(path, self.units.file_size_bytes, durable_folders=False, is_kept=is_kept)

    def _mark_directories_dirty(self, directories: set[str]) -> None:
        """The folder of the queue, and all of which it may be a new entry, up to the root of the store."""
        directories.update(folders_to_flush(self.units.directory_name))

    def _remove(self, first_byte: int, why_aside: str = "") -> None:
        path = self.units.path_of(first_byte)
        is_foreign = bool(why_aside) and self._files.get(path).has_bytes(0) and not self._is_own_file(first_byte)
        is_kept = is_foreign and self._keeper.move(path, why_aside)
        self._file_offsets = _shared(self._file_offsets - {first_byte})
        self.doubtful_files -= {first_byte}
        self.sealed_crcs.pop(first_byte, None)
        self._files.forget(path)
        if not is_kept:
            self._files.fs.unlink(path)
        self._unflushed.files.discard(str(path))
        self._unflushed.directories.add(str(path.parent))

    def keep_aside(self, why: str) -> None:
        """Moves all files aside: the queue begins anew."""
        for first_byte in sorted(self._file_offsets):
            self._remove(first_byte, why)
        self._clear()

    def _clear(self) -> None:
        self.generation += 1
        self._tail_crc = None
        self._written = NOTHING_WRITTEN
        self.units.begin = self.units.end = 0
        for first_byte in sorted(self._file_offsets):
            self._remove(first_byte)
        if self.ext_files is not None:
            self.ext_files.clear()
        self.units.forget_front()

    def _remove_ext(self) -> None:
        """Removes files of ConsumeQueueExt, which is off: every unit holds its tags code again."""
        directory = self._ext.directory
        for first_byte in file_offsets(self._files.fs, directory):
            path = directory / log_file_name(first_byte)
            is_own = self._is_own_ext(first_byte)
            self._files.forget(path)
            if is_own or not self._keeper.move(path, EXT_OF_A_BROKER):
                self._files.fs.unlink(path)


def _shared(offsets: Iterable[int]) -> frozenset[int]:
    """The set of these; of the first file alone, the one that queues share."""
    found = frozenset(offsets)
    return FIRST_FILE if found == FIRST_FILE else found
