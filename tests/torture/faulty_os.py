"""`os` as the store's files see it, with faults: one level below the file-system port, where the system calls are.

`install` puts one in the place of the name `os` in `store.files.file_system` and `store.files.locks`, and its `mkdir` in that
of `os.mkdir`, which `pathlib` calls. It counts the calls that change a disk
(pwrite, pwritev, fdatasync, fsync, ftruncate, fallocate, rename, mkdir, unlink, and open where it makes a file), in order,
and does to the n-th what a plan says:

    kill        SIGKILL before the call
    torn_kill   SIGKILL after the first half of a write (any other call: after it)
    cut         a power cut before the call: what no fdatasync covered is taken back, all of it; then SIGKILL
    cut_some    the same, but some of it (drawn from the seed) has reached the disk already
    short       a write does half of its work and says so; the rest works
    EIO, ENOSPC, EAGAIN, EMFILE ...   the call fails with that errno and does nothing; `*` behind it: from then on always

A refused fdatasync leaves the bytes in the cache, where a reader sees them; it remembers the descriptor, and a second
fdatasync there is an offence. The model of the power cut knows bytes, not names: makers and renames that no directory
fsync covered stay. Real file systems are cut elsewhere.
"""

import errno
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from store.files import file_system, locks

PAGE_BYTES = 4096


class Call(NamedTuple):
    """One call that changes the disk: which, on which file (relative to the root), from where, how many bytes."""

    name: str
    path: str
    position: int
    size_bytes: int


class _Undo(NamedTuple):
    """How to take back an unsynced change: the bytes there were at `position`, or the size there was."""

    path: str
    position: int
    before: bytes
    size_bytes: int | None


