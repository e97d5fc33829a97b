"""The unique keys of the newest messages, to find a message that is sent again. The index cannot be used: it is built later.

A table of fixed size maps the hash of topic and unique key to the commit-log offset. A hash proves nothing, so the caller
reads the record at the offset and compares. Entries are never removed one by one: there are two tables, a newer one that is
filled and an older one, and a full newer table becomes the older one. So the newest KEY_COUNT messages are always found.

The hash is a polynomial over the words of the text, modulo 2^61 - 1, at a random point that only this process knows: a sender
cannot choose keys whose slots collide with another sender's. One key that comes again and again takes few slots.

Not thread-safe: the appender holds the log's lock.

seed_table fills a table that begins empty from the tail of the log.
"""

import secrets
import struct
from collections import deque
from collections.abc import Iterator

import numpy as np

from commitlog_svc.append import layout
from commitlog_svc.append.layout import Int64s
from commitlog_svc.append.waiting import waiting_of
from commitlog_svc.lookup import TailStarts
from store.compiled import loading
from store.derive.dispatch import DispatchRequest
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFileQueue
from store.format.record import Buffer, IncompleteRecordError, decode_record
from store.format.topic import WAITING_TOPICS
from store.walk.checks import SizeCheck
from store.walk.cursor import PieceBuffer, RecordCursor

# How many messages may come between a lost answer and the second try: at 50,000 messages a second it is ten seconds, and two
# tables of it take 16 MiB.
KEY_COUNT = 1 << 19
SPAN_BYTES_MAX = 1 << 47  # between the offsets of one table; a slot has 48 bits
SAME_MARK_COUNT_MAX = 8  # slots that one key takes in a table; the first one is the receipt that counts
KERNEL = "commitlog_svc.append.recent_keys_kernel"
BATCH_KERNEL = "commitlog_svc.append.batch_kernel"
MODULUS = (1 << 61) - 1
_MARK_SHIFT = 48
_HASH_MARK_SHIFT = 46
_MARK_MASK = 0x7FFF
_OFFSET_MASK = (1 << _MARK_SHIFT) - 1
_SCRATCH_SIZE = 4096  # more than twice the messages of a request


