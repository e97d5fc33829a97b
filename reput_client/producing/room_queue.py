"""Threads that wait for room in a full buffer, in the order in which they came.

Without an order a large batch could wait for ever, because small messages would use all room that becomes free.
"""

import threading
from collections import deque
from collections.abc import Callable


class RoomQueue:
    """The waiting threads of one producer; every call holds its lock.

    Args:
        lock: the producer's.
        is_over: whether all waiting ends.
    """

    def __init__(self, lock: threading.Lock, is_over: Callable[[], bool]) -> None:
        self._lock = lock
        self._is_over = is_over
        self._turns: deque[threading.Condition] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    def wait(self, has_room: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is this thread's turn and there is room, or waiting ends; False when the time is over first."""
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
        """There is more room: wake the first thread."""
        if self._turns:
            self._turns[0].notify()

    def wake_all(self) -> None:
        """Waiting ends: wake all threads."""
        for turn in self._turns:
            turn.notify()
