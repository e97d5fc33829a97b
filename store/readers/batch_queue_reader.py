"""Read-only access to queues of `queue.type=BatchCQ`: which there are, and the range of each. A broker writes them.

Units lie one behind the other in files of one size, and rise by commit-log offset and by queue offset. What lies behind the
last whole unit is nothing; a unit whose record the log does not have whole is what a broker cuts at its next start.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from store.files.file_system import FileSystem
from store.format.derived.batch_unit import BATCH_UNIT_SIZE_BYTES, BatchUnit, decode_batch_unit
from store.format.paths import batch_queue_dir, is_topic_folder_name, log_file_name, parse_queue_folder_name
from store.readers.queue_reader import file_offsets, first_true


class BatchRange(NamedTuple):
    """The range of a queue by its files: the first and the next queue offset, and the last unit that was counted."""

    min_offset: int
    max_offset: int
    last: BatchUnit


def list_batch_queue_ids(fs: FileSystem, root: Path) -> list[tuple[str, int]]:
    """Topic and queue id of every queue folder in `batchconsumequeue/`, sorted."""
    base = Path(batch_queue_dir(str(root)))
    return sorted(
        (topic, queue_id)
        for topic in _folders(fs, base)
        if is_topic_folder_name(topic)
        for name in _folders(fs, base / topic)
        if (queue_id := parse_queue_folder_name(name)) is not None
    )


def read_batch_range(
    fs: FileSystem, root: Path, topic: str, queue_id: int, log_first_offset: int, log_end_offset: int
) -> BatchRange | None:
    """The range of a queue as its files have it; None when they have no unit.

    Args:
        fs: the disk port.
        root: the store root.
        topic: of the queue.
        queue_id: of the queue.
        log_first_offset: units of records before it are as removed ones (bytes).
        log_end_offset: units of records that end behind it do not count (bytes).
    """
    directory = Path(batch_queue_dir(str(root))) / topic / str(queue_id)
    last: BatchUnit | None = None
    min_offset: int | None = None
    for units in _files(fs, directory):
        count = units.count_within(log_end_offset)
        if not count:
            continue
        last = units[count - 1]
        if min_offset is None and last.commit_log_offset >= log_first_offset:
            min_offset = units.first_from(log_first_offset, count).queue_offset
    if last is None:
        return None
    max_offset = last.queue_offset + last.message_count
    return BatchRange(max_offset if min_offset is None else min_offset, max_offset, last)


def _folders(fs: FileSystem, directory: Path) -> list[str]:
    return [name for name in fs.listdir(directory) if fs.is_dir(directory / name)] if fs.is_dir(directory) else []


class _UnitFile:
    def __init__(self, fs: FileSystem, fd: int, size_bytes: int) -> None:
        self._fs, self._fd = fs, fd
        self._count = size_bytes // BATCH_UNIT_SIZE_BYTES

    def __getitem__(self, number: int) -> BatchUnit:
        data = self._fs.pread(self._fd, BATCH_UNIT_SIZE_BYTES, number * BATCH_UNIT_SIZE_BYTES)
        return decode_batch_unit(data.ljust(BATCH_UNIT_SIZE_BYTES, b"\0"))  # the file was cut meanwhile

    def count_within(self, log_end_offset: int) -> int:
        """How many whole units there are whose record ends within the log."""

        def is_behind(number: int) -> bool:
            unit = self[number]
            return not unit.is_whole or unit.next_offset > log_end_offset

        return first_true(0, self._count, is_behind)

    def first_from(self, log_first_offset: int, count: int) -> BatchUnit:
        """The first of so many units whose record lies at that place of the log or behind it; there is one."""
        return self[first_true(0, count - 1, lambda number: self[number].commit_log_offset >= log_first_offset)]


def _files(fs: FileSystem, directory: Path) -> Iterator[_UnitFile]:
    for first_byte in file_offsets(fs, directory):
        path = directory / log_file_name(first_byte)
        try:
            fd = fs.open(path, os.O_RDONLY)
        except FileNotFoundError:  # a broker that runs on this store removed it
            continue
        try:
            yield _UnitFile(fs, fd, fs.stat_size(path))
        finally:
            fs.close(fd)
