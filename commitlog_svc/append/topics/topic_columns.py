"""The topics that kernels know, as columns: configured topics that have got messages.

    names  |a|b|c| room |      grow by doubling; a view has the first `len(topics)` rows
    slots  numbers of topics by the hash of the name, shared by the views of one size

A kernel that runs with an older view while a topic is added finds at most a number that its view does not have. It takes that
for no topic, and the plain path takes the request.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_svc.append.layout import HASH_MASK, Int64s, hash_bytes
from commitlog_svc.append.topics.queue_offsets import QueueKey
from store.format.record_layout import TOPIC_SIZE_BYTES_MAX_V1

# Messages of topics beyond these limits take the plain path. The columns take 40 MiB then.
TOPIC_COUNT_MAX = 1 << 17
QUEUE_COUNT_MAX = 1 << 20
TOPIC_COUNT_MIN = 64  # room that is there from the start
SLOTS_PER_TOPIC = 4

Rows = npt.NDArray[Any]


class TopicColumns(NamedTuple):
    """Topics by number; never changed.

    Attributes:
        topics: their names; the sequence may go on behind those that the columns have.
        slots: numbers by `hash_bytes` of the name, open addressing, -1 in empty slots; later topics are added to it.
        names: their bytes, one row for each.
        sizes: of the names, in bytes.
        queue_counts: number of queues that may be written to.
        queue_slot_begins: where in `queue_slots` a topic's queues begin.
        queue_slots: index of a queue's next offset in the column of QueueOffsets.
    """

    topics: Sequence[str]
    slots: Int64s
    names: npt.NDArray[np.uint8]
    sizes: Int64s
    queue_counts: Int64s
    queue_slot_begins: Int64s
    queue_slots: Int64s


class KnownTopics:
    """Makes the columns; for one thread at a time.

    Attributes:
        columns: of all topics so far.
    """

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._hashes: dict[str, int] = {}
        self._slots = np.full(SLOTS_PER_TOPIC * TOPIC_COUNT_MIN, -1, dtype=np.int64)
        self._names = np.zeros((TOPIC_COUNT_MIN, TOPIC_SIZE_BYTES_MAX_V1), dtype=np.uint8)
        self._sizes, self._queue_counts, self._begins, self._queue_slots = (
            np.zeros(TOPIC_COUNT_MIN, dtype=np.int64) for _ in range(4)
        )
        self._queue_count = 0
        self.columns = self._view()

    def __contains__(self, topic: object) -> bool:
        return topic in self._hashes

    def add(self, topic: str, queue_count: int, give_queue_slots: Callable[[list[QueueKey]], list[int]]) -> None:
        """One more topic, unless it is known, does not fit, or kernels cannot take its name."""
        name = topic.encode(errors="replace")
        number, begin = len(self._topics), self._queue_count
        if (
            topic in self._hashes
            or number >= TOPIC_COUNT_MAX
            or not 0 < len(name) <= TOPIC_SIZE_BYTES_MAX_V1
            or not topic.isascii()
            or not 0 < queue_count <= QUEUE_COUNT_MAX - begin
        ):
            return
        self._make_room(number + 1, begin + queue_count)
        self._names[number, : len(name)] = np.frombuffer(name, dtype=np.uint8)
        self._sizes[number], self._queue_counts[number], self._begins[number] = len(name), queue_count, begin
        keys = [(topic, queue_id) for queue_id in range(queue_count)]
        self._queue_slots[begin : begin + queue_count] = give_queue_slots(keys)
        self._queue_count += queue_count
        self._topics.append(topic)
        self._hashes[topic] = hash_bytes(name)
        enter(self._slots, self._hashes[topic], number)
        self.columns = self._view()

    def _make_room(self, topic_count: int, queue_count: int) -> None:
        self._queue_slots = with_room(self._queue_slots, queue_count)
        if topic_count <= len(self._sizes):
            return
        self._names = with_room(self._names, topic_count)
        self._sizes, self._queue_counts, self._begins = (
            with_room(column, topic_count) for column in (self._sizes, self._queue_counts, self._begins)
        )
        self._slots = np.full(SLOTS_PER_TOPIC * len(self._sizes), -1, dtype=np.int64)
        for number, hash_ in enumerate(self._hashes.values()):
            enter(self._slots, hash_, number)

    def _view(self) -> TopicColumns:
        count = len(self._topics)
        return TopicColumns(
            self._topics,
            self._slots,
            self._names[:count],
            self._sizes[:count],
            self._queue_counts[:count],
            self._begins[:count],
            self._queue_slots[: self._queue_count],
        )


def with_room(column: Rows, count: int) -> Rows:
    """The column, or a copy of twice its size, and again twice, with room for `count` rows; new rows are 0."""
    size = len(column)
    if count <= size:
        return column
    while size < count:
        size *= 2
    larger: Rows = np.zeros((size, *column.shape[1:]), dtype=column.dtype)
    larger[: len(column)] = column
    return larger


def enter(slots: Int64s, hash_: int, value: int) -> None:
    """Puts a value into the first free slot from that of the hash on; there must be one."""
    at = hash_ & (len(slots) - 1)
    while slots[at] >= 0:
        at = (at + 1) & (len(slots) - 1)
    slots[at] = value


def hash_table(names: list[str], slot_count: int) -> Int64s:
    """The hashes of some names, without their top bits, in open addressing."""
    slots = np.full(slot_count, -1, dtype=np.int64)
    for name in names:
        hash_ = hash_bytes(name.encode()) & (HASH_MASK >> 1)
        enter(slots, hash_, hash_)
    return slots
