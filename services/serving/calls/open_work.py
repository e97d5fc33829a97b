"""Open work: the calls and requests that a clean stop waits for."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class OpenWork:
    """Counts the work that a clean stop waits for.

    Attributes:
        stopping: set when the service drains; then tails end.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._count = 0
        self._is_awaited = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def add(self, count: int) -> None:
        """Note work that began (positive) or was done (negative)."""
        with self._lock:
            self._count += count
            if self._count <= 0 and self._is_awaited:
                self._changed.notify_all()

    def wait_until_done(self, timeout_seconds: float) -> bool:
        """Wait for all open work; False when the time ran out first."""
        with self._changed:
            self._is_awaited = True  # for good: it is awaited once, at the end
            return self._changed.wait_for(lambda: self._count <= 0, timeout_seconds)


class Unanswered:
    """The requests of one two-way stream that have no response yet; they are open work.

    Args:
        work: where they are counted.
        clock: seconds, rising.
    """

    def __init__(self, work: OpenWork, clock: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._clock = clock
        self._idle_since = clock()
        self._count = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def count(self, requests: Iterator[Any]) -> Iterator[Any]:
        """The requests, each counted when it is taken."""
        return map(self._counted, requests)  # a generator would keep each request until the next

    def _counted(self, request: Any) -> Any:
        self.asked()
        return request

    def idle_seconds(self) -> float:
        """How long there has been none; 0 while there is one."""
        return 0.0 if self._count or self._is_closed else self._clock() - self._idle_since

    def asked(self) -> None:
        """One request was taken."""
        self._add(1)

    def answered(self) -> None:
        """One response was taken."""
        self._add(-1)

    def close(self) -> None:
        """The stream ended; its remaining requests are no work any more."""
        with self._lock:
            self._is_closed = True
            self._work.add(-self._count)
            self._count = 0

    def _add(self, count: int) -> None:
        with self._lock:
            # A handler may read on in a thread of its own after the stream ended, or send more answers than it got requests.
            if not self._is_closed and self._count + count >= 0:
                self._count += count
                self._work.add(count)
                if not self._count:
                    self._idle_since = self._clock()
