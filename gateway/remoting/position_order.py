"""PositionOrder: of the positions of a group in a queue that come at once, the newest is stored last.

Positions come by UPDATE_CONSUMER_OFFSET, with pulls, and by resets, and several threads store them. Each has a number from the
time when it came. One that is older than what is stored already is left out; so is one of a pull that would go back, which is
older than what its client stored besides.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable

# Queues of groups whose newest position is remembered; the one that was stored longest ago goes first.
KEY_COUNT_MAX = 65_536
# Queues that share a lock wait for one another.
LOCK_COUNT = 64

Key = tuple[str, str, int]  # group, topic, queue


class PositionOrder:
    """See the top of this file; thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._locks = [threading.Lock() for _ in range(LOCK_COUNT)]
        self._lock = threading.Lock()
        self._newest: OrderedDict[Key, tuple[int, int]] = OrderedDict()  # number and position

    def number(self) -> int:
        """The number of a position that has come now."""
        return next(self._numbers)

    def store(
        self, key: Key, number: int, queue_offset: int, commit: Callable[[], object], *, goes_back: bool = True
    ) -> None:
        """Have a position stored, after those that are being stored for its queue; or leave it out.

        Args:
            key: the queue of the group.
            number: when it came.
            queue_offset: the position.
            commit: stores it; what it raises is passed on.
            goes_back: also when it is below the one that was stored before.
        """
        with self._locks[hash(key) % LOCK_COUNT]:
            with self._lock:
                newest, stored = self._newest.get(key, (-1, -1))
            if number > newest and (goes_back or queue_offset >= stored):
                commit()
                self.note(key, number, queue_offset)

    def note(self, key: Key, number: int, queue_offset: int) -> None:
        """A position is stored."""
        with self._lock:
            self._newest[key] = number, queue_offset
            self._newest.move_to_end(key)
            if len(self._newest) > KEY_COUNT_MAX:
                self._newest.popitem(last=False)
