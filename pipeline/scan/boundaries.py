"""Where records begin in a log file: found by a walk from its first byte, and cached for complete files.

                     a mark for each block of 16 MiB
    file  |----------|------------|-----...-----------|blank|
          ^ record   ^ the first record that starts in the block, how many start there, their least and greatest store time

A task may start to read at a mark. Only a walk finds marks: a search for the magic number would also find bytes that a
producer put into a body. So each complete file is walked once, at 8 GB/s when it is in memory, and the marks are kept in the
user's cache, never in the store. The cache need not be trusted: each task of a scan proves that its records end exactly
where the next task's begin, so all tasks together walk the file again from its first byte.

Where tasks may begin to read in a log file of an object store, without reading the file first.

    file   |-----------------|==-------------|==-------------|==--------|
                             ^ a probe reads some 100 KiB at each wanted end, one request, and finds the next record

A record states its own commit-log offset. A probe takes the first place where a whole record with right CRCs stands that
does so, and behind which the next record (or the blank) begins. Only a producer who foresees an offset can make another
place look like that. Even then no row is wrong: each task proves that its records end where the next task's begin, and
reports SplitBoundaryError otherwise.
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

from pipeline.object_root import ObjectRoot
from pipeline.scan.log_files import LogFile
from services.object_uri import is_uri
from store.compiled import loading
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError, StoreError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile
from store.format.record import Buffer, decode_header, decode_record
from store.walk.checks import SizeCheck
from store.walk.cursor import Gap, OneFile, PieceBuffer, RecordCursor
from store.walk.record_search import MAGIC_PREFIX
from store.walk.scan_layout import (
    INT64_MAX,
    INT64_MIN,
    LENGTHS,
    MARK_OFFSET,
    MARK_RECORD_COUNT,
    MARK_ROW_COUNT,
    MARK_TIME_MAX,
    MARK_TIME_MIN,
)

KERNEL = "store.walk.scan_kernel"
BLOCK_BYTES = 16 << 20
WALK_BYTES = 4 << 20  # read at once; small enough to stay in the CPU's cache
HEAD_BYTES = 64  # of the first record: its offset, times and hosts tell one log from another
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
    """What a walk found in a file.

    Attributes:
        marks: by ascending offset; empty for a file without a record.
        end_offset: where the walk ended: the file's last offset when it is complete, else the first byte that is not a record.
        is_complete: whether the walk reached the file's end: its last record or its blank ends there.
        has_damage: whether damage lies between its records.
    """

    marks: tuple[Mark, ...]
    end_offset: int
    is_complete: bool
    has_damage: bool = False


def kernel() -> Any:
    """The kernel of the scan; its source as plain Python where it is not compiled, or kernels are off."""
    return loading.load(KERNEL) or loading.plain(KERNEL)


def walk_file(
    fs: FileSystem,
    file: LogFile,
    *,
    check: int,
    block_bytes: int = BLOCK_BYTES,
    over_damage: bool = False,
) -> FileWalk:
    """Walks a file from its first byte to its end, or to the first byte that is not a record.

    Args:
        fs: the port to the disk.
        file: the file.
        check: LENGTHS or PLACE (`store/walk/scan_layout.py`).
        block_bytes: approximate distance of marks, in bytes.
        over_damage: go on at the next sound record after damage.
    """
    opened = file.open(fs)
    marks = _MarkCheck(file.first_offset, check, block_bytes)
    gaps: list[Gap] = []
    cursor = RecordCursor(
        OneFile(opened),
        file.first_offset,
        marks,
        skip=gaps.append if over_damage else None,
        piece_bytes=WALK_BYTES,
        read=PieceBuffer().read,
    )
    try:
        opened.will_read(file.first_offset, file.last_offset)
        for _ in cursor:
            pass
    except FileNotFoundError:  # an object, unlike an open file, can go while it is read
        raise file.gone() from None
    finally:
        opened.close()
    is_complete = cursor.offset == file.last_offset
    return FileWalk(marks.end(), cursor.offset, is_complete=is_complete, has_damage=bool(gaps))


class _MarkCheck:
    """Passes all records of a piece by their lengths, and keeps a mark for each block."""

    def __init__(self, first_offset: int, check: int, block_bytes: int) -> None:
        self._scan = kernel()
        self._check = check
        self._block_bytes = block_bytes
        self._block_end = first_offset + block_bytes
        self._marks: list[Mark] = []
        # The current block, the blocks that a piece may complete, and one more.
        self._block: Int64s = np.empty((MARK_ROW_COUNT, 1 + WALK_BYTES // block_bytes + 1), dtype=np.int64)
        self._block[:, 0] = (first_offset, 0, INT64_MAX, INT64_MIN)

    def begin(self, offset: int) -> None:
        """Does nothing: this check keeps no state of a stretch (`store.walk.cursor.Check`)."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[None, int]:
        """Passes the records from `at` on, and returns where it stopped (`store.walk.cursor.Check`)."""
        data = as_array(piece)
        count, next_at, mark_count, self._block_end = self._scan.mark_frames(
            data, at, len(data), offset, self._check, self._block_bytes, self._block_end, self._block
        )
        if not count:
            raise refusal(piece, at, offset, self._check)
        self._marks.extend(_marks(self._block[:, : mark_count - 1]))
        self._block[:, 0] = self._block[:, mark_count - 1]
        return None, int(next_at)

    def end(self) -> tuple[Mark, ...]:
        """All marks, including that of the current block."""
        return (*self._marks, *_marks(self._block[:, :1]))


