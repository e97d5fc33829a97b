"""Read-only access to consume queues: one queue as an array of 20-byte units, and all queues of a root.

The files of a queue, laid end to end, hold unit n at byte n * 20; the name of a file is its first byte. Units are written
in order, so the end of a queue is the first empty unit (size 0) of its last file. Units at the front may point to records
that the log no longer has, or be fillers; the queue's min offset is the first unit behind these. Units are not kept in
memory.

QueueExtUnits: read-only access to what ConsumeQueueExt adds to a consume queue.
"""

import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, PathLike, kind_of
from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import UNIT_SIZE_BYTES_MAX as EXT_UNIT_SIZE_BYTES_MAX
from store.format.derived.queue_ext import QueueExtUnit, decode_queue_ext_unit, ext_offset, is_ext_address
from store.format.derived.queue_unit import FILLER, UNIT_SIZE_BYTES, QueueUnit, decode_queue_unit, decode_queue_units
from store.format.paths import (
    CONSUME_QUEUE_EXT,
    consume_queue_dir,
    is_topic_folder_name,
    log_file_name,
    parse_log_file_name,
    parse_queue_folder_name,
)

READ_UNIT_COUNT = 4096
LOAD_UNIT_COUNT = 204  # the units of a page of memory
# A checkpoint holds a CRC over the last units: enough to detect another queue of the same length, cheap to read.
TAIL_UNIT_COUNT = 16
# Of a queue without a record of its own, so many units are looked up in the log before it is left alone.
SAMPLED_UNIT_COUNT = 3


def first_true(begin: int, end: int, predicate: Callable[[int], bool]) -> int:
    """The first number of [begin, end) for which the predicate is true; it must stay true behind it. `end` if none."""
    while begin < end:
        middle = (begin + end) // 2
        if predicate(middle):
            end = middle
        else:
            begin = middle + 1
    return begin


def detect_queue_file_size(fs: FileSystem, root: Path, preferred: int | None = None) -> int | None:
    """The size that most queue files of a root have, in bytes; None if no file tells it.

    So a file that damage cut short does not decide; the builder repairs it. A file of one unit or less does not count:
    only a crash leaves such files.

    Args:
        fs: the file system.
        root: the store root.
        preferred: taken if any file has this size.
    """
    sizes: Counter[int] = Counter()
    lengths: set[int] = set()
    queues = Path(consume_queue_dir(str(root)))
    for topic in _listdir(fs, queues):
        for queue_name in _listdir(fs, queues / topic):
            directory = queues / topic / queue_name
            firsts = file_offsets(fs, directory)
            for first in firsts:
                size = fs.stat_size(directory / log_file_name(first))
                if size > UNIT_SIZE_BYTES and size % UNIT_SIZE_BYTES == 0 and first % size == 0:
                    if size == preferred:
                        return size
                    sizes[size] += 1
                    lengths.add(size)
            # The names of two neighbouring files tell the size, too; their lengths may be wrong.
            sizes.update(b - a for a, b in pairwise(firsts) if (b - a) % UNIT_SIZE_BYTES == 0)
    return max(sizes, key=lambda size: (sizes[size], size in lengths, size)) if sizes else None


def _listdir(fs: FileSystem, directory: PathLike) -> list[str]:
    try:
        return fs.listdir(directory)
    except OSError:
        if fs.is_dir(directory):
            raise
        return []


def file_offsets(fs: FileSystem, directory: PathLike) -> list[int]:
    """First bytes of the queue files in a folder, rising; other names, and what is no regular file, are left out."""
    return sorted(
        offset
        for name in _listdir(fs, directory)
        if (offset := parse_log_file_name(name)) is not None and fs.is_file(f"{directory}/{name}")
    )


def list_queue_ids(fs: FileSystem, root: Path) -> list[tuple[str, int]]:
    """Topic and queue id of every queue folder that has files, sorted."""
    return sorted((topic, queue_id) for topic, queue_id, _ in queue_folders(fs, root))


def queue_folders(fs: FileSystem, root: Path) -> Iterator[tuple[str, int, list[int]]]:
    """The same, and the first bytes of the files in each folder, rising; in no order, as they are found."""
    queues = consume_queue_dir(str(root))
    for topic in _listdir(fs, queues):
        if is_topic_folder_name(topic):
            for name in _listdir(fs, f"{queues}/{topic}"):
                queue_id = parse_queue_folder_name(name)
                if queue_id is not None and (offsets := file_offsets(fs, f"{queues}/{topic}/{name}")):
                    yield topic, queue_id, offsets


