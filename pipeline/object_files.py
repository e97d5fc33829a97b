"""The disk port over an object store: the files of a store that lies behind a URI, for reading only.

    range   |---- 8 MiB ----|---- 8 MiB ----|---- 8 MiB ----|        each is one request
                 ^ read           on their way, at most READ_AHEAD_COUNT of them

A round trip takes tens of milliseconds. So a caller that says which bytes it will read (`will_read`) gets them from ranges
that are fetched ahead in parallel; other reads are one request each. Listings are remembered as long as the port lives: the
sizes and times of all files of a directory come with one request.

Paths are those of `open_root`: the URI without its options. A handle is no descriptor of the operating system.
"""

import errno
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from pipeline.object_root import ObjectRoot
from services.object_uri import connect, named, refuse_no_bucket, shown, told
from store.audit.store_audit import refuse_held_root
from store.errors import UnsupportedStoreError
from store.files.file_system import FILE_MODE, FileStamp, FileSystem, PathLike, RealFileSystem

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo
    from pyarrow.fs import FileSystem as ArrowFileSystem

# One request. Of a smaller range, the round trip would be the larger part; S3's own advice is 8 to 16 MiB.
RANGE_BYTES = 8 << 20
# Requests on their way for an open file. With 50 ms for a round trip, 8 of them are 1.2 GB/s. A file that is read ahead
# holds (READ_AHEAD_COUNT + KEPT_COUNT) * RANGE_BYTES, 72 MiB.
READ_AHEAD_COUNT = 8
# Ranges that stay behind the reader: a record that did not fit a piece is read again from its begin.
KEPT_COUNT = 1
# A small unannounced read fetches this much around it, and the newest such pieces are kept: who looks something up in
# an index reads neighbours, and each request costs a way there and back.
PIECE_BYTES = 64 << 10
PIECE_COUNT_MAX = 8
# While this lies in commitlog/, a restore into the object store is not complete, and readers refuse it.
UNFINISHED_NAME = "restore.begun.json"
# Handles begin here, where the operating system has no descriptors: a mix-up is EBADF, not another file's bytes.
FIRST_HANDLE = 1 << 30


def open_root(root: Path | str | ObjectRoot, field: str = "store") -> tuple[FileSystem, Path]:
    """The port to the disk or object store of a root, and the path under which the port knows it.

    Args:
        root: a directory, or a URI that pyarrow knows; `file://` is a directory.
        field: the argument that a URI was given as, for errors.

    Raises:
        InvalidArgumentError: the URI is not valid, or has options that are not accepted.
        PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
    """
    place = ObjectRoot.place(root, field)
    if isinstance(place, Path):
        return RealFileSystem(), place
    fs = ObjectFileSystem(place.uri, place.field)
    return fs, fs.root


def refuse_held(fs: FileSystem, root: Path) -> None:
    """StoreLockedError when a process has the root open for writing; a root in an object store is held by no process."""
    if not isinstance(fs, ObjectFileSystem):
        refuse_held_root(fs, root)