class KeyHash:
    """Hashes of topics and unique keys, 61 bits.

    Args:
        factor: the point, 2 or more and below MODULUS; None: a random one.
    """

    def __init__(self, factor: int | None = None) -> None:
        self.factor = factor if factor is not None else 2 + secrets.randbelow(MODULUS - 2)
        self._topics: dict[str, int] = {}

    def of_topic(self, topic: str) -> int:
        """The hash of a topic, with which the hashes of its keys begin."""
        found = self._topics.get(topic)
        if found is None:
            found = self._goes_on(1, topic.encode("utf-8", "surrogatepass"))
            if len(self._topics) < 4096:  # bounds the memory; names of topics are short
                self._topics[topic] = found
        return found

    def of(self, topic: str, unique_key: str) -> int:
        """The hash of a message's key."""
        return self._goes_on(self.of_topic(topic), unique_key.encode("utf-8", "surrogatepass"))

    def _goes_on(self, value: int, text: bytes) -> int:
        count = -(-len(text) // 8)
        for word in struct.unpack(f"<{count}Q", text.ljust(8 * count, b"\0")):
            value = (value * self.factor + word) % MODULUS
        return (value * self.factor + len(text)) % MODULUS


class KeyTable:
    """One of the two tables.

    Args:
        key_count_max: most messages that it holds, a power of two.
    """

    def __init__(self, key_count_max: int) -> None:
        self.slots: Int64s = np.zeros(2 * key_count_max, dtype=np.int64)
        self.base_offset = 0
        self.count = 0
        self._key_count_max = key_count_max

    def begin(self, commit_log_offset: int) -> None:
        """Empties the table; all messages that it gets lie at this offset or behind."""
        if self.count == 0:
            self.base_offset = commit_log_offset

    def has_room(self, count: int, end_offset: int) -> bool:
        """Whether `count` more messages before `end_offset` fit."""
        return self.count + count <= self._key_count_max and end_offset - self.base_offset < SPAN_BYTES_MAX

    def note(self, hash_: int, commit_log_offset: int) -> None:
        """Enters one message."""
        self.count += 1
        slots, mask = self.slots, len(self.slots) - 1
        mark = hash_ >> _HASH_MARK_SHIFT & _MARK_MASK
        at, same_mark_count = hash_ & mask, 0
        while slot := int(slots[at]):
            same_mark_count += slot >> _MARK_SHIFT == mark
            if same_mark_count >= SAME_MARK_COUNT_MAX:
                return
            at = (at + 1) & mask
        slots[at] = mark << _MARK_SHIFT | (commit_log_offset - self.base_offset + 1)

    def note_rows(self, rows: Int64s, count: int) -> bool:
        """Enters the messages of placed rows that have their hashes; False, and nothing is changed, without the kernel."""
        kernel = loading.load(KERNEL)
        if kernel is None:
            return False
        self.count += count
        kernel.note(self.slots, self.base_offset, SAME_MARK_COUNT_MAX, rows, count)
        return True

    def candidates(self, hash_: int) -> Iterator[int]:
        """Offsets where the key may be, in the order of their entry."""
        slots, mask = self.slots, len(self.slots) - 1
        mark, at = hash_ >> _HASH_MARK_SHIFT & _MARK_MASK, hash_ & mask
        while slot := int(slots[at]):
            if slot >> _MARK_SHIFT == mark:
                yield (slot & _OFFSET_MASK) - 1 + self.base_offset
            at = (at + 1) & mask


class RecentKeys:
    """The newest messages' unique keys, with the commit-log offset of each.

    Args:
        key_hash: see KeyHash.
        key_count_max: see KEY_COUNT.
    """

    def __init__(self, key_hash: KeyHash | None = None, key_count_max: int = KEY_COUNT) -> None:
        self.key_hash = key_hash or KeyHash()
        self._key_count_max = key_count_max
        self._older = KeyTable(1)
        self._newer = KeyTable(key_count_max)
        self._scratch: Int64s = np.zeros(_SCRATCH_SIZE, dtype=np.int64)

    def note(self, topic: str, unique_key: str, commit_log_offset: int) -> None:
        """Enters one message."""
        self._make_room(1, commit_log_offset, commit_log_offset)
        self._newer.note(self.key_hash.of(topic, unique_key), commit_log_offset)

    def note_rows(self, rows: Int64s, count: int, begin_offset: int, end_offset: int) -> bool:
        """Enters the messages of placed rows that have their hashes; False without the kernel."""
        if loading.load(KERNEL) is None or count > self._key_count_max:
            return False
        self._make_room(count, begin_offset, end_offset)
        return self._newer.note_rows(rows, count)

    def may_hold(self, rows: Int64s, count: int) -> bool:
        """Whether a row's key may be known or is in two rows; True without the kernel."""
        kernel = loading.load(KERNEL)
        return kernel is None or bool(kernel.may_hold(self._older.slots, self._newer.slots, rows, count, self._scratch))

    def candidates(self, topic: str, unique_key: str) -> Iterator[int]:
        """Commit-log offsets of records that may have this key, oldest first."""
        hash_ = self.key_hash.of(topic, unique_key)
        yield from self._older.candidates(hash_)
        yield from self._newer.candidates(hash_)

    def take_older(self, table: KeyTable) -> None:
        """Adds a table of messages from before the first one noted here, unless there are enough newer ones already."""
        if self._older.count == 0:
            self._older = table

    def _make_room(self, count: int, begin_offset: int, end_offset: int) -> None:
        if not self._newer.has_room(count, end_offset):
            self._older, self._newer = self._newer, KeyTable(self._key_count_max)
        self._newer.begin(begin_offset)


# Covers what a client that sends again after a restart may have sent before.
TAIL_BYTES_MAX = 64 << 20
TAIL_RECORD_COUNT_MAX = 1 << 16
ROW_COUNT = 4096  # records whose keys are hashed in one call


def seed_table(files: MappedFileQueue, starts: TailStarts, end_offset: int, key_hash: KeyHash) -> KeyTable:
    """The keys of the newest records before `end_offset`; fewer if a part of the log cannot be read.

    A body may hold bytes that look like a record, so the walk begins at a known start before the tail.
    """
    table = KeyTable(TAIL_RECORD_COUNT_MAX)
    begin_offset = max(files.first_offset, end_offset - TAIL_BYTES_MAX)
    newest: deque[Int64s] = deque()
    count = 0
    for rows in RecordCursor(
        files,
        starts.nearest(files, begin_offset),
        _KeyCheck(key_hash),
        end_offset=end_offset,
        skip=lambda gap: None,
        read=PieceBuffer().read,
    ):
        newest.append(rows[rows[:, layout.COMMIT_LOG_OFFSET] >= begin_offset].copy())
        count += len(newest[-1])
        while count - len(newest[0]) >= TAIL_RECORD_COUNT_MAX:
            count -= len(newest.popleft())
    if count:
        rows = np.concatenate(newest)[-TAIL_RECORD_COUNT_MAX:]
        table.begin(int(rows[0, layout.COMMIT_LOG_OFFSET]))
        if not table.note_rows(rows, len(rows)):
            for row in rows.tolist():
                table.note(row[layout.KEY_HASH], row[layout.COMMIT_LOG_OFFSET])
    return table


class _KeyCheck:
    """Takes the records of a log as rows of their hashes and offsets, which are valid until the walk goes on."""

    def __init__(self, key_hash: KeyHash) -> None:
        self._key_hash = key_hash
        self._rows: Int64s = np.zeros((ROW_COUNT, layout.ROW_COLUMN_COUNT), dtype=np.int64)
        self._sizes = SizeCheck()

    def begin(self, offset: int) -> None:
        """See `cursor.Check`."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[Int64s, int]:
        """See `cursor.Check`."""
        kernel = loading.load(BATCH_KERNEL)
        if kernel is not None:
            count, next_at = kernel.hash_records(piece, at, offset, self._key_hash.factor, self._rows)
            if count:
                return self._rows[:count], next_at
        try:
            request = decode_dispatch(piece, at, offset)
            topic = _topic_of_message(piece, at, request)
        except IncompleteRecordError:
            raise
        except RecordCorruptedError:
            return self._rows[:0], self._sizes.take(piece, at, offset)[1]  # damage inside a record: the next one counts
        self._rows[0, layout.KEY_HASH] = self._key_hash.of(topic, request.unique_key)
        self._rows[0, layout.COMMIT_LOG_OFFSET] = offset
        return self._rows[:1], at + request.record_size_bytes


def _topic_of_message(piece: Buffer, at: int, request: DispatchRequest) -> str:
    """The topic under which a record's unique key is looked for: that of its message, if it waits."""
    if request.topic not in WAITING_TOPICS:
        return request.topic
    record = decode_record(piece, at=at, commit_log_offset=request.commit_log_offset)
    waiting = waiting_of(request.topic, record.properties)
    return request.topic if waiting is None else waiting.topic
