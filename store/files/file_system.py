"""The disk port: every system call that reads or changes a store file goes through a `FileSystem`.

Rules:
- Writing is `pwrite` at a given position: all bytes or an error. The position of the descriptor is never used.
- "No room" (ENOSPC, EDQUOT) is a `DiskFullError`; a refused flush is a `FlushFailedError` and must not be tried again:
  Linux marks the pages clean after the first failure, so a second flush says OK without having written anything.
- Bytes that the disk cannot read back are a `StoreCorruptedError` that names file and byte.
- No free file handle is a `ResourceBusyError`: nothing is wrong with the store.
- A new directory is on the disk, in its parent, before `mkdirs` returns, unless its caller flushes the parents later.
- A missing directory lists as empty.
- File handles are real file descriptors, so that a reader may map them.

`overlay_file_system.py` is the same port for a store that must not be changed: writes go to anonymous memory.
`pipeline/object_files.py` is the port, for reading, over an object store; only its handles are not descriptors.

drop_cached_pages drops the page cache of files, so that reads return what the disk holds.

After a refused flush Linux marks the pages clean and still returns them: bytes that are read then may be missing on the disk.
Linux also keeps a large folio while any part of it is dirty, for example when another write came during that flush. So all
dirty pages are written first. The result of that flush is ignored, because only the bytes that are read afterwards count.
Each file is opened anew for this, so that no descriptor in use sees a second flush after a refused one.
"""

import errno
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from store.errors import DiskFullError, FlushFailedError, ResourceBusyError, StoreCorruptedError, UnsupportedStoreError

PathLike = str | Path
FILE_MODE = 0o666  # less the umask: store/files/umask.py
VECTOR_COUNT_MAX = 1024  # IOV_MAX on Linux
# Of these a flush of the whole puts bytes, sizes and names on the disk; others may leave that to each file.
WHOLE_DISK_TYPES = ("ext4", "xfs")


STAT_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system


class FileStamp(NamedTuple):
    """What a file system says about a file; a write by any program changes it. Times are nanoseconds since 1970."""

    size_bytes: int
    modified_nanos: int
    inode: int
    changed_nanos: int

    def differs_in_content(self, other: "FileStamp") -> bool:
        """Whether the bytes may be others: a new owner, mode or hard link alone changes only the last field."""
        return self[:3] != other[:3]

    @classmethod
    def of(cls, state: os.stat_result) -> "FileStamp":
        """From a call of stat."""
        return cls(state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns)


class FileSystem(Protocol):
    """What the store needs from a disk. Sizes and positions are bytes; errors are OSError or those of this module."""

    def open(self, path: PathLike, flags: int, mode: int = FILE_MODE) -> int:
        """A file descriptor for `path`; `flags` as for os.open. ResourceBusyError when no handle is left."""

    def close(self, fd: int) -> None:
        """Closes the descriptor."""

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` bytes from `position`; fewer only at the end of the file.

        StoreCorruptedError when the disk cannot read them.
        """

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """As `pread`, but fills `buffer`; returns how many bytes were read."""

    def will_read(self, fd: int, position: int, end: int) -> None:
        """Says that the bytes `[position, end)` will be read soon, in rising order; a store with round trips fetches ahead."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data` at `position`, or raises."""

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        """Writes all of `parts`, one behind the other, from `position` on, or raises."""

    def fdatasync(self, fd: int) -> None:
        """The file's bytes and size are on the disk afterwards, or FlushFailedError."""

    def fsync_dir(self, path: PathLike) -> None:
        """The directory's entries are on the disk afterwards, or FlushFailedError."""

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        """Allocates real blocks for that range, or raises DiskFullError."""

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        """Sets the size of the file."""

    def next_data(self, fd: int, position: int) -> int | None:
        """The first position from `position` on that may hold written bytes; None when only zeros follow."""

    def next_hole(self, fd: int, position: int) -> int:
        """The first position behind `position` from which on only zeros are certain; the file's end at the latest."""

    def drop_cache(self, fd: int, position: int) -> None:
        """Forgets clean cached pages, at least those from `position` on, so that reads show what the disk holds."""

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        """Makes the directory and its parents; if `durable`, on the disk before this returns.

        Raises:
            FlushFailedError: the disk refuses to flush.
        """

    def listdir(self, path: PathLike) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""

    def stat_size(self, path: PathLike) -> int:
        """Size of a file in bytes; FileNotFoundError when it does not exist."""

    def allocated_bytes(self, path: PathLike) -> int:
        """The room that a file takes on the disk, without its holes; FileNotFoundError when it does not exist."""

    def stamp(self, path: PathLike) -> FileStamp:
        """Length, times and inode of a file; FileNotFoundError when it does not exist."""

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or directory."""

    def is_dir(self, path: PathLike) -> bool:
        """Whether there is a directory."""

    def is_file(self, path: PathLike) -> bool:
        """Whether there is a regular file: no directory, no pipe, socket or device, no link to nothing."""

    def rename(self, source: PathLike, target: PathLike) -> None:
        """Moves a file over another, atomically."""

    def unlink(self, path: PathLike) -> None:
        """Removes a file."""

    def is_at(self, fd: int, path: PathLike) -> bool:
        """Whether the path names the open file; False after it was removed, moved or replaced."""

    def disk_usage(self, path: PathLike) -> tuple[int, int]:
        """Total bytes of the disk of `path` without the blocks reserved for root, and bytes that may still be written."""


def kind_of(fs: FileSystem, path: PathLike) -> str:
    """The kind of what stands in the place of a regular file, for texts."""
    if fs.is_dir(path):
        return "a directory"
    return "no regular file" if fs.exists(path) else "a link to nothing"


@contextmanager
def shortage_named(path: str) -> Iterator[None]:
    """Turns an OSError that means a shortage into DiskFullError or ResourceBusyError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left for {path}: free some and try again", file=path) from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise ResourceBusyError(
                f"no file handle left for {path}, the process may have {limit}: raise the limit (ulimit -n, LimitNOFILE=) and "
                "restart, or wait until callers have left",
                file=path,
                limit=limit,
            ) from error
        raise