def as_array(piece: Buffer) -> npt.NDArray[np.uint8]:
    """The bytes as an array that nobody writes to."""
    data = np.frombuffer(piece, dtype=np.uint8)
    data.flags.writeable = False
    return data


def refusal(piece: Buffer, at: int, offset: int, check: int) -> RecordCorruptedError:
    """The error for piece[at], commit-log offset `offset`, where the kernel accepted no record."""
    stated = int.from_bytes(piece[at + 28 : at + 36], "big", signed=True) if check == LENGTHS else offset
    try:
        decode_dispatch(piece, at, stated)
    except RecordCorruptedError as error:
        return error
    raise AssertionError(f"the kernel rejects the record at commit-log offset {offset}, the plain codec accepts it")


def _marks(block: Int64s) -> list[Mark]:
    rows = block[[MARK_OFFSET, MARK_RECORD_COUNT, MARK_TIME_MIN, MARK_TIME_MAX]].T.tolist()
    return [Mark(*row) for row in rows if row[1]]


class BoundaryCache:
    """Walks of complete files, kept in a directory or in an object store, one small JSON file each.

    A walk is used only for a file of the same path, size, modification time, inode and first bytes; other files are walked
    again. Cache files that cannot be read or written are ignored.

    Args:
        directory: the cache's place, made when missing. None keeps nothing.
        fs: the port to the files that are walked.
    """

    def __init__(self, directory: Path | ObjectRoot | None, fs: FileSystem) -> None:
        self._directory = directory
        self._fs = fs

    def get(self, file: LogFile, *, check: int, block_bytes: int) -> FileWalk | None:
        """The kept walk of a file; None without one, or if the file has changed."""
        if self._directory is None:
            return None
        try:
            state = json.loads(self._read(_name(file, check, block_bytes)))
            if state["format"] != FORMAT or state["file"] != _identity(self._fs, file):
                return None
            marks = tuple(Mark(*map(int, row)) for row in state["marks"])
        except (OSError, StoreError, ValueError, KeyError, TypeError):
            return None
        offsets = [mark.offset for mark in marks]
        if not marks or offsets != sorted(set(offsets)) or offsets[0] != file.first_offset:
            return None
        return FileWalk(marks, file.last_offset, is_complete=True) if offsets[-1] < file.last_offset else None

    def put(self, file: LogFile, walk: FileWalk, *, check: int, block_bytes: int, identity: dict[str, Any]) -> None:
        """Keeps the walk of a complete, sound file.

        Args:
            file: the file.
            walk: the walk's result.
            check: the check of the walk.
            block_bytes: approximate distance of its marks, in bytes.
            identity: `identity_of` the file, taken before the walk.
        """
        if self._directory is None or not walk.is_complete or walk.has_damage or not walk.marks:
            return
        if identity != identity_of(self._fs, file):  # the file changed during the walk
            return
        rows = [(mark.offset, mark.record_count, mark.time_millis_min, mark.time_millis_max) for mark in walk.marks]
        text = json.dumps({"format": FORMAT, "file": identity, "marks": rows}, separators=(",", ":"))
        name = _name(file, check, block_bytes)
        try:
            if isinstance(self._directory, ObjectRoot):
                self._directory.put_bytes(name, text.encode())
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=self._directory, prefix=name)
            with open(handle, "w", encoding="ascii") as stream:
                stream.write(text)
            os.rename(written, self._directory / name)
        except (OSError, StoreError):  # then the next scan walks again
            return

    def _read(self, name: str) -> bytes:
        assert self._directory is not None
        if isinstance(self._directory, ObjectRoot):
            return self._directory.read(name) or b""
        return (self._directory / name).read_bytes()


