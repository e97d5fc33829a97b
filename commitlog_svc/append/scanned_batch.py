"""The fast path of an append request: a kernel turns its bytes into records side by side, without an object for each message.

`RequestScanner.scan` returns a ScannedBatch. It returns None when something in the request is not ordinary; then nothing has
changed, and the plain path (`message_check.py`) takes the whole request. With the same clock, turns and unique keys both paths
make the same records.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from commitlog_svc.append import layout as at
from commitlog_svc.append.message_check import (
    MESSAGE_COUNT_MAX,
    REFUSED_PROPERTIES,
    REQUEST_BODY_BYTES_MAX,
    WATCHED_WIRE_PROPERTIES,
)
from commitlog_svc.append.recent_keys import RecentKeys
from commitlog_svc.append.records import PreparedRecord
from commitlog_svc.append.topics.queue_offsets import QueueKey, QueueOffsets, QueueTurns
from commitlog_svc.append.topics.topic_columns import TOPIC_COUNT_MIN, KnownTopics, TopicColumns, hash_table, with_room
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.properties import LITE_TOPIC, PRIORITY, SHARDING_KEY, WAITING_PROPERTIES
from store.format.record import encode_head

KERNEL = "commitlog_svc.append.batch_kernel"
RECORDS_SIZE_BYTES = 512 << 10  # size of a buffer that is kept: enough for all requests but the largest
BUFFERS_KEPT_MAX = 8  # so many threads can scan at the same time without a new buffer
_ANY_V4, _ANY_V6 = Host("0.0.0.0", 0), Host("::", 0)  # noqa: S104  # replaced by the address that a message names
_NO_HASHES = np.zeros(0, dtype=np.int64)


class Buffers(NamedTuple):
    """The tables that one scan fills (`layout.py`), and the kernel's view of them."""

    records: memoryview
    rows: at.Int64s
    turns: memoryview
    batch: Any

    @classmethod
    def make(cls, kernel: ModuleType, records_size_bytes: int) -> "Buffers":
        """New ones, for records of `records_size_bytes` together."""
        records = np.empty(records_size_bytes, dtype=np.uint8).data
        rows = np.zeros((MESSAGE_COUNT_MAX, at.ROW_COLUMN_COUNT), dtype=np.int64)
        turns = np.zeros((at.TURN_COUNT_MAX, at.TURN_COLUMN_COUNT), dtype=np.int64).data
        return cls(
            records, rows, turns, kernel.Batch(records, rows, turns, np.zeros(kernel.SPAN_COUNT, dtype=np.int64))
        )


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

    def __init__(self, kernel: ModuleType, buffers: Buffers, topics: TopicColumns) -> None:
        batch = buffers.batch
        flush = batch.flush
        self.sync = None if flush == 0 else flush >= 2  # FlushMode: 1 is async, 2 sync, 3 replicated
        self.replicated = flush == 3
        self.deduplicate: bool = batch.is_deduplicated
        self.size_bytes: int = batch.size_bytes
        self.message_count: int = batch.count
        self.is_hashed = False
        self._kernel = kernel
        self._buffers = buffers
        self._topics = topics
        self._begin_offset = 0
        self._store_time_millis = 0

    @property
    def view(self) -> memoryview:
        """The records."""
        return self._buffers.records[: self.size_bytes]

    @property
    def last_record_size_bytes(self) -> int:
        """Size of the last record."""
        return int(self._buffers.rows[self.message_count - 1, at.RECORD_SIZE])

    @property
    def end(self) -> tuple[int, int]:
        """The byte behind the last record, and the store time; after `place`."""
        return self._begin_offset + self.size_bytes, self._store_time_millis

    def place(self, commit_log_offset: int, store_time_millis: int, queue_offsets: QueueOffsets) -> bool:
        """Gives the records their place; False, and nothing is changed, when the kernel cannot."""
        placed: int = self._kernel.place(
            self._buffers.batch, commit_log_offset, store_time_millis, queue_offsets.column
        )
        if placed < self.message_count:
            self._take_back(queue_offsets, placed)
            return False
        self._begin_offset, self._store_time_millis = commit_log_offset, store_time_millis
        return True

    def take_back(self, queue_offsets: QueueOffsets) -> None:
        """Undoes the changes of `place` to the queue offsets."""
        self._take_back(queue_offsets, self.message_count)

    def note(self, recent: RecentKeys) -> bool:
        """Enters the unique keys in `recent`; False when the caller must enter them one by one."""
        return self.is_hashed and recent.note_rows(
            self._buffers.rows, self.message_count, self._begin_offset, self._begin_offset + self.size_bytes
        )

    def may_be_known(self, recent: RecentKeys) -> bool:
        """Whether `recent` may hold one of the unique keys, or the batch has one twice."""
        return not self.is_hashed or recent.may_hold(self._buffers.rows, self.message_count)

    def prepared_records(self) -> list[PreparedRecord]:
        """The records one by one."""
        data = self.view
        records = []
        for row in self._buffers.rows[: self.message_count].tolist():
            begin, key_begin = row[at.RECORD_BEGIN], row[at.UNIQUE_KEY_BEGIN]
            unique_key = str(data[key_begin : key_begin + row[at.UNIQUE_KEY_SIZE]], "ascii")
            key = self._topics.topics[row[at.TOPIC_NUMBER]], row[at.QUEUE_ID]
            records.append(PreparedRecord(key, unique_key, bytearray(data[begin : begin + row[at.RECORD_SIZE]])))
        return records

    def answer(self, id_prefix: str, broker_name: str) -> bytes:
        """The receipts of a placed batch as the bytes of an AppendMessagesResponse."""
        prefix, name = id_prefix.encode(), broker_name.encode()
        size_bytes_max = self.message_count * (self._kernel.RESULT_BYTES_MAX + 2 * len(name))
        target = bytearray(size_bytes_max + self._buffers.batch.keys_bytes)
        size: int = self._kernel.answer(self._buffers.batch, self._store_time_millis, prefix, name, target)
        assert size > 0
        return bytes(memoryview(target)[:size])

    def _take_back(self, queue_offsets: QueueOffsets, count: int) -> None:
        column, topics = queue_offsets.column, self._topics
        for row in self._buffers.rows[:count].tolist():
            column[topics.queue_slots[topics.queue_slot_begins[row[at.TOPIC_NUMBER]] + row[at.QUEUE_ID]]] -= 1


