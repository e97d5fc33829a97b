"""The unique keys in the tail of the log, for a table of recent keys that begins empty."""

from collections import deque

from commitlog_svc.append.recent_keys import KeyHash, KeyTable
from commitlog_svc.append.waiting import waiting_of
from commitlog_svc.lookup import FrameStarts
from store.derive.dispatch import DispatchRequest
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFileQueue
from store.format.record import decode_record
from store.format.topic import WAITING_TOPICS
from store.walk.checks import SizeCheck
from store.walk.cursor import RecordCursor
from store.walk.record_search import find_record_behind

# Covers what a client that sends again after a restart may have sent before. It is read once, in a second at most.
TAIL_BYTES_MAX = 64 << 20
TAIL_RECORD_COUNT_MAX = 1 << 16


def seed_table(files: MappedFileQueue, starts: FrameStarts, end_offset: int, key_hash: KeyHash) -> KeyTable:
    """The keys of the newest records before `end_offset`; fewer if a part of the log cannot be read."""
    table = KeyTable(TAIL_RECORD_COUNT_MAX)
    begin_offset = _begin(files, starts, end_offset)
    # The tail may have more records than the table holds: the older ones are skipped by their sizes.
    places = deque(RecordCursor(files, begin_offset, SizeCheck(), end_offset=end_offset), TAIL_RECORD_COUNT_MAX)
    if places:
        table.begin(places[0][0])
    for offset, size_bytes in places:
        try:
            request = decode_dispatch(files.read(offset, size_bytes), 0, offset)
            topic = _topic_of_message(files, request)
        except RecordCorruptedError:
            continue
        table.note(key_hash.of(topic, request.unique_key), offset)
    return table


def _topic_of_message(files: MappedFileQueue, request: DispatchRequest) -> str:
    """The topic under which a record's unique key is looked for: that of its message, if it waits."""
    if request.topic not in WAITING_TOPICS:
        return request.topic
    data = files.read(request.commit_log_offset, request.record_size_bytes)
    waiting = waiting_of(request.topic, decode_record(data, commit_log_offset=request.commit_log_offset).properties)
    return request.topic if waiting is None else waiting.topic


def _begin(files: MappedFileQueue, starts: FrameStarts, end_offset: int) -> int:
    """The start of a record about TAIL_BYTES_MAX before the end.

    A body may hold bytes that look like a record, so only a start that a walk from the begin of its file meets counts.
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