def queue_strangers(fs: FileSystem, root: Path) -> Iterator[tuple[Path, str]]:
    """Everything in `consumequeue/` that belongs to no queue and is left alone, and what it is not."""
    base = Path(consume_queue_dir(str(root)))
    for topic in _listdir(fs, base):
        if not is_topic_folder_name(topic) or not fs.is_dir(base / topic):
            yield base / topic, "this is not the folder of a topic"
            continue
        for name in fs.listdir(base / topic):
            directory = base / topic / name
            if parse_queue_folder_name(name) is None or not fs.is_dir(directory):
                yield directory, "this is not the folder of a queue"
                continue
            for file in fs.listdir(directory):
                if parse_log_file_name(file) is None:
                    yield directory / file, "this is not the name of a queue file"
                elif not fs.is_file(directory / file):
                    yield directory / file, f"it has the name of a queue file and is {kind_of(fs, directory / file)}"


class QueueUnits:
    """One queue's files as an array of units.

    Args:
        files: opens them.
        directory: the queue's folder.
        file_size_bytes: size of each file.

    `begin` is the first unit that the files have room for, `end` the first one not written; both in units. `load` finds
    them; an owner that writes keeps `end` by itself. A store may have a million queues, so an object is small.
    """

    __slots__ = ("_first_real", "_min_of", "begin", "directory_name", "end", "file_size_bytes", "files")

    def __init__(self, files: OpenFiles, directory: Path | str, file_size_bytes: int) -> None:
        assert file_size_bytes % UNIT_SIZE_BYTES == 0, file_size_bytes
        self.directory_name = str(directory)  # a path takes a kilobyte
        self.file_size_bytes = file_size_bytes
        self.files = files
        self.begin = 0
        self.end = 0
        self._first_real: int | None = None
        self._min_of: tuple[int, int] | None = None  # (log's first offset, min offset)

    def load(self, offsets: Sequence[int] | None = None) -> None:
        """Finds `begin` and `end` from the files.

        Args:
            offsets: first bytes of the files, rising, where they are known already.
        """
        if offsets is None:
            # Ignore names that no file of this size can have.
            offsets = [n for n in file_offsets(self.files.fs, self.directory) if n % self.file_size_bytes == 0]
        self._first_real = self._min_of = None
        self.begin = self.end = offsets[0] // UNIT_SIZE_BYTES if offsets else 0
        for offset in reversed(offsets):
            count = self._written_count(offset)
            if count > 0:
                self.end = offset // UNIT_SIZE_BYTES + count
                break

    def load_expected(self, offsets: Sequence[int], end: int) -> bytes:
        """Finds the same with one read, if the queue ends where it is expected.

        Args:
            offsets: first bytes of the files, rising.
            end: where it ended when it was seen last.

        Returns:
            the last units before `end`, see `tail_crc`; nothing when it does not end there, and then nothing has changed.
        """
        end_byte, begin = end * UNIT_SIZE_BYTES, self._tail_begin(end)
        if not offsets or not offsets[-1] < end_byte <= offsets[-1] + self.file_size_bytes:
            return b""
        size_bytes = end_byte - begin * UNIT_SIZE_BYTES
        try:
            file = self.files.get(self.name_of(offsets[-1]))
        except FileNotFoundError:
            return b""
        data = file.read(begin * UNIT_SIZE_BYTES - offsets[-1], size_bytes + UNIT_SIZE_BYTES)
        behind = data[size_bytes:].ljust(UNIT_SIZE_BYTES, b"\0")
        if len(data) < size_bytes or decode_queue_unit(data, size_bytes - UNIT_SIZE_BYTES).is_empty:
            return b""
        if end_byte < offsets[-1] + self.file_size_bytes and not decode_queue_unit(behind).is_empty:
            return b""
        self._first_real = self._min_of = None
        self.begin, self.end = offsets[0] // UNIT_SIZE_BYTES, end
        return data[:size_bytes]

    def read_bytes(self, begin: int, end: int) -> bytes:
        """The bytes of the units [begin, end); zeros where a file is missing or too short."""
        position, stop = begin * UNIT_SIZE_BYTES, end * UNIT_SIZE_BYTES
        parts = []
        while position < stop:
            within = position % self.file_size_bytes
            size = min(stop - position, self.file_size_bytes - within)
            try:
                data = self.files.get(self.name_of(position - within)).read(within, size)
            except FileNotFoundError:
                data = b""
            parts.append(data.ljust(size, b"\0"))
            position += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def directory(self) -> Path:
        """The queue's folder."""
        return Path(self.directory_name)

    def path_of(self, first_byte: int) -> Path:
        """The file whose name is that byte."""
        return Path(self.name_of(first_byte))

    def name_of(self, first_byte: int) -> str:
        """The same as text: to make a path takes longer than to write a unit."""
        return f"{self.directory_name}/{log_file_name(first_byte)}"

    def unit(self, queue_offset: int) -> QueueUnit:
        """One unit as in the file; it may be empty or a filler."""
        return decode_queue_unit(self.read_bytes(queue_offset, queue_offset + 1))

    def units(self, queue_offset: int, count: int, log_first_offset: int = 0) -> list[tuple[int, QueueUnit]]:
        """Up to `count` units with their positions, from a position on; fillers are left out.

        Raises:
            StoreCorruptedError: a position before the queue's end is empty.
        """
        found: list[tuple[int, QueueUnit]] = []
        position = max(queue_offset, self.min_offset(log_first_offset))
        end = self.end
        while len(found) < count and position < end:
            stop = min(end, position + count - len(found))
            for number, unit in enumerate(decode_queue_units(self.read_bytes(position, stop)), position):
                if unit.is_empty:
                    if number < self.begin:
                        continue  # expired meanwhile: its file is gone
                    byte = number * UNIT_SIZE_BYTES
                    path = self.path_of(byte - byte % self.file_size_bytes)
                    raise StoreCorruptedError(
                        f"{path} has no unit at byte {byte % self.file_size_bytes}, before the queue's end: "
                        "remove the queue's files to have them built again",
                        file=path,
                        offset=byte % self.file_size_bytes,
                    )
                if not unit.is_filler:
                    found.append((number, unit))
            position = stop
        return found

    def min_offset(self, log_first_offset: int) -> int:
        """The first unit whose record is at or behind the log's first; `end` when there is none."""
        known = self._min_of
        if known is not None and known[0] == log_first_offset and self.begin <= known[1] < self.end:
            return known[1]
        first = self._skip_fillers()

        def is_kept(number: int) -> bool:
            # A negative offset is damage, not an expired record; such a unit must not hide the others.
            return not 0 <= self._log_offset_from(number) < log_first_offset

        found = first_true(first, self.end, is_kept)
        while found - 2 >= first and is_kept(found - 2):
            # The unit between them is damaged and misled the search: the records of a queue are in log order.
            found = first_true(first, found - 1, is_kept)
        found = self.real_from(found)  # the fillers of a gap belong to the record behind it, but are not messages
        self._min_of = (log_first_offset, found)
        return found

    def sampled_from(self, first: int) -> list[QueueUnit]:
        """A few units from a position on, the first and the last among them; none when there is none."""
        step = max((self.end - first) // (SAMPLED_UNIT_COUNT - 1), 1)
        places = (
            sorted({*range(first, self.end, step)[: SAMPLED_UNIT_COUNT - 1], self.end - 1}) if self.end > first else ()
        )
        return [self.unit(number) for number in places]

    def end_before(self, log_end_offset: int) -> int:
        """The first unit whose record begins at this offset (bytes) or behind it, or that is empty."""
        return self._first_real_unit(lambda unit: unit.commit_log_offset >= log_end_offset)

    def end_within(self, log_end_offset: int) -> int:
        """The first unit whose record ends behind this offset (bytes), or that is empty."""
        return self._first_real_unit(lambda unit: unit.next_offset > log_end_offset)

    def tail_crc(self, end: int) -> int:
        """CRC-32 over the last TAIL_UNIT_COUNT units before `end`, only those in the last file: older ones may expire."""
        return zlib.crc32(self.read_bytes(self._tail_begin(end), end)) if end > 0 else 0

    def _tail_begin(self, end: int) -> int:
        per_file = self.file_size_bytes // UNIT_SIZE_BYTES
        return max((end - 1) // per_file * per_file, end - TAIL_UNIT_COUNT)

    def next_log_offset(self) -> int:
        """The first byte of the log behind the queue's last record; 0 for an empty queue."""
        return self.next_log_offset_before(self.end)

    def next_log_offset_before(self, end: int) -> int:
        """The first byte of the log behind the record of unit `end - 1`; 0 if that is not the unit of a record."""
        if end <= self.begin:
            return 0
        unit = self.unit(end - 1)
        return 0 if unit.is_filler else unit.next_offset

    def forget_front(self) -> None:
        """Drops what is cached about the front; call it when files there changed."""
        self._first_real = self._min_of = None

    def _first_real_unit(self, predicate: Callable[[QueueUnit], bool]) -> int:
        """The first unit that is empty or for which the predicate is true; fillers count as the unit behind them."""

        def holds(number: int) -> bool:
            unit = self.unit(number)
            if unit.is_filler:
                number = self.real_from(number)
                if number >= self.end:
                    return True
                unit = self.unit(number)
            return unit.is_empty or predicate(unit)

        return first_true(self._skip_fillers(), self.end, holds)

    def _written_count(self, first_byte: int) -> int:
        """Units of a file before its first empty one, found by a few small reads: a store has thousands of files."""
        try:
            file = self.files.get(self.name_of(first_byte))
        except FileNotFoundError:
            return 0

        def ends_before(block: int) -> bool:
            position = block * LOAD_UNIT_COUNT * UNIT_SIZE_BYTES
            return decode_queue_unit(file.read(position, UNIT_SIZE_BYTES).ljust(UNIT_SIZE_BYTES, b"\0")).is_empty

        per_file = self.file_size_bytes // UNIT_SIZE_BYTES
        # The last block whose first unit is written holds the end.
        block = first_true(0, -(-per_file // LOAD_UNIT_COUNT), ends_before) - 1
        if block < 0:
            return 0
        begin = block * LOAD_UNIT_COUNT
        size_bytes = min(LOAD_UNIT_COUNT, per_file - begin) * UNIT_SIZE_BYTES
        data = file.read(begin * UNIT_SIZE_BYTES, size_bytes).ljust(size_bytes, b"\0")
        places = range(0, size_bytes, UNIT_SIZE_BYTES)
        return begin + first_true(0, len(places), lambda number: decode_queue_unit(data, places[number]).is_empty)

    def _skip_fillers(self) -> int:
        if self._first_real is None or not self.begin <= self._first_real < self.end:
            self._first_real = self.real_from(self.begin)
        return self._first_real

    def real_from(self, number: int) -> int:
        """The first unit from `number` on that is not a filler; `end` if there is none."""
        while number < self.end:
            stop = min(number + READ_UNIT_COUNT, self.end)
            for at, unit in enumerate(decode_queue_units(self.read_bytes(number, stop)), number):
                if unit != FILLER:
                    return at
            number = stop
        return number

    def _log_offset_from(self, number: int) -> int:
        unit = self.unit(number)
        if unit.is_filler:
            number = self.real_from(number)
            unit = self.unit(number) if number < self.end else QueueUnit(1 << 62, 0, 0)
        return unit.commit_log_offset


READ_SIZE_BYTES = 4096  # the addresses of neighbours in a queue are neighbours here


class QueueExtUnits:
    """The ext units of one queue, by their addresses.

    Args:
        files: opens them.
        queue_directory: the queue's folder in `consumequeue/`; theirs lies in the folder beside that one, or is absent.
    """

    def __init__(self, files: OpenFiles, queue_directory: Path) -> None:
        topic_and_queue = queue_directory.parts[-2:]
        self.directory = queue_directory.parents[2].joinpath(CONSUME_QUEUE_EXT, *topic_and_queue)
        self._files = files
        self._firsts: list[int] = []

    def unit(self, address: int) -> QueueExtUnit | None:
        """The unit at an address; None if it is not there: never written, expired, or damaged."""
        return _decode(self._read_fresh(ext_offset(address), EXT_UNIT_SIZE_BYTES_MAX), 0)

    def resolved(self, units: Iterable[QueueUnit]) -> Iterator[QueueUnit]:
        """Queue units with their tags codes in place of addresses. An address stays where nothing is found."""
        begin, data = 0, b""
        for unit in units:
            if not is_ext_address(unit.tags_code):
                yield unit
                continue
            offset = ext_offset(unit.tags_code)
            ext = _decode(data, offset - begin)
            if ext is None:
                begin, data = offset, self._read_fresh(offset, READ_SIZE_BYTES)
                ext = _decode(data, 0) or self.unit(unit.tags_code)
            yield unit if ext is None else unit._replace(tags_code=ext.tags_code)

    def _read_fresh(self, offset: int, size_bytes: int) -> bytes:
        data = self._read(offset, size_bytes)
        if _decode(data, 0) is None:
            self._firsts = file_offsets(self._files.fs, self.directory)  # a new file, or one that expired
            data = self._read(offset, size_bytes)
        return data

    def _read(self, offset: int, size_bytes: int) -> bytes:
        place = bisect_right(self._firsts, offset)
        if place == 0:
            return b""
        first = self._firsts[place - 1]
        try:
            return self._files.get(self.directory / log_file_name(first)).read(offset - first, size_bytes)
        except FileNotFoundError:
            return b""


def _decode(data: bytes, at: int) -> QueueExtUnit | None:
    return decode_queue_ext_unit(data, at) if 0 <= at < len(data) else None
