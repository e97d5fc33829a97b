"""The disk port for a store that must not be changed: writes go to anonymous memory."""

import errno
import os
from contextlib import suppress
from threading import RLock

from store.files.file_system import FILE_MODE, FileStamp, PathLike, RealFileSystem

COPY_CHUNK_BYTES = 4 << 20


class OverlayFileSystem(RealFileSystem):
    """The real files, with all changes kept in anonymous memory; the disk is never written.

    A file opened for writing is copied into memory first, without its holes. A descriptor that was opened for reading
    before that still reads the file on the disk. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._files: dict[str, int] = {}
        self._directories: set[str] = set()
        self._removed: set[str] = set()

    def open(self, path: PathLike, flags: int, mode: int = FILE_MODE) -> int:
        """See FileSystem."""
        key = os.path.abspath(path)
        writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) != 0
        with self._lock:
            memory = self._files.get(key)
            if memory is None:
                on_disk = key not in self._removed and os.path.exists(key)
                if not writing:
                    if not on_disk:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
                    return os.open(key, os.O_RDONLY | os.O_CLOEXEC | flags & os.O_NONBLOCK)
                if not on_disk and not flags & os.O_CREAT:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
                if not self.is_dir(os.path.dirname(key)):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
                if on_disk and flags & os.O_CREAT and flags & os.O_EXCL:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
                memory = os.memfd_create(os.path.basename(key)[:200], os.MFD_CLOEXEC)
                if on_disk and not flags & os.O_TRUNC:
                    _copy_data(key, memory)
                self._files[key] = memory
                self._removed.discard(key)
            elif flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
            elif flags & os.O_TRUNC:
                os.ftruncate(memory, 0)
            return os.dup(memory)

    def fdatasync(self, fd: int) -> None:
        """Does nothing: memory has no disk behind it."""

    def fsync_dir(self, path: PathLike) -> None:
        """Does nothing: memory has no disk behind it."""

    def drop_cache(self, fd: int, position: int) -> None:
        """Does nothing."""

    def is_at(self, fd: int, path: PathLike) -> bool:
        """True: what happens to the file on the disk does not concern the copy."""
        return True

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        """See FileSystem."""
        with self._lock:
            directory = os.path.abspath(path)
            while directory not in self._directories and not os.path.isdir(directory):
                self._directories.add(directory)
                directory = os.path.dirname(directory)

    def listdir(self, path: PathLike) -> list[str]:
        """See FileSystem."""
        directory = os.path.abspath(path)
        with self._lock:
            names: set[str] = set()
            with suppress(NotADirectoryError):  # a file was moved out of the way of a directory
                names = {n for n in super().listdir(directory) if os.path.join(directory, n) not in self._removed}
            for key in (*self._files, *self._directories):
                if os.path.dirname(key) == directory:
                    names.add(os.path.basename(key))
        return sorted(names)

    def stat_size(self, path: PathLike) -> int:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            if key in self._files:
                return os.fstat(self._files[key]).st_size
            if key in self._removed:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return os.stat(key).st_size

    def stamp(self, path: PathLike) -> FileStamp:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            if key in self._files:
                return FileStamp.of(os.fstat(self._files[key]))
            if key in self._removed:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return FileStamp.of(os.stat(key))

    def exists(self, path: PathLike) -> bool:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            if key in self._files or key in self._directories:
                return True
            return key not in self._removed and os.path.exists(key)

    def is_dir(self, path: PathLike) -> bool:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            return key in self._directories or (key not in self._removed and os.path.isdir(key))

    def is_file(self, path: PathLike) -> bool:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            return key in self._files or (key not in self._removed and os.path.isfile(key))

    def rename(self, source: PathLike, target: PathLike) -> None:
        """See FileSystem."""
        from_key, to_key = os.path.abspath(source), os.path.abspath(target)
        with self._lock:
            is_other = os.path.lexists(from_key) and not os.path.isfile(from_key)
            if from_key not in self._files and is_other:  # moved out of the way: what is in it is not needed
                self._removed.add(from_key)
                return
            if from_key not in self._files:
                os.close(self.open(from_key, os.O_RDWR))
            replaced = self._files.pop(to_key, None)
            if replaced is not None:
                os.close(replaced)
            self._files[to_key] = self._files.pop(from_key)
            self._removed.discard(to_key)
            self._removed.add(from_key)

    def unlink(self, path: PathLike) -> None:
        """See FileSystem."""
        key = os.path.abspath(path)
        with self._lock:
            memory = self._files.pop(key, None)
            if memory is not None:
                os.close(memory)
            elif key in self._removed or not os.path.exists(key):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
            self._removed.add(key)


def _copy_data(path: str, memory: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(source).st_size
        os.ftruncate(memory, size_bytes)
        position = 0
        while position < size_bytes:
            try:
                position = os.lseek(source, position, os.SEEK_DATA)
                end = os.lseek(source, position, os.SEEK_HOLE)
            except OSError:  # only a hole is left
                break
            while position < end:
                data = os.pread(source, min(COPY_CHUNK_BYTES, end - position), position)
                if not data:
                    return
                os.pwrite(memory, data, position)
                position += len(data)
    finally:
        os.close(source)