class RequestScanner:
    """Scans requests; thread-safe.

    Args:
        kernel: KERNEL.
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
        kernel: ModuleType,
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
        self._kernel = kernel
        self._turns = turns
        self._unique_keys = unique_keys
        self._clock_millis = clock_millis
        self._give_queue_slots = give_queue_slots
        self._store_host = store_host
        self._known = KnownTopics()
        self._topics = self._view()
        self._rules = kernel.Rules(
            kernel.Names(
                hash_table([*sorted(REFUSED_PROPERTIES | WAITING_PROPERTIES), SHARDING_KEY, PRIORITY, LITE_TOPIC], 256)
            ),
            kernel.Names(hash_table(sorted(WATCHED_WIRE_PROPERTIES), 64)),
            message_count_max=MESSAGE_COUNT_MAX,
            body_bytes_max=message_size_bytes_max,
            request_body_bytes_max=max(REQUEST_BODY_BYTES_MAX, message_size_bytes_max),
            record_bytes_max=record_size_bytes_max,
            generated_key_size=unique_keys.size_digits,
            is_guarded=properties_crc,
        )
        self._kept: deque[Buffers] = deque(maxlen=BUFFERS_KEPT_MAX)
        self._heads = lru_cache(maxsize=4096)(self._make_head)
        self._topic_hashes: tuple[RecentKeys, int, at.Int64s] | None = None  # how many of the topics have theirs

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics whose messages are not taken."""
        return [topic for topic in topics if topic not in self._known]

    def add_topic(self, topic: str, queue_count: int) -> None:
        """Accepts messages of this topic from now on; for one thread at a time."""
        self._known.add(topic, queue_count, self._give_queue_slots)
        self._topics = self._view()

    def scan(self, data: bytes, born_host: Host, recent: RecentKeys | None) -> ScannedBatch | None:
        """The records of a request, or None when the plain path must take it.

        Args:
            data: an AppendMessagesRequest or AppendMessageStreamRequest.
            born_host: the sender's address.
            recent: the table for the unique keys; None when nothing deduplicates yet.
        """
        kernel = self._kernel
        topics, table = self._topics
        buffers = self._take_buffers(len(data))
        batch = buffers.batch
        if kernel.scan(batch, self._rules, table, self._heads(born_host), data, self._clock_millis()) <= 0:
            self._keep(buffers)
            return None
        scanned = ScannedBatch(kernel, buffers, topics)
        turns = buffers.turns
        for place in range(batch.turn_count):
            turns[place, at.TURN_BEGIN] = self._turns.take(
                topics.topics[turns[place, at.TURN_TOPIC_NUMBER]], turns[place, at.TURN_MESSAGE_COUNT]
            )
        text, counter = self._unique_keys.reserve(batch.generated_count) if batch.generated_count else ("", 0)
        if recent is None:
            filled: int = kernel.fill(batch, text.encode(), counter, _NO_HASHES, 0)
        else:
            filled = kernel.fill(batch, text.encode(), counter, self._hashes(topics, recent), recent.key_hash.factor)
            scanned.is_hashed = True
        assert filled == scanned.message_count
        return scanned

    def give_back(self, batch: ScannedBatch) -> None:
        """Returns the buffers of a batch for reuse; the caller must not use the batch any more."""
        self._keep(batch._buffers)

    def _take_buffers(self, request_size_bytes: int) -> Buffers:
        size_bytes = request_size_bytes + at.MESSAGE_OVERHEAD_BYTES_MAX * MESSAGE_COUNT_MAX
        if size_bytes > RECORDS_SIZE_BYTES:
            return Buffers.make(self._kernel, size_bytes)
        try:
            return self._kept.pop()
        except IndexError:
            return Buffers.make(self._kernel, RECORDS_SIZE_BYTES)

    def _keep(self, buffers: Buffers) -> None:
        if len(buffers.records) == RECORDS_SIZE_BYTES:
            self._kept.append(buffers)

    def _make_head(self, born_host: Host) -> Any:
        is_v6 = born_host.is_ipv6
        v4 = encode_head(_ANY_V4 if is_v6 else born_host, self._store_host)
        return self._kernel.Head(v4, encode_head(born_host if is_v6 else _ANY_V6, self._store_host), is_v6=is_v6)

    def _view(self) -> tuple[TopicColumns, Any]:
        columns = self._known.columns
        return columns, self._kernel.Topics(*columns[1:])

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
