"""The fast way of an append request: from its bytes to frames side by side, by kernels, without an object for a message.

`RequestScanner.scan` gives a ScannedRequest, or None: then the kernels are not loaded yet, or something in the request is
not ordinary, and nothing has changed. The plain way (`message_check.py`) then decides about the whole request. For the same
clock, turns and unique keys both ways make the same frames.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_svc.appender import PreparedFrame
from commitlog_svc.message_check import (
    MESSAGE_COUNT_MAX,
    REFUSED_PROPERTIES,
    REQUEST_BODY_BYTES_MAX,
    SHARDING_KEY,
)
from commitlog_svc.queue_offsets import QueueKey, QueueOffsets
from commitlog_svc.queue_turns import QueueTurns
from commitlog_svc.recent_keys import RecentKeys
from commitlog_svc.topic_columns import TopicColumns, hash_table
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.record_frame import encode_head
from store.format.record_layout import STORE_TIMES_AT, SYS_FLAG_LOW_BYTE_AT
from store.kernels import append_layout as at
from store.kernels import loading

FRAMES_SIZE_BYTES = 512 << 10  # of a buffer that is kept: enough for all requests but the largest
BUFFERS_KEPT_MAX = 8  # one for each thread that scans at the same time, on a machine with so many processors
# A kernel that lets go of the GIL gets it back when another thread lets go of it, later than it would have been done itself.
GIL_HELD_BYTES_MAX = 128 << 10
RESULT_BYTES_MAX = 208  # of a receipt without its unique key and twice the broker name
_NOTHING = np.zeros(0, dtype=np.int64)

Bytes = npt.NDArray[np.uint8]


class Buffers(NamedTuple):
    """What one scan fills; see `append_layout.py`."""

    frames: Bytes
    rows: at.Int64s
    turns: at.Int64s
    spans: at.Int64s
    found: at.Int64s

    @classmethod
    def make(cls, frames_size_bytes: int) -> "Buffers":
        """For frames of so many bytes together."""
        return cls(
            np.empty(frames_size_bytes, dtype=np.uint8),
            np.zeros((MESSAGE_COUNT_MAX, at.ROW_COLUMN_COUNT), dtype=np.int64),
            np.zeros((at.TURN_COUNT_MAX, at.TURN_COLUMN_COUNT), dtype=np.int64),
            np.zeros(2 * at.KEY_COUNT_MAX + 4 * at.PROPERTY_COUNT_MAX, dtype=np.int64),
            np.zeros(at.FOUND_COUNT, dtype=np.int64),
        )


class Head(NamedTuple):
    """The begin of every frame of one sender, and where in it the store time stands."""

    data: Bytes
    store_time_at: int


class ScannedRequest:
    """Checked frames without their place; a ScannedBatch of the appender.

    Attributes:
        sync: whether to wait for the disk; None: as the settings say.
        deduplicate: whether known messages are left out.
        size_bytes: of all frames.
    """

    def __init__(
        self, buffers: Buffers, count: int, head: Head, topics: TopicColumns, kernel: Any, guarded: bool
    ) -> None:
        found = buffers.found.tolist()
        flush = found[at.FOUND_FLUSH]
        self.sync = None if flush == 0 else flush == 2  # FlushMode: 1 is async, 2 sync
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
        """The frames."""
        return self._buffers.frames.data[: self.size_bytes]

    @property
    def last_record_size_bytes(self) -> int:
        """Size of the last frame."""
        return int(self._buffers.rows[self._count - 1, at.FRAME_SIZE])

    @property
    def end(self) -> tuple[int, int]:
        """Once placed: the byte behind the last record, and the store time."""
        return self._begin_offset + self.size_bytes, self._store_time_millis

    def place(self, commit_log_offset: int, store_time_millis: int, queue_offsets: QueueOffsets) -> bool:
        """Gives the frames their place; False, and nothing is changed, when the kernel cannot."""
        buffers, topics = self._buffers, self._topics
        place = self._kernel.place_holding if self._is_small else self._kernel.place
        placed: int = place(
            buffers.frames,
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
        """Undoes what `place` did to the queue offsets."""
        self._take_back(queue_offsets, self._count)

    def note(self, recent: RecentKeys) -> bool:
        """Enters the unique keys; False when they must be entered one by one."""
        return self.is_hashed and recent.note_rows(
            self._buffers.rows, self._count, self._begin_offset, self._begin_offset + self.size_bytes
        )

    def may_be_known(self, recent: RecentKeys) -> bool:
        """Whether a unique key may be there already, or is twice in the batch."""
        return not self.is_hashed or recent.may_hold(self._buffers.rows, self._count)

    def prepared_frames(self) -> list[PreparedFrame]:
        """The frames one by one."""
        data = self.view
        frames = []
        for row in self._buffers.rows[: self._count].tolist():
            begin, key_begin = row[at.FRAME_BEGIN], row[at.UNIQUE_KEY_BEGIN]
            unique_key = str(data[key_begin : key_begin + row[at.UNIQUE_KEY_SIZE]], "ascii")
            key = self._topics.topics[row[at.TOPIC_NUMBER]], row[at.QUEUE_ID]
            frames.append(PreparedFrame(key, unique_key, bytearray(data[begin : begin + row[at.FRAME_SIZE]])))
        return frames

    def answer(self, id_prefix: str, broker_name: str) -> bytes:
        """The receipts of a placed batch, as the bytes of an AppendMessagesResponse."""
        prefix, name = _names(id_prefix, broker_name)
        target = np.empty(self._count * (RESULT_BYTES_MAX + 2 * len(name)) + self._keys_size_bytes, dtype=np.uint8)
        answer = self._kernel.answer_holding if self._is_small else self._kernel.answer
        size: int = answer(
            self._buffers.frames,
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
        turns: chooses the queues that clients did not.
        unique_keys: makes the keys that clients did not.
        clock_millis: the time, for messages that do not say when they were born.
        give_queue_slots: see Appender.
        store_host: written into each frame.
        message_size_bytes_max: largest body.
        frame_size_bytes_max: largest frame that a log file holds.
        properties_crc: close frames with `__CRC32#`.
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
        frame_size_bytes_max: int,
        properties_crc: bool,
    ) -> None:
        self._turns = turns
        self._unique_keys = unique_keys
        self._clock_millis = clock_millis
        self._give_queue_slots = give_queue_slots
        self._store_host = store_host
        self._is_guarded = properties_crc
        self._topics = TopicColumns.empty()
        self._refused = hash_table([*sorted(REFUSED_PROPERTIES), SHARDING_KEY], 256)
        limits = [0] * at.LIMIT_COUNT
        limits[at.LIMIT_MESSAGE_COUNT] = MESSAGE_COUNT_MAX
        limits[at.LIMIT_BODY_BYTES] = message_size_bytes_max
        limits[at.LIMIT_REQUEST_BODY_BYTES] = max(REQUEST_BODY_BYTES_MAX, message_size_bytes_max)
        limits[at.LIMIT_FRAME_BYTES] = frame_size_bytes_max
        limits[at.LIMIT_GENERATED_KEY_BYTES] = unique_keys.size_digits
        limits[at.LIMIT_IS_GUARDED] = int(properties_crc)
        self._limits = np.array(limits, dtype=np.int64)
        self._kept: deque[Buffers] = deque(maxlen=BUFFERS_KEPT_MAX)
        self._heads = lru_cache(maxsize=4096)(self._make_head)
        self._topic_hashes: tuple[TopicColumns, RecentKeys, at.Int64s] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages may be taken."""
        return self._topics.topics

    def add_topic(self, topic: str, queue_count: int) -> None:
        """Takes messages of this topic from now on; for one thread at a time."""
        self._topics = self._topics.with_topic(topic, queue_count, self._give_queue_slots)

    def scan(self, data: bytes, born_host: Host, recent: RecentKeys | None) -> ScannedRequest | None:
        """Frames for a request's messages, or None when it is not for this way.

        Args:
            data: an AppendMessagesRequest or AppendMessageStreamRequest.
            born_host: who sent it.
            recent: where unique keys will be noted, if anywhere.
        """
        scanning, placing = loading.ready("append_scan_kernel"), loading.ready("append_place_kernel")
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
            buffers.frames,
            buffers.rows,
            buffers.turns,
            buffers.found,
        )
        if count <= 0:
            self._keep(buffers)
            return None
        batch = ScannedRequest(buffers, count, head, topics, placing, self._is_guarded)
        for place in range(buffers.found[at.FOUND_TURN_COUNT]):
            turn = buffers.turns[place]
            turn[at.TURN_BEGIN] = self._turns.take(
                topics.topics[turn[at.TURN_TOPIC_NUMBER]], int(turn[at.TURN_MESSAGE_COUNT])
            )
        generated_count = int(buffers.found[at.FOUND_GENERATED_COUNT])
        text, counter = self._unique_keys.reserve(generated_count) if generated_count else ("", 0)
        fill = placing.fill_holding if is_small else placing.fill
        filled: int = fill(
            buffers.frames,
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

    def give_back(self, batch: ScannedRequest) -> None:
        """The batch is written and answered, or will not be: its buffers may serve another."""
        self._keep(batch._buffers)

    def _take_buffers(self, request_size_bytes: int) -> Buffers:
        size_bytes = request_size_bytes + at.MESSAGE_OVERHEAD_BYTES_MAX * MESSAGE_COUNT_MAX
        if size_bytes > FRAMES_SIZE_BYTES:
            return Buffers.make(size_bytes)
        try:
            return self._kept.pop()
        except IndexError:
            return Buffers.make(FRAMES_SIZE_BYTES)

    def _keep(self, buffers: Buffers) -> None:
        if len(buffers.frames) == FRAMES_SIZE_BYTES:
            self._kept.append(buffers)

    def _make_head(self, born_host: Host) -> Head:
        data = encode_head(born_host, self._store_host)
        return Head(np.frombuffer(data, dtype=np.uint8), STORE_TIMES_AT[data[SYS_FLAG_LOW_BYTE_AT] >> 4 & 3])

    def _hashes(self, topics: TopicColumns, recent: RecentKeys) -> at.Int64s:
        """Of the topics, with which the hashes of their keys begin."""
        known = self._topic_hashes
        if known is None or known[0] is not topics or known[1] is not recent:
            hashes = np.array([recent.key_hash.of_topic(topic) for topic in topics.topics], dtype=np.int64)
            known = self._topic_hashes = topics, recent, hashes
        return known[2]


@lru_cache(maxsize=4)
def _names(id_prefix: str, broker_name: str) -> tuple[Bytes, Bytes]:
    return np.frombuffer(id_prefix.encode(), dtype=np.uint8), np.frombuffer(broker_name.encode(), dtype=np.uint8)
