"""Refuses a store root that a process holds now; takes no lock for longer than the test."""

import fcntl
import os
from pathlib import Path

from store.errors import StoreLockedError
from store.files.file_system import FileSystem
from store.files.locks import FLOCK
from store.format.paths import OWN_COMPONENTS, lock_file, own_state_dir


def refuse_held_root(fs: FileSystem, root: Path) -> None:
    """StoreLockedError when a broker or one of our services has the root open for writing."""
    held = _broker_lock_path(root)
    if held is None:
        held = next((path for path in _owner_locks(fs, root) if _is_flocked(path)), None)
    if held is not None:
        raise StoreLockedError(
            f"{held} is held by a running process, whose writes would look like damage: stop it first", file=held
        )


def _broker_lock_path(root: Path) -> Path | None:
    path = Path(lock_file(str(root)))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(fd)
    return path if FLOCK.unpack(answer)[0] != fcntl.F_UNLCK else None


def _owner_locks(fs: FileSystem, root: Path) -> list[Path]:
    paths = [Path(own_state_dir(str(root), component)) / "lock" for component in OWN_COMPONENTS]
    return [path for path in paths if fs.exists(path)]


def _is_flocked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
