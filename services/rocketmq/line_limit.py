"""LineLimit: so many log lines a second about what clients do, however many of them do it.

A client that is refused connects again, so each line that a client can cause needs one: else the log has no room for others.
"""

import threading
from collections.abc import Callable, Mapping

COUNT_MAX = 10


class LineLimit:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        count_max: lines a second.
    """

    def __init__(self, clock: Callable[[], float], count_max: int = COUNT_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._lock = threading.Lock()
        self._second = clock()
        self._count = 0
        self._left_out_count = 0

    def take(self) -> Mapping[str, int] | None:
        """What the next line says besides: how many were left out before it. None: it is left out, too."""
        with self._lock:
            now = self._clock()
            if now - self._second >= 1.0:
                self._second, self._count = now, 0
            self._count += 1
            if self._count > self._count_max:
                self._left_out_count += 1
                return None
            left_out_count, self._left_out_count = self._left_out_count, 0
        return {"suppressed_count": left_out_count} if left_out_count else {}
