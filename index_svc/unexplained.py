"""Which index files may be removed, and which must be kept aside when they leave their place.

An entry names a record by its commit-log offset, and a key of it by its hash. Nothing is lost when a file goes and

    our own checkpoint counts the entry in a file that Reput made     it is ours, also when the disk has damaged it since
    or the record has a key of this hash                              the log gives the entry again
    or retention has removed the record                               it leads nowhere
    or it is empty, or a power cut has left half of it on the disk    it never held anything

for each entry. Otherwise the file is kept aside: it has entries of tags (RocketMQ 5.5), and this index is built without; or
it is of another store.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import ENTRY_DTYPE
from store.derive.read_log import ReadLog
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError
from store.files.aside import Aside
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, entry_position
from store.readers.index_reader import IndexLayout

# Entries that are compared with the log at once: 5 MB of the file.
CHUNK_COUNT = 1 << 18
# What a disk writes as a whole, or not at all.
PAGE_BYTES = 4096
CUT_IN_OFFSET = 8  # bytes of an entry: its hash, and the half of the offset that is 0 in most logs
# The count of entries of a file that Reput wrote alone: all there are.
ALL = 1 << 31
Entries = npt.NDArray[np.void]
_log = logging.getLogger("reput.index")


class Keeper:
    """Judges files that leave their place, and keeps those that hold what the log does not give again.

    Args:
        aside: takes them; None: nothing is kept, for a store that is not changed.
        read_log: see ReadLog; None: the log explains nothing.

    Attributes:
        own_counts: by name, how many entries of a file, from the first on, were written by Reput alone. A file that is not
            named was made by another program, or may have been.
        other_layout: a layout that files of ours may have had before.
        has_tags: whether entries of tags are written again, too.
    """

    def __init__(self, aside: Aside | None = None, read_log: ReadLog | None = None) -> None:
        self.own_counts: dict[str, int] = {}
        self.other_layout: IndexLayout | None = None
        self.has_tags = False
        self._aside = aside
        self._read_log = read_log
        self._log_first_offset = 0
        self._log_end_offset = 0

    def see_log(self, first_offset: int, end_offset: int) -> None:
        """The log's range (bytes): what lies behind it is not explained, what lies before it is not kept."""
        self._log_first_offset, self._log_end_offset = first_offset, end_offset

    def adopt_counts(self, counts: Mapping[str, int]) -> None:
        """Takes what a checkpoint says of the files that it names."""
        self.own_counts = dict(counts)

    def move(self, files: OpenFiles, path: Path, layout: IndexLayout, why: str) -> bool:
        """Moves a file aside; False when it holds nothing that the log does not give again, and the caller removes it.

        Args:
            files: opens it.
            path: the file.
            layout: of the files that are being written.
            why: it leaves its place.

        Raises:
            DiskFullError: nothing more may be kept; the file stays.
        """
        if self._aside is None:
            return False
        file = files.get(path)
        if not file.has_bytes(HEADER_SIZE):
            return False  # made ahead
        own_count = self.own_counts.get(path.name, 0)
        is_explained = own_count >= ALL
        for known in (layout, self.other_layout):
            if not is_explained and known is not None and files.fs.stat_size(path) == known.file_size_bytes:
                is_explained = self._explains(file, known, own_count)
        if is_explained:
            _log.info("%s is removed, because the log gives all of its entries again: %s", path, why)
            return False
        self._aside.move(path, why)
        return True

    def copy_from(self, files: OpenFiles, path: Path, layout: IndexLayout, count: int, why: str) -> None:
        """Keeps the entries from one on, which are about to be cleared, unless the log gives all of them again."""
        position = entry_position(count, layout.slot_count)
        file = files.get(path)
        if self._aside is None or not file.has_bytes(position) or self._explains(file, layout, count):
            return
        self._aside.copy(path, begin=position, suffix=f".from.{position}", why=why)

    def _explains(self, file: OpenFile, layout: IndexLayout, own_count: int) -> bool:
        if self._read_log is None:
            return False
        if not own_count and not _are_slots(file, layout):
            return False  # of another layout that gives the same length
        reached = -1
        for first in range(max(own_count, 1), layout.entry_count_max, CHUNK_COUNT):
            position = entry_position(first, layout.slot_count)
            if not file.has_bytes(position):
                break
            count = min(CHUNK_COUNT, layout.entry_count_max - first)
            entries = np.frombuffer(file.read(position, count * ENTRY_SIZE), dtype=ENTRY_DTYPE)
            rows = np.flatnonzero(_holds_something(entries, position))
            rows = rows[entries["offset"][rows] >= self._log_first_offset]
            if not len(rows):
                continue
            rows = rows[np.argsort(entries["offset"][rows], kind="stable")]
            offsets = entries["offset"][rows].astype(np.int64)
            # A file has its entries in the order of the log, so the log is read once at most.
            if offsets[0] < reached or offsets[-1] >= self._log_end_offset:
                return False
            reached = int(offsets[-1])
            if not self._log_has(offsets, entries["key_hash"][rows].astype(np.int64)):
                return False
        return True

    def _log_has(self, offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.int64]) -> bool:
        """Whether each of these records, in the order of the log, has a key of this hash."""
        assert self._read_log is not None
        at = 0
        try:
            with self._read_log(int(offsets[0])) as batches:
                for batch in batches:
                    end = at + int(np.searchsorted(offsets[at:], batch.next_offset))
                    columns = batch.columns
                    if columns is not None and self.has_tags:
                        columns = columns.with_tags()
                    if end > at and not (columns and _has_all(columns, offsets[at:end], hashes[at:end])):
                        return False
                    at = end
                    if at == len(offsets):
                        return True
        except (OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError):
            return False  # the entry points where no record is, or where none can be read
        return False


