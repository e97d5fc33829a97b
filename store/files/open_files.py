"""OpenFiles: a bounded set of open files, shared by threads; and the process's limit of open files.

A store has thousands of queues, a process has fewer descriptors. A file that falls out of the set stays open while a
caller holds it. Files are opened for reading, and opened again for writing at the first `get(..., writing=True)`: a caller that
only reads needs no permission to write.
"""

import logging
import os
import resource
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock

from store.errors import UnsupportedStoreError
from store.files.file_system import FileSystem, PathLike

OPEN_FILE_COUNT_MAX = 512
# With fewer, a queue that is read beside one that is written would close the other's file each time.
OPEN_FILE_COUNT_MIN = 8
# Descriptors of a builder besides these files: 30 of Python and gRPC while it is idle, and one or two for each caller.
OTHER_DESCRIPTOR_COUNT = 48
# With fewer, a service says so at its start: it runs, and callers or log files soon take the rest.
DESCRIPTOR_COUNT_FEW = 256
# fs.nr_open of Linux: a higher limit is refused.
DESCRIPTOR_COUNT_MAX = 1 << 20
SCAN_SIZE_BYTES = 65_536


def raise_open_file_limit() -> int:
    """Raises the soft limit of this process's descriptors to its hard limit, where that is allowed; returns the soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTOR_COUNT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_file_limit()


def open_file_count_max() -> int:
    """How many files a set keeps open: half of what the soft limit leaves, because callers hold files, too."""
    return min(OPEN_FILE_COUNT_MAX, max(OPEN_FILE_COUNT_MIN, (open_file_limit() - OTHER_DESCRIPTOR_COUNT) // 2))


def open_file_limit() -> int:
    """The soft limit of this process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTOR_COUNT_MAX if soft == resource.RLIM_INFINITY else soft


