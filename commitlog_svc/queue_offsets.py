"""The next queue offset of each queue; some of them side by side in a column, where a kernel can count them on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.kernels.append_layout import Int64s

QueueKey = tuple[str, int]


class QueueOffsets:
    """Next offsets by queue; for one thread at a time.

    Args:
        offsets: as recovered; taken over.
    """

    def __init__(self, offsets: dict[QueueKey, int]) -> None:
        self._offsets = offsets
        self._slots: dict[QueueKey, int] = {}
        self._column: Int64s | None = None

    def get(self, key: QueueKey) -> int:
        """In messages; 0 for a queue without any."""
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

    def as_dict(self) -> dict[QueueKey, int]:
        """Those of all queues that have messages."""
        offsets = dict(self._offsets)
        if self._column is not None:
            numbers = self._column.tolist()
            offsets |= {key: numbers[slot] for key, slot in self._slots.items() if numbers[slot]}
        return offsets

    @property
    def column(self) -> "Int64s":
        """The queues that have a slot; another one after each `give_slots`."""
        assert self._column is not None
        return self._column

    def give_slots(self, keys: list[QueueKey]) -> list[int]:
        """Moves queues into the column; where each stands there."""
        import numpy as np

        fresh = [key for key in keys if key not in self._slots]
        column = np.zeros(len(self._slots) + len(fresh), dtype=np.int64)
        if self._column is not None:
            column[: len(self._slots)] = self._column
        for key in fresh:
            column[len(self._slots)] = self._offsets.pop(key, 0)
            self._slots[key] = len(self._slots)
        self._column = column
        return [self._slots[key] for key in keys]
