"""Whether a record starts at an offset of the log, without a walk over the whole file each time.

A message body may hold anything, another record included. So bytes that look like a record prove nothing; only a walk from
a known start does. For each file some starts are kept, about 64 KiB apart; they are found when first needed.
"""

import bisect
import threading

from store.files.mapped_file import MappedFile
from store.walk.checks import SizeCheck
from store.walk.cursor import OneFile, RecordCursor

STEP_BYTES = 64 << 10


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
