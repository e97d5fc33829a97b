"""Places: a limit of concurrent work with a short, fair wait for a place: first come, first served.

A caller that takes a place again queues behind all waiting callers, so the steps of a few long searches let others run between
them. A waiting caller holds a thread; so few may wait, and a further caller is refused at once.
"""

import threading
from collections import deque

from services.serving.cancellation import Cancellation


class Places:
    """A limited number of places.

    Args:
        count_max: places.
        waiting_count_max: callers that wait for one at the same time.
    """

    def __init__(self, count_max: int, waiting_count_max: int) -> None:
        self._free_count = count_max
        self._waiting_count_max = waiting_count_max
        self._waiting: deque[object] = deque()
        self._condition = threading.Condition()

    @property
    def waiting_count(self) -> int:
        """Callers that wait."""
        return len(self._waiting)

    def take(self, cancellation: Cancellation, seconds_max: float) -> bool:
        """Take a place, to be returned by `give_back`; False when there was none, or the caller has gone.

        Args:
            cancellation: of the caller; ends the wait.
            seconds_max: how long to wait.
        """
        turn = object()
        with cancellation.ending(self._wake), self._condition:
            if not self._free_count and len(self._waiting) >= self._waiting_count_max:
                return False
            self._waiting.append(turn)
            self._condition.wait_for(lambda: cancellation.is_set or self._has(turn), seconds_max)
            is_taken = self._has(turn) and not cancellation.is_set
            self._waiting.remove(turn)
            if is_taken:
                self._free_count -= 1
            self._condition.notify_all()  # another caller is first now
            return is_taken

    def give_back(self) -> None:
        """Return a place."""
        with self._condition:
            self._free_count += 1
            self._condition.notify_all()

    def _has(self, turn: object) -> bool:
        return self._free_count > 0 and self._waiting[0] is turn

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
