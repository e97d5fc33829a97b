"""Whether the index of a store has an entry for the tags of each record, as RocketMQ 5.5.0 writes it, and from where on.

Brokers of several versions may have written one index. So the newest entries are compared with all records that they belong
to, back to the first record without its entry or to a limit. Behind that, both ends of each file tell only whether entries
of tags are written; a sample never tells that none is missing.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from store.derive.dispatch_columns import DispatchColumns, Int64s
from store.derive.index_keys import NO_TAGS
from store.derive.index_state import ENTRY_DTYPE
from store.derive.read_log import LogBatch, ReadLog
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, read_json_state
from store.files.open_files import OpenFiles
from store.format.checkpoint import decode_checkpoint
from store.format.derived.index_layout import ENTRY_SIZE, entry_position
from store.format.paths import checkpoint_file, own_state_dir
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files
from store.walk.log_reader import LogReader

Entries = npt.NDArray[np.void]
NO_ENTRIES = np.empty(0, dtype=ENTRY_DTYPE)
# Of the log, back from the newest entry: about as much as a disk reads in a few seconds, because a start waits for it.
COMPARED_BYTES_MAX = 1 << 30
COMPARED_ENTRY_COUNT = 65_536  # at a time
# Entries that are looked at from each end of a file, and of the log that they belong to.
SAMPLED_ENTRY_COUNT = 1024
SAMPLED_BYTES_MAX = 4 << 20
BATCH_RECORD_COUNT = 64


class TagEntries(NamedTuple):
    """What was found.

    Attributes:
        are_written: whether records have entries of tags; None if nothing tells it.
        complete_from: from this offset (bytes) on each record with tags has its entry, up to the end of the index; it is the
            log's first byte if all have. None: the index has no entries.
    """

    are_written: bool | None
    complete_from: int | None


def find_tag_entries(
    fs: FileSystem,
    root: Path,
    layout: IndexLayout,
    read_log: ReadLog,
    log_first_offset: int,
    log_end_offset: int,
    compared_bytes_max: int = COMPARED_BYTES_MAX,
) -> TagEntries:
    """Compares the index files of a store root with its log.

    Where no record with tags was seen, a number in `checkpoint` that only a broker of RocketMQ 5.5.0 writes tells that
    entries are written.

    Args:
        fs: the port to the disk.
        root: the store root.
        layout: of its index files; others are left out.
        read_log: see ReadLog.
        log_first_offset: the log's first byte.
        log_end_offset: behind its last one.
        compared_bytes_max: of the log, back from the newest entry; `complete_from` is not before that.
    """
    files = OpenFiles(fs)
    try:
        paths = [path for path in list_index_files(fs, root) if fs.stat_size(path) == layout.file_size_bytes]
        views = [IndexFileView(files, path, layout) for path in paths]
        views = [view for view in views if view.header().entry_count > 1]
        found = TagEntries(None, None)
        if views:
            found = _Comparison(files, read_log, log_first_offset, log_end_offset, compared_bytes_max).of(views)
    finally:
        files.close()
    return found._replace(are_written=True) if found.are_written is None and _had_5_5(fs, root) else found


def tag_entries_on_disk(
    fs: FileSystem, root: Path, layout: IndexLayout, compared_bytes_max: int = COMPARED_BYTES_MAX
) -> TagEntries:
    """Those of a store root that no service serves: by the checkpoint of the index service, else by comparison."""
    state = read_json_state(fs, Path(own_state_dir(str(root), "index")) / "checkpoint.json") or {}
    saved = state.get("tags_from")
    if isinstance(saved, int):
        return TagEntries(True, saved)
    first_offset = min(LogReader(root, fs).file_offsets(), default=0)
    log = log_on_disk(fs, root)
    return find_tag_entries(fs, root, layout, log, first_offset, sys.maxsize, compared_bytes_max)


def has_tag_entries(fs: FileSystem, root: Path, layout: IndexLayout) -> bool:
    """Whether such a root's index has entries of tags; False without an index."""
    return tag_entries_on_disk(fs, root, layout, SAMPLED_BYTES_MAX).are_written is True


def _had_5_5(fs: FileSystem, root: Path) -> bool:
    """Whether a broker of RocketMQ 5.5.0 had this store once."""
    with suppress(StoreCorruptedError):
        data = read_bytes(fs, Path(checkpoint_file(str(root))))
        return data is not None and decode_checkpoint(data).queues_flushed_offset > 0
    return False


