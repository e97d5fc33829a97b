"""One consume queue being written: units at their positions, files created when their first unit comes.

`store/derive/queue_placement.py` decides which units stand in the queue and where gaps are filled. Unit n lies at byte
n * 20 of the queue's files laid end to end. A file is created in full size, sparse.

Replay: after a foreign or doubtful stop the log is applied again from its first record. A unit that the files hold
already is compared and kept; a unit that differs is written; what lies behind the last confirmed unit is cut off. So a
rebuild never removes what was right.
"""

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from store.derive.queue_placement import Buffer, PlacedUnits, QueuePlacement, Verdict, fillers
from store.files.open_files import OpenFile, OpenFiles
from store.format.queue_unit import UNIT_SIZE_BYTES
from store.readers.queue_reader import QueueUnits, file_offsets

if TYPE_CHECKING:
    from store.derive.queue_placement import UnitRun

SCAN_BYTES = 65_536


class ConsumeQueue:
    """One queue of the table.

    Args:
        files: opens files, shared by all queues.
        directory: the queue's folder.
        file_size_bytes: size of its files.

    Attributes:
        units: the queue as readers see it.
        dirty: files written since they were last flushed.
        dirty_directories: folders whose entries changed since then.
        doubtful_files: first bytes of files that are known to be damaged, or may be.
        sealed_crcs: CRC-32 of files that became full since the start, by first byte, until they are taken from here.
        write_count: changes before and after each write.
        generation: changes when files may get other bytes at the same places: a replay begins, the queue begins anew.
        was_replayed: the files were compared with the log since the start, or are now.
        replayed: position behind the last unit that the replay confirmed; None if no replay runs, or if it has not come
            to this queue yet.
    """

    def __init__(self, files: OpenFiles, directory: Path, file_size_bytes: int) -> None:
        self.units = QueueUnits(files, directory, file_size_bytes)
        self.dirty: set[Path] = set()
        self.dirty_directories: set[Path] = set()
        self._files = files
        self._file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
        self._file_offsets: set[int] = set()
        self._damaged_offsets: set[int] = set()
        self.doubtful_files: set[int] = set()
        self.sealed_crcs: dict[int, int] = {}
        self.write_count = 1
        self.generation = 0
        self.was_replayed = False
        self._written = -1, 0, 0  # (first byte, bytes written, their CRC) of the file that is being filled
        self._tail_crc: tuple[int, int] | None = None  # (end, CRC up to there)
        self._written_path = -1, directory  # (first byte, path) of the file written last
        self.replayed: int | None = None

    def load(self) -> None:
        """Finds out what the files hold; a file of a wrong length is brought to its full length."""
        size = self.units.file_size_bytes
        paths = self.files_on_disk()
        offsets = [int(path.name) for path in paths]
        for offset, path in zip(offsets, paths, strict=True):
            if self._files.fs.stat_size(path) != size:
                self._files.create(path, size)
                self.dirty.add(path)
                self._damaged_offsets.add(offset)
        self._file_offsets = set(offsets)
        self.units.load(offsets)

    def files_on_disk(self) -> list[Path]:
        """The files of the queue's folder, in order; names that no file of this size can have are left out."""
        size = self.units.file_size_bytes
        offsets = file_offsets(self._files.fs, self.units.directory)
        return [self.units.path_of(offset) for offset in offsets if offset % size == 0]

    def paths(self) -> list[Path]:
        """The files, in order."""
        return [self.units.path_of(offset) for offset in sorted(self._file_offsets)]

    def is_whole(self, first_byte: int, end: int) -> bool:
        """Whether all files from this byte to this unit are there, and none had a wrong length."""
        size, end_byte = self.units.file_size_bytes, end * UNIT_SIZE_BYTES
        needed = range(first_byte, max(end_byte, first_byte + 1), size)
        return all(offset in self._file_offsets and offset not in self._damaged_offsets for offset in needed)

    @property
    def first_file_offset(self) -> int:
        """The first byte that the files have room for."""
        return min(self._file_offsets, default=0)

    def apply(self, runs: "Iterable[UnitRun]", *, is_replay: bool) -> QueuePlacement:
        """Writes the next units, in log order.

        Args:
            runs: see UnitRun.
            is_replay: compare with what the files hold, see the top of this file.

        Returns:
            what was decided about the units.
        """
        end = self.replayed if is_replay else self.units.end if self._file_offsets else None

        def log_end_offset() -> int:
            return self.units.next_log_offset_before(end) if end is not None else 0

        def number_0() -> bytes:
            # A replay has confirmed the unit at 0 only if it placed it itself; a file may hold an older one.
            return b"" if is_replay or self.units.begin else self.units.read_bytes(0, 1)

        placement = QueuePlacement(self._file_unit_count, end, log_end_offset=log_end_offset, number_0=number_0)
        parts: list[Buffer] = []
        parts_at = 0
        for placed in placement.place(runs):
            if placed.verdict is not Verdict.NEXT:
                self._write(parts_at, parts)
                parts = []
                self._prepare(placed)
            if not parts:
                parts_at = placed.queue_offset
            parts.append(placed.units)
        self._write(parts_at, parts)
        if is_replay:
            self.replayed = placement.end
        return placement

    def tail_crc(self) -> int:
        """CRC-32 over the last units, see `QueueUnits.tail_crc`; read again only if the end has moved."""
        end = self.units.end
        if self._tail_crc is None or self._tail_crc[0] != end:
            self._tail_crc = end, self.units.tail_crc(end)
        return self._tail_crc[1]

    def mark_all_dirty(self) -> None:
        """The next flush takes every file and folder: what was read from them may be in the page cache only."""
        self.dirty.update(self.paths())
        directory = self.units.directory
        self.dirty_directories.update((directory, directory.parent, directory.parent.parent))

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files out of the queue whose units all point before the log's first record, never the last file.

        Returns:
            at most so many paths. Remove them (`remove_hidden`) when a checkpoint without them is written.
        """
        if len(self._file_offsets) < 2:
            return []
        offsets = sorted(self._file_offsets)
        first_byte = self.units.min_offset(log_first_offset) * UNIT_SIZE_BYTES
        expired = [n for n in offsets[:-1] if n + self.units.file_size_bytes <= first_byte][:file_count_max]
        self._hide(expired)
        return [self.units.path_of(offset) for offset in expired]

    def drop_before(self, first_byte: int) -> None:
        """Removes the files before this byte: they had expired, and a crash came before they were removed."""
        expired = [offset for offset in self._file_offsets if offset < first_byte]
        self._hide(expired)
        self.remove_hidden(self.units.path_of(offset) for offset in expired)

    def remove_hidden(self, paths: Iterable[Path]) -> None:
        """Removes files that `hide_expired` returned."""
        for path in paths:
            self._files.forget(path)
            with suppress(FileNotFoundError):
                self._files.fs.unlink(path)
            self.dirty_directories.add(path.parent)

    def _hide(self, offsets: list[int]) -> None:
        if offsets:
            self._file_offsets.difference_update(offsets)
            self.dirty.difference_update(map(self.units.path_of, offsets))
            self.doubtful_files.difference_update(offsets)
            self.units.begin = min(self._file_offsets) // UNIT_SIZE_BYTES
            self.units.forget_front()

    def begin_replay(self) -> None:
        """A replay begins or goes on: what is known of the files is forgotten, and the next flush takes all of them."""
        self.generation += 1
        self.was_replayed = True
        self.doubtful_files.clear()
        self.sealed_crcs.clear()
        self._written = -1, 0, 0
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
        self.replayed = None
        return self.cut(end)

    def cut(self, end: int) -> bool:
        """Makes `end` the queue's end; returns whether anything was cut off."""
        size = self.units.file_size_bytes
        end_byte = end * UNIT_SIZE_BYTES
        was = self.units.end
        self.units.end = min(end, was)
        self._tail_crc = None
        if end < was or end_byte != sum(self._written[:2]):
            self._written = -1, 0, 0
        for offset in sorted(self._file_offsets, reverse=True):
            path = self.units.path_of(offset)
            if offset >= end_byte:
                self._remove(offset)
            elif offset + size > end_byte:
                self.sealed_crcs.pop(offset, None)
                # Also behind the known end: after a power cut units may stand there behind an empty one.
                if self._has_bytes(path, end_byte - offset):
                    self._files.get(path, writing=True).zero_from(end_byte - offset, size)
                    self.dirty.add(path)
            else:
                break
        self.units.forget_front()
        if not self._file_offsets:
            self.units.begin = self.units.end = 0
        return end < was

    def _prepare(self, placed: PlacedUnits) -> None:
        """Clears the queue if it begins anew, and writes the fillers before units."""
        begin, position = placed.fill_begin, placed.queue_offset
        file_begin = position - position % self._file_unit_count
        if placed.verdict is Verdict.ANEW:
            self._clear()
        if not self._file_offsets:
            begin = self.units.begin = self.units.end = file_begin
        elif position < self.units.begin:
            # A replay writes the files again that are missing at the front.
            begin = self.units.begin = file_begin
        elif placed.verdict is Verdict.FIRST:
            # A replay comes to this queue: what lies before its first record stays, if it is connected with it.
            begin = min(self.units.end, position)
        for at, units in fillers(begin, position):
            self._write(at, [units])

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
        size = self.units.file_size_bytes
        byte, view = position * UNIT_SIZE_BYTES, memoryview(data)
        self.write_count += 1
        while view:
            within = byte % size
            part = view[: size - within]
            self._file(byte - within).write(within, part)
            self._note(byte - within, within, part)
            byte += len(part)
            view = view[len(part) :]
        self.write_count += 1
        self.units.end = max(self.units.end, byte // UNIT_SIZE_BYTES)

    def _note(self, first_byte: int, within: int, part: memoryview) -> None:
        """Goes on with the checksum of the file that is being filled."""
        known, end, crc = self._written
        if within == 0:
            crc = 0
        elif (known, end) != (first_byte, within):
            self._written = -1, 0, 0  # what lies before is not known
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
        end_byte = self.units.end * UNIT_SIZE_BYTES
        if first_byte not in self._file_offsets or first_byte >= end_byte:
            return None
        return end_byte < first_byte + self.units.file_size_bytes

    def written(self, first_byte: int) -> tuple[int, int | None]:
        """How many bytes of a file hold units, and their CRC-32; None when that is not known."""
        known, end, crc = self._written
        if known == first_byte:
            return end, crc
        return min(self.units.end * UNIT_SIZE_BYTES - first_byte, self.units.file_size_bytes), None

    def learn(self, first_byte: int, size_bytes: int, crc: int) -> None:
        """Takes the CRC-32 of the first bytes of the file that is being filled; later ones are read now."""
        if self.is_open(first_byte) and self._written[0] != first_byte:
            end = self.units.end * UNIT_SIZE_BYTES - first_byte
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
        self._files.create(path, self.units.file_size_bytes).write(0, data)
        del old
        self.dirty.add(path)
        directory = self.units.directory
        self.dirty_directories.update((directory, directory.parent, directory.parent.parent))
        self._tail_crc = None
        self.units.forget_front()

    def _file(self, first_byte: int) -> OpenFile:
        if self._written_path[0] != first_byte:
            self._written_path = first_byte, self.units.path_of(first_byte)
        path = self._written_path[1]  # kept: to make and compare a path takes longer than to write a unit
        self.dirty.add(path)
        if first_byte in self._file_offsets:
            return self._files.get(path, writing=True)
        file = self._files.create(path, self.units.file_size_bytes)
        self._file_offsets.add(first_byte)
        directory = self.units.directory
        self.dirty_directories.update((directory, directory.parent, directory.parent.parent))
        return file

    def _has_bytes(self, path: Path, position: int) -> bool:
        file = self._files.get(path)
        at = self._files.fs.next_data(file.fd, position)
        while at is not None:
            data = file.read(at, SCAN_BYTES)
            if data != bytes(len(data)):
                return True
            if not data:
                return False
            at = self._files.fs.next_data(file.fd, at + len(data))
        return False

    def _remove(self, first_byte: int) -> None:
        path = self.units.path_of(first_byte)
        self._file_offsets.discard(first_byte)
        self.doubtful_files.discard(first_byte)
        self.sealed_crcs.pop(first_byte, None)
        self._files.forget(path)
        self._files.fs.unlink(path)
        self.dirty.discard(path)
        self.dirty_directories.add(path.parent)

    def _clear(self) -> None:
        self.generation += 1
        self._tail_crc = None
        self._written = -1, 0, 0
        self.units.begin = self.units.end = 0
        for first_byte in sorted(self._file_offsets):
            self._remove(first_byte)
        self.units.forget_front()