class ObjectFileSystem:
    """See `store.files.file_system.FileSystem`. Every change is refused with EROFS.

    What the object store refuses is told as `services/object_uri.told` does; a missing object is FileNotFoundError.

    Args:
        uri: the root; no path outside of it can be read.
        field: the argument that it was given as, for errors.
        reads_unfinished: lists also the log of a restore that is not complete.

    Attributes:
        root: its path.
    """

    def __init__(self, uri: str, field: str = "store", *, reads_unfinished: bool = False) -> None:
        self._reads_unfinished = reads_unfinished
        self.root = Path(shown(uri))
        self._uri = uri
        self._field = field
        self._fs, self._key = connect(uri, field=field)
        self._lock = Lock()
        self._listed: dict[str, FileInfo] = {}
        self._handles = count(FIRST_HANDLE)
        self._open: dict[int, _OpenObject] = {}

    def open(self, path: PathLike, flags: int, mode: int = FILE_MODE) -> int:
        """See FileSystem."""
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            self._refuse(path)
        key = self._key_of(path)
        with told(self._uri, f"read {key}", self._field):
            try:
                file = self._fs.open_input_file(key)
            except FileNotFoundError:
                file = None
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), named(path))
        with self._lock:
            handle = next(self._handles)
            self._open[handle] = _OpenObject(self._fs, file, self._uri, key)
        return handle

    def close(self, fd: int) -> None:
        """See FileSystem; waits for requests that are on their way."""
        with self._lock:
            opened = self._open.pop(fd)
        opened.close()

    def will_read(self, fd: int, position: int, end: int) -> None:
        """See FileSystem."""
        self._open[fd].will_read(position, end)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        """See FileSystem."""
        opened = self._open[fd]
        buffer = bytearray(max(min(size_bytes, opened.size_bytes - position), 0))
        return bytes(memoryview(buffer)[: opened.read_into(memoryview(buffer), position)])

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """See FileSystem."""
        return self._open[fd].read_into(buffer, position)

    def next_data(self, fd: int, position: int) -> int | None:
        """See FileSystem: an object store does not tell holes."""
        return position if position < self._open[fd].size_bytes else None

    def next_hole(self, fd: int, position: int) -> int:
        """See FileSystem."""
        return self._open[fd].size_bytes

    def drop_cache(self, fd: int, position: int) -> None:
        """Does nothing: objects do not change where they lie."""

    def listdir(self, path: PathLike) -> list[str]:
        """See FileSystem; one request for a thousand names. UnsupportedStoreError for a log that is being restored."""
        from pyarrow.fs import FileSelector

        key = self._key_of(path)
        with told(self._uri, f"list {key}/", self._field):
            infos = self._fs.get_file_info(FileSelector(key, allow_not_found=True))
        with self._lock:
            self._listed.update((info.path, info) for info in infos)
        names = sorted(info.base_name for info in infos)
        if UNFINISHED_NAME in names and not self._reads_unfinished:
            raise UnsupportedStoreError(
                f"{named(Path(path).parent)} is a restore that is not complete: wait for its end, or run it again",
                directory=named(Path(path).parent),
            )
        return names

    def stat_size(self, path: PathLike) -> int:
        """See FileSystem."""
        return self.stamp(path).size_bytes

    def allocated_bytes(self, path: PathLike) -> int:
        """See FileSystem: an object has no holes."""
        return self.stat_size(path)

    def stamp(self, path: PathLike) -> FileStamp:
        """See FileSystem: an object has no inode and no time of change."""
        info = self._info(path)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), named(path))
        return FileStamp(info.size, info.mtime_ns or 0, 0, 0)

    def exists(self, path: PathLike) -> bool:
        """See FileSystem."""
        from pyarrow.fs import FileType

        return bool(self._info(path).type != FileType.NotFound)

    def is_dir(self, path: PathLike) -> bool:
        """See FileSystem. InvalidArgumentError if the bucket does not exist."""
        from pyarrow.fs import FileType

        kind = self._info(path).type
        if kind == FileType.NotFound and Path(path) == self.root:
            refuse_no_bucket(self._fs, self._key, self._uri, self._field)
        return bool(kind == FileType.Directory)

    def is_file(self, path: PathLike) -> bool:
        """See FileSystem."""
        return bool(self._info(path).is_file)

    def is_at(self, fd: int, path: PathLike) -> bool:
        """See FileSystem: whether the name has an object of this size."""
        self._listed.pop(self._key_of(path), None)
        info = self._info(path)
        return bool(info.is_file and info.size == self._open[fd].size_bytes)

    def disk_usage(self, path: PathLike) -> tuple[int, int]:
        """Refused: an object store has no end."""
        raise OSError(errno.ENOSYS, "an object store has no size", named(path))

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Refused."""
        self._refuse(self.root)

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        """Refused."""
        self._refuse(self.root)

    def fdatasync(self, fd: int) -> None:
        """Refused."""
        self._refuse(self.root)

    def fsync_dir(self, path: PathLike) -> None:
        """Refused."""
        self._refuse(path)

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        """Refused."""
        self._refuse(self.root)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        """Refused."""
        self._refuse(self.root)

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        """Refused."""
        self._refuse(path)

    def rename(self, source: PathLike, target: PathLike) -> None:
        """Refused."""
        self._refuse(target)

    def unlink(self, path: PathLike) -> None:
        """Refused."""
        self._refuse(path)

    def _info(self, path: PathLike) -> "FileInfo":
        key = self._key_of(path)
        with self._lock:
            known = self._listed.get(key)
        if known is not None:
            return known
        with told(self._uri, f"look for {key}", self._field):
            return self._fs.get_file_info(key)

    def _key_of(self, path: PathLike) -> str:
        """The object's name as pyarrow has it."""
        below = Path(path).relative_to(self.root).as_posix()
        return self._key if below == "." else f"{self._key}/{below}"

    def _refuse(self, path: PathLike) -> NoReturn:
        raise OSError(errno.EROFS, "a store behind a URI is only read", named(path))


