"""One index file being filled: entries are written at once, slots and header at each flush.

Entries are written before they count, so a search that follows a slot head always finds its entry. The slot table is kept
in memory (`IndexFileState`). A flush writes the pages of it that changed. Between two flushes the slots and the header on
the disk are old; after a crash `recovery.py` cuts the file back to the checkpoint.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

import numpy as np

from store.derive.index_state import Heads, IndexFileState, Ints, heads_before_entries, heads_from_entries
from store.files.checksums import Extent
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    encode_index_header,
    entry_position,
)
from store.format.derived.index_summary import NO_TIMES, TimeSpan
from store.readers.index_reader import IndexFileView, IndexLayout

PAGE_SLOT_COUNT = 1024
PAGE_GAP_COUNT_MAX = 16  # so many unchanged pages between changed ones are written too: cheaper than one more call
ENTRY_CHUNK_COUNT = 1 << 18
# A checkpoint holds a CRC over the last entries: enough to detect another file of the same length, cheap to read.
TAIL_ENTRY_COUNT = 16


class IndexFile:
    """The newest index file of a root.

    Args:
        files: opens it.
        path: the file.
        layout: how it is divided.
        state: what it holds.

    Attributes:
        time_span: the store times of all its records; None if unknown.
        entries: how many entries the file has, and the CRC-32 of their bytes; None for a CRC that is unknown.
        is_doubtful: the file is known to be damaged, or may be.
    """

    def __init__(self, files: OpenFiles, path: Path, layout: IndexLayout, state: IndexFileState) -> None:
        self.path = path
        self.layout = layout
        self.state = state
        self.time_span: TimeSpan | None = None
        self.entries: tuple[int, int | None] = (state.key_count, None if state.key_count else 0)
        self.is_doubtful = False
        self._put_count = 1
        self._flush_count = 0
        self._files = files
        self._lock = Lock()
        self._dirty_pages = np.zeros(-(-layout.slot_count // PAGE_SLOT_COUNT), dtype=bool)
        self._is_dirty = True
        self._flushed = Event()  # no flush is under way
        self._flushed.set()

    @classmethod
    def create(cls, files: OpenFiles, path: Path, layout: IndexLayout, before: IndexHeader | None) -> "IndexFile":
        """A new file behind one with the header `before`, None for a store's first."""
        files.create(path, layout.file_size_bytes)
        index_file = cls(files, path, layout, IndexFileState.behind(layout.slot_count, layout.entry_count_max, before))
        index_file.time_span = NO_TIMES
        return index_file

    @classmethod
    def reopen(cls, files: OpenFiles, path: Path, layout: IndexLayout, header: IndexHeader) -> "IndexFile":
        """An existing file whose slots on the disk belong to its header."""
        heads = _read_heads(files, path, layout)
        return cls(files, path, layout, IndexFileState(layout.slot_count, layout.entry_count_max, header, heads))

    @classmethod
    def cut_back(
        cls, files: OpenFiles, path: Path, layout: IndexLayout, header: IndexHeader, slots_crc: int | None = None
    ) -> "IndexFile":
        """An existing file that is cut back to the entries that a header counts.

        Args:
            files: opens it.
            path: the file.
            layout: how it is divided.
            header: of the checkpoint, when all that it counts was flushed.
            slots_crc: what `slots_crc()` returned then; None if unknown.
        """
        count = max(header.entry_count, 1)
        found = heads = _read_heads(files, path, layout)
        if slots_crc is not None:
            heads = _without_entries_from(files, path, layout, count, found)
        if slots_crc is None or zlib.crc32(heads.data) != slots_crc:
            heads = _heads_from_all_entries(files, path, layout, count)
        index_file = cls(files, path, layout, IndexFileState(layout.slot_count, layout.entry_count_max, header, heads))
        index_file._dirty_pages[np.flatnonzero(heads != found) // PAGE_SLOT_COUNT] = True
        # Slots before entries: after a kill between the two, the next start still needs the entries to undo the slots.
        index_file._write_slots()
        files.get(path, writing=True).zero_from(entry_position(count, layout.slot_count), layout.file_size_bytes)
        # What was read may be in the page cache only, if a flush failed before the process ended.
        index_file._dirty_pages[:] = True
        return index_file

    def put(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> int:
        """Adds as many of the keys as fit, in order; returns how many."""
        run = self.state.plan(hashes, offsets, times_millis)
        if run.count:
            position = entry_position(run.first_number, self.layout.slot_count)
            self._put_count += 1
            self._files.get(self.path, writing=True).write(position, run.data)
            crc = self.entries[1]
            self.entries = (self.entries[0] + run.count, None if crc is None else zlib.crc32(run.data, crc))
            self._put_count += 1
            if self.time_span is not None:
                times = times_millis[: run.count]
                # Before the keys count: a search that finds a key must see a span that covers it.
                self.time_span = self.time_span.widened(int(times.min()), int(times.max()))
            with self._lock:
                self.state.commit(run)
            self._dirty_pages[run.slots // PAGE_SLOT_COUNT] = True
            self._is_dirty = True
        return run.count

    def flush(self) -> None:
        """Brings the whole file to the disk.

        Raises:
            FlushFailedError: the disk refused.
        """
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """A function that brings the file to the disk as it is now; any thread may call it while more keys are put.

        It holds a copy of the changed part of the slot table, 20 MB at most for 5,000,000 slots. The next flush waits
        for it.
        """
        self._flushed.wait()
        if not self._is_dirty:
            return lambda: None
        pages, slots, header = self._dirty_pages, self._changed_slots(), encode_index_header(self.state.header)
        self._dirty_pages = np.zeros_like(pages)
        self._is_dirty = False
        self._flush_count += 1
        self._flushed.clear()

        def flush() -> None:
            try:
                file = self._files.get(self.path, writing=True)
                for position, data in slots:
                    file.write(position, data)
                file.write(0, header)
                file.flush()
            except BaseException:
                self._dirty_pages[pages] = self._is_dirty = True
                raise
            finally:
                self._flush_count += 1
                self._flushed.set()

        return flush

    def _write_slots(self) -> None:
        """Writes the changed pages of the slot table; they stay marked until a flush brings them to the disk."""
        file = self._files.get(self.path, writing=True)
        for position, data in self._changed_slots():
            file.write(position, data)

    def _changed_slots(self) -> list[tuple[int, memoryview]]:
        """Copies of the changed pages of the slot table, with their positions in the file; neighbours are joined."""
        dirty = np.flatnonzero(self._dirty_pages)
        if not len(dirty):
            return []
        changed = []
        for pages in np.split(dirty, np.flatnonzero(np.diff(dirty) > PAGE_GAP_COUNT_MAX) + 1):
            begin, end = int(pages[0]) * PAGE_SLOT_COUNT, (int(pages[-1]) + 1) * PAGE_SLOT_COUNT
            data = self.state.heads[begin:end].astype(">i4").data.cast("B")
            changed.append((HEADER_SIZE + begin * SLOT_SIZE, data))
        return changed

    def trailing_key_count(self) -> int:
        """How many entries at the end belong to the newest record."""
        return self.trailing_count(self.view(), self.state.header)

    @staticmethod
    def trailing_count(view: IndexFileView, header: IndexHeader) -> int:
        """The same of any file."""
        count, number = 0, header.entry_count - 1
        while number > 0:
            entry = view.entry(number)
            if entry is None or entry.commit_log_offset != header.end_commit_log_offset:
                break
            number, count = number - 1, count + 1
        return count

    @property
    def write_count(self) -> int:
        """See `CheckedFile`: changes before and after each write to the file."""
        return self._put_count + self._flush_count

    @property
    def is_being_written(self) -> bool:
        """Whether keys are being put, or a flush is prepared or under way."""
        return self._put_count % 2 == 0 or self._flush_count % 2 == 1

    def learn(self, count: int, crc: int) -> None:
        """Takes the CRC-32 of the first `count` entries, read from the file; later ones are read now."""
        if self.entries[1] is not None:
            return
        size_bytes = (self.entries[0] - count) * ENTRY_SIZE
        file = self._files.get(self.path)
        begin = entry_position(1 + count, self.layout.slot_count)
        for at in range(begin, begin + size_bytes, ENTRY_CHUNK_COUNT * ENTRY_SIZE):
            crc = zlib.crc32(file.read(at, min(ENTRY_CHUNK_COUNT * ENTRY_SIZE, begin + size_bytes - at)), crc)
        self.entries = (self.entries[0], crc)

    def extents(self, *, sealed: bool = False) -> tuple[Extent, ...]:
        """The entries with their CRC-32, from memory; of a file that is sealed now also header and slots."""
        count, crc = self.entries
        entries = Extent(entry_position(1, self.layout.slot_count), count * ENTRY_SIZE, crc)
        if not sealed:
            return (entries,)
        head = zlib.crc32(
            self.state.heads.astype(">i4").data.cast("B"), zlib.crc32(encode_index_header(self.state.header))
        )
        return (Extent(0, HEADER_SIZE + self.layout.slot_count * SLOT_SIZE, head), entries)

    def tail_crc(self) -> int:
        """See `tail_crc_of`."""
        return tail_crc_of(self._files, self.path, self.layout, self.state.header)

    def slots_crc(self) -> int:
        """CRC-32 over the heads of all slots in memory: 9 ms for the 20 MB of 5,000,000 slots."""
        return zlib.crc32(self.state.heads.data)

    def view(self) -> IndexFileView:
        """For searches, while the file is being filled."""
        view = IndexFileView(
            self._files, self.path, self.layout, header_of=lambda: self.state.header, head_of=self._head
        )
        view.is_doubtful = self.is_doubtful
        return view

    def _head(self, slot: int) -> int:
        with self._lock:
            return self.state.head(slot)


def tail_crc_of(files: OpenFiles, path: Path, layout: IndexLayout, header: IndexHeader) -> int:
    """CRC-32 over the last TAIL_ENTRY_COUNT entries that a header counts, or as many as there are."""
    count = max(header.entry_count, 1)
    first = max(1, count - TAIL_ENTRY_COUNT)
    position = entry_position(first, layout.slot_count)
    return zlib.crc32(files.get(path).read(position, (count - first) * ENTRY_SIZE))


def _read_heads(files: OpenFiles, path: Path, layout: IndexLayout) -> Heads:
    """The slot table as in the file."""
    size_bytes = layout.slot_count * SLOT_SIZE
    data = files.get(path).read(HEADER_SIZE, size_bytes).ljust(size_bytes, b"\0")
    return np.frombuffer(data, dtype=">i4").astype(np.int32)


def _without_entries_from(files: OpenFiles, path: Path, layout: IndexLayout, count: int, found: Heads) -> Heads:
    """The heads as they were with `count` entries, if the file holds the later entries as they were written.

    Only the entries written since the checkpoint are read. The caller compares the result with a CRC: after a power cut
    heads may be on the disk without their entries.
    """
    heads = found.copy()
    end = min(int(found.max(initial=0)) + 1, layout.entry_count_max)
    file = files.get(path)
    for first in range(count, end, ENTRY_CHUNK_COUNT):
        size = min(ENTRY_CHUNK_COUNT, end - first) * ENTRY_SIZE
        heads_before_entries(layout.slot_count, file.read(entry_position(first, layout.slot_count), size), count, heads)
    return heads


def _heads_from_all_entries(files: OpenFiles, path: Path, layout: IndexLayout, count: int) -> Heads:
    """The heads made again from all entries below `count`: takes 2 s for 20,000,000 of them."""
    heads: Heads = np.zeros(layout.slot_count, dtype=np.int32)
    file = files.get(path)
    for first in range(1, count, ENTRY_CHUNK_COUNT):
        size = min(ENTRY_CHUNK_COUNT, count - first) * ENTRY_SIZE
        heads_from_entries(layout.slot_count, file.read(entry_position(first, layout.slot_count), size), first, heads)
    return heads
