"""The `abort` marker of a store root: it exists while a broker runs. At a start it means that the last stop was not clean.

RocketMQ writes its process id into it at start and removes it at the end of a clean stop; it looks only at whether the
file exists. A directory of that name counts, too: it is left alone, so every start takes the last stop for an unclean one.
"""

import logging
import os
from pathlib import Path

from store.files.file_system import FileSystem
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
