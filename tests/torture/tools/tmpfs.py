"""A small disk in memory, and a file that takes what room is left on a disk."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from tests.torture.tools import mount, unmount_lazily

PAGE_BYTES = 4096


@contextlib.contextmanager
def tmpfs(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of that size over a directory (made if missing), gone with the block."""
    directory.mkdir(parents=True, exist_ok=True)
    mount("reput-torture", directory, "tmpfs", f"size={size_bytes}")
    try:
        yield directory
    finally:
        unmount_lazily(directory)


class Ballast:
    """A file named `ballast` that takes room on a disk.

    Args:
        directory: on that disk.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ballast"

    def take_all(self, but_bytes: int = 0) -> None:
        """Takes all room there is, but for `but_bytes`."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            end = os.fstat(fd).st_size
            for step in (1 << 20, PAGE_BYTES):
                with contextlib.suppress(_NoRoom):
                    while True:
                        _allocate(fd, end, step)
                        end += step
            if but_bytes:
                os.ftruncate(fd, max(0, end - -(-but_bytes // PAGE_BYTES) * PAGE_BYTES))
        finally:
            os.close(fd)

    def give_back(self) -> None:
        """Gives all of it back."""
        self.path.unlink(missing_ok=True)


class _NoRoom(Exception):
    pass


def _allocate(fd: int, position: int, size_bytes: int) -> None:
    try:
        os.posix_fallocate(fd, position, size_bytes)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _NoRoom from error
