"""Which offsets of the log are the start of a record: told exactly, and without walking a whole file each time.

A message body may hold anything, another record included, so bytes that look like a record at an offset prove nothing:
only a walk from a known start does. For each file some starts are kept, about 64 KiB apart, found when first needed.
"""

import bisect
import threading

from store.files.mapped_file import MappedFile
from store.format.record_layout import BLANK_MAGIC, FRAME_SIZE_BYTES_MIN, MAGIC_V1, MAGIC_V2, SIZE_AND_MAGIC

STEP_BYTES = 64 << 10


class FrameStarts:
    """Known record starts by file; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: dict[int, list[int]] = {}

    def is_start(self, file: MappedFile, offset: int) -> bool:
        """Whether a walk over the sizes of the records in `file` comes by `offset`; True too when damage hides it."""
        with self._lock:
            starts = self._starts.setdefault(file.first_offset, [file.first_offset])
            position = starts[bisect.bisect_right(starts, offset) - 1]
            while position < offset:
                if position - starts[-1] >= STEP_BYTES:
                    starts.append(position)
                head = file.read(position, SIZE_AND_MAGIC.size)
                if len(head) < SIZE_AND_MAGIC.size:
                    return True
                size_bytes, magic = SIZE_AND_MAGIC.unpack(head)
                if magic == BLANK_MAGIC:
                    return False
                if magic not in (MAGIC_V1, MAGIC_V2) or size_bytes < FRAME_SIZE_BYTES_MIN:
                    return True  # damaged on the way: nobody can say
                position += size_bytes
            return position == offset

    def forget(self, before_offset: int) -> None:
        """Drops what is known of files before an address."""
        with self._lock:
            for first_offset in [first for first in self._starts if first < before_offset]:
                del self._starts[first_offset]
