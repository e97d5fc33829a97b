"""Cancellation: the caller has gone, and whatever works or waits for it hears so at once.

A loop looks at `is_set`; who waits for a call waits for `happened` beside it; who holds something that must be ended
(a process that evaluates) registers how.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Protocol


class Caller(Protocol):
    """Who knows when a caller goes, as a gRPC servicer's context does."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Has it called when the call ends; False when it has ended already."""


class Cancellation:
    """The one cancellation of one call.

    Attributes:
        happened: done once the caller has gone, for `concurrent.futures.wait`.
    """

    def __init__(self) -> None:
        self.happened: Future[None] = Future()
        self._lock = threading.Lock()
        self._endings: dict[object, Callable[[], None]] = {}

    @classmethod
    def of(cls, context: Caller) -> "Cancellation":
        """The cancellation of the call that a context is of; set already when that has ended."""
        cancellation = cls()
        if not context.add_callback(cancellation.cancel):
            cancellation.cancel()
        return cancellation

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
