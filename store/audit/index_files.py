"""The index files of a root as they are on the disk, for an audit: names, lengths, layout, entries.

find_index_layout finds out how the index files of a root, which may be damaged, are divided into slots and entries.

The sources, in this order: the builder's checkpoint, if a file has the size that it states; the headers and entries of the
files (`store/readers/index_reader.py`); the log, whose first keys must be the first entries of the first file.

EntryStream: the entries of all index files of a root as one stream.

The bytes of a file decide what it holds, not its header: its last entry is the last one that is not all zeros. The stream
reads one piece at a time. Each entry has its file and its number.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.audit.findings import Findings
from store.derive.index_keys import index_hashes
from store.derive.index_state import ENTRY_DTYPE, Ints
from store.files.file_system import FileSystem
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    decode_index_header,
    entry_position,
)
from store.readers.index_reader import IndexLayout, detect_index_layout, index_strangers, list_index_files
from store.walk.log_reader import LogReader


def check_index_files(fs: FileSystem, root: Path, layout: IndexLayout | None, findings: Findings) -> None:
    """Checks the folder `index/`.

    Args:
        fs: the file system.
        root: the store root.
        layout: of the files; None if it cannot be found out.
        findings: gets what is wrong.
    """
    for path, what in index_strangers(fs, root):
        findings.add("INDEX_FOREIGN_FILE", path, 0, what)
    for path in list_index_files(fs, root):
        if not _is_time(path.name):
            findings.add("INDEX_FILE_NAME", path, 0, "its name is not a time: the next file cannot be named")
        if layout is None:
            findings.add("INDEX_UNREADABLE", path, 0, "the number of its slots and entries cannot be found out")
            continue
        size, length = layout.file_size_bytes, fs.stat_size(path)
        if length != size:
            findings.add("INDEX_FILE_SIZE", path, min(length, size), f"it has {length} bytes, not {size}")


def _is_time(name: str) -> bool:
    """Whether a name is yyyyMMddHHmmssSSS."""
    try:
        datetime.strptime(name[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return False
    return True


DEFAULT_LAYOUT = IndexLayout(5_000_000, 20_000_000)
SEARCHED_KEY_COUNT = 64
CHUNK_BYTES = 4 << 20


def find_index_layout(fs: FileSystem, root: Path, own: IndexLayout | None) -> IndexLayout | None:
    """The layout of a root's index files; None if there is no file, or if it cannot be found out.

    Args:
        fs: the file system.
        root: the store root.
        own: from the builder's checkpoint; None if there is none.
    """
    paths = list_index_files(fs, root)
    sizes = [fs.stat_size(path) for path in paths]
    if own is not None and own.file_size_bytes in sizes:
        return own
    found = detect_index_layout(fs, root, own or DEFAULT_LAYOUT)
    if found is None and paths:
        found = _from_log(fs, root, paths[0], sizes)
    if found is None and DEFAULT_LAYOUT.file_size_bytes in sizes:
        found = DEFAULT_LAYOUT
    return found


def _from_log(fs: FileSystem, root: Path, path: Path, sizes: list[int]) -> IndexLayout | None:
    """Searches the first file for the log's first keys: the position of a key says how many slots lie before it."""
    size = max(set(sizes), key=sizes.count)
    file = OpenFiles(fs).get(path)
    keys = (
        (hash_, request.commit_log_offset)
        for request in LogReader(root, fs).dispatch_requests()
        for hash_ in index_hashes(request)
    )
    for number, (hash_, offset) in enumerate(islice(keys, SEARCHED_KEY_COUNT), 1):
        wanted = hash_.to_bytes(4, "big") + offset.to_bytes(8, "big")
        position = _find(file, wanted, fs.stat_size(path))
        slot_bytes = position - number * ENTRY_SIZE - HEADER_SIZE
        entry_bytes = size - HEADER_SIZE - slot_bytes
        if position >= 0 and slot_bytes > 0 and slot_bytes % SLOT_SIZE == 0 and entry_bytes % ENTRY_SIZE == 0:
            layout = IndexLayout(slot_bytes // SLOT_SIZE, entry_bytes // ENTRY_SIZE)
            if layout.entry_count_max > 1:
                return layout
    return None


def _find(file: OpenFile, wanted: bytes, size_bytes: int) -> int:
    """The position of these bytes in the file; -1 if it does not have them."""
    for position in range(HEADER_SIZE, size_bytes, CHUNK_BYTES):
        at = file.read(position, CHUNK_BYTES + len(wanted) - 1).find(wanted)
        if at >= 0:
            return position + at
    return -1


PIECE_ENTRY_COUNT = 65_536

Rows = npt.NDArray[np.void]


@dataclass(slots=True)
class IndexFileOnDisk:
    """One index file.

    Attributes:
        path: the file.
        size_bytes: its length.
        header: as in the file; zeros where the file is too short.
        entry_count: entries by their bytes, plus 1, as the header counts.
        file: the open file.
    """

    path: Path
    size_bytes: int
    header: IndexHeader
    entry_count: int
    file: OpenFile

    def read_entries(self, first: int, count: int, layout: IndexLayout) -> Rows:
        """Entries `first` and following; zeros where the file is short."""
        data = self.file.read(entry_position(first, layout.slot_count), count * ENTRY_SIZE)
        return np.frombuffer(data.ljust(count * ENTRY_SIZE, b"\0"), dtype=ENTRY_DTYPE)


def look_at(fs: FileSystem, files: OpenFiles, path: Path, layout: IndexLayout) -> IndexFileOnDisk:
    """Opens one file."""
    file = files.get(path)
    header = decode_index_header(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
    return IndexFileOnDisk(path, fs.stat_size(path), header, _entry_count(fs, file, layout, header), file)


def _entry_count(fs: FileSystem, file: OpenFile, layout: IndexLayout, header: IndexHeader) -> int:
    """One more than the number of the last entry with a byte that is not zero."""
    hinted = min(max(header.entry_count, 1), layout.entry_count_max)
    last = hinted - 1  # an entry is never all zeros unless it is the first key of a log, which hashes to 0
    position: int | None = entry_position(hinted, layout.slot_count)
    end = layout.file_size_bytes
    while position is not None and position < end:
        position = fs.next_data(file.fd, position)
        if position is None or position >= end:
            break
        stop = min(fs.next_hole(file.fd, position), end)
        while position < stop:
            data = file.read(position, min(PIECE_ENTRY_COUNT * ENTRY_SIZE, stop - position))
            if not data:
                break
            stripped = data.rstrip(b"\0")
            if stripped:
                last = (position + len(stripped) - 1 - entry_position(0, layout.slot_count)) // ENTRY_SIZE
            position += len(data)
        position = stop
    if last != hinted - 1:
        return last + 1
    # The header may count more than there is.
    while last > 0:
        first = max(1, last + 1 - PIECE_ENTRY_COUNT)
        data = file.read(entry_position(first, layout.slot_count), (last + 1 - first) * ENTRY_SIZE)
        stripped = data.rstrip(b"\0")
        if stripped:
            return first + (len(stripped) - 1) // ENTRY_SIZE + 1
        last = first - 1
    return 1


class EntryStream:
    """Entries of all files, oldest file first, in a window that slides.

    Args:
        files: the files, oldest first.
        layout: how they are divided.

    Attributes:
        hashes, offsets: of the entries in the window.
        file_numbers, numbers: where each stands: position in `files`, number in its file.
        rows: as they lie there.
    """

    def __init__(self, files: list[IndexFileOnDisk], layout: IndexLayout) -> None:
        self._files = files
        self._layout = layout
        self._file_number = 0
        self._next = 1
        none = np.empty(0, dtype=np.int64)
        self.hashes: Ints = none
        self.offsets: Ints = none
        self.file_numbers: Ints = none
        self.numbers: Ints = none
        self.rows: Rows = np.empty(0, dtype=ENTRY_DTYPE)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def is_at_end(self) -> bool:
        """Whether the window goes up to the very last entry."""
        self._skip_ended()
        return self._file_number >= len(self._files)

    def fill(self, count: int) -> None:
        """Makes the window at least `count` entries long, if there are that many."""
        while len(self) < count and not self.is_at_end:
            file = self._files[self._file_number]
            taken = min(PIECE_ENTRY_COUNT, file.entry_count - self._next)
            rows = file.read_entries(self._next, taken, self._layout)
            self.rows = np.concatenate((self.rows, rows))
            self.hashes = np.concatenate((self.hashes, rows["key_hash"].astype(np.int64)))
            self.offsets = np.concatenate((self.offsets, rows["offset"].astype(np.int64)))
            self.file_numbers = np.concatenate((self.file_numbers, np.full(taken, self._file_number, dtype=np.int64)))
            self.numbers = np.concatenate((self.numbers, np.arange(self._next, self._next + taken, dtype=np.int64)))
            self._next += taken

    def drop(self, count: int) -> None:
        """Takes entries off the window's front."""
        self.rows = self.rows[count:]
        self.hashes = self.hashes[count:]
        self.offsets = self.offsets[count:]
        self.file_numbers = self.file_numbers[count:]
        self.numbers = self.numbers[count:]

    def _skip_ended(self) -> None:
        while self._file_number < len(self._files) and self._next >= self._files[self._file_number].entry_count:
            self._file_number += 1
            self._next = 1
