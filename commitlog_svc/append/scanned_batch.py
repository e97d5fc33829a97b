"""The fast path of an append request: kernels turn its bytes into records side by side, without an object for each message.

`RequestScanner.scan` returns a ScannedBatch. It returns None when the kernels are not loaded, or when something in the request
is not ordinary; then nothing has changed, and the plain path (`message_check.py`) takes the whole request. With the
same clock, turns and unique keys both paths make the same records.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_svc.append import layout as at
from commitlog_svc.append.message_check import (
    MESSAGE_COUNT_MAX,
    REFUSED_PROPERTIES,
    REQUEST_BODY_BYTES_MAX,
)
from commitlog_svc.append.recent_keys import RecentKeys
from commitlog_svc.append.records import PreparedRecord
from commitlog_svc.append.topics.queue_offsets import QueueKey, QueueOffsets, QueueTurns
from commitlog_svc.append.topics.topic_columns import TOPIC_COUNT_MIN, KnownTopics, TopicColumns, hash_table, with_room
from store.compiled import loading
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.properties import SHARDING_KEY, WAITING_PROPERTIES
from store.format.record_frame import encode_head
from store.format.record_layout import STORE_TIMES_AT, SYS_FLAG_LOW_BYTE_AT

RECORDS_SIZE_BYTES = 512 << 10  # size of a buffer that is kept: enough for all requests but the largest
BUFFERS_KEPT_MAX = 8  # so many threads can scan at the same time without a new buffer
# A kernel that releases the GIL waits to get it back; for few bytes the wait is longer than the work.
GIL_HELD_BYTES_MAX = 128 << 10
RESULT_BYTES_MAX = 208  # largest receipt without its unique key and its two copies of the broker name
_NOTHING = np.zeros(0, dtype=np.int64)

Bytes = npt.NDArray[np.uint8]

SCAN_KERNEL, PLACE_KERNEL = "commitlog_svc.append.scan_kernel", "commitlog_svc.append.place_kernel"


class Buffers(NamedTuple):
    """The arrays that one scan fills; see `layout.py`."""

    records: Bytes
    rows: at.Int64s
    turns: at.Int64s
    spans: at.Int64s
    found: at.Int64s

    @classmethod
    def make(cls, records_size_bytes: int) -> "Buffers":
        """New arrays, for records of `records_size_bytes` together."""
        return cls(
            np.empty(records_size_bytes, dtype=np.uint8),
            np.zeros((MESSAGE_COUNT_MAX, at.ROW_COLUMN_COUNT), dtype=np.int64),
            np.zeros((at.TURN_COUNT_MAX, at.TURN_COLUMN_COUNT), dtype=np.int64),
            np.zeros(2 * at.KEY_COUNT_MAX + 4 * at.PROPERTY_COUNT_MAX, dtype=np.int64),
            np.zeros(at.FOUND_COUNT, dtype=np.int64),
        )


class Head(NamedTuple):
    """The first bytes of every record of one sender, and the place of the store time in them."""

    data: Bytes
    store_time_at: int


class ScannedBatch:
    """The checked records of one request, side by side in a buffer, without their place in the log.

    Attributes:
        sync: whether to wait for the disk; None: as the settings say.
        replicated: whether to wait for the in-sync replicas, too.
        deduplicate: whether known messages are left out.
        size_bytes: size of all records.
        message_count: number of records.
        is_hashed: whether the hashes of the unique keys are made.
    """

    def __init__(
        self, buffers: Buffers, count: int, head: Head, topics: TopicColumns, kernel: Any, guarded: bool
    ) -> None:
        found = buffers.found.tolist()
        flush = found[at.FOUND_FLUSH]
        self.sync = None if flush == 0 else flush >= 2  # FlushMode: 1 is async, 2 sync, 3 replicated
        self.replicated = flush == 3
        self.deduplicate = bool(found[at.FOUND_DEDUPLICATE])
        self.size_bytes: int = found[at.FOUND_SIZE_BYTES]
        self.is_hashed = False
        self._is_small = self.size_bytes <= GIL_HELD_BYTES_MAX
        self._keys_size_bytes: int = found[at.FOUND_KEYS_SIZE_BYTES]
        self._buffers = buffers
        self.message_count = self._count = count
        self._head = head
        self._topics = topics
        self._kernel = kernel
        self._is_guarded = guarded
        self._begin_offset = 0
        self._store_time_millis = 0

    @property
    def view(self) -> memoryview:
        """The records."""
        return self._buffers.records.data[: self.size_bytes]

    @property
    def last_record_size_bytes(self) -> int:
        """Size of the last record."""
        return int(self._buffers.rows[self._count - 1, at.RECORD_SIZE])

    @property
    def end(self) -> tuple[int, int]:
        """The byte behind the last record, and the store time; after `place`."""
        return self._begin_offset + self.size_bytes, self._store_time_millis

    def place(self, commit_log_offset: int, store_time_millis: int, queue_offsets: QueueOffsets) -> bool:
        """Gives the records their place; False, and nothing is changed, when the kernel cannot."""
        buffers, topics = self._buffers, self._topics
        place = self._kernel.place_holding if self._is_small else self._kernel.place
        placed: int = place(
            buffers.records,
            buffers.rows,
            self._count,
            len(self._head.data),
            int(self._is_guarded),
            commit_log_offset,
            self._head.store_time_at,
            store_time_millis,
            topics.queue_slot_begins,
            topics.queue_slots,
            queue_offsets.column,
        )
        if placed < self._count:
            self._take_back(queue_offsets, placed)
            return False
        self._begin_offset, self._store_time_millis = commit_log_offset, store_time_millis
        return True

    def take_back(self, queue_offsets: QueueOffsets) -> None:
        """Undoes the changes of `place` to the queue offsets."""
        self._take_back(queue_offsets, self._count)

    def note(self, recent: RecentKeys) -> bool:
        """Enters the unique keys in `recent`; False when the caller must enter them one by one."""
        return self.is_hashed and recent.note_rows(
            self._buffers.rows, self._count, self._begin_offset, self._begin_offset + self.size_bytes
        )

    def may_be_known(self, recent: RecentKeys) -> bool:
        """Whether `recent` may hold one of the unique keys, or the batch has one twice."""
        return not self.is_hashed or recent.may_hold(self._buffers.rows, self._count)

    def prepared_records(self) -> list[PreparedRecord]:
        """The records one by one."""
        data = self.view
        records = []
        for row in self._buffers.rows[: self._count].tolist():
            begin, key_begin = row[at.RECORD_BEGIN], row[at.UNIQUE_KEY_BEGIN]
            unique_key = str(data[key_begin : key_begin + row[at.UNIQUE_KEY_SIZE]], "ascii")
            key = self._topics.topics[row[at.TOPIC_NUMBER]], row[at.QUEUE_ID]
            records.append(PreparedRecord(key, unique_key, bytearray(data[begin : begin + row[at.RECORD_SIZE]])))
        return records

    def answer(self, id_prefix: str, broker_name: str) -> bytes:
        """The receipts of a placed batch as the bytes of an AppendMessagesResponse."""
        prefix, name = _names(id_prefix, broker_name)
        target = np.empty(self._count * (RESULT_BYTES_MAX + 2 * len(name)) + self._keys_size_bytes, dtype=np.uint8)
        answer = self._kernel.answer_holding if self._is_small else self._kernel.answer
        size: int = answer(
            self._buffers.records,
            self._buffers.rows,
            self._count,
            len(self._head.data),
            prefix,
            self._store_time_millis,
            name,
            target,
        )
        assert size > 0
        return target[:size].tobytes()

    def _take_back(self, queue_offsets: QueueOffsets, count: int) -> None:
        column, topics = queue_offsets.column, self._topics
        for row in self._buffers.rows[:count].tolist():
            column[topics.queue_slots[topics.queue_slot_begins[row[at.TOPIC_NUMBER]] + row[at.QUEUE_ID]]] -= 1


class RequestScanner:
    """Scans requests; thread-safe.

    Args:
        turns: chooses the queue where the client chose none.
        unique_keys: makes the unique key where the client gave none.
        clock_millis: milliseconds since 1970; the born time of messages without one.
        give_queue_slots: see Appender.
        store_host: written into each record.
        message_size_bytes_max: largest body.
        record_size_bytes_max: largest record that a log file holds.
        properties_crc: close records with `__CRC32#`.
    """

    def __init__(
        self,
        turns: QueueTurns,
        unique_keys: UniqueKeyGenerator,
        clock_millis: Callable[[], int],
        give_queue_slots: Callable[[list[QueueKey]], list[int]],
        *,
        store_host: Host,
        message_size_bytes_max: int,
        record_size_bytes_max: int,
        properties_crc: bool,
    ) -> None:
        self._turns = turns
        self._unique_keys = unique_keys
        self._clock_millis = clock_millis
        self._give_queue_slots = give_queue_slots
        self._store_host = store_host
        self._is_guarded = properties_crc
        self._known = KnownTopics()
        self._topics = self._known.columns
        self._refused = hash_table([*sorted(REFUSED_PROPERTIES | WAITING_PROPERTIES), SHARDING_KEY], 256)
        limits = [0] * at.LIMIT_COUNT
        limits[at.LIMIT_MESSAGE_COUNT] = MESSAGE_COUNT_MAX
        limits[at.LIMIT_BODY_BYTES] = message_size_bytes_max
        limits[at.LIMIT_REQUEST_BODY_BYTES] = max(REQUEST_BODY_BYTES_MAX, message_size_bytes_max)
        limits[at.LIMIT_RECORD_BYTES] = record_size_bytes_max
        limits[at.LIMIT_GENERATED_KEY_BYTES] = unique_keys.size_digits
        limits[at.LIMIT_IS_GUARDED] = int(properties_crc)
        self._limits = np.array(limits, dtype=np.int64)
        self._kept: deque[Buffers] = deque(maxlen=BUFFERS_KEPT_MAX)
        self._heads = lru_cache(maxsize=4096)(self._make_head)
        self._topic_hashes: tuple[RecentKeys, int, at.Int64s] | None = None  # how many of the topics have theirs

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics whose messages are not taken."""
        return [topic for topic in topics if topic not in self._known]

    def add_topic(self, topic: str, queue_count: int) -> None:
        """Accepts messages of this topic from now on; for one thread at a time."""
        self._known.add(topic, queue_count, self._give_queue_slots)
        self._topics = self._known.columns

    def scan(self, data: bytes, born_host: Host, recent: RecentKeys | None) -> ScannedBatch | None:
        """The records of a request, or None when the plain path must take it.

        Args:
            data: an AppendMessagesRequest or AppendMessageStreamRequest.
            born_host: the sender's address.
            recent: the table for the unique keys; None when nothing deduplicates yet.
        """
        scanning, placing = (
            loading.ready(SCAN_KERNEL),
            loading.ready(PLACE_KERNEL),
        )
        if scanning is None or placing is None:
            return None
        topics, head = self._topics, self._heads(born_host)
        buffers = self._take_buffers(len(data))
        is_small = len(data) <= GIL_HELD_BYTES_MAX
        scan = scanning.scan_holding if is_small else scanning.scan
        count: int = scan(
            np.frombuffer(data, dtype=np.uint8),
            head.data,
            self._clock_millis(),
            self._limits,
            topics.slots,
            topics.names,
            topics.sizes,
            topics.queue_counts,
            self._refused,
            buffers.spans,
            buffers.records,
            buffers.rows,
            buffers.turns,
            buffers.found,
        )
        if count <= 0:
            self._keep(buffers)
            return None
        batch = ScannedBatch(buffers, count, head, topics, placing, self._is_guarded)
        for place in range(buffers.found[at.FOUND_TURN_COUNT]):
            turn = buffers.turns[place]
            turn[at.TURN_BEGIN] = self._turns.take(
                topics.topics[turn[at.TURN_TOPIC_NUMBER]], int(turn[at.TURN_MESSAGE_COUNT])
            )
        generated_count = int(buffers.found[at.FOUND_GENERATED_COUNT])
        text, counter = self._unique_keys.reserve(generated_count) if generated_count else ("", 0)
        fill = placing.fill_holding if is_small else placing.fill
        filled: int = fill(
            buffers.records,
            buffers.rows,
            count,
            len(head.data),
            buffers.turns,
            topics.queue_counts,
            np.frombuffer(text.encode(), dtype=np.uint8),
            counter,
            self._hashes(topics, recent) if recent is not None else topics.queue_counts,
            recent.key_hash.factor if recent is not None else 0,
        )
        assert filled == count
        batch.is_hashed = recent is not None
        return batch

    def give_back(self, batch: ScannedBatch) -> None:
        """Returns the buffers of a batch for reuse; the caller must not use the batch any more."""
        self._keep(batch._buffers)

    def _take_buffers(self, request_size_bytes: int) -> Buffers:
        size_bytes = request_size_bytes + at.MESSAGE_OVERHEAD_BYTES_MAX * MESSAGE_COUNT_MAX
        if size_bytes > RECORDS_SIZE_BYTES:
            return Buffers.make(size_bytes)
        try:
            return self._kept.pop()
        except IndexError:
            return Buffers.make(RECORDS_SIZE_BYTES)

    def _keep(self, buffers: Buffers) -> None:
        if len(buffers.records) == RECORDS_SIZE_BYTES:
            self._kept.append(buffers)

    def _make_head(self, born_host: Host) -> Head:
        data = encode_head(born_host, self._store_host)
        return Head(np.frombuffer(data, dtype=np.uint8), STORE_TIMES_AT[data[SYS_FLAG_LOW_BYTE_AT] >> 4 & 3])

    def _hashes(self, topics: TopicColumns, recent: RecentKeys) -> at.Int64s:
        """The hashes of the topics, with which the hashes of their keys begin."""
        known, count = self._topic_hashes, len(topics.sizes)
        if known is None or known[0] is not recent:
            known = recent, 0, np.zeros(TOPIC_COUNT_MIN, dtype=np.int64)
        if known[1] < count:
            # Another thread may do the same: it writes the same.
            hashes = with_room(known[2], count)
            hashes[known[1] : count] = [recent.key_hash.of_topic(topic) for topic in topics.topics[known[1] : count]]
            known = self._topic_hashes = recent, count, hashes
        return known[2][:count]


@lru_cache(maxsize=4)
def _names(id_prefix: str, broker_name: str) -> tuple[Bytes, Bytes]:
    return np.frombuffer(id_prefix.encode(), dtype=np.uint8), np.frombuffer(broker_name.encode(), dtype=np.uint8)
