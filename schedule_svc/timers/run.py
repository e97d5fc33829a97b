"""Run: sorted entries of which a first part is taken; in memory, or in a file that is mapped.

A file holds the columns one after the other (`entries.py`), in the byte order of the machine. It is derived: its table
(`run_files.py`) has its CRC, and one that is damaged or lost is made again from the timer topic.
"""

import mmap
import os
import zlib
from pathlib import Path

import numpy as np

from schedule_svc.timers.entries import ENTRY_SIZE_BYTES, Entries

READ_BYTES = 1 << 20


class Run:
    """See the top of this file.

    Args:
        entries: sorted.
        path: the file that has them; None: they are in memory.
        crc: of the file.
        mapping: the file, mapped.

    Attributes:
        cursor: entries before this index are taken.
    """

    def __init__(
        self, entries: Entries, path: Path | None = None, crc: int = 0, mapping: mmap.mmap | None = None
    ) -> None:
        self.entries = entries
        self.path = path
        self.crc = crc
        self.cursor = 0
        self._mapping = mapping
        self._oldest_at = -1

    def __len__(self) -> int:
        return len(self.entries) - self.cursor

    def first_due_millis(self) -> int:
        """When its first entry is due; only while it has one."""
        return int(self.entries.dues_millis[self.cursor])

    def rest(self) -> Entries:
        """The entries that are not taken."""
        return self.entries.pick(slice(self.cursor, None))

    def oldest_offset(self) -> int:
        """The least commit log offset of those that are not taken (bytes); only while there is one."""
        if self._oldest_at < self.cursor:
            self._oldest_at = self.cursor + int(np.argmin(self.entries.commit_log_offsets[self.cursor :]))
            self.forget_pages()
        return int(self.entries.commit_log_offsets[self._oldest_at])

    def forget_pages(self) -> None:
        """Give the memory of the file's pages back; they are read again when they are needed."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)


def write_run(path: Path, entries: Entries) -> Run:
    """A new file with entries, on the disk, as a run."""
    crc = 0
    with open(path, "wb") as file:
        for column in (
            entries.dues_millis,
            entries.queue_offsets,
            entries.commit_log_offsets,
            entries.keys,
            entries.sizes_bytes,
        ):
            data = np.ascontiguousarray(column).data.cast("B") if len(column) else b""
            file.write(data)
            crc = zlib.crc32(data, crc)
        file.flush()
        os.fsync(file.fileno())
    return map_run(path, len(entries), crc)


def map_run(path: Path, count: int, crc: int) -> Run:
    """The run of a file with so many entries.

    Raises:
        OSError, ValueError: there is no such file.
    """
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), count * ENTRY_SIZE_BYTES, access=mmap.ACCESS_READ)
    dues, offsets, log_offsets, keys = (
        np.frombuffer(mapping, np.int64, count, number * count * 8) for number in range(4)
    )
    sizes_bytes = np.frombuffer(mapping, np.int32, count, 4 * count * 8)
    return Run(Entries(dues, offsets, log_offsets, keys, sizes_bytes), path, crc, mapping)


def is_intact(path: Path, count: int, crc: int) -> bool:
    """Whether a file has so many entries and this CRC."""
    found = 0
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size != count * ENTRY_SIZE_BYTES:
                return False
            while data := file.read(READ_BYTES):
                found = zlib.crc32(data, found)
    except OSError:
        return False
    return found == crc
