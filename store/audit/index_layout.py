"""How the index files of a root that may be damaged are divided into slots and entries.

Asked in this order: the owner's own checkpoint, when a file has the size that it says; the files' headers and entries
(`index_layout_detection.py`); the log, whose first keys must stand one behind the other in the first file.
"""

from itertools import islice
from pathlib import Path

from store.builders.index_keys import index_keys
from store.files.file_system import FileSystem
from store.format.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, key_hash
from store.readers.index_layout_detection import detect_index_layout
from store.readers.index_reader import IndexLayout, list_index_files
from store.readers.log_reader import LogReader
from store.readers.open_files import OpenFile, OpenFiles

DEFAULT_LAYOUT = IndexLayout(5_000_000, 20_000_000)
SEARCHED_KEY_COUNT = 64
CHUNK_BYTES = 4 << 20


def find_index_layout(fs: FileSystem, root: Path, own: IndexLayout | None) -> IndexLayout | None:
    """The layout of a root's index files; None when there is none or nothing says it.

    Args:
        fs: the door to the disk.
        root: the store root.
        own: what the index's owner wrote down; None when it did not.
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
    """Looks for the log's first keys in the first file: where one stands says how many slots lie before it."""
    size = max(set(sizes), key=sizes.count)
    file = OpenFiles(fs).get(path)
    keys = ((key, request) for request in LogReader(root, fs).dispatch_requests() for key in index_keys(request))
    for number, (key, request) in enumerate(islice(keys, SEARCHED_KEY_COUNT), 1):
        wanted = key_hash(key).to_bytes(4, "big") + request.commit_log_offset.to_bytes(8, "big")
        position = _find(file, wanted, fs.stat_size(path))
        slot_bytes = position - number * ENTRY_SIZE - HEADER_SIZE
        entry_bytes = size - HEADER_SIZE - slot_bytes
        if position >= 0 and slot_bytes > 0 and slot_bytes % SLOT_SIZE == 0 and entry_bytes % ENTRY_SIZE == 0:
            layout = IndexLayout(slot_bytes // SLOT_SIZE, entry_bytes // ENTRY_SIZE)
            if layout.entry_count_max > 1:
                return layout
    return None


def _find(file: OpenFile, wanted: bytes, size_bytes: int) -> int:
    """Where the bytes stand in the file; -1 when they do not."""
    for position in range(HEADER_SIZE, size_bytes, CHUNK_BYTES):
        at = file.read(position, CHUNK_BYTES + len(wanted) - 1).find(wanted)
        if at >= 0:
            return position + at
    return -1