def saved_counts(state: Mapping[str, object]) -> dict[str, int]:
    """The counts of entries that Reput wrote, by a checkpoint; empty for one of an earlier version."""
    rows = state.get("own")
    if not isinstance(rows, dict):
        return {}
    return {str(name): count for name, count in rows.items() if isinstance(count, int)}


def _are_slots(file: OpenFile, layout: IndexLayout) -> bool:
    heads = np.frombuffer(file.read(HEADER_SIZE, layout.slot_count * SLOT_SIZE), dtype=">i4")
    return not ((heads < 0) | (heads >= layout.entry_count_max)).any()


def _holds_something(entries: Entries, position: int) -> npt.NDArray[np.bool_]:
    """Which entries are neither empty nor half on the disk; `position` is the first one's in its file."""
    data = entries.view(np.uint8).reshape(-1, ENTRY_SIZE)
    begins = position + np.arange(len(entries), dtype=np.int64) * ENTRY_SIZE
    holds: npt.NDArray[np.bool_] = np.asarray(data.any(axis=1))
    for row in np.flatnonzero(holds & (begins // PAGE_BYTES != (begins + ENTRY_SIZE - 1) // PAGE_BYTES)).tolist():
        at = int(PAGE_BYTES - begins[row] % PAGE_BYTES)
        has_first, has_second = data[row, :at].any(), data[row, at:].any()
        # Of a whole entry the seconds and the number of the entry before may be 0; the offset only of the log's first record.
        is_cut = at == CUT_IN_OFFSET or (at < CUT_IN_OFFSET and row > 0 and entries["offset"][row - 1] > 0)
        holds[row] = bool(has_first and (has_second or not is_cut))
    return holds


def _has_all(columns: DispatchColumns, offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.int64]) -> bool:
    """Whether the records have keys of these hashes at these offsets."""
    of_keys = columns.commit_log_offsets[columns.key_records]
    at, end = np.searchsorted(of_keys, offsets, "left"), np.searchsorted(of_keys, offsets, "right")
    rest = np.arange(len(hashes))
    while len(rest):
        if (at[rest] == end[rest]).any():
            return False
        rest = rest[columns.key_hashes[at[rest]] != hashes[rest]]
        at[rest] += 1
    return True