def _path_of(fd: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return f"descriptor {fd}"


class RealFileSystem:
    """The operating system's files."""

    def open(self, path: PathLike, flags: int, mode: int = FILE_MODE) -> int:
        """See FileSystem."""
        with shortage_named(str(path)):
            return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """See FileSystem."""
        os.close(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        """See FileSystem."""
        try:
            data = os.pread(fd, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            parts = [data]
            missing = size_bytes - len(data)
            while missing:
                part = os.pread(fd, missing, position + size_bytes - missing)
                if not part:
                    break
                parts.append(part)
                missing -= len(part)
            return b"".join(parts)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise _unreadable(fd, position) from error

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """See FileSystem."""
        done = 0
        try:
            while done < len(buffer):
                size_bytes = os.preadv(fd, [buffer[done:]], position + done)
                if not size_bytes:
                    break
                done += size_bytes
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise _unreadable(fd, position) from error
        return done

    def will_read(self, fd: int, position: int, end: int) -> None:
        """Does nothing: the operating system reads ahead by itself."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """See FileSystem."""
        try:
            written = os.pwrite(fd, data, position)
            if written == len(data):
                return
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(fd, view[written:], position + written)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            path = _path_of(fd)
            raise DiskFullError(f"no space left for {path}: free some and try again", file=path) from error

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        """See FileSystem."""
        if len(parts) > VECTOR_COUNT_MAX:
            self.pwrite(fd, b"".join(parts), position)
            return
        size_bytes = sum(map(len, parts))
        try:
            written = os.pwritev(fd, parts, position)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            path = _path_of(fd)
            raise DiskFullError(f"no space left for {path}: free some and try again", file=path) from error
        if written < size_bytes:
            self.pwrite(fd, b"".join(parts)[written:], position + written)

    def fdatasync(self, fd: int) -> None:
        """See FileSystem."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            path = _path_of(fd)
            raise FlushFailedError(
                f"the disk refused to flush {path} ({error.strerror}): check the disk, then restart",
                file=path,
                errno=error.errno,
            ) from error

    def fsync_dir(self, path: PathLike) -> None:
        """See FileSystem."""
        with shortage_named(str(path)):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise FlushFailedError(
                f"the disk refused to flush the directory {path} ({error.strerror}): check the disk, then restart",
                file=path,
                errno=error.errno,
            ) from error
        finally:
            os.close(fd)

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        """See FileSystem."""
        try:
            os.posix_fallocate(fd, position, size_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            path = _path_of(fd)
            raise DiskFullError(f"no space left for {path}: free some and try again", file=path) from error

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        """See FileSystem."""
        os.ftruncate(fd, size_bytes)

    def next_data(self, fd: int, position: int) -> int | None:
        """See FileSystem."""
        try:
            return os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno == errno.EINVAL:  # the file system does not report holes: everything may be data
                return position if position < os.fstat(fd).st_size else None
            raise

    def next_hole(self, fd: int, position: int) -> int:
        """See FileSystem."""
        try:
            return os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the file system does not report holes
                return os.fstat(fd).st_size
            raise

    def drop_cache(self, fd: int, position: int) -> None:
        """See FileSystem."""
        # Drop the whole file: of a range the kernel keeps the first page, and the large folio around it.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        """See FileSystem."""
        missing = []
        directory = os.fspath(path)  # as text: a path takes longer to handle than a folder to make
        while not os.path.isdir(directory or "."):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for directory in reversed(missing):
            with shortage_named(directory):
                try:
                    os.mkdir(directory)
                except FileExistsError as error:
                    if not os.path.isdir(directory):
                        raise UnsupportedStoreError(
                            f"{directory} is no directory, or a link that leads to none: move it away and try again",
                            directory=directory,
                        ) from error
            if durable:
                self.fsync_dir(os.path.dirname(directory) or ".")

    def listdir(self, path: PathLike) -> list[str]:
        """See FileSystem."""
        try:
            with shortage_named(str(path)):
                return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def stat_size(self, path: PathLike) -> int:
        """See FileSystem."""
        return os.stat(path).st_size

    def allocated_bytes(self, path: PathLike) -> int:
        """See FileSystem."""
        return os.stat(path).st_blocks * STAT_BLOCK_BYTES

    def stamp(self, path: PathLike) -> FileStamp:
        """See FileSystem."""
        return FileStamp.of(os.stat(path))

    def exists(self, path: PathLike) -> bool:
        """See FileSystem."""
        return os.path.exists(path)

    def is_dir(self, path: PathLike) -> bool:
        """See FileSystem."""
        return os.path.isdir(path)

    def is_file(self, path: PathLike) -> bool:
        """See FileSystem."""
        return os.path.isfile(path)

    def rename(self, source: PathLike, target: PathLike) -> None:
        """See FileSystem."""
        with shortage_named(str(target)):
            os.replace(source, target)

    def unlink(self, path: PathLike) -> None:
        """See FileSystem."""
        os.unlink(path)

    def is_at(self, fd: int, path: PathLike) -> bool:
        """See FileSystem."""
        try:
            named = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(named, os.fstat(fd))

    def disk_usage(self, path: PathLike) -> tuple[int, int]:
        """See FileSystem."""
        state = os.statvfs(path)
        used_blocks = state.f_blocks - state.f_bfree
        return (used_blocks + state.f_bavail) * state.f_frsize, state.f_bavail * state.f_frsize


class WholeDisk:
    """Flushes all files of the file system of a directory in one call, those of other programs, too.

    It fails for what the disk refused since this object was made: make it before the first write.

    Args:
        directory: where the files lie.
        fd: the directory, open.
        sync: flushes the file system of a descriptor; returns the number of an error, or 0.
    """

    def __init__(self, directory: str, fd: int, sync: Callable[[int], int]) -> None:
        self._directory = directory
        self._fd = fd
        self._device = os.fstat(fd).st_dev
        self._sync = sync

    @classmethod
    def of(cls, fs: FileSystem, directory: PathLike) -> "WholeDisk | None":
        """That of a directory; None where it cannot be relied on, so that each file is to be flushed by itself."""
        # A stand-in for the disk does something else when it flushes.
        if type(fs) is not RealFileSystem or not fs.is_dir(directory):
            return None
        if not _tells_failures() or _type_of(directory) not in WHOLE_DISK_TYPES:
            return None
        return cls(str(directory), fs.open(directory, os.O_RDONLY | os.O_DIRECTORY), _syncfs)

    def flush(self) -> None:
        """Everything that was written is on the disk afterwards, or FlushFailedError."""
        if number := self._sync(self._fd):
            raise FlushFailedError(
                f"the disk refused to flush the files below {self._directory} ({os.strerror(number)}): check the disk, then "
                "restart",
                file=self._directory,
                errno=number,
            )

    def holds(self, path: PathLike) -> bool:
        """Whether `flush` flushes a file or directory: a folder on the way to it may be a link to another disk, or a mount."""
        try:
            return os.stat(path).st_dev == self._device
        except FileNotFoundError:
            return True  # there is nothing to flush

    def close(self) -> None:
        """Closes the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _syncfs(fd: int) -> int:
    """The system call, which Python does not have; returns the number of its error, or 0."""
    import ctypes  # with the first flush of many files: it takes memory

    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.syncfs(fd) else 0


def _tells_failures() -> bool:
    """Whether syncfs fails when the disk refused anything: since Linux 5.8."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and numbers is not None and tuple(map(int, numbers.groups())) >= (5, 8)


def _type_of(directory: PathLike) -> str:
    """The type of the file system of a directory, as the mount table says; empty when it does not."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            mount, _, source = line.partition(" - ")
            if mount.split(" ", 3)[2] == wanted:
                return source.split(" ", 1)[0]
    return ""


def _unreadable(fd: int, position: int) -> StoreCorruptedError:
    path = _path_of(fd)
    return StoreCorruptedError(
        f"the disk cannot read {path} at byte {position}: check the disk, then bring the file back from a copy",
        file=path,
        offset=position,
    )


def drop_cached_pages(fs: FileSystem, paths: Iterable[Path]) -> None:
    """Drops the cached pages of each file."""
    for path in paths:
        fd = fs.open(path, os.O_RDONLY)
        try:
            with suppress(FlushFailedError):
                fs.fdatasync(fd)
            fs.drop_cache(fd, 0)
        finally:
            fs.close(fd)
