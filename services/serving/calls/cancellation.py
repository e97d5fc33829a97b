"""Cancellation: tells all work of a call at once that its caller has gone.

A loop checks `is_set`. A thread that waits for another call waits for `happened`, too. An owner of something that must be ended
(such as a process that evaluates) registers a function with `ending`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Protocol


class Caller(Protocol):
    """A call that reports its end, such as a gRPC servicer's context."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have it called when the call ends; False when the call has ended already."""


class Cancellation:
    """The cancellation of one call.

    Attributes:
        happened: done once the caller has gone, for `concurrent.futures.wait`.
    """

    def __init__(self) -> None:
        self.happened: Future[None] = Future()
        self._lock = threading.Lock()
        self._endings: dict[object, Callable[[], None]] = {}

    @classmethod
    def of(cls, context: Caller) -> "Cancellation":
        """The cancellation of a context's call; already set when the call has ended."""
        cancellation = cls()
        if not context.add_callback(cancellation.cancel):
            cancellation.cancel()
        return cancellation

    @property
    def is_set(self) -> bool:
        """Whether the caller has gone."""
        return self.happened.done()

    def cancel(self) -> None:
        """Note that the caller has gone; a second call has no effect."""
        with self._lock:
            if self.happened.done():
                return
            self.happened.set_result(None)
            endings = list(self._endings.values())
        for end in endings:
            end()

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the caller goes during the block or went before it; possibly on another thread."""
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
