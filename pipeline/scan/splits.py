"""How a scan is cut into tasks.

- A record belongs to the split in which it starts; the splits of a file follow one another from its first byte on.
- A split ends where the next begins, or at the end of a complete file: its task proves that. So a scan without left-out
  splits has proven, by induction from each file's first byte, that it has read every record once.
- A complete file in an object store is not walked before it is read: a few probes find records near the wanted ends
  (boundaries.py). What they find is proven by the tasks in the same way.
- A split is left out only if its walk shows that it holds no wanted offset or store time.
- The last file ends where the walk ends, before a record that a crash has torn, or at the mark of a log that is being
  written to (`log_files.py`); files behind the mark are left out.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pipeline.object_files import ObjectFileSystem, open_root
from pipeline.scan.boundaries import (
    BLOCK_BYTES,
    PROBED,
    BoundaryCache,
    FileWalk,
    Mark,
    ends_complete,
    identity_of,
    kernel,
    probe_file,
    walk_file,
)
from pipeline.scan.filters import Condition
from pipeline.scan.log_files import LogFile, ReadableLog, readable_log
from pipeline.scan.options import OFFSET_MAX, Corrupt, ScanOptions, Verify
from pipeline.scan.scan import Damage, Split, SplitScan
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.locks import has_abort_marker
from store.format.paths import log_file_name
from store.walk.record_search import find_record_in
from store.walk.scan_layout import AT, LENGTHS, PLACE, SUMS

# Walks run without the GIL, so threads help; more of them at once only compete for the disk.
WALKER_COUNT_MAX = 4
# Files of an object store are not walked. A prober waits for round trips, and holds one piece.
PROBER_COUNT_MAX = 16
TAIL_ROW_COUNT = 4096
_log = logging.getLogger("reput.pipeline")
CHECKS = {Verify.NONE: LENGTHS, Verify.STRUCTURE: PLACE, Verify.CRC: SUMS}


def plan_splits(
    options: ScanOptions, conditions: Sequence[Condition] = (), fs: FileSystem | None = None
) -> list[Split]:
    """The splits of a scan, in log order.

    Raises:
        UnsupportedStoreError: the path is not a store root.
        StoreCorruptedError: a file is missing between two others.
        OSError: the disk cannot be read.
    """
    opened, root = open_root(options.root)
    fs = fs or opened
    log = readable_log(fs, root)
    for note in log.notes():
        _log.warning("scan.held_elsewhere %s", note)
    _refuse_gaps(log.files, options.corrupt)
    wanted = [file for file in log.files if _overlaps(file.first_offset, file.last_offset, options)]
    if not wanted:
        return []
    planner = _Planner(fs, root, options, log)
    kernel()  # loaded once, before threads ask for it
    worker_count_max = PROBER_COUNT_MAX if isinstance(fs, ObjectFileSystem) else WALKER_COUNT_MAX
    with ThreadPoolExecutor(min(worker_count_max, len(wanted))) as pool:
        planned = [split for splits in pool.map(planner.splits_of, wanted) for split in splits]
    return [split for split in planned if _may_hold(split, options, conditions)]


class _Planner:
    def __init__(self, fs: FileSystem, root: Path, options: ScanOptions, log: ReadableLog) -> None:
        self._fs = fs
        self._root = root
        self._options = options
        self._is_live = log.is_live
        self._mark = log.mark
        self._first, self._last = log.files[0], log.files[-1]
        self._cache = BoundaryCache(options.boundary_cache, fs)
        self._check = min(CHECKS[options.verify], PLACE)
        self._block_bytes = min(BLOCK_BYTES, options.split_bytes)

    def splits_of(self, file: LogFile) -> list[Split]:
        is_probed = isinstance(self._fs, ObjectFileSystem)
        is_safe = self._mark is not None and file.last_offset <= self._mark
        if file == self._last and not is_safe and not (is_probed and ends_complete(self._fs, file)):
            return self._splits_of_last(file)
        size_bytes = file.last_offset - file.first_offset
        if self._options.split_bytes >= size_bytes:
            # One task a file: its first byte is a boundary, which its name states, so no walk is needed first.
            return [Split(file, file.first_offset, file.last_offset, is_to_file_end=True)]
        check, block_bytes = (PROBED, self._options.split_bytes) if is_probed else (self._check, self._block_bytes)
        walk = self._cache.get(file, check=check, block_bytes=block_bytes)
        if walk is None:
            identity = identity_of(self._fs, file)
            walk = probe_file(self._fs, file, block_bytes) if is_probed else self._walk(file, over_damage=True)
            self._cache.put(file, walk, check=check, block_bytes=block_bytes, identity=identity)
        return list(self._cut(file, walk, file.last_offset, is_to_file_end=True))

    def _splits_of_last(self, file: LogFile) -> list[Split]:
        """The last file may be complete, torn at its end, being written to, or damaged."""
        walk = self._walk(file, over_damage=False)
        if self._mark is not None and self._mark < walk.end_offset:
            walk = self._walk(replace(file, last_offset=self._mark), over_damage=False)
            return list(self._cut(file, walk, walk.end_offset, is_to_file_end=False))
        if walk.is_complete or (not walk.marks and file == self._first):
            # A log that begins with other bytes than a record is not empty: the task reports the damage.
            return list(self._cut(file, walk, file.last_offset, is_to_file_end=True))
        if not self._is_live or (self._mark is not None and walk.end_offset < self._mark):
            behind = self._record_behind(file, walk.end_offset)
            if behind is not None:
                again = self._walk(file, over_damage=True)
                return list(self._cut(file, again, again.end_offset, is_to_file_end=again.is_complete))
        return list(self._cut(file, walk, self._sound_end(file, walk), is_to_file_end=False))

    def _sound_end(self, file: LogFile, walk: FileWalk) -> int:
        """The end of the sound records: where the walk ended, or at the first damaged record after the last sound one.

        A partly written record may have right lengths, which the walk passes. After a crash, any record of the file may be
        one that was not flushed; otherwise only the last ones can be incomplete.
        """
        if not walk.marks or self._check == LENGTHS:
            return walk.end_offset
        begin = file.first_offset if has_abort_marker(self._fs, self._root) else walk.marks[-1].offset
        wrong: list[int] = []
        last_sound = -1
        tail = Split(file, begin, walk.end_offset)
        for found in SplitScan(tail, check=SUMS, row_count_max=TAIL_ROW_COUNT, over_damage=True, fs=self._fs):
            if isinstance(found, Damage):
                wrong.append(found.offset)
            else:
                last_sound = found.base_offset + int(found.rows_64[AT, -1])
        return min((offset for offset in wrong if offset > last_sound), default=walk.end_offset)

    def _record_behind(self, file: LogFile, offset: int) -> int | None:
        opened = file.open(self._fs)
        try:
            return find_record_in(opened, offset)
        finally:
            opened.close()

    def _walk(self, file: LogFile, *, over_damage: bool) -> FileWalk:
        return walk_file(self._fs, file, check=self._check, block_bytes=self._block_bytes, over_damage=over_damage)

    def _cut(self, file: LogFile, walk: FileWalk, end: int, *, is_to_file_end: bool) -> Iterator[Split]:
        """Splits of about `splitBytes`; each begins at a mark, the first one at the file's first byte."""
        if end <= file.first_offset:
            return
        group: list[Mark] = []
        begin = file.first_offset
        for mark in walk.marks:
            if group and mark.offset - begin >= self._options.split_bytes:
                yield self._split(file, begin, mark.offset, group, walk)
                group, begin = [], mark.offset
            group.append(mark)
        yield self._split(file, begin, end, group, walk, is_to_file_end=is_to_file_end)

    def _split(
        self,
        file: LogFile,
        begin: int,
        end: int,
        marks: Sequence[Mark],
        walk: FileWalk,
        *,
        is_to_file_end: bool = False,
    ) -> Split:
        is_known = bool(marks) and not walk.has_damage
        return Split(
            file,
            begin,
            end,
            is_to_file_end,
            min(mark.time_millis_min for mark in marks) if is_known else None,
            max(mark.time_millis_max for mark in marks) if is_known else None,
        )


