"""The checksums of files that are not written any more, kept beside them: the files themselves stay as RocketMQ writes them.

    {"version": 1, "crc": CRC-32 of "files" as JSON without spaces, keys sorted,
     "files": {NAME: {"stamp": [size, modified, inode, changed], "extents": [[position, size, crc], ...], "note": [...]}}}

A row says: when the file had this stamp, each of these extents had this CRC-32. `note` holds numbers of the file's owner.
A damaged table reads as empty: the files are then read again, and get the checksum of what is found.
"""

import json
import zlib
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from store.files.file_system import FileStamp, FileSystem
from store.files.json_state import read_json_state, write_json_state

VERSION = 1


class Extent(NamedTuple):
    """A part of a file and the CRC-32 that it must have; None while that is not known."""

    position: int
    size_bytes: int
    crc: int | None


class Checksum(NamedTuple):
    """The checksums of one file; see the top of this file."""

    stamp: FileStamp
    extents: tuple[Extent, ...]
    note: tuple[int, ...] = ()


class ChecksumTable:
    """The checksums of one kind of files; thread-safe.

    Args:
        fs: the disk port.
        path: the table.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._lock = Lock()
        self._rows: dict[str, Checksum] = _decode(read_json_state(fs, path))
        self._is_changed = False

    def get(self, name: str) -> Checksum | None:
        """The row of a file; None without one."""
        return self._rows.get(name)

    def put(self, name: str, row: Checksum) -> None:
        """Notes a file's checksum; `save` brings it to the disk."""
        with self._lock:
            self._is_changed |= self._rows.get(name) != row
            self._rows[name] = row

    def remove(self, name: str) -> None:
        """Forgets a file."""
        with self._lock:
            self._is_changed |= self._rows.pop(name, None) is not None

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets all other files."""
        with self._lock:
            kept = {name: row for name, row in self._rows.items() if name in names}
            self._is_changed |= len(kept) != len(self._rows)
            self._rows = kept

    def save(self) -> None:
        """Writes the table if it has changed; the disk's errors leave the old one."""
        with self._lock:
            if not self._is_changed:
                return
            rows = dict(self._rows)
            self._is_changed = False
        files = {name: {"stamp": row.stamp, "extents": row.extents, "note": row.note} for name, row in rows.items()}
        try:
            write_json_state(self._fs, self._path, {"version": VERSION, "crc": _crc_of(files), "files": files})
        except BaseException:
            with self._lock:
                self._is_changed = True
            raise


def _decode(state: dict[str, Any] | None) -> dict[str, Checksum]:
    rows: dict[str, Checksum] = {}
    files = (state or {}).get("files")
    if state is None or not isinstance(files, dict):
        return rows
    if state.get("version") != VERSION or state.get("crc") != _crc_of(files):
        return rows
    for name, row in files.items():
        try:
            stamp = FileStamp._make(map(int, row["stamp"]))
            extents = tuple(Extent(*map(int, extent)) for extent in row["extents"])
            rows[name] = Checksum(stamp, extents, tuple(map(int, row["note"])))
        except (KeyError, TypeError, ValueError):
            continue
    return rows


def _crc_of(files: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(files, separators=(",", ":"), sort_keys=True).encode())
