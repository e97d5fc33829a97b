"""Whether the index of a store has an entry for the tags of each record, as RocketMQ 5.5.0 writes it, and from where on.

Nothing in a store names the version that wrote it, and brokers of several versions may have written one index. So both ends
of each index file are compared with the records that they point to.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import NO_TAGS
from store.derive.index_state import ENTRY_DTYPE
from store.derive.read_log import LogBatch, ReadLog
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, entry_position
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files
from store.walk.log_reader import LogReader

# Entries that are looked at from each end of a file, and records with tags that are enough to judge them.
SAMPLED_ENTRY_COUNT = 1024
SAMPLED_RECORD_COUNT = 8
BATCH_RECORD_COUNT = 64


class TagEntries(NamedTuple):
    """What was found.

    Attributes:
        are_written: whether records have entries of tags; None if no record with tags was seen.
        complete_from: from this offset (bytes) on each record that was seen has its entry; 0: all that the index has; None:
            not at the end of the index.
    """

    are_written: bool | None
    complete_from: int | None


class _Seen(NamedTuple):
    """Whether records of a sample have their entry of tags, and whether others lack it."""

    present: bool
    absent: bool


def find_tag_entries(
    fs: FileSystem, root: Path, layout: IndexLayout, read_log: ReadLog, log_first_offset: int
) -> TagEntries:
    """Samples the index files of a store root.

    Args:
        fs: the port to the disk.
        root: the store root.
        layout: of its index files; others are left out.
        read_log: see ReadLog.
        log_first_offset: the log's first byte.
    """
    files = OpenFiles(fs)
    try:
        paths = [path for path in list_index_files(fs, root) if fs.stat_size(path) == layout.file_size_bytes]
        views = [IndexFileView(files, path, layout) for path in paths]
        return _judge([view for view in views if view.header().entry_count > 1], files, read_log, log_first_offset)
    finally:
        files.close()


def has_tag_entries(fs: FileSystem, root: Path, layout: IndexLayout) -> bool:
    """Whether the index of a store root that no service serves has entries of tags; False without an index."""
    log_first_offset = min(LogReader(root, fs).file_offsets(), default=0)
    return find_tag_entries(fs, root, layout, log_on_disk(fs, root), log_first_offset).are_written is True


def _judge(views: Sequence[IndexFileView], files: OpenFiles, read_log: ReadLog, log_first_offset: int) -> TagEntries:
    present = absent = False
    is_complete = True
    complete_from: int | None = None
    for view in reversed(views):
        header = view.header()
        count = min(SAMPLED_ENTRY_COUNT, header.entry_count - 1)
        tail_first = header.entry_count - count
        tail = _look(view, files, tail_first, count, read_log, log_first_offset, is_end=view is views[-1])
        head = _look(view, files, 1, count, read_log, log_first_offset, is_end=False) if tail_first > 1 else tail
        present = present or head.present or tail.present
        absent = absent or head.absent or tail.absent
        is_complete = is_complete and not (head.absent or tail.absent)
        if is_complete and head.present:
            complete_from = 0 if view is views[0] else header.begin_commit_log_offset
    return TagEntries(True if present else False if absent else None, complete_from)


def _look(
    view: IndexFileView,
    files: OpenFiles,
    first: int,
    count: int,
    read_log: ReadLog,
    log_first_offset: int,
    *,
    is_end: bool,
) -> _Seen:
    """Compares entries with their records. Those of the first and of the last record may stand in other entries."""
    data = files.get(view.path).read(entry_position(first, view.layout.slot_count), count * ENTRY_SIZE)
    entries = np.frombuffer(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE], dtype=ENTRY_DTYPE)
    offsets = entries["offset"].astype(np.int64)
    offsets = offsets[offsets >= log_first_offset]
    if not len(offsets):
        return _Seen(present=False, absent=False)
    begin, end = int(offsets[0]), int(offsets[-1])
    there = set(zip(entries["offset"].tolist(), entries["key_hash"].tolist(), strict=True))
    present = absent = False
    for offset, hash_ in _tagged(read_log, begin, end):
        is_there = (offset, hash_) in there
        present = present or is_there
        absent = absent or (not is_there and begin < offset and (offset < end or is_end))
    return _Seen(present, absent)


def _tagged(read_log: ReadLog, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and hash of tags of some records with tags from one offset to another."""
    count = 0
    try:
        with read_log(begin) as batches:
            for batch in batches:
                columns = batch.columns
                for row in np.flatnonzero(columns.tags_hashes != NO_TAGS).tolist() if columns is not None else ():
                    assert columns is not None
                    offset = int(columns.commit_log_offsets[row])
                    if offset > end or count == SAMPLED_RECORD_COUNT:
                        return
                    count += 1
                    yield offset, int(columns.tags_hashes[row])
                if batch.next_offset > end:
                    return
    except (OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError):
        return  # entries of another log, or of damaged records, tell nothing


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
