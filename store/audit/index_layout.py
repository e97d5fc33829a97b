"""Finds out how the index files of a root, which may be damaged, are divided into slots and entries.

The sources, in this order: the builder's checkpoint, if a file has the size that it states; the headers and entries of the
files (`store/readers/index_layout_detection.py`); the log, whose first keys must be the first entries of the first file.
"""

from itertools import islice
from pathlib import Path

from store.derive.index_keys import index_hashes
from store.files.file_system import FileSystem
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from store.readers.index_layout_detection import detect_index_layout
from store.readers.index_reader import IndexLayout, list_index_files
from store.walk.log_reader import LogReader

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
