"""Timers: many moments, one thread. Setting and dropping one costs the same however many there are.

Theory of operation: time is cut into ticks. A tick has a dict of the functions that are due in it; a heap holds the ticks that
have one. So a poll that ends early leaves nothing behind but, at most, an empty tick.
"""

import heapq
import math
import threading
import time
from collections.abc import Callable, Hashable

import structlog

# Polls end at most so much too late: a tick and the time that the thread needs.
TICK_SECONDS = 0.05

_log = structlog.get_logger("reput.gateway")

Due = Callable[[], None]


class Timers:
    """Calls functions when their time has come; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks: dict[int, dict[Hashable, Due]] = {}
        self._heap: list[int] = []
        self._changed = threading.Condition()
        self._is_closed = False

    def set(self, key: Hashable, at_seconds: float, due: Due) -> int:
        """Call `due` at a time of the clock, or up to a tick later; the tick, for `drop`.

        Args:
            key: names the timer within its tick.
            at_seconds: when.
            due: called in the timers' thread; it must not wait.
        """
        tick = math.ceil(at_seconds / TICK_SECONDS)
        with self._changed:
            timers = self._ticks.get(tick)
            if timers is None:
                timers = self._ticks[tick] = {}
                heapq.heappush(self._heap, tick)
                if self._heap[0] == tick:
                    self._changed.notify()
            timers[key] = due
        return tick

    def drop(self, key: Hashable, tick: int) -> None:
        """Forget a timer; without effect when it was due."""
        with self._changed:
            timers = self._ticks.get(tick)
            if timers is not None:
                timers.pop(key, None)

    @property
    def count(self) -> int:
        """Timers that are set."""
        with self._changed:
            return sum(map(len, self._ticks.values()))

    def run_due(self) -> None:
        """Call what is due now."""
        while (timers := self._take_due()) is not None:
            for due in timers.values():
                try:
                    due()
                except Exception:  # it would end the thread of all timers
                    _log.exception("delivery.timer_failed")

    def _take_due(self) -> dict[Hashable, Due] | None:
        with self._changed:
            if not self._heap or self._heap[0] * TICK_SECONDS > self._clock():
                return None
            return self._ticks.pop(heapq.heappop(self._heap))

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="delivery-timers", daemon=True).start()

    def close(self) -> None:
        """Stop the thread; no further timer is due."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed:
                    seconds = self._heap[0] * TICK_SECONDS - self._clock() if self._heap else None
                    if seconds is not None and seconds <= 0:
                        break
                    self._changed.wait(seconds)
                if self._is_closed:
                    return
            self.run_due()