class _Comparison:
    """Compares entries with the log, and notes whether records had their entry of tags, and whether others lacked it."""

    def __init__(
        self, files: OpenFiles, read_log: ReadLog, log_first_offset: int, log_end_offset: int, compared_bytes_max: int
    ) -> None:
        self._files = files
        self._read_log = read_log
        self._log_first_offset = log_first_offset
        self._log_end_offset = log_end_offset
        self._compared_bytes_max = compared_bytes_max
        self._is_one_there = self._is_one_absent = False

    def of(self, views: Sequence[IndexFileView]) -> TagEntries:
        """Compares files that have entries, the oldest first."""
        complete_from = self._compare_back(views)
        for view in reversed(views):
            if not self._is_one_there and view.header().begin_commit_log_offset < complete_from:
                count = min(SAMPLED_ENTRY_COUNT, _entry_count(view))
                self._sample(self._entries(view, _entry_count(view) + 1 - count, count))
                self._sample(self._entries(view, 1, count))
        return TagEntries(True if self._is_one_there else False if self._is_one_absent else None, complete_from)

    def _compare_back(self, views: Sequence[IndexFileView]) -> int:
        """From which offset on no entry lacks, as far as that was compared.

        A record's entry of tags is its last one. So it lies in the same piece as the record's first entry, except for the
        newest record of a piece, which belongs to the piece behind it when that has entries of it.
        """
        newest = max(view.header().end_commit_log_offset for view in views)
        compared_from = min(newest + 1, self._log_end_offset)
        floor = max(self._log_first_offset, compared_from - self._compared_bytes_max)
        for entries in self._pieces(views):
            offsets = entries["offset"].astype(np.int64)
            kept = offsets[offsets >= floor]
            begin = min(kept.tolist(), default=compared_from)
            absent = self._last_absent(entries, begin, compared_from)
            if absent is None or absent >= 0:
                return compared_from if absent is None else absent + 1
            compared_from = min(begin, compared_from)
            if len(kept) < len(offsets):
                break
        if floor > self._log_first_offset:
            return compared_from
        # Records without a key before the first entry.
        absent = self._last_absent(NO_ENTRIES, floor, compared_from)
        return compared_from if absent is None else max(absent + 1, floor)

    def _pieces(self, views: Sequence[IndexFileView]) -> Iterator[Entries]:
        """All entries, the newest piece first; each piece has some, in the order of the file."""
        for view in reversed(views):
            behind = _entry_count(view) + 1
            while behind > 1:
                first = max(behind - COMPARED_ENTRY_COUNT, 1)
                yield self._entries(view, first, behind - first)
                behind = first

    def _entries(self, view: IndexFileView, first: int, count: int) -> Entries:
        data = self._files.get(view.path).read(entry_position(first, view.layout.slot_count), count * ENTRY_SIZE)
        return np.frombuffer(data, dtype=ENTRY_DTYPE)

    def _sample(self, entries: Entries) -> None:
        """Notes what some entries tell; the last record may have its entry of tags behind them."""
        offsets = entries["offset"].astype(np.int64)
        offsets = offsets[offsets >= self._log_first_offset]
        if len(offsets):
            begin = int(offsets[0])
            self._last_absent(entries, begin, min(int(offsets[-1]), begin + SAMPLED_BYTES_MAX, self._log_end_offset))

    def _last_absent(self, entries: Entries, begin: int, end: int) -> int | None:
        """The offset of the last record with tags that begins in a part of the log (bytes) and has no entry of them.

        -1: each has one; None: the log cannot be read there, which tells nothing.
        """
        if begin >= end:
            return -1
        entry_offsets = entries["offset"].astype(np.int64)
        is_in = (entry_offsets >= begin) & (entry_offsets < end)
        there = np.sort(_joined(entry_offsets[is_in] - begin, entries["key_hash"][is_in]))
        there = np.append(there, np.iinfo(np.int64).max)  # what is searched for is found before it
        absent = -1
        try:
            with self._read_log(begin) as batches:
                for batch in batches:
                    columns = batch.columns
                    if columns is not None:
                        is_wanted = (columns.tags_hashes != NO_TAGS) & (columns.commit_log_offsets < end)
                        offsets = columns.commit_log_offsets[is_wanted]
                        wanted = _joined(offsets - begin, columns.tags_hashes[is_wanted])
                        lacks = there[np.searchsorted(there, wanted)] != wanted
                        self._is_one_there |= not lacks.all()
                        self._is_one_absent |= bool(lacks.any())
                        absent = max(offsets[lacks].tolist(), default=absent)
                    if batch.next_offset >= end:
                        return absent
        except (OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError):
            return None  # entries of another log, or of damaged records
        return None  # the log ends before


def _entry_count(view: IndexFileView) -> int:
    return min(view.header().entry_count, view.layout.entry_count_max) - 1


def _joined(distances_bytes: Int64s, hashes: npt.NDArray[np.int32]) -> Int64s:
    """Distances below 2 GiB and hashes as one number each."""
    return (distances_bytes << 32) | (hashes.astype(np.int64) & 0xFFFF_FFFF)


class _Batch(NamedTuple):
    columns: DispatchColumns
    next_offset: int


def log_on_disk(fs: FileSystem, root: Path) -> ReadLog:
    """The log of a store root that no service serves."""

    @contextmanager
    def read(offset: int) -> Iterator[Iterator[LogBatch]]:
        requests = LogReader(root, fs).dispatch_requests(offset)
        parts = iter(lambda: list(islice(requests, BATCH_RECORD_COUNT)), [])
        yield (_Batch(DispatchColumns.of(part), part[-1].next_offset) for part in parts)

    return read