def _refuse_gaps(files: Sequence[LogFile], corrupt: Corrupt) -> None:
    if corrupt is not Corrupt.FAIL:
        return
    for file, following in itertools.pairwise(files):
        if file.last_offset != following.first_offset:
            missing = log_file_name(file.last_offset)
            raise StoreCorruptedError(
                f"The log has a gap: {file.path} ends at commit-log offset {file.last_offset}, and the next file begins at "
                f"{following.first_offset}. Restore the bytes between (a missing file is named {missing}), or read with "
                "corrupt=skip.",
                file=missing,
                offset=file.last_offset,
            )


def _overlaps(begin: int, end: int, options: ScanOptions) -> bool:
    return begin < options.ending_offset and end > options.starting_offset


def _may_hold(split: Split, options: ScanOptions, conditions: Sequence[Condition]) -> bool:
    """Whether a split may hold a record that options and conditions choose."""
    if not _overlaps(split.begin, split.end, options):
        return False
    low, high = split.time_millis_min, split.time_millis_max
    if low is not None and high is not None:
        if options.starting_time_millis is not None and high < options.starting_time_millis:
            return False
        if options.ending_time_millis is not None and low >= options.ending_time_millis:
            return False
    return all(condition.may_hold(split.begin, min(split.end, OFFSET_MAX), low, high) for condition in conditions)
