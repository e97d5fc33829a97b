"""Where records begin in a log file: found by a walk from its first byte, and remembered for files that are complete.

                     a mark for each block of 16 MiB
    file  |----------|------------|-----...-----------|blank|
          ^ record   ^ the first record that starts in the block, how many do, their least and greatest store time

A mark is where a task may start to read. Nothing but a walk knows one: a search for the magic number finds whatever bytes a
producer put into a body. So a walk is done once for each complete file, at 8 GB/s where it is in memory, and kept beside the
pipeline, never in the store. What is kept need not be trusted: each task of a scan proves that its records end exactly
where the next task's begin, so all of them together walk the file again from its first byte.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.log_files import LogFile
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_file import MappedFile
from store.format.record import BLANK_SIZE_BYTES, decode_header
from store.kernels import loading, scan_plain
from store.kernels.scan_layout import (
    INT64_MAX,
    INT64_MIN,
    LENGTHS,
    MARK_OFFSET,
    MARK_RECORD_COUNT,
    MARK_ROW_COUNT,
    MARK_TIME_MAX,
    MARK_TIME_MIN,
)
from store.readers.log_walk import find_record_in

KERNEL = "scan_kernel"
BLOCK_BYTES = 16 << 20
WALK_BYTES = 4 << 20  # a piece of the log that stays in the CPU's cache
HEAD_BYTES = 64  # enough of the first record to tell one log from another: place, times, hosts
FORMAT = 1
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of the log between two records' starts.

    Attributes:
        offset: commit-log offset of its first record.
        record_count: how many records start in it.
        time_millis_min: the least of their store times.
        time_millis_max: the greatest.
    """

    offset: int
    record_count: int
    time_millis_min: int
    time_millis_max: int


@dataclass(frozen=True, slots=True)
class FileWalk:
    """What a walk found out about a file.

    Attributes:
        marks: rising; none for a file without a record.
        end_offset: where the walk ended: the file's last offset when it is complete, else the first byte that is no record.
        is_complete: whether the file ends as a file should that the log has left behind.
        has_damage: whether there are bytes between records that are none.
    """

    marks: tuple[Mark, ...]
    end_offset: int
    is_complete: bool
    has_damage: bool = False


def kernel() -> Any:
    """The kernel of the scan, compiled, or its plain twin."""
    return loading.load(KERNEL) or scan_plain


def walk_file(
    fs: FileSystem,
    file: LogFile,
    *,
    check: int,
    block_bytes: int = BLOCK_BYTES,
    over_damage: bool = False,
) -> FileWalk:
    """Walks a file from its first byte to its end or to the first byte that is no record.

    Args:
        fs: the door to the disk.
        file: the file.
        check: LENGTHS or PLACE (`store/kernels/scan_layout.py`).
        block_bytes: how far marks lie apart, about.
        over_damage: go on at the next sound record.
    """
    opened = file.open(fs)
    try:
        return _walk(opened, check, block_bytes, over_damage=over_damage)
    finally:
        opened.close()


