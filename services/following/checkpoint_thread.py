"""CheckpointThread: flushes and writes checkpoints beside the thread that applies, which must not wait for the disk.

It does one piece of work at a time. The next call raises an error of that work again, because the thread that applies must
learn that its files are not flushed. The builder must not be used after that.
"""

import threading
from collections.abc import Callable
from typing import Protocol


class Checkpointer(Protocol):
    """Does the flushing of a builder."""

    @property
    def is_busy(self) -> bool:
        """Whether work is under way."""

    def start(self, work: Callable[[], None]) -> None:
        """Do the work now or later; no other work may be under way."""

    def settle(self) -> None:
        """Return when no work is under way; raises the error of the last piece of work."""


class InPlace:
    """Does the work at once, on the calling thread: for tools and tests."""

    is_busy = False

    def start(self, work: Callable[[], None]) -> None:
        """See Checkpointer."""
        work()

    def settle(self) -> None:
        """See Checkpointer."""


class CheckpointThread:
    """Does each piece of work on a thread of its own.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """See Checkpointer."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """See Checkpointer."""
        self.settle()
        self._thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """See Checkpointer."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
