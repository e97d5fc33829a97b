"""CheckpointThread: flushes and checkpoints beside the thread that applies, which must not wait for a disk.

One piece of work at a time. What it raises is raised again for whoever asks next, because the thread that applies must
learn that its files are not what it believes; from then on the builder is of no use any more.
"""

import threading
from collections.abc import Callable
from typing import Protocol


class Checkpointer(Protocol):
    """Who does a builder's flushing."""

    @property
    def is_busy(self) -> bool:
        """Whether work is under way."""

    def start(self, work: Callable[[], None]) -> None:
        """Does the work, maybe later; none may be under way."""

    def settle(self) -> None:
        """Returns when no work is under way; raises what the last piece raised."""


class InPlace:
    """Does the work at once, on the thread that asks: for tools and tests, where nobody waits."""

    is_busy = False

    def start(self, work: Callable[[], None]) -> None:
        """See Checkpointer."""
        work()

    def settle(self) -> None:
        """See Checkpointer."""


class CheckpointThread:
    """Does the work on a thread that lives as long as the work.

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
