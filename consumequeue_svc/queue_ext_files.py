"""The files of ConsumeQueueExt of one queue being written (`store/format/derived/queue_ext.py`).

No unit has a bit map, so the place of a unit follows from its position in the queue alone (ADR 0066): a rebuild gives the
bytes that were there, also when retention has removed the records before. Where a position has no record stands a unit without
meaning, for RocketMQ walks these files from unit to unit when it opens them. Such a unit takes the place of up to 1,638.
"""

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from consumequeue_svc.unexplained import Keeper
from store.derive.queue_placement import Buffer
from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import (
    END_OF_FILE,
    HEAD_SIZE_BYTES,
    QUEUE_EXT_HEAD,
    UNIT_SIZE_BYTES_MAX,
    bare_unit_count,
    bare_unit_offset,
    ext_address,
    is_ext_address,
)
from store.format.paths import log_file_name
from store.readers.queue_reader import TAIL_UNIT_COUNT, file_offsets

FILL_UNIT_COUNT = UNIT_SIZE_BYTES_MAX // HEAD_SIZE_BYTES
MISFIT = "a file of ConsumeQueueExt of another size"
NOTHING_WRITTEN = -1, 0, 0  # (first byte, bytes written, their CRC-32) of the file that is being filled


def folders_to_flush(directory: str) -> list[str]:
    """A queue's folder, and those of which it may be a new entry, up to the root of the store."""
    folders = [directory]
    for _ in range(3):
        folders.append(os.path.dirname(folders[-1]))
    return folders


