"""MappedFileQueue: many files of one size as one address space.

- An address is a byte position in the whole space; the file that covers it is named by the address of its first byte,
  in 20 digits. Files with other names are ignored.
- There are no gaps between files. They are added at the end (`add_next`), removed at the front (`retire`) or, after a crash,
  at the end (`drop_from`); never in the middle.
- Only the owner of the directory adds and drops; one thread may add while another retires. Any thread may read at the
  same time: the list of files is replaced, never changed.
- Files are removed one by one, so that no gap is left when the process dies, and a file that could not be removed is still
  in the list. The descriptor of a removed file is closed when the last reader releases the MappedFile.
- With `staging` a new file is made whole (blocks allocated, flushed) outside the directory and then renamed into it, so
  that a crash never leaves a short file: a RocketMQ broker refuses to start on one.
- The file size is that of the existing files; the setting counts only for an empty directory.

MappedFile: one file of a fixed size inside a larger address space: it is named by the address of its first byte.

RocketMQ maps such files. Here they are written with `pwrite` to blocks that were allocated before (a mapped write to a full
disk kills the process), and read with `pread`. Positions given to a MappedFile are addresses of the whole space, not
of the file. Its owner, not the MappedFile, knows how far it is written.
"""

import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from store.errors import DiskFullError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.format.paths import log_file_name, parse_log_file_name

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


def file_size_of(lengths: Mapping[int, int]) -> int:
    """The size that most lengths of files and distances between them agree on, in bytes; 0 when nothing tells it.

    So neither a missing file nor one of a wrong length decides.

    Args:
        lengths: of the files, by their first addresses.
    """
    distances = [behind - before for before, behind in pairwise(sorted(lengths))]
    votes = Counter(size for size in (*lengths.values(), *distances) if size > 0)
    # Of two sizes with equal votes the one from names: lengths are damaged more easily than names.
    return max(votes, key=lambda size: (votes[size], size in distances, -size)) if votes else 0


