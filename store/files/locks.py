"""The locks that say which process owns which part of a store root.

- `OwnerLock`: a `flock` on `reput/<part>/lock`, one for each service, held until `release` or the end of the process.
- `BrokerLock`: the `lock` file of the root as RocketMQ locks it (byte 0, length 1, exclusive), so that a real broker and
  a commit log of ours never write one root together. Java takes a lock of the process (POSIX), we take one of the open
  file (OFD). The two exclude each other. An OFD lock survives when our process opens and closes the file elsewhere. The
  kernel tells the holders apart: it gives the process id of a POSIX lock, and -1 for an OFD lock.

Both wait some time for a process that is still ending. A child of a fork closes its copies of the descriptors at once: they
would keep a lock for as long as it lives, also when its parent is killed. Both are unlocked before they are closed, because a
child may be made without Python's knowledge.

The `abort` marker of a store root: it exists while a broker runs. At a start it means that the last stop was not clean.

RocketMQ writes its process id into it at start and removes it at the end of a clean stop; it looks only at whether the
file exists. A directory of that name counts, too: it is left alone, so every start takes the last stop for an unclean one.
"""

import errno
import fcntl
import logging
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from store.errors import StoreLockedError
from store.files.file_system import FILE_MODE, FileSystem, RealFileSystem, shortage_named
from store.files.open_files import make_way

ABORT_NAME = "abort"

_log = logging.getLogger("reput.store")


def has_abort_marker(fs: FileSystem, root: Path) -> bool:
    """Whether the last owner of the root was not stopped cleanly (or is still running)."""
    return fs.exists(root / ABORT_NAME)


def create_abort_marker(fs: FileSystem, root: Path) -> None:
    """Creates the marker; it is on the disk when this returns."""
    if fs.is_dir(root / ABORT_NAME):
        _log.warning("%s is a directory: every start checks the end of the log until it is removed", root / ABORT_NAME)
        return
    make_way(fs, root / ABORT_NAME)
    fd = fs.open(root / ABORT_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        fs.pwrite(fd, str(os.getpid()).encode(), 0)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.fsync_dir(root)


def remove_abort_marker(fs: FileSystem, root: Path) -> None:
    """Removes the marker; call it when everything else is on the disk."""
    if fs.exists(root / ABORT_NAME) and not fs.is_dir(root / ABORT_NAME):
        fs.unlink(root / ABORT_NAME)
        fs.fsync_dir(root)


LOCK_WAIT_SECONDS = 10.0
LOCK_RETRY_SECONDS = 0.05
FLOCK = struct.Struct("hh4xqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
assert FLOCK.size == 32


class OwnerLock:
    """Exclusive ownership of one part of a store root, until `release` or the end of the process.

    Args:
        path: the lock file; it and its directory are made when missing, and stay.
        wait_seconds: how long to wait for another owner before StoreLockedError.
    """

    def __init__(self, path: Path, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._fd: int | None = None

    def acquire(self) -> None:
        """Takes the lock; StoreLockedError when another process holds it longer than `wait_seconds`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = _opened(self.path)

        def take() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

        self._fd = _take_or_close(fd, take, self.path, self._wait_seconds)
        _TAKEN.add(self)

    def release(self) -> None:
        """Releases the lock; the file stays."""
        if self._fd is not None:
            taken, self._fd = self._fd, None  # before it is closed: another thread may fork
            _TAKEN.discard(self)
            _close(taken, lambda fd: fcntl.flock(fd, fcntl.LOCK_UN))


class BrokerLock:
    """The root's `lock`, as a RocketMQ broker takes it.

    Args:
        path: `<root>/lock`.
        wait_seconds: how long to wait for another holder before StoreLockedError.
    """

    def __init__(self, path: Path, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._fd: int | None = None

    def acquire(self) -> None:
        """Takes the lock; StoreLockedError when another process holds it longer than `wait_seconds`."""
        fd = _opened(self.path)
        wanted = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)

        def take() -> None:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)

        self._fd = _take_or_close(fd, take, self.path, self._wait_seconds)
        _TAKEN.add(self)
        os.pwrite(self._fd, b"lock", 0)  # what a broker writes

    def release(self) -> None:
        """Releases the lock; the file stays."""
        if self._fd is not None:
            unlocked = FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0)
            taken, self._fd = self._fd, None  # before it is closed: another thread may fork
            _TAKEN.discard(self)
            _close(taken, lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, unlocked))


def _opened(path: Path) -> int:
    """A descriptor of a lock file, made when missing; what has its name and is no regular file is renamed."""
    make_way(RealFileSystem(), path)
    with shortage_named(str(path)):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def is_held_by_other(path: Path) -> bool:
    """Whether a foreign broker holds the root's `lock` (a process lock, as Java takes it); our services do not count."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a loop of links, a socket: nobody holds it as a file
            raise
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(fd)
    lock_type, _, _, _, holder = FLOCK.unpack(answer)
    return bool(lock_type != fcntl.F_UNLCK and holder != -1)


def refuse_foreign_broker(root: Path, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
    """Waits until no foreign broker holds the root; StoreLockedError after `wait_seconds`."""
    deadline = time.monotonic() + wait_seconds
    while is_held_by_other(root / "lock"):
        if time.monotonic() >= deadline:
            raise _locked(root / "lock")
        time.sleep(LOCK_RETRY_SECONDS)


# The process that took each lock, by device and inode: a stack in this process may be the one that holds it, or, after a fork,
# one in a parent of this process.
_HOLDERS: dict[tuple[int, int], int] = {}
# The locks that this process has taken.
_TAKEN: "set[OwnerLock | BrokerLock]" = set()


def _leave_to_parent() -> None:
    """In a child of a fork: the locks stay the parent's."""
    for lock in _TAKEN:
        fd, lock._fd = lock._fd, None
        if fd is not None:
            os.close(fd)
    _TAKEN.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def _file_key(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _close(fd: int, unlock: Callable[[int], object]) -> None:
    """Unlock and close; in a child of the process that took the lock, only close."""
    key = _file_key(fd)
    if _HOLDERS.get(key) == os.getpid():
        del _HOLDERS[key]
        unlock(fd)
    os.close(fd)


def _take_or_close(fd: int, take: Callable[[], None], path: Path, wait_seconds: float) -> int:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            take()
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = _HOLDERS.get(_file_key(fd))
                os.close(fd)
                raise _locked(path, holder) from None
            time.sleep(LOCK_RETRY_SECONDS)
        except BaseException:
            os.close(fd)
            raise
        else:
            _HOLDERS[_file_key(fd)] = os.getpid()
            return fd


def _locked(path: Path, holder: int | None = None) -> StoreLockedError:
    if holder == os.getpid():
        return StoreLockedError(f"{path} is held by this process: close what has it open first", file=path)
    return StoreLockedError(f"{path} is held by another process: stop that process first", file=path)
