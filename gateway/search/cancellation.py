"""Cancellation: the caller has gone, and whatever works or waits for it hears so at once.

A loop looks at `is_set`; who waits for a call waits for `happened` beside it; who holds something that must be ended
(a process that evaluates) registers how.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future


class Cancellation:
    """The one cancellation of one call.

    Attributes:
        happened: done once the caller has gone, for `concurrent.futures.wait`.
    """

    def __init__(self) -> None:
        self.happened: Future[None] = Future()
        self._lock = threading.Lock()
        self._endings: dict[object, Callable[[], None]] = {}

    @property
    def is_set(self) -> bool:
        """Whether the caller has gone."""
        return self.happened.done()

    def cancel(self) -> None:
        """The caller has gone; a second time changes nothing."""
        with self._lock:
            if self.happened.done():
                return
            self.happened.set_result(None)
            endings = list(self._endings.values())
        for end in endings:
            end()

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Calls `end` when the caller goes while the block runs, or has gone before it; from another thread, perhaps."""
        key = object()
        with self._lock:
            gone = self.happened.done()
            self._endings[key] = end
        try:
            if gone:
                end()
            yield
        finally:
            with self._lock:
                del self._endings[key]
