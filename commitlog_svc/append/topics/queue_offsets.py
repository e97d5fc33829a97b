"""The state of queues that an append needs: the next offset of each queue, and which queue of a topic is next in turn."""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commitlog_svc.append.layout import Int64s

QueueKey = tuple[str, int]


class QueueOffsets:
    """Next offsets by queue; for one thread at a time. Some are in a column, an array that a kernel updates.

    Args:
        offsets: the next offsets as recovered; owned by this object from now on.
    """

    def __init__(self, offsets: dict[QueueKey, int]) -> None:
        self._offsets = offsets
        self._slots: dict[QueueKey, int] = {}
        self._slot_keys: list[QueueKey] = []  # by slot; it only grows
        self._column: Int64s | None = None

    def get(self, key: QueueKey) -> int:
        """The queue's next offset, in messages; 0 for a queue without messages."""
        slot = self._slots.get(key)
        if slot is None:
            return self._offsets.get(key, 0)
        assert self._column is not None
        return int(self._column[slot])

    def update(self, offsets: Mapping[QueueKey, int]) -> None:
        """Sets some queues' next offsets."""
        if self._column is None:
            self._offsets.update(offsets)
            return
        for key, offset in offsets.items():
            slot = self._slots.get(key)
            if slot is None:
                self._offsets[key] = offset
            else:
                self._column[slot] = offset

    def copy(self) -> Callable[[], dict[QueueKey, int]]:
        """The next offsets of all queues that have messages, as of now; any thread may call the function for them.

        Appends wait for this call, and not for the making of a dict of up to a million queues.
        """
        offsets = dict(self._offsets)
        column = None if self._column is None else self._column[: len(self._slot_keys)].copy()

        def as_dict() -> dict[QueueKey, int]:
            if column is not None:
                rows = zip(self._slot_keys, column.tolist(), strict=False)  # there may be more keys by now
                offsets.update((key, number) for key, number in rows if number)
            return offsets

        return as_dict

    @property
    def column(self) -> "Int64s":
        """The next offsets of the queues that have a slot, and room behind them; `give_slots` may replace the column."""
        assert self._column is not None
        return self._column

    def give_slots(self, keys: list[QueueKey]) -> list[int]:
        """Moves queues into the column; returns the index of each queue in it."""
        import numpy as np

        fresh = [key for key in keys if key not in self._slots]
        count = len(self._slots)
        if self._column is None or count + len(fresh) > len(self._column):
            # Twice as long, so that many topics, one after the other, copy it a few times only.
            column = np.zeros(2 * (count + len(fresh)), dtype=np.int64)
            if self._column is not None:
                column[:count] = self._column[:count]
            self._column = column
        for key in fresh:
            self._column[len(self._slots)] = self._offsets.pop(key, 0)
            self._slots[key] = len(self._slots)
            self._slot_keys.append(key)
        return [self._slots[key] for key in keys]


class QueueTurns:
    """Chooses queues in turn: one counter for each topic, over all requests; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def take(self, topic: str, count: int = 1) -> int:
        """The first of the next `count` turns of a topic; the queue is the turn modulo the topic's number of queues."""
        with self._lock:
            turn = self._next.get(topic, 0)
            self._next[topic] = turn + count
            return turn