class _OpenObject:
    """One open object: reads from ranges fetched ahead, or directly. Used by one thread."""

    def __init__(self, fs: "ArrowFileSystem", file: "NativeFile", uri: str, key: str) -> None:
        self._fs = fs
        self._file = file
        self._uri = uri
        self._key = key
        self.size_bytes = int(file.size())
        self._begin = self._end = 0  # of what will be read
        self._ranges: dict[int, Future[bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._pieces: dict[int, bytes] = {}  # by their begin, the newest last

    def will_read(self, begin: int, end: int) -> None:
        """Begins to fetch; what was announced before is forgotten."""
        self._keep(range(0))
        self._begin, self._end = begin, min(end, self.size_bytes)
        if self._end - self._begin > 0:
            self._pool = self._pool or ThreadPoolExecutor(READ_AHEAD_COUNT, "reput-read-ahead")
            self._fetch_ahead(0)

    def read_into(self, buffer: memoryview, position: int) -> int:
        done = 0
        room = min(len(buffer), max(self.size_bytes - position, 0))
        while done < room:
            at = position + done
            if self._begin <= at < self._end:
                number = (at - self._begin) // RANGE_BYTES
                self._keep(range(number - KEPT_COUNT, number + READ_AHEAD_COUNT))
                self._fetch_ahead(number)
                data = self._ranges[number].result()
                skipped = (at - self._begin) % RANGE_BYTES
            elif room - done < PIECE_BYTES:
                skipped = at % PIECE_BYTES
                data = self._piece(at - skipped)
            else:
                # Up to what is announced, in one request.
                data = self._read_at(at, room - done if at >= self._end else min(room - done, self._begin - at))
                skipped = 0
            size_bytes = min(len(data) - skipped, room - done)
            if size_bytes <= 0:  # the object is shorter than it was
                break
            buffer[done : done + size_bytes] = memoryview(data)[skipped : skipped + size_bytes]
            done += size_bytes
        return done

    def _piece(self, begin: int) -> bytes:
        data = self._pieces.pop(begin, None)
        if data is None:
            data = self._read_at(begin, min(PIECE_BYTES, self.size_bytes - begin))
        if len(self._pieces) == PIECE_COUNT_MAX:
            del self._pieces[next(iter(self._pieces))]
        self._pieces[begin] = data
        return data

    def close(self) -> None:
        self._keep(range(0))
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._file.close()

    def _fetch_ahead(self, number: int) -> None:
        assert self._pool is not None
        for ahead in range(number, number + READ_AHEAD_COUNT):
            begin = self._begin + ahead * RANGE_BYTES
            if begin < self._end and ahead not in self._ranges:
                self._ranges[ahead] = self._pool.submit(self._read_at, begin, min(RANGE_BYTES, self._end - begin))

    def _keep(self, numbers: range) -> None:
        """Forgets all other ranges; a request that is on its way ends by itself."""
        for number in [number for number in self._ranges if number not in numbers]:
            self._ranges.pop(number).cancel()

    def _read_at(self, position: int, size_bytes: int) -> bytes:
        from pyarrow.fs import FileType

        with told(self._uri, f"read {self._key}"):
            try:
                return bytes(self._file.read_at(size_bytes, position))
            except OSError:  # each store has its own text for an object that is gone: it is asked
                if self._fs.get_file_info(self._key).type != FileType.NotFound:
                    raise
        raise FileNotFoundError(errno.ENOENT, "the object was removed while it was read", self._key)