def _walk(file: MappedFile, check: int, block_bytes: int, *, over_damage: bool) -> FileWalk:
    scan = kernel()
    buffer = bytearray(WALK_BYTES)
    marks: list[Mark] = []
    block: Int64s = np.empty((MARK_ROW_COUNT, 1 + WALK_BYTES // block_bytes + 1), dtype=np.int64)
    offset = block_end = file.first_offset
    block[:, 0] = (offset, 0, INT64_MAX, INT64_MIN)
    block_end += block_bytes
    has_damage = False
    while True:
        size_bytes = file.read_into(offset, memoryview(buffer))
        data = np.frombuffer(buffer, dtype=np.uint8)
        data.flags.writeable = False
        count, at, mark_count, block_end = scan.mark_frames(
            data, 0, size_bytes, offset, check, block_bytes, block_end, block
        )
        marks.extend(_marks(block[:, : mark_count - 1]))
        block[:, 0] = block[:, mark_count - 1]
        offset += at
        if count:
            continue
        head = bytes(data[: min(size_bytes, BLANK_SIZE_BYTES)])
        if offset == file.last_offset or is_closing_blank(head, file.last_offset - offset):
            marks.extend(_marks(block[:, :1]))
            return FileWalk(tuple(marks), file.last_offset, is_complete=True, has_damage=has_damage)
        frame_bytes = int.from_bytes(head[:4], "big", signed=True)
        stated = None if check == LENGTHS else offset
        if len(buffer) < frame_bytes <= file.last_offset - offset and is_record_head(data[:size_bytes], stated):
            buffer = bytearray(frame_bytes)
            continue
        behind = find_record_in(file, offset) if over_damage else None
        if behind is None:
            marks.extend(_marks(block[:, :1]))
            return FileWalk(tuple(marks), offset, is_complete=False, has_damage=has_damage)
        has_damage = True
        offset = behind


def _marks(block: Int64s) -> list[Mark]:
    rows = block[[MARK_OFFSET, MARK_RECORD_COUNT, MARK_TIME_MIN, MARK_TIME_MAX]].T.tolist()
    return [Mark(*row) for row in rows if row[1]]


def is_closing_blank(head: bytes, left_bytes: int) -> bool:
    """Whether a blank stands here that closes its file."""
    try:
        header = decode_header(head, 0)
    except RecordCorruptedError:
        return False
    return header.is_blank and header.size_bytes == left_bytes


def is_record_head(data: npt.NDArray[np.uint8], offset: int | None) -> bool:
    """Whether the head of a record stands here, which says that it stands at `offset`."""
    try:
        return not decode_header(data.data, 0, offset).is_blank
    except RecordCorruptedError:
        return False


class BoundaryCache:
    """Walks of complete files, kept in a directory, one small JSON file each.

    A walk is believed for the file of that path, size, modification time, inode and first bytes only; everything else is
    walked again. Files that cannot be read or written do not matter.

    Args:
        directory: where; made when missing. None keeps nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def get(self, file: LogFile, *, check: int, block_bytes: int) -> FileWalk | None:
        """What is known of a file, if it is still that file."""
        if self._directory is None:
            return None
        try:
            state = json.loads(self._path(file, check, block_bytes).read_bytes())
            if state["format"] != FORMAT or state["file"] != _identity(file):
                return None
            marks = tuple(Mark(*map(int, row)) for row in state["marks"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        offsets = [mark.offset for mark in marks]
        if not marks or offsets != sorted(set(offsets)) or offsets[0] != file.first_offset:
            return None
        return FileWalk(marks, file.last_offset, is_complete=True) if offsets[-1] < file.last_offset else None

    def put(self, file: LogFile, walk: FileWalk, *, check: int, block_bytes: int, identity: dict[str, Any]) -> None:
        """Keeps the walk of a complete, sound file.

        Args:
            file: the file.
            walk: what was found.
            check: how it was walked.
            block_bytes: how far its marks lie apart.
            identity: `identity_of` the file before it was walked.
        """
        if self._directory is None or not walk.is_complete or walk.has_damage or not walk.marks:
            return
        if identity != _identity(file):  # written to while it was walked
            return
        rows = [(mark.offset, mark.record_count, mark.time_millis_min, mark.time_millis_max) for mark in walk.marks]
        text = json.dumps({"format": FORMAT, "file": identity, "marks": rows}, separators=(",", ":"))
        path = self._path(file, check, block_bytes)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=self._directory, prefix=path.name)
            with open(handle, "w", encoding="ascii") as stream:
                stream.write(text)
            os.rename(written, path)
        except OSError:  # then the next scan walks again
            return

    def _path(self, file: LogFile, check: int, block_bytes: int) -> Path:
        assert self._directory is not None
        name = f"{os.path.realpath(file.path)}\0{check}\0{block_bytes}"
        return self._directory / (hashlib.sha256(os.fsencode(name)).hexdigest()[:32] + ".json")


def identity_of(file: LogFile) -> dict[str, Any]:
    """What tells a file from another, or from itself after a change; empty when it is gone."""
    try:
        return _identity(file)
    except OSError:
        return {}


def _identity(file: LogFile) -> dict[str, Any]:
    with open(file.path, "rb") as stream:
        head = stream.read(HEAD_BYTES)
        stat = os.fstat(stream.fileno())
    return {
        "path": os.path.realpath(file.path),
        "size_bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "inode": stat.st_ino,
        "head": hashlib.sha256(head).hexdigest(),
    }
