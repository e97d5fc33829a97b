"""One index file being filled: its state in memory, its entries on the disk at once, slots and header at each flush.

Entries are written before they count, so a search that follows a head always finds its entry. The slot table is kept in
memory (`IndexFileState`) and only its changed pages are written; until then the file on the disk is one that a crash
left, which `recovery.py` cuts back to the checkpoint.
"""

import zlib
from pathlib import Path
from threading import Lock

import numpy as np

from store.builders.index_state import Heads, IndexFileState, Ints, heads_from_entries
from store.format.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    encode_index_header,
    entry_position,
)
from store.readers.index_reader import IndexFileView, IndexLayout
from store.readers.open_files import OpenFiles

PAGE_SLOT_COUNT = 1024
ENTRY_CHUNK_COUNT = 1 << 18
# What a checkpoint remembers of the file's end: enough to see another file of the same length, cheap to read.
TAIL_ENTRY_COUNT = 16


class IndexFile:
    """The newest index file of a root.

    Args:
        files: opens it.
        path: the file.
        layout: how it is divided.
        state: what it holds.
    """

    def __init__(self, files: OpenFiles, path: Path, layout: IndexLayout, state: IndexFileState) -> None:
        self.path = path
        self.layout = layout
        self.state = state
        self._files = files
        self._lock = Lock()
        self._dirty_pages = np.zeros(-(-layout.slot_count // PAGE_SLOT_COUNT), dtype=bool)
        self._is_dirty = True

    @classmethod
    def create(cls, files: OpenFiles, path: Path, layout: IndexLayout, before: IndexHeader | None) -> "IndexFile":
        """A new file behind one with the header `before`, None for a store's first."""
        files.create(path, layout.file_size_bytes)
        state = IndexFileState.seeded(
            layout.slot_count,
            layout.entry_count_max,
            end_time_millis=before.end_time_millis if before else 0,
            end_commit_log_offset=before.end_commit_log_offset if before else 0,
        )
        return cls(files, path, layout, state)

    @classmethod
    def reopen(cls, files: OpenFiles, path: Path, layout: IndexLayout, header: IndexHeader) -> "IndexFile":
        """A file whose slots on the disk are right for its header."""
        data = (
            files.get(path).read(HEADER_SIZE, layout.slot_count * SLOT_SIZE).ljust(layout.slot_count * SLOT_SIZE, b"\0")
        )
        heads = np.frombuffer(data, dtype=">i4").astype(np.int32)
        return cls(files, path, layout, IndexFileState(layout.slot_count, layout.entry_count_max, header, heads))

    @classmethod
    def cut_back(cls, files: OpenFiles, path: Path, layout: IndexLayout, header: IndexHeader) -> "IndexFile":
        """A file of which only the entries that a header counts can be trusted: slots are made from them."""
        heads: Heads = np.zeros(layout.slot_count, dtype=np.int32)
        count = max(header.entry_count, 1)
        file = files.get(path, writing=True)
        for first in range(1, count, ENTRY_CHUNK_COUNT):
            size = min(ENTRY_CHUNK_COUNT, count - first) * ENTRY_SIZE
            heads_from_entries(
                layout.slot_count, file.read(entry_position(first, layout.slot_count), size), first, heads
            )
        file.zero_from(entry_position(count, layout.slot_count), layout.file_size_bytes)
        index_file = cls(files, path, layout, IndexFileState(layout.slot_count, layout.entry_count_max, header, heads))
        index_file._dirty_pages[:] = True
        return index_file

    def put(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> int:
        """Adds as many of the keys as fit, in order; how many."""
        run = self.state.plan(hashes, offsets, times_millis)
        if run.count:
            position = entry_position(run.first_number, self.layout.slot_count)
            self._files.get(self.path, writing=True).write(position, run.data)
            with self._lock:
                self.state.commit(run)
            self._dirty_pages[run.slots // PAGE_SLOT_COUNT] = True
            self._is_dirty = True
        return run.count

    def flush(self) -> None:
        """The file on the disk is whole afterwards, or FlushFailedError."""
        if not self._is_dirty:
            return
        file = self._files.get(self.path, writing=True)
        dirty = np.flatnonzero(self._dirty_pages)
        if len(dirty):
            for pages in np.split(dirty, np.flatnonzero(np.diff(dirty) > 1) + 1):
                begin, end = int(pages[0]) * PAGE_SLOT_COUNT, (int(pages[-1]) + 1) * PAGE_SLOT_COUNT
                data = self.state.heads[begin:end].astype(">i4").tobytes()
                file.write(HEADER_SIZE + begin * SLOT_SIZE, data)
        file.write(0, encode_index_header(self.state.header))
        file.flush()
        self._dirty_pages[:] = False
        self._is_dirty = False

    def trailing_key_count(self) -> int:
        """How many entries at the end belong to the newest record."""
        view, count = self.view(), 0
        number = self.state.header.entry_count - 1
        while number > 0:
            entry = view.entry(number)
            if entry is None or entry.commit_log_offset != self.state.header.end_commit_log_offset:
                break
            number, count = number - 1, count + 1
        return count

    def tail_crc(self) -> int:
        """CRC-32 over the last TAIL_ENTRY_COUNT entries, or as many as there are."""
        count = self.state.header.entry_count
        first = max(1, count - TAIL_ENTRY_COUNT)
        position = entry_position(first, self.layout.slot_count)
        return zlib.crc32(self._files.get(self.path).read(position, (count - first) * ENTRY_SIZE))

    def view(self) -> IndexFileView:
        """To search in, while it is being filled."""
        return IndexFileView(
            self._files, self.path, self.layout, header_of=lambda: self.state.header, head_of=self._head
        )

    def _head(self, slot: int) -> int:
        with self._lock:
            return self.state.head(slot)
