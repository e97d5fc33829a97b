"""ExpiryHeap: when leases end, earliest first."""

import heapq
import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """A lease that ends: which one, by its delivery number."""

    queue: QueueRef
    queue_offset: int
    delivery_number: int


class ExpiryHeap:
    """Thread-safe. A lease that was changed or ended stays in it until its time; its taker checks it against the state."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, LeaseEnd]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_closed = False

    def note(self, end_millis: int, queue: QueueRef, queue_offset: int, delivery_number: int) -> None:
        """Note that a lease ends at a time."""
        with self._changed:
            entry = (end_millis, next(self._numbers), LeaseEnd(queue, queue_offset, delivery_number))
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()

    def __len__(self) -> int:
        return len(self._heap)

    def replace(self, ends: Iterable[tuple[int, LeaseEnd]]) -> None:
        """Hold exactly these leases, given by the time of their end."""
        with self._changed:
            self._heap = [(end_millis, next(self._numbers), end) for end_millis, end in ends]
            heapq.heapify(self._heap)
            self._changed.notify()

    def due(self, now_millis: int, count_max: int) -> Sequence[LeaseEnd]:
        """Take the leases whose time has come, earliest first, at most so many."""
        taken: list[LeaseEnd] = []
        with self._changed:
            while self._heap and self._heap[0][0] <= now_millis and len(taken) < count_max:
                taken.append(heapq.heappop(self._heap)[2])
        return taken

    def wait(self, now_millis: int, seconds_max: float) -> bool:
        """Wait until the earliest lease may have ended, or for so long; returns whether the heap is closed."""
        with self._changed:
            if not self._is_closed:
                until_millis = self._heap[0][0] if self._heap else now_millis + int(seconds_max * 1000)
                self._changed.wait(max(0.0, min(seconds_max, (until_millis - now_millis) / 1000)))
            return self._is_closed

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
