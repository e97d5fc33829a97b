"""A file or directory that is made beside its final place and gets its name when it is complete.

    NAME.making-PID-RANDOM           a file that is being made; its process holds a flock on it
    NAME.making-PID-RANDOM/.making   the same for a directory; removed before it gets its name

Two runs that make the same name share nothing, and the later one finds the name taken. A lock ends with its process: a
file of this kind without a lock is left from a killed run, and the next run removes it.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path
from types import TracebackType

from store.errors import InvalidArgumentError

LOCK_NAME = ".making"  # not `lock`: a broker's store has a file of that name
# Errors of a file system without hard links: FAT, some network and FUSE file systems.
_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS))


class Staging:
    """A file or a directory that is being made; a context manager. Leftovers of killed runs are removed first.

    Without `publish`, or after an error, the file or directory is removed.

    Args:
        out: its final path; relative to the current working directory.
        is_directory: make a directory; one that is empty may be at `out`.

    Attributes:
        path: the file, which is empty, or the directory.
        fd: the file, open for writing; for a directory its lock.

    Raises:
        InvalidArgumentError: `out` exists, or a file system is mounted there.
        OSError: the disk failed.
    """

    def __init__(self, out: Path, *, is_directory: bool = False) -> None:
        self._out = Path(os.path.abspath(out))
        self._is_directory = is_directory
        self._refuse_taken()
        self._remove_leftovers()
        self.path, self.fd = self._make()

    def publish(self) -> None:
        """Give it its name, durably; its content must be on the disk.

        Raises:
            InvalidArgumentError: `out` was made meanwhile; it stays unchanged.
        """
        try:
            if self._is_directory:
                os.unlink(self.path / LOCK_NAME)
                _flush(self.path)
                os.rename(self.path, self._out)  # replaces an empty directory only
            else:
                self._link()
        except (FileExistsError, NotADirectoryError) as error:
            raise self._taken() from error
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise self._taken() from error
            raise
        _flush(self._out.parent)

    def close(self) -> None:
        """Remove it, if it has not got its name."""
        try:
            _remove(self.path)
        finally:
            os.close(self.fd)

    def __enter__(self) -> "Staging":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_taken(self) -> None:
        if os.path.ismount(self._out):
            raise InvalidArgumentError(
                f"{self._out} is where a file system is mounted, and cannot be renamed: name a directory inside it.",
                field="out",
            )
        if self._is_directory and self._out.is_symlink():
            raise InvalidArgumentError(
                f"{self._out} is a symbolic link, and cannot be replaced: name what it leads to.", field="out"
            )
        is_welcome = self._is_directory and self._out.is_dir() and not os.listdir(self._out)
        if os.path.lexists(self._out) and not is_welcome:
            raise self._taken()

    def _taken(self) -> InvalidArgumentError:
        if self._is_directory:
            return InvalidArgumentError(f"{self._out} is not empty: name a directory that does not exist.", field="out")
        return InvalidArgumentError(f"{self._out} exists already: name another file.", field="out")

    def _make(self) -> tuple[Path, int]:
        while True:
            path = self._out.with_name(f"{self._out.name}.making-{os.getpid()}-{secrets.token_hex(8)}")
            locked = path
            if self._is_directory:
                os.makedirs(path)
                locked = path / LOCK_NAME
            fd = os.open(locked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # Until it is locked, another run may remove it as a leftover.
            if _lock(fd) and _is_at(fd, locked):
                return path, fd
            os.close(fd)

    def _remove_leftovers(self) -> None:
        pattern = re.compile(re.escape(self._out.name) + r"\.making-\d+-[0-9a-f]{16}")
        with contextlib.suppress(FileNotFoundError):  # the directory for a store is made
            for name in filter(pattern.fullmatch, os.listdir(self._out.parent)):
                _remove_if_left(self._out.parent / name)

    def _link(self) -> None:
        try:
            os.link(self.path, self._out)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.close(
                os.open(self._out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            )  # ours, and empty: it is renamed over
            os.rename(self.path, self._out)


def _remove_if_left(path: Path) -> None:
    """Remove what a killed run has left; locked files and files without a lock file stay."""
    is_directory = path.is_dir() and not path.is_symlink()
    try:
        fd = os.open(path / LOCK_NAME if is_directory else path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):
        return  # it got its name meanwhile, or belongs to another run
    except OSError as error:
        if error.errno == errno.ELOOP:
            return  # a symbolic link is never made here
        raise
    try:
        if _lock(fd):
            _remove(path)
    finally:
        os.close(fd)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
