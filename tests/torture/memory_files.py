"""A disk in memory that forgets: what was not flushed may be lost by a power cut, in any mixture.

A file remembers its bytes as of its last `fdatasync`, a directory its names as of its last flush. `power_cut` gives the
disk that is found afterwards: of each sector that was written since, the old or the new bytes; of each name, the old or the
new file. `copy` gives the disk after a kill: the kernel still writes everything.
"""

import errno
import functools
import os
import random
from collections.abc import Sequence
from pathlib import Path
from threading import RLock

from store.files.file_system import FileStamp, PathLike

SECTOR_BYTES = 512  # what a disk writes in one piece: records tear at its edges, small marks are old or new


class _File:
    """Bytes now, and bytes that a power cut cannot take."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)


class MemoryFileSystem:
    """See `store.files.file_system.FileSystem`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._directories: set[str] = set()
        self._open: dict[int, _File] = {}
        self._next_fd = 1 << 20
        self.flush_count = 0

    # -- what happens to the machine

    def copy(self) -> "MemoryFileSystem":
        """The disk as another process finds it after this one was killed."""
        with self._lock:
            return self._after({name: bytes(file.data) for name, file in self._names.items()})

    def power_cut(self, number: int, root: Path) -> "MemoryFileSystem":
        """A disk that may be found after a power cut now; what becomes of a file hangs on the number and its path below
        `root` only, so that it can be repeated.
        """
        with self._lock:
            found: dict[str, bytes] = {}
            for name in {*self._names, *self._durable_names}:
                random_ = random.Random(f"{number} {os.path.relpath(name, root)}")
                now, before = self._names.get(name), self._durable_names.get(name)
                file = now if now is before or random_.random() < 0.5 else before
                if file is not None:
                    found[name] = _torn(file, random_)
            return self._after(found)

    def _after(self, files: dict[str, bytes]) -> "MemoryFileSystem":
        found = MemoryFileSystem()
        found._names = {name: _File(data) for name, data in files.items()}
        found._durable_names = dict(found._names)
        found._directories = set(self._directories)
        return found

    def load(self, directory: Path) -> None:
        """Takes over real files, all of them flushed."""
        for path in sorted(directory.rglob("*")):
            if path.is_dir():
                self._directories.add(str(path))
            else:
                self.put(path, path.read_bytes())
        self._directories.add(str(directory))

    def put(self, path: Path, data: bytes) -> None:
        """A file that is on the disk."""
        self.mkdirs(path.parent)
        self._names[str(path)] = self._durable_names[str(path)] = _File(data)

    def bytes_of(self, path: Path) -> bytes:
        """What a file holds now."""
        return bytes(self._names[str(path)].data)

    def durable_bytes_of(self, path: Path) -> bytes | None:
        """What a power cut leaves of a file at least; None when it can take the name."""
        file = self._durable_names.get(str(path))
        return file.durable if file is not None else None

    def paths(self) -> list[Path]:
        """Every file."""
        return [Path(name) for name in sorted(self._names)]

    # -- the port

    def is_at(self, fd: int, path: PathLike) -> bool:
        with self._lock:
            return self._names.get(_absolute(path)) is self._open[fd]

    def open(self, path: PathLike, flags: int, mode: int = 0o644) -> int:
        with self._lock:
            key = _absolute(path)
            file = self._names.get(key)
            if file is None:
                if not flags & os.O_CREAT or os.path.dirname(key) not in self._directories:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
                file = self._names[key] = _File()
            elif flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
            if flags & os.O_TRUNC:
                file.data.clear()
            self._next_fd += 1
            self._open[self._next_fd] = file
            return self._next_fd

    def close(self, fd: int) -> None:
        with self._lock:
            del self._open[fd]

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        with self._lock:
            return bytes(self._open[fd].data[position : position + size_bytes])

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        with self._lock:
            file = self._open[fd]
            if len(file.data) < position:
                file.data.extend(bytes(position - len(file.data)))
            file.data[position : position + len(data)] = data

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        self.pwrite(fd, b"".join(parts), position)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            file = self._open[fd]
            file.durable = bytes(file.data)
            self.flush_count += 1

    def fsync_dir(self, path: PathLike) -> None:
        with self._lock:
            directory = _absolute(path)
            for key in {*self._names, *self._durable_names}:
                if os.path.dirname(key) == directory:
                    if key in self._names:
                        self._durable_names[key] = self._names[key]
                    else:
                        del self._durable_names[key]

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        with self._lock:
            file = self._open[fd]
            file.data.extend(bytes(max(0, position + size_bytes - len(file.data))))

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        with self._lock:
            file = self._open[fd]
            del file.data[size_bytes:]
            file.data.extend(bytes(size_bytes - len(file.data)))

    def next_data(self, fd: int, position: int) -> int | None:
        with self._lock:
            return position if position < len(self._open[fd].data) else None

    def next_hole(self, fd: int, position: int) -> int:
        with self._lock:
            return len(self._open[fd].data)

    def will_read(self, fd: int, position: int, end: int) -> None:
        """Nothing: memory is near."""

    def drop_cache(self, fd: int, position: int) -> None:
        """Nothing: no flush ever fails here."""

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        with self._lock:
            directory = _absolute(path)
            while directory not in self._directories:
                self._directories.add(directory)
                directory = os.path.dirname(directory)

    def listdir(self, path: PathLike) -> list[str]:
        with self._lock:
            prefix = f"{_absolute(path).rstrip('/')}/"
            below = (key[len(prefix) :] for key in (*self._names, *self._directories) if key.startswith(prefix))
            return sorted({name for name in below if "/" not in name} - {""})

    def stat_size(self, path: PathLike) -> int:
        with self._lock:
            key = _absolute(path)
            if key not in self._names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
            return len(self._names[key].data)

    def allocated_bytes(self, path: PathLike) -> int:
        return self.stat_size(path)

    def stamp(self, path: PathLike) -> FileStamp:
        return FileStamp(self.stat_size(path), 0, 0, 0)

    def exists(self, path: PathLike) -> bool:
        with self._lock:
            key = _absolute(path)
            return key in self._names or key in self._directories

    def is_dir(self, path: PathLike) -> bool:
        with self._lock:
            return _absolute(path) in self._directories

    def is_file(self, path: PathLike) -> bool:
        with self._lock:
            return _absolute(path) in self._names

    def rename(self, source: PathLike, target: PathLike) -> None:
        with self._lock:
            self._names[_absolute(target)] = self._names.pop(_absolute(source))

    def unlink(self, path: PathLike) -> None:
        with self._lock:
            key = _absolute(path)
            if key not in self._names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
            del self._names[key]

    def disk_usage(self, path: PathLike) -> tuple[int, int]:
        return 1 << 41, 1 << 40


def _absolute(path: PathLike) -> str:
    return _absolute_of(os.fspath(path))


@functools.lru_cache(maxsize=1024)
def _absolute_of(path: str) -> str:
    """As `os.path.abspath`, which takes longer than a read here: a store has few paths, asked for again and again."""
    return os.path.abspath(path)


def _torn(file: _File, random_: random.Random) -> bytes:
    """Of each sector the durable or the present bytes; all of one kind now and then."""
    now, before = bytes(file.data), file.durable
    if now == before:
        return now
    size = random_.choice((len(now), len(before)))
    share = random_.choice((0.0, 0.5, 0.5, 1.0))
    found = bytearray()
    for at in range(0, size, SECTOR_BYTES):
        end = min(at + SECTOR_BYTES, size)
        source = now if random_.random() < share else before
        found += source[at:end].ljust(end - at, b"\0")
    return bytes(found)
