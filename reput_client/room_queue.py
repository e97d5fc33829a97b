"""Those who wait for room in a full buffer, in the order in which they came.

Without an order a large batch would wait for ever: whoever needs little would take each bit of room before it.
"""

import threading
from collections import deque
from collections.abc import Callable


class RoomQueue:
    """The waiting threads of one producer; every call holds its lock.

    Args:
        lock: the producer's.
        is_over: whether nobody need wait any more.
    """

    def __init__(self, lock: threading.Lock, is_over: Callable[[], bool]) -> None:
        self._lock = lock
        self._is_over = is_over
        self._turns: deque[threading.Condition] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    def wait(self, has_room: Callable[[], bool], seconds: float) -> bool:
        """Return when it is this thread's turn and there is room, or all is over; False when the time was over first."""
        turn = threading.Condition(self._lock)
        self._turns.append(turn)
        try:
            return turn.wait_for(
                lambda: self._is_over() or (self._turns[0] is turn and has_room()), min(seconds, threading.TIMEOUT_MAX)
            )
        finally:
            self._turns.remove(turn)
            self.wake_first()

    def wake_first(self) -> None:
        """There is more room: whoever came first looks."""
        if self._turns:
            self._turns[0].notify()

    def wake_all(self) -> None:
        """All is over."""
        for turn in self._turns:
            turn.notify()