class MappedFileQueue:
    """The files of one directory, opened.

    Args:
        fs: the disk port.
        directory: where the files lie; created with the first file.
        file_size_bytes: size of a file when the directory has none.
        writable: False opens everything for reading and refuses to add or drop.
        allocate: gives new files real blocks (commit log); otherwise ftruncate makes them, sparse.
        staging: a directory on the same disk in which new files are prepared.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        file_size_bytes: int,
        *,
        writable: bool = True,
        allocate: bool = False,
        staging: Path | None = None,
    ) -> None:
        self.directory = directory
        self.file_size_bytes = file_size_bytes
        self._fs = fs
        self._writable = writable
        self._allocate = allocate
        self._staging = staging
        self._files: tuple[MappedFile, ...] = ()
        self._list_lock = threading.Lock()  # held to replace the list, not while files are made or removed

    def load(self) -> None:
        """Finds and opens the files; StoreCorruptedError when one is missing between two others or has a wrong size.

        A shorter last file (an interrupted creation) is accepted, and completed if `writable`.
        """
        self.close()
        offsets = sorted(
            offset
            for name in self._fs.listdir(self.directory)
            if (offset := parse_log_file_name(name)) is not None and self._is_log_file(self.directory / name)
        )
        sizes = {offset: self._fs.stat_size(self.path_of(offset)) for offset in offsets}
        self.file_size_bytes = file_size_of(sizes) or self.file_size_bytes
        for index, offset in enumerate(offsets):
            expected = offsets[0] + index * self.file_size_bytes
            if offset != expected:
                path = self.path_of(expected)
                raise StoreCorruptedError(
                    f"{path} is missing between its neighbours: bring it back from a copy, or, of a broker with several "
                    "storePathCommitLog, from its other directories",
                    file=path,
                    offset=expected,
                )
            is_last = index == len(offsets) - 1
            if sizes[offset] > self.file_size_bytes or (sizes[offset] < self.file_size_bytes and not is_last):
                path = self.path_of(offset)
                raise StoreCorruptedError(
                    f"{path} has {sizes[offset]} bytes, its neighbours have {self.file_size_bytes}: bring it back from a copy",
                    file=path,
                    offset=offset,
                )
        files = [
            MappedFile(self._fs, self.path_of(offset), offset, self.file_size_bytes, writable=self._writable)
            for offset in offsets
        ]
        if files and self._writable and sizes[offsets[-1]] < self.file_size_bytes:
            with suppress(DiskFullError):  # the owner's writes to it will be refused, reads go on
                self._give_blocks(files[-1].fd)
        self._files = tuple(files)

    def _is_log_file(self, path: Path) -> bool:
        if self._fs.is_file(path):
            return True
        if not self._fs.exists(path):
            raise StoreCorruptedError(
                f"{path} is a link to nothing: bring back the file that it names, or remove the link",
                file=path,
                offset=0,
            )
        return False

    def path_of(self, offset: int) -> Path:
        """The path of the file whose first address is `offset`."""
        return self.directory / log_file_name(offset)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, by address."""
        return self._files

    @property
    def first_offset(self) -> int:
        """The first address; 0 without files."""
        return self._files[0].first_offset if self._files else 0

    @property
    def last_offset(self) -> int:
        """The address behind the last file; 0 without files."""
        return self._files[-1].last_offset if self._files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that covers an address, or None."""
        files = self._files
        if not files:
            return None
        index = (offset - files[0].first_offset) // self.file_size_bytes
        return files[index] if 0 <= index < len(files) else None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes from an address, across files; fewer where the files end."""
        file = self.find(offset)
        if file is None:
            return b""
        data = file.read(offset, size_bytes)
        if len(data) == size_bytes:
            return data
        parts = [data]
        offset += len(data)
        size_bytes -= len(data)
        while size_bytes and data and (file := self.find(offset)) is not None:
            data = file.read(offset, size_bytes)
            parts.append(data)
            offset += len(data)
            size_bytes -= len(data)
        return b"".join(parts)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data` at an address, across files; they must exist."""
        view = memoryview(data)
        while view:
            file = self.find(offset)
            assert file is not None
            size_bytes = min(len(view), file.last_offset - offset)
            file.write(offset, view[:size_bytes])
            offset += size_bytes
            view = view[size_bytes:]

    def add_next(self, first_offset: int = 0) -> MappedFile:
        """Makes the next file and opens it; the file is whole and on the disk when this returns.

        `first_offset` is its address when there are no files. After DiskFullError nothing of it is left.
        """
        assert self._writable
        offset = self.last_offset if self._files else first_offset
        path = self.path_of(offset)
        self._fs.mkdirs(self.directory)
        making = path if self._staging is None else self._staging / path.name
        if self._staging is not None:
            self._fs.mkdirs(self._staging)
        fd = self._fs.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._give_blocks(fd)
            self._fs.fdatasync(fd)
        except BaseException:
            self._fs.close(fd)
            self._fs.unlink(making)
            raise
        self._fs.close(fd)
        if making != path:
            self._fs.rename(making, path)
        self._fs.fsync_dir(self.directory)
        file = MappedFile(self._fs, path, offset, self.file_size_bytes)
        with self._list_lock:
            self._files = (*self._files, file)
        return file

    def take(self, source: Path, first_offset: int) -> MappedFile:
        """Moves a whole, flushed file to the end and opens it; it is on the disk under its new name when this returns.

        Args:
            source: the file, on the same disk.
            first_offset: its first address: behind the last file, or of the last one if that was made ahead and is empty.
        """
        assert self._writable
        kept = [file for file in self._files if file.last_offset <= first_offset]
        assert len(self._files) <= len(kept) + 1
        assert not kept or kept[-1].last_offset == first_offset
        path = self.path_of(first_offset)
        self._fs.mkdirs(self.directory)
        self._fs.rename(source, path)
        self._fs.fsync_dir(self.directory)
        file = MappedFile(self._fs, path, first_offset, self.file_size_bytes)
        with self._list_lock:
            replaced, self._files = self._files[len(kept) :], (*kept, file)
        for old in replaced:
            weakref.finalize(old, self._fs.close, old.fd)
        return file

    def retire(self, before_offset: int, count_max: int | None = None) -> list[Path]:
        """Removes the files that lie wholly before an address, oldest first, but never the last one; returns their paths.

        Args:
            before_offset: a file that reaches beyond it stays.
            count_max: the most files to remove.

        Raises:
            OSError: a file could not be removed; it and all later files stay.
            FlushFailedError: files were removed, but the directory could not be flushed.
        """
        assert self._writable
        old = [file for file in self._files[:-1] if file.last_offset <= before_offset]
        return self._remove(old[:count_max])

    def drop_from(self, offset: int) -> list[Path]:
        """Removes the files that begin at or behind an address, newest first; returns their paths; errors like `retire`."""
        assert self._writable
        return self._remove([file for file in reversed(self._files) if file.first_offset >= offset])

    def truncate(self, offset: int) -> None:
        """Removes everything from an address on: later files go, the rest of its file is zeroed; durable on return."""
        self.drop_from(offset)
        file = self.find(offset)
        if file is not None:
            file.zero(offset, file.last_offset)
            file.flush()

    def iterate(self, begin_offset: int, end_offset: int, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
        """The bytes of `[begin_offset, end_offset)` in pieces that never cross a file: (address, bytes)."""
        offset = begin_offset
        while offset < end_offset:
            file = self.find(offset)
            if file is None:
                return
            data = file.read(offset, min(chunk_bytes, end_offset - offset))
            if not data:
                return
            yield offset, data
            offset += len(data)

    def close(self) -> None:
        """Closes the files without a flush."""
        files, self._files = self._files, ()
        for file in files:
            file.close()

    def _give_blocks(self, fd: int) -> None:
        if self._allocate:
            self._fs.fallocate(fd, 0, self.file_size_bytes)
        else:
            self._fs.ftruncate(fd, self.file_size_bytes)

    def _remove(self, files: list[MappedFile]) -> list[Path]:
        removed: list[Path] = []
        try:
            for file in files:
                with suppress(FileNotFoundError):  # it was already removed
                    self._fs.unlink(file.path)
                with self._list_lock:
                    self._files = tuple(kept for kept in self._files if kept is not file)
                # A reader may still use the descriptor; after a close its number could stand for another file.
                weakref.finalize(file, self._fs.close, file.fd)
                removed.append(file.path)
        finally:
            if removed:
                self._fs.fsync_dir(self.directory)
        return removed