class QueueExtFiles:
    """Writes them; positions are those of the queue.

    Args:
        files: opens files, shared by all queues.
        directory: the queue's folder in `consumequeue_ext/`.
        file_size_bytes: size of each file.
        dirty: gets the files that are written, until they are flushed.
        dirty_directories: likewise, the folders whose entries change.
        keeper: keeps files of another size, and those of units that the log does not have any more.

    Attributes:
        is_ours: whether a file, by its first byte, is certainly ours, and is not kept when it goes.
        doubtful_files: first bytes of files that are known to be damaged, or may be.
        sealed_crcs: CRC-32 of files that were ended since the start, by first byte, until they are taken from here.
    """

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        file_size_bytes: int,
        dirty: set[str],
        dirty_directories: set[str],
        keeper: Keeper | None = None,
    ) -> None:
        self._keeper = keeper or Keeper()
        self.is_ours: Callable[[int], bool] = lambda first_byte: False
        self.file_size_bytes = file_size_bytes
        self._files = files
        self._directory = directory
        self._unit_count = bare_unit_count(file_size_bytes)
        self._dirty = dirty
        self._dirty_directories = dirty_directories
        self._firsts: set[int] = set()
        self._misfits: set[int] = set()
        self.doubtful_files: set[int] = set()
        self.sealed_crcs: dict[int, int] = {}
        self._written = NOTHING_WRITTEN

    def load(self) -> None:
        """Finds the files; those of another size are no files of ours, and `begin_replay` removes them."""
        size = self.file_size_bytes
        firsts = set(file_offsets(self._files.fs, self._directory))
        self._misfits = {n for n in firsts if n % size or self._files.fs.stat_size(self.path_of(n)) != size}
        self._firsts = firsts - self._misfits

    def begin_replay(self) -> None:
        """Moves the files of another size aside: RocketMQ refuses a folder with two sizes."""
        for first_byte in sorted(self._misfits):
            self._remove(first_byte, MISFIT)
        self._misfits = set()
        self.doubtful_files.clear()
        self.sealed_crcs.clear()
        self._written = NOTHING_WRITTEN

    def doubt(self, first_byte: int, is_doubtful: bool) -> None:
        """Notes whether a file may be damaged."""
        (self.doubtful_files.add if is_doubtful else self.doubtful_files.discard)(first_byte)

    def mark_directories_dirty(self) -> None:
        """The next flush takes the folders that are there, up to the store root."""
        self._dirty_directories.update(folders_to_flush(str(self._directory)))

    def paths(self) -> list[Path]:
        """All files, in order."""
        return [self.path_of(first_byte) for first_byte in sorted(self._firsts | self._misfits)]

    def file_offsets(self) -> list[int]:
        """First bytes of the files; any thread may ask."""
        return sorted(self._firsts)

    def path_of(self, first_byte: int) -> Path:
        """The file whose name is that byte."""
        return self._directory / log_file_name(first_byte)

    def is_open(self, first_byte: int) -> bool | None:
        """Whether a file is the last one, which is being filled; None when there is no such file."""
        firsts = self.file_offsets()
        return first_byte == firsts[-1] if first_byte in firsts else None

    def written(self, first_byte: int, end: int) -> tuple[int, int | None]:
        """How many bytes of a file hold units, and their CRC-32; None when that is not known.

        Args:
            first_byte: of the file.
            end: the queue's end.
        """
        known, size_bytes, crc = self._written
        if known == first_byte:
            return size_bytes, crc
        last = bare_unit_offset(end - 1, self.file_size_bytes) + HEAD_SIZE_BYTES if end > 0 else 0
        return min(max(last - first_byte, 0), self.file_size_bytes), None

    def learn(self, first_byte: int, size_bytes: int, crc: int, end: int) -> None:
        """Takes the CRC-32 of the first bytes of the file that is being filled; later ones are read now.

        Args:
            first_byte: of the file.
            size_bytes: how many bytes.
            crc: of them.
            end: the queue's end.
        """
        if self.is_open(first_byte) and self._written[0] != first_byte:
            now, _ = self.written(first_byte, end)
            rest = self._files.get(self.path_of(first_byte)).read(size_bytes, now - size_bytes)
            if size_bytes + len(rest) == now:
                self._written = first_byte, now, zlib.crc32(rest, crc)

    @property
    def first_byte(self) -> int:
        """The first byte that the files have room for; -1 without files."""
        return min(self._firsts, default=-1)

    def is_whole(self, first_byte: int, end: int) -> bool:
        """Whether all files from this byte to this position are there.

        Args:
            first_byte: see the property; with -1 nothing is expected.
            end: the position behind the last one needed.
        """
        if first_byte < 0 or end <= 0:
            return True
        needed = range(first_byte, bare_unit_offset(end - 1, self.file_size_bytes) + 1, self.file_size_bytes)
        return self._firsts.issuperset(needed)

    def is_own(self, position: int, tags_code: int) -> bool:
        """Whether a queue unit's tags code is the address that this position has, or no address."""
        own = ext_address(bare_unit_offset(position, self.file_size_bytes))
        return tags_code == own or not is_ext_address(tags_code)

    def tail_crc(self, end: int, crc: int) -> int:
        """Goes on with a CRC-32: over the last units before a position, only those in the last file."""
        first_byte, within = self._place(max(end - 1, 0))
        if first_byte not in self._firsts:
            return crc
        begin = max(within - (TAIL_UNIT_COUNT - 1) * HEAD_SIZE_BYTES, 0)
        return zlib.crc32(self._files.get(self.path_of(first_byte)).read(begin, within + HEAD_SIZE_BYTES - begin), crc)

    def write(self, position: int, data: Buffer, *, is_replay: bool = False) -> None:
        """Writes units at consecutive positions; in a replay, only what differs."""
        while data:
            first_byte, within = self._place(position)
            self._open(first_byte, within)
            count = min(len(data) // HEAD_SIZE_BYTES, self._unit_count - within // HEAD_SIZE_BYTES)
            part = data[: count * HEAD_SIZE_BYTES]
            if not is_replay or part != self._files.get(self.path_of(first_byte)).read(within, len(part)):
                self._put(first_byte, within, part)
            self._note(first_byte, within, part)
            position, data = position + count, data[count * HEAD_SIZE_BYTES :]

    def fill(self, begin: int, end: int) -> None:
        """Puts units without meaning at the positions [begin, end)."""
        while begin < end:
            first_byte, within = self._place(begin)
            count = min(end - begin, self._unit_count - within // HEAD_SIZE_BYTES)
            self._open(first_byte, within)
            self._fill(first_byte, within, count)
            begin += count

    def fill_front(self, position: int) -> None:
        """The queue begins at this position: puts units without meaning before it, as far as its file has room."""
        first_byte, within = self._place(position)
        for before in sorted(self._firsts):
            if before < first_byte:
                self._remove(before)
        if first_byte in self._firsts:
            self._fill(first_byte, 0, within // HEAD_SIZE_BYTES)
        # Otherwise `write` does it, for it makes the file.

    def cut(self, end: int) -> None:
        """Removes everything from this position on."""
        last = bare_unit_offset(end - 1, self.file_size_bytes) + HEAD_SIZE_BYTES if end > 0 else 0
        if last != sum(self._written[:2]):
            self._written = NOTHING_WRITTEN
        for first_byte in sorted(self._firsts, reverse=True):
            if first_byte >= last:
                self._remove(first_byte)
            elif first_byte + self.file_size_bytes > last:
                self.sealed_crcs.pop(first_byte, None)
                path = self.path_of(first_byte)
                if self._files.get(path).has_bytes(last - first_byte):
                    self._files.get(path, writing=True).zero_from(last - first_byte, self.file_size_bytes)
                    self._dirty.add(str(path))

    def clear(self, why_aside: str = "") -> None:
        """Removes all files; `why_aside` says why they are kept aside."""
        for first_byte in sorted(self._firsts | self._misfits):
            self._remove(first_byte, why_aside)
        self._misfits = set()

    def hide_before(self, position: int, file_count_max: int) -> list[Path]:
        """Forgets files that lie wholly before this position, never the last one.

        Returns:
            at most so many paths. Remove them when a checkpoint without them is written.
        """
        begin = bare_unit_offset(position, self.file_size_bytes)
        expired = [n for n in sorted(self._firsts)[:-1] if n + self.file_size_bytes <= begin][: max(file_count_max, 0)]
        self._firsts.difference_update(expired)
        self.doubtful_files.difference_update(expired)
        self._dirty.difference_update(str(self.path_of(first_byte)) for first_byte in expired)
        return [self.path_of(first_byte) for first_byte in expired]

    def drop_before(self, first_byte: int) -> None:
        """Removes the files before this byte: a crash came before they were removed."""
        for before in sorted(self._firsts):
            if before < first_byte:
                self._remove(before)

    def _place(self, position: int) -> tuple[int, int]:
        """First byte of the file where a position lies, and its byte there."""
        offset = bare_unit_offset(position, self.file_size_bytes)
        return offset - offset % self.file_size_bytes, offset % self.file_size_bytes

    def _open(self, first_byte: int, within: int) -> None:
        """Makes a file that is missing, complete up to a byte of it; at its begin the file before it is marked as ended."""
        if first_byte not in self._firsts:
            self._files.create(self.path_of(first_byte), self.file_size_bytes, durable_folders=False)
            self.mark_directories_dirty()
            self._fill(first_byte, 0, within // HEAD_SIZE_BYTES)
        before = first_byte - self.file_size_bytes
        if within == 0 and before in self._firsts:
            end = self._unit_count * HEAD_SIZE_BYTES
            mark = END_OF_FILE.ljust(self.file_size_bytes - end, b"\0")
            if self._files.get(self.path_of(before)).read(end, len(mark)) != mark:
                self._put(before, end, mark)
            if self._written[:2] == (before, end):
                self.sealed_crcs[before] = zlib.crc32(mark, self._written[2])
        self._firsts.add(first_byte)  # now the file before is as it stays

    def _note(self, first_byte: int, within: int, part: Buffer) -> None:
        """Goes on with the checksum of the file that is being filled."""
        known, end, crc = self._written
        if within == 0:
            crc = 0
        elif (known, end) != (first_byte, within):
            self._written = NOTHING_WRITTEN  # what lies before is not known
            return
        self._written = first_byte, within + len(part), zlib.crc32(part, crc)

    def _fill(self, first_byte: int, within: int, count: int) -> None:
        if count:
            self._written = NOTHING_WRITTEN
        while count:
            size_bytes = min(count, FILL_UNIT_COUNT) * HEAD_SIZE_BYTES
            head = QUEUE_EXT_HEAD.pack(size_bytes, 0, 0, size_bytes - HEAD_SIZE_BYTES)
            present = self._files.get(self.path_of(first_byte)).read(within, size_bytes)
            if present != head.ljust(size_bytes, b"\0"):
                # A new file is all holes, and most of them stay.
                is_new = not present.strip(b"\0")
                self._put(first_byte, within, head if is_new else head.ljust(size_bytes, b"\0"))
            within, count = within + size_bytes, count - size_bytes // HEAD_SIZE_BYTES

    def _put(self, first_byte: int, within: int, data: Buffer) -> None:
        path = self.path_of(first_byte)
        self._files.get(path, writing=True).write(within, data)
        self._dirty.add(str(path))

    def _remove(self, first_byte: int, why_aside: str = "") -> None:
        path = self.path_of(first_byte)
        has_bytes = bool(why_aside) and self._files.fs.is_file(path) and self._files.get(path).has_bytes(0)
        is_kept = has_bytes and not self.is_ours(first_byte) and self._keeper.move(path, why_aside)
        self._firsts.discard(first_byte)
        self.doubtful_files.discard(first_byte)
        self.sealed_crcs.pop(first_byte, None)
        self._files.forget(path)
        if not is_kept:
            with suppress(FileNotFoundError):
                self._files.fs.unlink(path)
        self._dirty.discard(str(path))
        self._dirty_directories.add(str(path.parent))
