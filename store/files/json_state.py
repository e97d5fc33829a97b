"""Small state as JSON, replaced atomically: a new file is written and flushed, renamed over the old one, the directory flushed.

What has the name and is no regular file (a directory, a pipe, a loop of links) reads as absent, and is renamed when the file is
written.

After a crash the file is either the old one or the new one. A file that does not hold a JSON object reads as
absent: such state can always be derived again.
"""

import errno
import json
import logging
import math
import os
from pathlib import Path
from typing import Any

from store.files.file_system import FileSystem
from store.files.open_files import make_way

_log = logging.getLogger("reput.store")


def write_bytes_atomic(fs: FileSystem, path: Path, data: bytes) -> None:
    """Replaces `path` by `data`; DiskFullError or FlushFailedError leave the old file unchanged."""
    fs.mkdirs(path.parent)
    make_way(fs, path)
    temporary = path.with_name(path.name + ".tmp")
    fd = fs.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        fs.pwrite(fd, data, 0)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.rename(temporary, path)
    fs.fsync_dir(path.parent)


def read_bytes(fs: FileSystem, path: Path) -> bytes | None:
    """The whole file, or None when it does not exist, or is no regular file."""
    try:
        fd = fs.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a loop of links, a socket
            raise
        _note_foreign(path)
        return None
    try:
        if not fs.is_file(path):
            _note_foreign(path)
            return None
        return fs.pread(fd, fs.stat_size(path), 0)
    finally:
        fs.close(fd)


def _note_foreign(path: Path) -> None:
    _log.warning("%s is no regular file, and is taken for absent: move it out of the store", path)


def write_json_state(fs: FileSystem, path: Path, state: dict[str, Any]) -> None:
    """Replaces `path` by `state` as JSON."""
    write_bytes_atomic(fs, path, json.dumps(state, separators=(",", ":"), sort_keys=True).encode())


def read_json_state(fs: FileSystem, path: Path) -> dict[str, Any] | None:
    """The state, or None when the file is absent or does not hold a JSON object."""
    data = read_bytes(fs, path)
    if data is None:
        return None
    try:
        state = json.loads(data, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):  # damage may nest without limit
        return None
    return state if isinstance(state, dict) else None


def _finite(text: str) -> float:
    """A finite number: a damaged file may hold a number that reads as infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
