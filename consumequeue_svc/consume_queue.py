"""One consume queue being written: units at their positions, files made at first need.

Rules, from `ConsumeQueue` of RocketMQ 5.3.3 unless said otherwise:
- Unit n lies at byte n * 20; a file is made when its first unit comes, in full size, sparse.
- A queue whose first message is not number 0 begins with the file that holds it; the places before are filled.
- A gap is filled in the same way (RocketMQ would put the unit in the wrong place). A gap wider than the log has room for
  records is no gap but a damaged position (`_can_be`): that record is left out.
- A message whose position is taken is dropped, except number 0: then the topic was deleted and made again, and the
  queue starts anew.

Replay: after a foreign or doubtful stop the log is applied again from its first record. Units that are there already
are compared and kept; whatever differs is written; what is left behind the last one is cut off. So a rebuild never
takes away what was right.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from store.format.queue_unit import FILLER, UNIT_SIZE_BYTES, decode_queue_unit, encode_queue_unit
from store.format.record import FRAME_SIZE_BYTES_MIN
from store.readers.open_files import OpenFile, OpenFiles
from store.readers.queue_reader import QueueUnits, file_offsets

if TYPE_CHECKING:
    from store.builders.queue_runs import UnitRun

Buffer = bytes | memoryview
FILLER_BYTES = encode_queue_unit(FILLER)
FILL_UNIT_COUNT = 16_384
SCAN_BYTES = 65_536
# RocketMQ uses up a position for a message that it refuses (#6570), so that a gap needs no record. More than so many
# in a row have not been seen; their fillers take 80 kB.
BURNT_POSITION_COUNT_MAX = 4096


class Applied(NamedTuple):
    """What became of units.

    Attributes:
        dropped_count: left out because their place was taken.
        filled_count: places that were filled.
        refused: position and commit-log offset of records whose position cannot be.
    """

    dropped_count: int
    filled_count: int
    refused: tuple[tuple[int, int], ...] = ()


class ConsumeQueue:
    """One queue of the table.

    Args:
        files: opens files, shared by all queues.
        directory: the queue's folder.
        file_size_bytes: size of its files.

    Attributes:
        units: the queue as readers see it.
        dirty: files written since they were last flushed.
        dirty_directories: folders whose entries changed since.
        replayed: next position of the replay; None when none runs or it has not come here.
    """

    def __init__(self, files: OpenFiles, directory: Path, file_size_bytes: int) -> None:
        self.units = QueueUnits(files, directory, file_size_bytes)
        self.dirty: set[Path] = set()
        self.dirty_directories: set[Path] = set()
        self._files = files
        self._file_offsets: set[int] = set()
        self._damaged_offsets: set[int] = set()
        self._tail_crc: tuple[int, int] | None = None  # (end, CRC up to there)
        self._written_path = -1, directory  # (first byte, path) of the file written last
        self.replayed: int | None = None

    def load(self) -> None:
        """Finds out what the files hold; a file of a wrong length gets its full one."""
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
        """The files of its folder, in order; a name that no file of this size can have is somebody else's."""
        size = self.units.file_size_bytes
        offsets = file_offsets(self._files.fs, self.units.directory)
        return [self.units.path_of(offset) for offset in offsets if offset % size == 0]

    def paths(self) -> list[Path]:
        """The files, in order."""
        return [self.units.path_of(offset) for offset in sorted(self._file_offsets)]

    def is_whole(self, first_byte: int, end: int) -> bool:
        """Whether there is every file from that byte to that unit, none of which had a wrong length."""
        size, end_byte = self.units.file_size_bytes, end * UNIT_SIZE_BYTES
        needed = range(first_byte, max(end_byte, first_byte + 1), size)
        return all(offset in self._file_offsets and offset not in self._damaged_offsets for offset in needed)

    @property
    def first_file_offset(self) -> int:
        """The first byte that the files have room for."""
        return min(self._file_offsets, default=0)

    def apply(self, runs: "Iterable[UnitRun]", *, is_replay: bool) -> Applied:
        """Writes units, given in log order as runs of consecutive positions.

        Args:
            runs: see UnitRun.
            is_replay: compare with what is there, see the top of this file.
        """
        dropped = filled = 0
        refused: list[tuple[int, int]] = []
        parts: list[Buffer] = []
        parts_at = expected = self._expected(is_replay=is_replay)
        for run in runs:
            position, units = run
            while units:
                first = units[:UNIT_SIZE_BYTES]
                if expected is not None and position < expected and position != 0:
                    count = min(expected - position, len(units) // UNIT_SIZE_BYTES)
                    dropped += count
                    position, units = position + count, units[count * UNIT_SIZE_BYTES :]
                    continue
                if expected is None or position != expected:
                    self._write(parts_at, parts)
                    parts, parts_at = [], expected
                    is_taken = False
                    if not self._can_be(position, first, expected):
                        refused.append((position, decode_queue_unit(first).commit_log_offset))
                        is_taken = True
                    elif expected is not None and position == 0:
                        if not is_replay and self.units.begin == 0 and self.units.read_bytes(0, 1) == first:
                            dropped += 1  # the same record once more
                            is_taken = True
                        else:
                            self._clear()
                            expected = None
                    if is_taken:
                        position, units = position + 1, units[UNIT_SIZE_BYTES:]
                        continue
                    filled += self._fill_before(position, expected)
                    parts_at = expected = position
                parts.append(units)
                expected += len(units) // UNIT_SIZE_BYTES
                break
        self._write(parts_at, parts)
        if is_replay:
            self.replayed = expected
        return Applied(dropped, filled, tuple(refused))

    def tail_crc(self) -> int:
        """CRC-32 over the last units, see `QueueUnits.tail_crc`; read again only when the end has moved."""
        end = self.units.end
        if self._tail_crc is None or self._tail_crc[0] != end:
            self._tail_crc = end, self.units.tail_crc(end)
        return self._tail_crc[1]

    def mark_all_dirty(self) -> None:
        """The next flush takes every file and folder: what is known of them was only read, perhaps from memory."""
        self.dirty.update(self.paths())
        directory = self.units.directory
        self.dirty_directories.update((directory, directory.parent, directory.parent.parent))

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files all of whose units point before the log's first record out of the queue, never the last file.

        Returns:
            at most so many paths; to be removed once a checkpoint without them is written.
        """
        if len(self._file_offsets) < 2:
            return []
        offsets = sorted(self._file_offsets)
        first_byte = self.units.min_offset(log_first_offset) * UNIT_SIZE_BYTES
        expired = [n for n in offsets[:-1] if n + self.units.file_size_bytes <= first_byte][:file_count_max]
        self._hide(expired)
        return [self.units.path_of(offset) for offset in expired]

    def drop_before(self, first_byte: int) -> None:
        """Removes files before that byte: a crash kept them from going after they had expired."""
        expired = [offset for offset in self._file_offsets if offset < first_byte]
        self._hide(expired)
        self.remove_hidden(self.units.path_of(offset) for offset in expired)

    def remove_hidden(self, paths: Iterable[Path]) -> None:
        """Removes files that `hide_expired` gave."""
        for path in paths:
            self._files.forget(path)
            with suppress(FileNotFoundError):
                self._files.fs.unlink(path)
            self.dirty_directories.add(path.parent)

    def _hide(self, offsets: list[int]) -> None:
        if offsets:
            self._file_offsets.difference_update(offsets)
            self.dirty.difference_update(map(self.units.path_of, offsets))
            self.units.begin = min(self._file_offsets) // UNIT_SIZE_BYTES
            self.units.forget_front()

    def forget_replay(self) -> None:
        """A replay begins, or begins anew."""
        self.replayed = None

    def end_replay(self, log_first_offset: int) -> bool:
        """Cuts off what the replay did not confirm; whether anything was cut.

        Args:
            log_first_offset: units that point before it cannot be confirmed and stay.
        """
        end = self.replayed
        if end is None:
            end = self.units.end_before(log_first_offset)
        self.replayed = None
        return self.cut(end)

    def cut(self, end: int) -> bool:
        """Makes `end` the queue's end; whether anything was cut."""
        size = self.units.file_size_bytes
        end_byte = end * UNIT_SIZE_BYTES
        was = self.units.end
        self.units.end = min(end, was)
        self._tail_crc = None
        for offset in sorted(self._file_offsets, reverse=True):
            path = self.units.path_of(offset)
            if offset >= end_byte:
                self._remove(offset)
            elif offset + size > end_byte:
                # Also behind the end that was known: a power cut may leave units there after an empty one.
                if self._has_bytes(path, end_byte - offset):
                    self._files.get(path, writing=True).zero_from(end_byte - offset, size)
                    self.dirty.add(path)
            else:
                break
        self.units.forget_front()
        if not self._file_offsets:
            self.units.begin = self.units.end = 0
        return end < was

    def _expected(self, *, is_replay: bool) -> int | None:
        if is_replay:
            return self.replayed
        return self.units.end if self._file_offsets else None

    def _can_be(self, position: int, unit: Buffer, expected: int | None) -> bool:
        """Whether the log has room for the records that a gap before this one would stand for.

        A record without a `__CRC32#` may say anything; a high bit that rotted would have gigabytes of fillers written.
        """
        known = 0, 0  # a position, and where the log goes on behind it; the log of a new queue is all before the record
        if expected is not None:
            known = expected, self.units.next_log_offset_before(expected)
        log_bytes = decode_queue_unit(unit).commit_log_offset - known[1]
        record_count_max = max(log_bytes, 0) // FRAME_SIZE_BYTES_MIN + BURNT_POSITION_COUNT_MAX
        return 0 <= position <= known[0] + record_count_max

    def _fill_before(self, position: int, expected: int | None) -> int:
        """Fills the places between the queue's end and `position`, or in a new queue those of its first file."""
        end = self.units.end if self._file_offsets else None
        file_begin = position - position % (self.units.file_size_bytes // UNIT_SIZE_BYTES)
        if end is None:
            expected = self.units.begin = self.units.end = file_begin
        elif position < self.units.begin:
            # A replay brings back files that are missing at the front.
            expected = self.units.begin = file_begin
        elif expected is None:
            # A replay reaches this queue: what lies before its first record stays, when it connects.
            expected = min(end, position)
        filled = position - expected
        while expected < position:
            count = min(FILL_UNIT_COUNT, position - expected)
            self._write(expected, [FILLER_BYTES] * count)
            expected += count
        return filled

    def _write(self, position: int | None, parts: Sequence[Buffer]) -> None:
        if not parts or position is None:
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
        while view:
            within = byte % size
            part = view[: size - within]
            self._file(byte - within).write(within, part)
            byte += len(part)
            view = view[len(part) :]
        self.units.end = max(self.units.end, byte // UNIT_SIZE_BYTES)

    def _file(self, first_byte: int) -> OpenFile:
        if self._written_path[0] != first_byte:
            self._written_path = first_byte, self.units.path_of(first_byte)
        path = self._written_path[1]  # the same object each time: a path takes longer to make and compare than a unit
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
        self._files.forget(path)
        self._files.fs.unlink(path)
        self.dirty.discard(path)
        self.dirty_directories.add(path.parent)

    def _clear(self) -> None:
        self._tail_crc = None
        self.units.begin = self.units.end = 0
        for first_byte in sorted(self._file_offsets):
            self._remove(first_byte)
        self.units.forget_front()
