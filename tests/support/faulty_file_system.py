"""FaultyFileSystem: the real files, of which the Nth call of a kind fails, once or until the fault is cleared.

    fs = FaultyFileSystem()
    fault = fs.fail("pwrite", errno.ENOSPC, nth=3, path="index/")     # the third write below index/ from now on
    fs.fail("fdatasync", errno.EIO, lasting=True)                      # every flush, until fs.clear()
    fs.fail("pwritev", errno.ENOSPC, short_bytes=7)                    # seven bytes arrive, then the error
    fs.fail("fdatasync", errno.EIO, loses=True)                        # ... and what was not flushed is gone, see below
    fault.hits                                                         # how often it struck

Errors come as `RealFileSystem` raises them: DiskFullError for "no room", FlushFailedError for a refused flush, else OSError.
`calls` records every call that went through, failed ones included.

`loses`: like Linux after a refused flush, reads go on showing the new bytes until the cache is dropped; then the file
is again as it was at its last good flush since the fault was set (or when it was set). Meant for small files.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import NamedTuple

from store.errors import DiskFullError, FlushFailedError, ResourceBusyError, StoreCorruptedError
from store.files.file_system import PathLike, RealFileSystem

KINDS = (
    "open",
    "pread",
    "pwrite",
    "pwritev",
    "fdatasync",
    "fsync_dir",
    "fallocate",
    "ftruncate",
    "rename",
    "unlink",
    "mkdirs",
    "drop_cache",
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NAMED_NO_ROOM = ("open", "pwrite", "pwritev", "fallocate", "ftruncate", "rename", "mkdirs")


class Call(NamedTuple):
    """One call: kind, path (of the descriptor), and the bytes or size it was about."""

    kind: str
    path: str
    size_bytes: int


@dataclass(slots=True)
class Fault:
    """What fails: the `nth` matching call, and with `lasting` all behind it, until `is_cleared`."""

    kind: str
    errno: int
    nth: int
    path: str
    lasting: bool
    short_bytes: int
    loses: bool
    seen: int = 0
    hits: int = 0
    is_cleared: bool = False

    def clear(self) -> None:
        self.is_cleared = True

    def strikes(self, kind: str, path: str) -> bool:
        if self.is_cleared or kind != self.kind or self.path not in path:
            return False
        self.seen += 1
        if self.seen == self.nth or (self.lasting and self.seen > self.nth):
            self.hits += 1
            return True
        return False


class FaultyFileSystem(RealFileSystem):
    """See the top of this file; may be used by many threads."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._faults: list[Fault] = []
        self._lock = RLock()
        self._paths: dict[int, str] = {}
        self._flushed: dict[str, bytes] = {}
        self._lost: set[str] = set()
        self._keeps_flushed = False

    def fail(
        self,
        kind: str,
        error_number: int,
        *,
        nth: int = 1,
        path: str = "",
        lasting: bool = False,
        short_bytes: int = 0,
        loses: bool = False,
    ) -> Fault:
        """The `nth` call of `kind` from now on, on a path that contains `path`, fails."""
        assert kind in KINDS, kind
        fault = Fault(kind, error_number, nth, path, lasting, short_bytes, loses)
        with self._lock:
            self._faults.append(fault)
            self._keeps_flushed |= loses
            for open_path in self._paths.values() if loses else ():
                self._remember(open_path)
        return fault

    def clear(self) -> None:
        """No fault any more."""
        with self._lock:
            for fault in self._faults:
                fault.clear()
            self._faults.clear()

    def count(self, kind: str, path: str = "") -> int:
        """How many calls of a kind there were on paths that contain `path`."""
        with self._lock:
            return sum(call.kind == kind and path in call.path for call in self.calls)

    def open_paths(self) -> list[str]:
        """The files that are open right now."""
        with self._lock:
            return sorted(self._paths.values())

    def open(self, path: PathLike, flags: int, mode: int = 0o644) -> int:
        self._pass("open", str(path), 0)
        if self._keeps_flushed and os.path.exists(path):
            self._remember(os.path.abspath(path))
        fd = super().open(path, flags, mode)
        with self._lock:
            self._paths[fd] = os.path.abspath(path)
        return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._paths.pop(fd, None)
            super().close(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._pass("pread", self._path(fd), size_bytes)
        return super().pread(fd, size_bytes, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        self._pass("pread", self._path(fd), len(buffer))
        return super().pread_into(fd, buffer, position)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._pass("pwrite", self._path(fd), len(data), short=(fd, bytes(data), position))
        super().pwrite(fd, data, position)

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        self._pass("pwritev", self._path(fd), sum(map(len, parts)), short=(fd, b"".join(parts), position))
        super().pwritev(fd, parts, position)

    def fdatasync(self, fd: int) -> None:
        path = self._path(fd)
        self._pass("fdatasync", path, 0)
        super().fdatasync(fd)
        if self._keeps_flushed:
            with self._lock:
                if path not in self._lost:  # its pages count as clean: this flush wrote nothing
                    self._flushed[path] = _content(path)

    def fsync_dir(self, path: PathLike) -> None:
        self._pass("fsync_dir", str(path), 0)
        super().fsync_dir(path)

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        self._pass("fallocate", self._path(fd), size_bytes)
        super().fallocate(fd, position, size_bytes)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._pass("ftruncate", self._path(fd), size_bytes)
        super().ftruncate(fd, size_bytes)

    def drop_cache(self, fd: int, position: int) -> None:
        path = self._path(fd)
        self._pass("drop_cache", path, 0)
        with self._lock:
            if path in self._lost:
                self._lost.discard(path)
                _restore(path, self._flushed.get(path, b""))
        super().drop_cache(fd, position)

    def rename(self, source: PathLike, target: PathLike) -> None:
        self._pass("rename", str(target), 0)
        super().rename(source, target)
        with self._lock:
            if (content := self._flushed.pop(os.path.abspath(source), None)) is not None:
                self._flushed[os.path.abspath(target)] = content

    def unlink(self, path: PathLike) -> None:
        self._pass("unlink", str(path), 0)
        super().unlink(path)
        with self._lock:
            self._flushed.pop(os.path.abspath(path), None)
            self._lost.discard(os.path.abspath(path))

    def mkdirs(self, path: PathLike, *, durable: bool = True) -> None:
        self._pass("mkdirs", str(path), 0)
        super().mkdirs(path, durable=durable)

    def _path(self, fd: int) -> str:
        with self._lock:
            return self._paths.get(fd, f"descriptor {fd}")

    def _remember(self, path: str) -> None:
        with self._lock:
            if path not in self._flushed:
                self._flushed[path] = _content(path)

    def _pass(self, kind: str, path: str, size_bytes: int, short: tuple[int, bytes, int] | None = None) -> None:
        """Records a call; raises when it shall fail."""
        with self._lock:
            self.calls.append(Call(kind, path, size_bytes))
            fault = next((fault for fault in self._faults if fault.strikes(kind, path)), None)
            if fault is not None and fault.loses:
                self._lost.add(path)
        if fault is None:
            return
        if short is not None and fault.short_bytes:
            fd, data, position = short
            os.pwrite(fd, data[: fault.short_bytes], position)
        words = os.strerror(fault.errno)
        if kind in ("fdatasync", "fsync_dir"):
            raise FlushFailedError(f"the disk refused to flush {path} ({words})", file=path, errno=fault.errno)
        if fault.errno in _NO_ROOM and kind in _NAMED_NO_ROOM:
            raise DiskFullError(f"no space left for {path}: free some and try again", file=path)
        if fault.errno in (errno.EMFILE, errno.ENFILE) and kind in ("open", "mkdirs", "rename"):
            raise ResourceBusyError(f"no file handle left for {path}", file=path)
        if fault.errno == errno.EIO and kind == "pread":
            raise StoreCorruptedError(f"the disk cannot read {path}", file=path)
        raise OSError(fault.errno, words, path)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _restore(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)
    finally:
        os.close(fd)