def open_standard_descriptors() -> None:
    """Opens the null device in place of standard input, output and errors that this process was started without.

    Otherwise the next file has the number of one of them, and gets what a library writes to standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(
                os.open(os.devnull, os.O_RDWR), True
            )  # it takes the lowest number that is free: this one


_log = logging.getLogger("reput.files")


class OpenFile:
    """One open file; closed when the last reference to it goes. Positions and sizes are bytes of the file."""

    def __init__(self, fs: FileSystem, path: PathLike, *, is_writable: bool) -> None:
        self._fs = fs
        self._path = path
        self.is_writable = is_writable
        self.fd = fs.open(path, os.O_RDWR if is_writable else os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes; fewer only at the file's end.

        Raises:
            OSError: the disk refused; the error names the file.
        """
        try:
            return self._fs.pread(self.fd, size_bytes, position)
        except OSError as error:
            raise self._named(error)  # noqa: B904  # it is the same error

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data`.

        Raises:
            OSError: the disk refused; the error names the file.
        """
        try:
            self._fs.pwrite(self.fd, data, position)
        except OSError as error:
            raise self._named(error)  # noqa: B904  # it is the same error

    def zero_from(self, position: int, size_bytes: int) -> None:
        """Makes the file `size_bytes` long with zeros from `position` on."""
        self._fs.ftruncate(self.fd, position)
        self._fs.ftruncate(self.fd, size_bytes)

    def has_bytes(self, position: int) -> bool:
        """Whether anything but zeros lies at a position or behind it."""
        at = self._fs.next_data(self.fd, position)
        while at is not None:
            data = self.read(at, SCAN_SIZE_BYTES)
            if data != bytes(len(data)):
                return True
            if not data:
                return False
            at = self._fs.next_data(self.fd, at + len(data))
        return False

    def flush(self) -> None:
        """Flushes the file to the disk.

        Raises:
            FlushFailedError: what was written may be lost.
        """
        self._fs.fdatasync(self.fd)

    def _named(self, error: OSError) -> OSError:
        """The error with the file's name: an error of a descriptor has none."""
        if error.filename is None:
            error.filename = str(self._path)
        return error

    def __del__(self) -> None:
        fd = getattr(self, "fd", None)
        if fd is not None:
            self._fs.close(fd)


class OpenFiles:
    """Opens files at need and keeps the most recently used.

    Args:
        fs: the disk port.
        count_max: files kept open, if the limit of the process allows as many.
    """

    def __init__(self, fs: FileSystem, *, count_max: int = OPEN_FILE_COUNT_MAX) -> None:
        self.fs = fs
        self._count_max = min(count_max, open_file_count_max())
        self._lock = Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()  # a path compares and hashes slowly

    def get(self, path: PathLike, *, writing: bool = False) -> OpenFile:
        """The open file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        key = str(path)
        with self._lock:
            file = self._files.get(key)
            if file is not None and (file.is_writable or not writing):
                self._files.move_to_end(key)
                return file
            file = OpenFile(self.fs, path, is_writable=writing)
            self._files[key] = file
            self._files.move_to_end(key)
            if len(self._files) > self._count_max:
                self._files.popitem(last=False)
            return file

    def is_room_for(self, path: PathLike) -> bool:
        """Whether `get(path, writing=True)` closes no other file."""
        with self._lock:
            file = self._files.get(str(path))
            return len(self._files) < self._count_max or (file is not None and file.is_writable)

    def get_once(self, path: PathLike) -> OpenFile:
        """The open file, for writing; it is not kept in the set, so that many files, each used once, close no other.

        Raises:
            FileNotFoundError: it does not exist.
        """
        with self._lock:
            file = self._files.get(str(path))
        return file if file is not None and file.is_writable else OpenFile(self.fs, path, is_writable=True)

    def create(self, path: Path, size_bytes: int, *, durable_folders: bool = True, is_kept: bool = True) -> OpenFile:
        """Makes a file of `size_bytes`, filled with zeros; an existing file keeps its bytes up to that size.

        What has its name and is no regular file, or a file where one of its folders belongs, is renamed, not removed.
        Without `durable_folders` the caller flushes the parents of new folders later; with `is_kept` false the file is not
        kept in the set, see `get_once`.
        """
        fd = self._open_new(path, durable_folders=durable_folders)
        try:
            self.fs.ftruncate(fd, size_bytes)
        finally:
            self.fs.close(fd)
        self.forget(path)
        return self.get(path, writing=True) if is_kept else self.get_once(path)

    def _open_new(self, path: Path, *, durable_folders: bool) -> int:
        """The descriptor of a new file, or of one that is there."""
        name, folder = str(path), os.path.dirname(path)
        # Nearly always nothing is in the way, and to look for it takes longer than to make the file.
        for is_folder_there in (True, False):
            with suppress(FileNotFoundError, FileExistsError, NotADirectoryError, UnsupportedStoreError):
                if not is_folder_there:
                    self.fs.mkdirs(folder, durable=durable_folders)
                return self.fs.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        make_way(self.fs, path)
        self.fs.mkdirs(folder, durable=durable_folders)
        return self.fs.open(name, os.O_RDWR | os.O_CREAT)

    def forget(self, path: PathLike) -> None:
        """Drops a file from the set: it was removed or replaced."""
        with self._lock:
            self._files.pop(str(path), None)

    def close(self) -> None:
        """Drops all files."""
        with self._lock:
            self._files.clear()


def make_way(fs: FileSystem, path: Path) -> None:
    """Renames what has the name of a file and is none, and a file that has the name of one of its folders."""
    in_the_way = path if _has_foreign(fs, path) else None
    for folder in path.parents if in_the_way is None else ():
        if fs.is_dir(folder):
            break
        if fs.exists(folder) and not fs.is_dir(folder):
            in_the_way = folder
            break
    if in_the_way is None:
        return
    number = 0
    while fs.exists(aside := in_the_way.with_name(f"{in_the_way.name}.foreign{number or ''}")):
        number += 1
    fs.rename(in_the_way, aside)
    _log.warning("%s was in the way of %s: it is now %s; move it out of the store", in_the_way, path, aside)


def _has_foreign(fs: FileSystem, path: Path) -> bool:
    """Whether the name of a file belongs to what is none.

    Asked again once the name was seen: another process, such as a task of a rebuild, may make the file meanwhile.
    """
    if fs.is_file(path) or not fs.is_dir(path.parent):
        return False
    return path.name in fs.listdir(path.parent) and not fs.is_file(path)
