"""One file of a fixed size inside a larger address space: it is named by the address of its first byte.

RocketMQ maps such files. Here they are written with `pwrite` to blocks that were allocated before (a mapped write to a full
disk kills the process), and read with `pread`. Positions given to a MappedFile are addresses of the whole space, not
of the file. Its owner, not the MappedFile, knows how far it is written.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from store.files.file_system import FileSystem

ZERO_CHUNK_BYTES = 1 << 20


class MappedFile:
    """An open file that covers the addresses `[first_offset, last_offset)`.

    Args:
        fs: the disk port.
        path: the file; it must exist.
        first_offset: address of its first byte.
        size_bytes: how many addresses it covers; the file on the disk may be shorter (an interrupted creation);
            reads end where it ends.
        writable: False opens it for reading only.
    """

    def __init__(
        self, fs: FileSystem, path: Path, first_offset: int, size_bytes: int, *, writable: bool = True
    ) -> None:
        self.path = path
        self.first_offset = first_offset
        self.size_bytes = size_bytes
        self.last_offset = first_offset + size_bytes
        self._fs = fs
        self._fd = fs.open(path, os.O_RDWR if writable else os.O_RDONLY)

    @property
    def fd(self) -> int:
        """The descriptor, for owners that map the file to read it."""
        return self._fd

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes from address `offset`; fewer at the end of the file."""
        assert self.first_offset <= offset <= self.last_offset
        return self._fs.pread(self._fd, min(size_bytes, self.last_offset - offset), offset - self.first_offset)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fills `buffer` from address `offset`; returns how many bytes were read before the file's end."""
        assert self.first_offset <= offset <= self.last_offset
        room = buffer[: self.last_offset - offset]
        return self._fs.pread_into(self._fd, room, offset - self.first_offset)

    def will_read(self, begin_offset: int, end_offset: int) -> None:
        """Says that the addresses `[begin_offset, end_offset)` will be read soon, in rising order."""
        self._fs.will_read(self._fd, begin_offset - self.first_offset, end_offset - self.first_offset)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data` at address `offset`; it must lie inside the file."""
        assert self.first_offset <= offset
        assert offset + len(data) <= self.last_offset
        self._fs.pwrite(self._fd, data, offset - self.first_offset)

    def write_parts(self, offset: int, parts: Sequence[bytes | bytearray | memoryview], size_bytes: int) -> None:
        """Writes all of `parts` (`size_bytes` together) from address `offset` on, with one system call."""
        assert self.first_offset <= offset
        assert offset + size_bytes <= self.last_offset
        self._fs.pwritev(self._fd, parts, offset - self.first_offset)

    def zero(self, begin_offset: int, end_offset: int) -> None:
        """Zeros the addresses `[begin_offset, end_offset)`, where they were ever written."""
        for begin, end in self.data_ranges(begin_offset):
            for position in range(begin, min(end, end_offset), ZERO_CHUNK_BYTES):
                self.write(position, bytes(min(ZERO_CHUNK_BYTES, end - position, end_offset - position)))

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        """The ranges `[begin, end)` from address `offset` on that may hold written bytes; all else reads as zeros.

        All ranges are found before any is read: allocated blocks that were never written count as written while they are
        cached, and a read also caches the blocks that follow.
        """
        self._fs.drop_cache(self._fd, offset - self.first_offset)
        ranges = []
        position: int | None = offset - self.first_offset
        while position is not None and position < self.size_bytes:
            position = self._fs.next_data(self._fd, position)
            if position is not None and position < self.size_bytes:
                end = min(self._fs.next_hole(self._fd, position), self.size_bytes)
                ranges.append((self.first_offset + position, self.first_offset + end))
                position = end
        return ranges

    def flush(self) -> None:
        """Flushes everything written to the disk; do not try again after FlushFailedError."""
        self._fs.fdatasync(self._fd)

    def is_in_place(self) -> bool:
        """Whether its path still names it: not removed, moved or replaced, nor its directory."""
        return self._fs.is_at(self._fd, self.path)

    def close(self) -> None:
        """Closes the file without a flush."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
