"""The files that a rebuild writes: units at their places, index files from their first key to their last.

Everything is written with `pwrite` into files of their full size, sparse, as the online builders make them. A task that
is run again writes the same bytes at the same places.
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

from store.builders.index_state import IndexFileState, Ints
from store.files.file_system import FileSystem
from store.format.index_layout import HEADER_SIZE, SLOT_SIZE, IndexHeader, encode_index_header, entry_position
from store.format.paths import index_dir, log_file_name, queue_dir
from store.format.queue_unit import UNIT_SIZE_BYTES
from store.kernels.index_fill import IndexFiller
from store.readers.index_reader import IndexLayout
from store.readers.open_files import OpenFiles

FILL_KEY_COUNT = 1 << 18  # 5 MB of entries at a time
# Slots are written by pieces, and a piece without a head stays a hole of the file.
SLOT_PIECE_COUNT = 1 << 16
COLUMNS: tuple[tuple[str, np.dtype[Any]], ...] = (
    ("hashes", np.dtype(np.int32)),
    ("offsets", np.dtype(np.int64)),
    ("times", np.dtype(np.int64)),
)


class QueueFiles:
    """Writes units of any queue of a root.

    Args:
        fs: the door to the disk.
        root: the store root to be made.
        file_size_bytes: of queue files.
    """

    def __init__(self, fs: FileSystem, root: Path, file_size_bytes: int) -> None:
        self._root = root
        self._file_size_bytes = file_size_bytes
        self._files = OpenFiles(fs)
        self._made: dict[Path, int] = {}

    @property
    def unit_counts(self) -> dict[Path, int]:
        """The files that were written, and the units of each, up to the last."""
        return {path: end // UNIT_SIZE_BYTES for path, end in self._made.items()}

    def write(self, topic: str, queue_id: int, queue_offset: int, units: memoryview | bytes) -> None:
        """Writes units at consecutive positions from `queue_offset` on.

        Raises:
            InvalidArgumentError: no folder can be made for such a topic or queue.
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

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Removes all files of a queue, of whoever wrote them."""
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
        for path in [path for path in self._made if path.parent == directory]:
            self._files.forget(path)
            del self._made[path]

    def flush(self) -> None:
        """Everything written is on the disk afterwards, or FlushFailedError."""
        for path in self._made:
            self._files.get(path).flush()

    def close(self) -> None:
        """Closes all files."""
        self._files.close()


class KeySpill:
    """The keys of one split, in log order, in three files of one column each, in scratch.

    Args:
        fs: the door to the disk.
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
        """Keys behind those before."""
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
    """Some keys of one spill: `key_count` from number `first` on."""

    stem: str
    first: int
    key_count: int


Keys = tuple[npt.NDArray[np.int32], Ints, Ints]


def read_keys(fs: FileSystem, parts: Iterable[KeyPart], key_count_max: int = FILL_KEY_COUNT) -> Iterator[Keys]:
    """Hashes, commit-log offsets and store times of keys, at most so many at a time."""
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
        layout: how it is divided.
        parts: its keys.
        before_time_millis: store time of the newest key of the file before; 0 for a store's first.
        before_offset: its record's commit-log offset; 0 likewise.
        is_flushed: whether it must be on the disk afterwards.
    """

    path: str
    layout: IndexLayout
    parts: tuple[KeyPart, ...]
    before_time_millis: int
    before_offset: int
    is_flushed: bool


def index_file_count(layout: IndexLayout, key_count: int, *, is_rolled: bool) -> int:
    """How many index files so many keys make; for `is_rolled` see `plan_index_files`."""
    room = layout.entry_count_max - 1
    file_count = -(-key_count // room)
    return file_count + 1 if is_rolled and key_count == file_count * room else file_count


def plan_index_files(
    root: Path,
    names: Iterator[str],
    layout: IndexLayout,
    spills: list[tuple[str, int]],
    *,
    key_before: Iterable[tuple[int, int]],
    is_rolled: bool,
    is_flushed: bool,
) -> list[IndexFilePlan]:
    """How the keys are cut into files: each takes one less than `entry_count_max`; a file is made by the next message
    after the one before is full, even by one without keys, and so is a store's first.

    Args:
        root: the store root to be made.
        names: of index files, rising.
        layout: of the files.
        spills: stem and key count of each split, in log order.
        key_before: store time and commit-log offset of the key before each file but the first.
        is_rolled: whether a message follows the last key's, or there are messages and no key.
        is_flushed: see IndexFilePlan.
    """
    room = layout.entry_count_max - 1
    total = sum(count for _, count in spills)
    file_count = index_file_count(layout, total, is_rolled=is_rolled)
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
    room = layout.entry_count_max - 1
    total = sum(count for _, count in spills)
    for end in range(room, total + 1, room):
        for _, offsets, times in read_keys(fs, _cut(spills, end - 1, end)):
            yield int(times[0]), int(offsets[0])


def _cut(spills: list[tuple[str, int]], begin: int, end: int) -> Iterator[KeyPart]:
    """The parts of the spills that hold the keys `[begin, end)` of all."""
    base = 0
    for stem, count in spills:
        first, last = max(begin - base, 0), min(end - base, count)
        if first < last:
            yield KeyPart(stem, first, last - first)
        base += count


def write_index_file(fs: FileSystem, plan: IndexFilePlan, keys: Iterable[Keys] | None = None) -> IndexHeader:
    """Makes one index file; its header.

    Args:
        fs: the door to the disk.
        plan: what it is to hold.
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
