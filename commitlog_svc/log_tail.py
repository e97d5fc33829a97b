"""The unique keys in the last stretch of the log, for a table of recent keys that begins empty."""

from collections import deque
from collections.abc import Iterator

from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.recent_keys import KeyHash, KeyTable
from store.errors import RecordCorruptedError
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record_dispatch import decode_dispatch
from store.format.record_layout import BLANK_MAGIC, FRAME_SIZE_BYTES_MIN, SIZE_AND_MAGIC
from store.readers.log_walk import find_record_behind

# What a client that tries again after a restart may have sent before it. Reading that much costs a second at most, once.
TAIL_BYTES_MAX = 64 << 20
TAIL_RECORD_COUNT_MAX = 1 << 16
CHUNK_BYTES = 4 << 20


def seed_table(files: MappedFileQueue, starts: FrameStarts, end_offset: int, key_hash: KeyHash) -> KeyTable:
    """The keys of the newest records before `end_offset`; fewer where the log cannot be read."""
    table = KeyTable(TAIL_RECORD_COUNT_MAX)
    places = deque(_records(files, _begin(files, starts, end_offset), end_offset), TAIL_RECORD_COUNT_MAX)
    if places:
        table.begin(places[0][0])
    for offset, size_bytes in places:
        try:
            request = decode_dispatch(files.read(offset, size_bytes), 0, offset)
        except RecordCorruptedError:
            continue
        table.note(key_hash.of(request.topic, request.unique_key), offset)
    return table


def _begin(files: MappedFileQueue, starts: FrameStarts, end_offset: int) -> int:
    """A record's start, about TAIL_BYTES_MAX before the end.

    What looks like a record may lie in a body, so it must be one that a walk from its file's begin comes by.
    """
    offset = max(files.first_offset, end_offset - TAIL_BYTES_MAX)
    file = files.find(offset)
    if file is None or file.first_offset == offset:
        return offset
    found = find_record_behind(files, offset)
    while found is not None and found < end_offset:
        file = files.find(found)
        if file is not None and starts.is_start(file, found):
            return found
        found = find_record_behind(files, found)
    return end_offset


def _records(files: MappedFileQueue, begin_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
    """Offset and size of each record, by their heads alone; ends where there is no head."""
    offset, base, chunk = begin_offset, begin_offset, b""
    while offset < end_offset:
        file = files.find(offset)
        if file is None:
            return
        at = offset - base
        if not 0 <= at <= len(chunk) - SIZE_AND_MAGIC.size:
            base, at = offset, 0
            chunk = file.read(offset, min(CHUNK_BYTES, end_offset - offset))
            if len(chunk) < SIZE_AND_MAGIC.size:
                return
        size_bytes, magic = SIZE_AND_MAGIC.unpack_from(chunk, at)
        if magic == BLANK_MAGIC:
            offset, base, chunk = file.last_offset, file.last_offset, b""
            continue
        if size_bytes < FRAME_SIZE_BYTES_MIN or offset + size_bytes > min(end_offset, file.last_offset):
            return
        yield offset, size_bytes
        offset += size_bytes
