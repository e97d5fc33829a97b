"""Small state as JSON, replaced atomically: a new file is written and flushed, renamed over the old one, the directory flushed.

What has the name and is no regular file (a directory, a pipe, a loop of links) is an error. Where the state can be derived
again, it reads as absent. It is renamed when the file is written.

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

# States that have a row for each queue of a store take at most about a tenth of the time, where there are more rows than this:
# after each the next one waits so many times as long as that took.
ROW_COUNT_FEW = 512
PAUSE_FACTOR = 9.0
# A crash costs what came in this time. RocketMQ flushes queues with few new units as rarely.
PAUSE_SECONDS_MAX = 60.0
_log = logging.getLogger("reput.store")


def pause_seconds(row_count: int, seconds: float) -> float:
    """How long the next state waits after one with so many rows that took so long to write."""
    return min(seconds * PAUSE_FACTOR, PAUSE_SECONDS_MAX) if row_count > ROW_COUNT_FEW else 0.0


class NoRegularFileError(OSError):
    """A directory, a pipe, a socket or a loop of links has the name of a file."""


def temporary_of(path: Path) -> Path:
    """What `write_bytes_atomic` writes before it replaces `path`; a process that was killed leaves it."""
    return path.with_name(path.name + ".tmp")


def write_bytes_atomic(fs: FileSystem, path: Path, data: bytes) -> None:
    """Replaces `path` by `data`; DiskFullError or FlushFailedError leave the old file unchanged."""
    fs.mkdirs(path.parent)
    make_way(fs, path)
    temporary = temporary_of(path)
    fd = fs.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        fs.pwrite(fd, data, 0)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.rename(temporary, path)
    fs.fsync_dir(path.parent)


def read_bytes(fs: FileSystem, path: Path) -> bytes | None:
    """The whole file, or None when it does not exist; NoRegularFileError when it is none."""
    try:
        fd = fs.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a loop of links, a socket
            raise
        raise _foreign(path) from error
    try:
        if not fs.is_file(path):
            raise _foreign(path)
        size_bytes = fs.stat_size(path)  # of the name: a file that replaced the open one since may be shorter
        while len(data := fs.pread(fd, size_bytes + 1, 0)) > size_bytes:
            size_bytes = 2 * len(data)
        return data
    finally:
        fs.close(fd)


def read_derived(fs: FileSystem, path: Path) -> bytes | None:
    """The same of state that can be derived again: what is no regular file reads as absent."""
    try:
        return read_bytes(fs, path)
    except NoRegularFileError as error:
        _log.warning("%s; it is taken for absent", error)
        return None


def _foreign(path: Path) -> NoRegularFileError:
    return NoRegularFileError(f"{path} is no regular file: move it out of the store")


def write_json_state(fs: FileSystem, path: Path, state: dict[str, Any]) -> None:
    """Replaces `path` by `state` as JSON."""
    write_bytes_atomic(fs, path, json.dumps(state, separators=(",", ":"), sort_keys=True).encode())


def read_json_state(fs: FileSystem, path: Path) -> dict[str, Any] | None:
    """The state, or None when the file is absent or does not hold a JSON object."""
    data = read_derived(fs, path)
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
