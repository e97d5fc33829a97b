"""Reads records by their offset. An offset may be a record's start, the middle of a record, or a damaged place.

FrameStarts: whether a record starts at an offset of the log, without a walk over the whole file each time.
TailStarts: some starts near the end of the log, for a walk over its tail.

A message body may hold anything, another record included. So bytes that look like a record prove nothing; only a walk from
a known start does. For each file some starts are kept, about 64 KiB apart; they are found when first needed.
"""

import bisect
import os
import threading
from collections.abc import Callable

from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.record import Record, decode_header
from store.format.record_layout import HEADER_BYTES_MAX
from store.walk.checks import SizeCheck
from store.walk.cursor import OneFile, RecordCursor
from store.walk.record_reader import read_record_at

STEP_BYTES = 64 << 10
# A walk over the tail begins up to this far before it, and further if more than this was written between two flushes.
TAIL_STEP_BYTES = 16 << 20
TAIL_START_COUNT_MAX = 8  # so they reach beyond what is read of the tail (`append/recent_keys.py`)


class FrameStarts:
    """Known record starts by file; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: dict[int, list[int]] = {}

    def is_start(self, file: MappedFile, offset: int) -> bool:
        """Whether a walk over the records of `file` meets a start at `offset`; also True when damage ends the walk before."""
        with self._lock:
            starts = self._starts.setdefault(file.first_offset, [file.first_offset])
            begin = starts[bisect.bisect_right(starts, offset) - 1]
            if begin == offset:
                return True
            cursor = RecordCursor(OneFile(file), begin, SizeCheck(), piece_bytes=STEP_BYTES)
            for start, size_bytes in cursor:
                if start - starts[-1] >= STEP_BYTES:
                    starts.append(start)
                if start + size_bytes >= offset:
                    return start + size_bytes == offset
            return cursor.offset < offset  # a blank before `offset` moves the cursor to the end of the file

    def forget(self, before_offset: int) -> None:
        """Drops the starts in files that begin before a commit-log offset."""
        with self._lock:
            for first_offset in [first for first in self._starts if first < before_offset]:
                del self._starts[first_offset]


class TailStarts:
    """Some record starts near the end of the log, each well behind the one before. One thread notes, any may read.

    Attributes:
        offsets: commit-log offsets, rising; a blank may stand there.
    """

    def __init__(self) -> None:
        self.offsets: tuple[int, ...] = ()

    def note(self, offset: int) -> None:
        """Notes a start that lies behind the others, unless it is near the last one."""
        if not self.offsets or offset >= self.offsets[-1] + TAIL_STEP_BYTES:
            self.offsets = (*self.offsets, offset)[-TAIL_START_COUNT_MAX:]

    def cut(self, end_offset: int) -> None:
        """Drops the starts behind the end of a log that was cut."""
        self.offsets = tuple(offset for offset in self.offsets if offset <= end_offset)

    def nearest(self, files: MappedFileQueue, offset: int) -> int:
        """The last known start at or before an offset: one of these, or the begin of its file."""
        file = files.find(offset)
        first_offset = offset if file is None else file.first_offset
        return max((start for start in self.offsets if first_offset <= start <= offset), default=first_offset)


class LogReads:
    """Single records, and the files that hold them; thread-safe.

    Args:
        fs: the disk port.
        files: the log.
        starts: known record starts.
        readable_offset: up to where records may be read (bytes); see confirm_offset.py.
    """

    def __init__(
        self, fs: FileSystem, files: MappedFileQueue, starts: FrameStarts, readable_offset: Callable[[], int]
    ) -> None:
        self._fs = fs
        self._files = files
        self._starts = starts
        self._readable_offset = readable_offset

    @property
    def readable_offset(self) -> int:
        """Up to where records may be read (bytes)."""
        return self._readable_offset()

    def get(self, commit_log_offset: int) -> Record:
        """The record that starts at an offset.

        Raises:
            OffsetOutOfRangeError: outside the log.
            RecordNotFoundError: inside the log, but no record starts there.
            RecordCorruptedError: a record starts there and is damaged.
        """
        return read_record(self._files, self._starts, commit_log_offset, self._readable_offset())

    def open_file(self, commit_log_offset: int) -> int:
        """A descriptor of the file that holds an offset, for reading; the caller closes it.

        Raises:
            OffsetOutOfRangeError: outside the log, or the file was just removed.
        """
        file = find_file(self._files, commit_log_offset, self._readable_offset())
        try:
            return self._fs.open(file.path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise OffsetOutOfRangeError(
                "the log file of this offset was removed just now", offset=commit_log_offset
            ) from error


def read_record(files: MappedFileQueue, starts: FrameStarts, commit_log_offset: int, end_offset: int) -> Record:
    """The record that starts at an offset of a log that ends at `end_offset`; errors as `LogReads.get`."""
    file = find_file(files, commit_log_offset, end_offset)
    size_bytes_max = min(end_offset, file.last_offset) - commit_log_offset
    try:
        return read_record_at(file.read, commit_log_offset, size_bytes_max)
    except RecordCorruptedError as error:
        head = file.read(commit_log_offset, min(HEADER_BYTES_MAX, size_bytes_max))
        if not starts.is_start(file, commit_log_offset) or _is_blank(head):
            raise _no_start(commit_log_offset) from None
        error.metadata["file"] = str(file.path)
        error.metadata["commitLogOffset"] = str(commit_log_offset)
        raise


def find_file(files: MappedFileQueue, commit_log_offset: int, end_offset: int) -> MappedFile:
    """The file that holds an offset of a log that ends at `end_offset`; OffsetOutOfRangeError outside the log."""
    file = files.find(commit_log_offset)
    first_offset = files.first_offset
    if not first_offset <= commit_log_offset < end_offset or file is None:
        raise OffsetOutOfRangeError(
            f"commit-log offset {commit_log_offset} is outside the log, which has {first_offset} to {end_offset}",
            offset=commit_log_offset,
            firstOffset=first_offset,
            lastOffset=end_offset,
        )
    return file


def check_start(files: MappedFileQueue, starts: FrameStarts, start_offset: int, confirm_offset: int) -> int:
    """The offset at which a follower begins: `start_offset`, or for -1 that of the log's first record.

    Raises:
        OffsetOutOfRangeError: the start is outside the log as far as it may be shown.
        RecordNotFoundError: no record starts there.
        RecordCorruptedError: a record starts there and is damaged.
    """
    first_offset = files.first_offset
    start = first_offset if start_offset == -1 else start_offset
    if not first_offset <= start <= confirm_offset:
        raise OffsetOutOfRangeError(
            f"commit-log offset {start} is outside the confirmed log, which has {first_offset} to {confirm_offset}",
            offset=start,
            firstOffset=first_offset,
            lastOffset=confirm_offset,
        )
    if start < confirm_offset:
        try:
            decode_header(files.read(start, HEADER_BYTES_MAX), 0, start)
        except RecordCorruptedError:
            file = files.find(start)
            if file is None or starts.is_start(file, start):
                raise
            raise _no_start(start) from None
    return start


def _no_start(commit_log_offset: int) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"no record starts at commit-log offset {commit_log_offset}", commitLogOffset=commit_log_offset
    )


def _is_blank(data: bytes) -> bool:
    try:
        return decode_header(data, 0).is_blank
    except RecordCorruptedError:
        return False
