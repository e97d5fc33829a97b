"""PassedLocks: which queues members have locked by answers of this door that are young enough to count.

A member that has one renews it, also where the consumer service has begun anew and knows of no lock. RocketMQ's clients do not
say whether they have it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

# A lock holds for so long from the last time that its member asked (consumer_svc/queue_locks.py).
LOCK_SECONDS = 60.0
LOCK_COUNT_MAX = 100_000

Queue = tuple[str, int]


class PassedLocks:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: OrderedDict[tuple[str, str, Queue], float] = OrderedDict()  # the oldest first
        self._by_group: dict[str, int] = {}

    def held(self, group: str, client_id: str, queues: Iterable[Queue]) -> list[Queue]:
        """Those of the queues that a member has."""
        now = self._clock()
        with self._lock:
            return [queue for queue in queues if self._until.get((group, client_id, queue), 0.0) > now]

    def has_some(self, group: str) -> bool:
        """Whether any member of a group has a queue."""
        with self._lock:
            self._expire()
            return group in self._by_group

    def note(self, group: str, client_id: str, queues: Iterable[Queue], held: Collection[Queue]) -> None:
        """A member has asked for queues, or to unlock them, and has these of them now."""
        until = self._clock() + LOCK_SECONDS
        with self._lock:
            for queue in queues:
                key = group, client_id, queue
                self._drop(key)
                if queue in held:
                    self._until[key] = until
                    self._by_group[group] = self._by_group.get(group, 0) + 1
            self._expire()

    def _expire(self) -> None:
        """With the lock held."""
        now = self._clock()
        while self._until:
            key = next(iter(self._until))
            if self._until[key] > now and len(self._until) <= LOCK_COUNT_MAX:
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str, Queue]) -> None:
        if self._until.pop(key, None) is None:
            return
        self._by_group[key[0]] -= 1
        if not self._by_group[key[0]]:
            del self._by_group[key[0]]
