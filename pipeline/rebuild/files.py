"""The files that a rebuild writes: units at their positions, index files from their first key to their last.

Everything is written with `pwrite` into sparse files of full size, as the online builders make them. A task that runs
again writes the same bytes at the same positions.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from store.derive.index_fill import IndexFiller
from store.derive.index_state import IndexFileState, Ints, entries_per_file, index_file_count
from store.derive.queue_placement import PlacedUnits, Placement, fillers
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import HEADER_SIZE, SLOT_SIZE, IndexHeader, encode_index_header, entry_position
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.paths import index_dir, log_file_name, queue_dir
from store.readers.index_reader import IndexLayout

FILL_KEY_COUNT = 1 << 18  # 5 MB of entries at a time
# Slots are written in pieces; a piece in which all slots are empty stays a hole of the file.
SLOT_PIECE_COUNT = 1 << 16
COLUMNS: tuple[tuple[str, np.dtype[Any]], ...] = (
    ("hashes", np.dtype(np.int32)),
    ("offsets", np.dtype(np.int64)),
    ("times", np.dtype(np.int64)),
)


class QueueFiles:
    """Writes units of any queue of a root.

    Args:
        fs: the port to the disk.
        root: the output root.
        file_size_bytes: size of queue files.
    """

    def __init__(self, fs: FileSystem, root: Path, file_size_bytes: int) -> None:
        self._root = root
        self._file_size_bytes = file_size_bytes
        self._files = OpenFiles(fs)
        self._made: dict[Path, int] = {}

    @property
    def unit_counts(self) -> dict[Path, int]:
        """The files that were written, and the count of units in each, up to the last one written."""
        return {path: end // UNIT_SIZE_BYTES for path, end in self._made.items()}

    def write(self, topic: str, queue_id: int, queue_offset: int, units: memoryview | bytes) -> None:
        """Writes units at consecutive positions from `queue_offset` on.

        Raises:
            InvalidArgumentError: the topic or the queue id is not valid as a folder name.
        """
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        size, byte, view = self._file_size_bytes, queue_offset * UNIT_SIZE_BYTES, memoryview(units)
        while view:
            within = byte % size
            part = view[: size - within]
            path = directory / log_file_name(byte - within)
            if path in self._made:
                file = self._files.get(path, writing=True)
            else:
                file = self._files.create(path, size)
                self._made[path] = 0
            file.write(within, part)
            self._made[path] = max(self._made[path], within + len(part))
            byte += len(part)
            view = view[len(part) :]

    def write_placed(self, topic: str, queue_id: int, placed: PlacedUnits) -> None:
        """Writes units and the fillers before them. If the queue begins anew, its files are removed first; see `write`."""
        if placed.placement is Placement.ANEW:
            self.remove_queue(topic, queue_id)
        for at, units in fillers(placed.fill_begin, placed.queue_offset):
            self.write(topic, queue_id, at, units)
        self.write(topic, queue_id, placed.queue_offset, placed.units)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Removes all files of a queue, also those that another task wrote."""
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
        for path in [path for path in self._made if path.parent == directory]:
            self._files.forget(path)
            del self._made[path]

    def flush(self) -> None:
        """Flushes everything written; FlushFailedError if the disk refuses."""
        for path in self._made:
            self._files.get(path).flush()

    def close(self) -> None:
        """Closes all files."""
        self._files.close()


