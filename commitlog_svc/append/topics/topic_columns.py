"""The topics that kernels know, as columns: configured topics that have got messages."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_svc.append.layout import HASH_MASK, Int64s, hash_bytes
from commitlog_svc.append.topics.queue_offsets import QueueKey
from store.format.record_layout import TOPIC_SIZE_BYTES_MAX_V1

# The table is copied for each new topic. Messages of topics beyond the limit take the plain path.
TOPIC_COUNT_MAX = 1024
QUEUE_COUNT_MAX = 65_536
SLOT_COUNT = 4 * TOPIC_COUNT_MAX


class TopicColumns(NamedTuple):
    """Topics by number; never changed, replaced when there are more.

    Attributes:
        topics: their names.
        slots: numbers by `hash_bytes` of the name, open addressing, -1 in empty slots.
        names: their bytes, one row for each.
        sizes: of the names, in bytes.
        queue_counts: number of queues that may be written to.
        queue_slot_begins: where in `queue_slots` a topic's queues begin.
        queue_slots: index of a queue's next offset in the column of QueueOffsets.
    """

    topics: tuple[str, ...]
    slots: Int64s
    names: npt.NDArray[np.uint8]
    sizes: Int64s
    queue_counts: Int64s
    queue_slot_begins: Int64s
    queue_slots: Int64s

    @classmethod
    def empty(cls) -> "TopicColumns":
        """No topic yet."""
        nothing = np.zeros(0, dtype=np.int64)
        names = np.zeros((0, TOPIC_SIZE_BYTES_MAX_V1), dtype=np.uint8)
        slots = np.full(SLOT_COUNT, -1, dtype=np.int64)
        return cls((), slots, names, nothing, nothing, nothing, nothing)

    def with_topic(
        self, topic: str, queue_count: int, give_queue_slots: Callable[[list[QueueKey]], list[int]]
    ) -> "TopicColumns":
        """The columns with one more topic; unchanged when it does not fit or kernels cannot take its name."""
        name = topic.encode(errors="replace")
        number = len(self.topics)
        if (
            topic in self.topics
            or number >= TOPIC_COUNT_MAX
            or not 0 < len(name) <= TOPIC_SIZE_BYTES_MAX_V1
            or not topic.isascii()
            or not 0 < queue_count <= QUEUE_COUNT_MAX - len(self.queue_slots)
        ):
            return self
        row = np.zeros((1, TOPIC_SIZE_BYTES_MAX_V1), dtype=np.uint8)
        row[0, : len(name)] = np.frombuffer(name, dtype=np.uint8)
        queue_slots = give_queue_slots([(topic, queue_id) for queue_id in range(queue_count)])

        def longer(column: Int64s, values: list[int]) -> Int64s:
            return np.concatenate((column, np.array(values, dtype=np.int64)))

        slots = self.slots.copy()
        enter(slots, hash_bytes(name), number)
        return TopicColumns(
            (*self.topics, topic),
            slots,
            np.concatenate((self.names, row)),
            longer(self.sizes, [len(name)]),
            longer(self.queue_counts, [queue_count]),
            longer(self.queue_slot_begins, [len(self.queue_slots)]),
            longer(self.queue_slots, queue_slots),
        )


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
