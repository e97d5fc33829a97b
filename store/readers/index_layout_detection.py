"""Finds out how the index files of an existing store are divided into slots and entries.

The size of a file is not enough (slots * 4 + entries * 20 + 40 has many solutions), but its bytes are: the last byte that
is not zero belongs to the last entry, the header has the number of that entry, and the head of its slot is that number.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    decode_index_header,
    slot_of,
)
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files

CHUNK_BYTES = 1 << 20
CHECKED_ENTRY_COUNT = 64


def detect_index_layout(fs: FileSystem, root: Path, preferred: IndexLayout) -> IndexLayout | None:
    """The layout of the files of a root; None if no file has entries, or if no layout fits.

    Args:
        fs: the file system.
        root: the store root.
        preferred: tried first.
    """
    files = OpenFiles(fs)
    for path in list_index_files(fs, root):
        size = fs.stat_size(path)
        if size <= HEADER_SIZE:
            continue
        header = decode_index_header(files.get(path).read(0, HEADER_SIZE))
        if header.entry_count <= 1:
            continue
        for layout in chain([preferred], _candidates(files, path, size, header)):
            if layout.file_size_bytes == size and _fits(IndexFileView(files, path, layout), header):
                return layout
    return None


def _candidates(files: OpenFiles, path: Path, size: int, header: IndexHeader) -> Iterator[IndexLayout]:
    last = _last_byte(files, path, size)
    # The last entry holds that byte; it starts at a multiple of 4.
    for position in range(last - last % 4, last - ENTRY_SIZE, -4):
        slot_bytes = position - HEADER_SIZE - (header.entry_count - 1) * ENTRY_SIZE
        entry_bytes = size - HEADER_SIZE - slot_bytes
        if slot_bytes > 0 and slot_bytes % SLOT_SIZE == 0 and entry_bytes > 0 and entry_bytes % ENTRY_SIZE == 0:
            yield IndexLayout(slot_bytes // SLOT_SIZE, entry_bytes // ENTRY_SIZE)


def _last_byte(files: OpenFiles, path: Path, size: int) -> int:
    """Position of the last byte that is not zero; -1 if all are zero."""
    file = files.get(path)
    end = size
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        data = file.read(begin, end - begin).rstrip(b"\0")
        if data:
            return begin + len(data) - 1
        end = begin
    return -1


def _fits(view: IndexFileView, header: IndexHeader) -> bool:
    count = header.entry_count
    if count > view.layout.entry_count_max or not 0 < header.used_slot_count <= view.layout.slot_count:
        return False
    numbers = [*range(1, min(count, CHECKED_ENTRY_COUNT)), count - 1]
    for number in numbers:
        entry = view.entry(number)
        if (
            entry is None
            or entry.key_hash < 0
            or not 0 <= entry.previous < number
            or not header.begin_commit_log_offset <= entry.commit_log_offset <= header.end_commit_log_offset
        ):
            return False
    last = view.entry(count - 1)
    return last is not None and view.head(slot_of(last.key_hash, view.layout.slot_count)) == count - 1