class FaultyOs:
    """See the top of this file.

    Args:
        root: paths in the trace are relative to it.
        faults: what to do to the n-th call (1 is the first).
        seed: for `cut_some`.
        on_call: told of each call before it is made.
    """

    def __init__(
        self,
        root: str,
        faults: Mapping[int, str] | None = None,
        seed: int = 0,
        on_call: Callable[[int, Call], None] | None = None,
    ) -> None:
        self._root = root
        self._faults = dict(faults or {})
        self._forever = ""
        self._random = random.Random(seed)
        self._on_call = on_call
        self._failed_fds: set[int] = set()
        self._undo: list[_Undo] = []
        self._mkdir = os.mkdir  # the real one, whoever takes its place
        self.call_count = 0
        self.offences: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Everything else is as it was."""
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        """Counts where it makes or empties a file."""
        action = ""
        # Where the folder is missing it fails and changes nothing.
        can_make = os.path.isdir(os.path.dirname(path)) and not os.path.exists(path)
        if flags & os.O_TRUNC or (flags & os.O_CREAT and can_make):
            action = self._enter("open", str(path))
        fd = os.open(path, flags, mode)
        self._failed_fds.discard(fd)
        self._leave(action)
        return fd

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        """Counts; may be short."""
        action = self._enter("pwrite", _path_of(fd), position, len(data))
        self._remember(fd, position, len(data))
        if action in ("short", "torn_kill") and len(data) > 1:
            written = os.pwrite(fd, memoryview(data)[: len(data) // 2], position)
        else:
            written = os.pwrite(fd, data, position)
        self._leave(action)
        return written

    def pwritev(self, fd: int, parts: Sequence[Any], position: int) -> int:
        """Counts; may be short."""
        size_bytes = sum(map(len, parts))
        action = self._enter("pwritev", _path_of(fd), position, size_bytes)
        self._remember(fd, position, size_bytes)
        if action in ("short", "torn_kill") and size_bytes > 1:
            written = os.pwrite(fd, b"".join(parts)[: size_bytes // 2], position)
        else:
            written = os.pwritev(fd, parts, position)
        self._leave(action)
        return written

    def fdatasync(self, fd: int) -> None:
        """Counts; everything written to the file is safe from cuts afterwards."""
        path = _path_of(fd)
        if fd in self._failed_fds:
            self.offences.append(f"second fdatasync of {self._name(path)} behind a refused one")
        try:
            action = self._enter("fdatasync", path)
        except OSError:
            self._failed_fds.add(fd)
            raise
        os.fdatasync(fd)
        self._undo = [undo for undo in self._undo if undo.path != path]
        self._leave(action)

    def fsync(self, fd: int) -> None:
        """Counts; used for directories."""
        action = self._enter("fsync", _path_of(fd))
        os.fsync(fd)
        self._leave(action)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        """Counts."""
        path = _path_of(fd)
        action = self._enter("ftruncate", path, 0, size_bytes)
        before = os.fstat(fd).st_size
        lost = _read(path, before - size_bytes, size_bytes) if size_bytes < before else b""
        self._undo.append(_Undo(path, size_bytes, lost, before))
        os.ftruncate(fd, size_bytes)
        self._leave(action)

    def posix_fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        """Counts."""
        action = self._enter("fallocate", _path_of(fd), position, size_bytes)
        os.posix_fallocate(fd, position, size_bytes)
        self._leave(action)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """Counts when there is a directory to be made."""
        can_make = os.path.isdir(os.path.dirname(path)) and not os.path.exists(path)
        action = self._enter("mkdir", str(path)) if can_make else ""
        self._mkdir(path, mode, dir_fd=dir_fd)
        self._leave(action)

    def replace(self, source: Any, target: Any) -> None:
        """Counts."""
        action = self._enter("rename", str(target))
        os.replace(source, target)
        self._undo = [u._replace(path=str(target)) if u.path == str(source) else u for u in self._undo]
        self._leave(action)

    def unlink(self, path: Any) -> None:
        """Counts."""
        action = self._enter("unlink", str(path))
        os.unlink(path)
        self._undo = [undo for undo in self._undo if undo.path != str(path)]
        self._leave(action)

    def _enter(self, name: str, path: str, position: int = 0, size_bytes: int = 0) -> str:
        self.call_count += 1
        if self._on_call is not None:
            self._on_call(self.call_count, Call(name, self._name(path), position, size_bytes))
        action = self._faults.get(self.call_count, self._forever)
        if action.endswith("*"):
            action = self._forever = action.removesuffix("*")
        if action == "kill":
            _die()
        if action in ("cut", "cut_some"):
            self._cut(everything=action == "cut")
            _die()
        if action.startswith("E"):
            number = getattr(errno, action)
            raise OSError(number, os.strerror(number), path)
        return action

    def _leave(self, action: str) -> None:
        if action == "torn_kill":
            _die()

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _remember(self, fd: int, position: int, size_bytes: int) -> None:
        """A page at a time: that is how a disk gets them."""
        path, size = _path_of(fd), os.fstat(fd).st_size
        end = position + size_bytes
        if end > size:
            self._undo.append(_Undo(path, size, b"", size))
        while position < end:
            stop = min(end, position - position % PAGE_BYTES + PAGE_BYTES)
            before = _read(path, stop - position, position).ljust(stop - position, b"\0")
            self._undo.append(_Undo(path, position, before, None))
            position = stop

    def _cut(self, *, everything: bool) -> None:
        for undo in reversed(self._undo):
            if not everything and self._random.random() < 0.5:
                continue
            fd = os.open(undo.path, os.O_RDWR)
            if undo.size_bytes is not None:
                os.ftruncate(fd, undo.size_bytes)
            os.pwrite(fd, undo.before, undo.position)
            os.close(fd)


def install(faulty: FaultyOs) -> None:
    """For the rest of this process's life."""
    file_system.os = faulty
    locks.os = faulty
    os.mkdir = faulty.mkdir


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _read(path: str, size_bytes: int, position: int) -> bytes:
    """By a descriptor of its own: the store's may be for writing only."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size_bytes, position)
    finally:
        os.close(fd)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