class KeySpill:
    """The keys of one split, in log order, in three scratch files of one column each.

    Args:
        fs: the port to the disk.
        stem: path of the files without their endings.
    """

    def __init__(self, fs: FileSystem, stem: Path) -> None:
        self._fs = fs
        self._fds: list[int] = []
        self.key_count = 0
        fs.mkdirs(stem.parent)
        for name, _ in COLUMNS:
            self._fds.append(fs.open(f"{stem}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))

    def append(self, hashes: npt.NDArray[np.int32], offsets: Ints, times_millis: Ints) -> None:
        """Appends keys; offsets are commit-log offsets in bytes."""
        columns: tuple[npt.NDArray[Any], ...] = (hashes, offsets, times_millis)
        for fd, (_, dtype), column in zip(self._fds, COLUMNS, columns, strict=True):
            assert column.dtype == dtype, column.dtype
            self._fs.pwrite(fd, np.ascontiguousarray(column).data.cast("B"), self.key_count * dtype.itemsize)
        self.key_count += len(hashes)

    def close(self) -> None:
        """Closes the files."""
        while self._fds:
            self._fs.close(self._fds.pop())


class KeyPart(NamedTuple):
    """A range of keys of one spill: `key_count` keys from number `first` on."""

    stem: str
    first: int
    key_count: int


Keys = tuple[npt.NDArray[np.int32], Ints, Ints]


def read_keys(fs: FileSystem, parts: Iterable[KeyPart], key_count_max: int = FILL_KEY_COUNT) -> Iterator[Keys]:
    """Hashes, commit-log offsets (bytes) and store times (milliseconds) of keys, at most `key_count_max` at a time."""
    for stem, first, count in parts:
        fds = [fs.open(f"{stem}.{name}", os.O_RDONLY) for name, _ in COLUMNS]
        try:
            for at in range(first, first + count, key_count_max):
                size = min(key_count_max, first + count - at)
                hashes, offsets, times = (
                    np.frombuffer(fs.pread(fd, size * dtype.itemsize, at * dtype.itemsize), dtype=dtype)
                    for fd, (_, dtype) in zip(fds, COLUMNS, strict=True)
                )
                yield hashes, offsets, times
        finally:
            for fd in fds:
                fs.close(fd)


@dataclass(frozen=True, slots=True)
class IndexFilePlan:
    """One index file to be made.

    Attributes:
        path: the file.
        layout: its slots and entries.
        parts: its keys.
        before_time_millis: store time of the last key of the file before; 0 for a store's first file.
        before_offset: commit-log offset of that key's record (bytes); 0 for a store's first file.
        is_flushed: whether the file must be flushed.
    """

    path: str
    layout: IndexLayout
    parts: tuple[KeyPart, ...]
    before_time_millis: int
    before_offset: int
    is_flushed: bool


def plan_index_files(
    root: Path,
    names: Iterator[str],
    layout: IndexLayout,
    spills: list[tuple[str, int]],
    *,
    key_before: Iterable[tuple[int, int]],
    is_followed: bool,
    is_flushed: bool,
) -> list[IndexFilePlan]:
    """Divides the keys into files; see `store/derive/index_state.py`.

    Args:
        root: the output root.
        names: names of index files, ascending.
        layout: slots and entries of the files.
        spills: stem and key count of each split, in log order.
        key_before: store time and commit-log offset of the key before each file but the first.
        is_followed: whether a record without keys follows the last record with keys.
        is_flushed: see IndexFilePlan.
    """
    room = entries_per_file(layout.entry_count_max)
    total = sum(count for _, count in spills)
    file_count = index_file_count(total, layout.entry_count_max, is_followed=is_followed)
    before = iter(key_before)
    plans = []
    for number in range(file_count):
        time_millis, offset = next(before) if number else (0, 0)
        plans.append(
            IndexFilePlan(
                str(Path(index_dir(str(root))) / next(names)),
                layout,
                tuple(_cut(spills, number * room, min((number + 1) * room, total))),
                time_millis,
                offset,
                is_flushed,
            )
        )
    return plans


def keys_before(fs: FileSystem, layout: IndexLayout, spills: list[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """Store time and commit-log offset of the last key of each full file."""
    room = entries_per_file(layout.entry_count_max)
    total = sum(count for _, count in spills)
    for end in range(room, total + 1, room):
        for _, offsets, times in read_keys(fs, _cut(spills, end - 1, end)):
            yield int(times[0]), int(offsets[0])


def _cut(spills: list[tuple[str, int]], begin: int, end: int) -> Iterator[KeyPart]:
    """The parts of the spills that hold the keys with the numbers `[begin, end)`."""
    base = 0
    for stem, count in spills:
        first, last = max(begin - base, 0), min(end - base, count)
        if first < last:
            yield KeyPart(stem, first, last - first)
        base += count


def write_index_file(fs: FileSystem, plan: IndexFilePlan, keys: Iterable[Keys] | None = None) -> IndexHeader:
    """Writes one index file; returns its header.

    Args:
        fs: the port to the disk.
        plan: describes the file.
        keys: its keys, at most FILL_KEY_COUNT at a time; None to read the plan's parts.
    """
    layout = plan.layout
    state = IndexFileState.seeded(
        layout.slot_count,
        layout.entry_count_max,
        end_time_millis=plan.before_time_millis,
        end_commit_log_offset=plan.before_offset,
    )
    files = OpenFiles(fs)
    file = files.create(Path(plan.path), layout.file_size_bytes)
    try:
        filler = IndexFiller(state, FILL_KEY_COUNT)
        for hashes, offsets, times_millis in read_keys(fs, plan.parts) if keys is None else keys:
            position = entry_position(state.header.entry_count, layout.slot_count)
            file.write(position, filler.fill(hashes, offsets, times_millis))
        for first in range(0, layout.slot_count, SLOT_PIECE_COUNT):
            heads = state.heads[first : first + SLOT_PIECE_COUNT]
            if heads.any():
                file.write(HEADER_SIZE + first * SLOT_SIZE, heads.astype(">i4").data.cast("B"))
        file.write(0, encode_index_header(state.header))
        if plan.is_flushed:
            file.flush()
    finally:
        files.close()
    return state.header