def _name(file: LogFile, check: int, block_bytes: int) -> str:
    name = f"{_real_path(file)}\0{check}\0{block_bytes}"
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32] + ".json"


def _real_path(file: LogFile) -> str:
    return file.path if is_uri(file.path) else os.path.realpath(file.path)


def identity_of(fs: FileSystem, file: LogFile) -> dict[str, Any]:
    """Path, size, time, inode and first bytes, which identify one state of a file; empty when the file is gone.

    Of an object it is what the listing says, which costs no request.
    """
    try:
        return _identity(fs, file)
    except OSError:
        return {}


def _identity(fs: FileSystem, file: LogFile) -> dict[str, Any]:
    if is_uri(file.path):
        stamp = fs.stamp(file.path)
        return {"path": file.path, "size_bytes": stamp.size_bytes, "mtime_ns": stamp.modified_nanos}
    with open(file.path, "rb") as stream:
        head = stream.read(HEAD_BYTES)
        stat = os.fstat(stream.fileno())
    return {
        "path": _real_path(file),
        "size_bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "inode": stat.st_ino,
        "head": hashlib.sha256(head).hexdigest(),
    }


PROBED = -1  # in place of a walk's check, where probes are kept
# Some records of usual size; when it holds none, records are large, and the second read holds two of RocketMQ's largest.
PROBE_BYTES, PROBE_BYTES_MAX = 128 << 10, 12 << 20
# Behind the place where the end of a file is looked for; two reads.
TAIL_BYTES = 1 << 20
# Of a file; more tasks would spend their time on round trips.
PROBE_COUNT_MAX = 64


def probe_file(fs: FileSystem, file: LogFile, every_bytes: int) -> FileWalk:
    """Records that begin about `every_bytes` behind one another, as marks; the times of their records are not known.

    Raises:
        LogFileGoneError: the file was deleted since it was listed.
    """
    every_bytes = max(every_bytes, -(-(file.last_offset - file.first_offset) // PROBE_COUNT_MAX))
    opened = file.open(fs)
    begins = [file.first_offset]
    try:
        wanted = file.first_offset + every_bytes
        while wanted < file.last_offset:
            found = find_record_at(opened, wanted)
            if found is not None:
                begins.append(found)
            wanted = (wanted if found is None else found) + every_bytes
    except FileNotFoundError:
        raise file.gone() from None
    finally:
        opened.close()
    # Nothing is known of the records: bounds of time that rule out nothing.
    marks = tuple(Mark(begin, 1, INT64_MIN, INT64_MAX) for begin in begins)
    return FileWalk(marks, file.last_offset, is_complete=True)


def ends_complete(fs: FileSystem, file: LogFile) -> bool:
    """Whether records reach to the file's end, or to the blank there: then the file is full, and needs no walk."""
    opened = file.open(fs)
    try:
        tail = file.last_offset - TAIL_BYTES
        begin = find_record_at(opened, tail) if tail > file.first_offset else file.first_offset
        if begin is None:
            return False
        cursor = RecordCursor(OneFile(opened), begin, SizeCheck())
        for _ in cursor:
            pass
    except FileNotFoundError:
        raise file.gone() from None
    finally:
        opened.close()
    return cursor.offset == file.last_offset


def find_record_at(file: MappedFile, offset: int) -> int | None:
    """The first commit-log offset at or behind `offset` where a record stands that another one follows; None without one."""
    for size_bytes in (PROBE_BYTES, PROBE_BYTES_MAX):
        piece = file.read(offset, size_bytes)
        at = piece.find(MAGIC_PREFIX)
        while at >= 0:
            if at >= 4 and _is_followed(piece, at - 4, offset, file.last_offset):
                return offset + at - 4
            at = piece.find(MAGIC_PREFIX, at + 1)
        if len(piece) < size_bytes:
            break
    return None


def _is_followed(piece: bytes, at: int, offset: int, file_end: int) -> bool:
    """Whether a record stands at piece[at], and behind it a record's head, the file's blank, or the file's end.

    Args:
        piece: bytes of the file.
        at: a place in them.
        offset: commit-log offset of the first of them.
        file_end: commit-log offset behind the file.
    """
    try:
        end = at + decode_record(piece, at=at, commit_log_offset=offset + at).store_size_bytes
        if offset + end == file_end:
            return True
        header = decode_header(piece, end, offset + end)
    except RecordCorruptedError:
        return False
    return not header.is_blank or offset + end + header.size_bytes == file_end
