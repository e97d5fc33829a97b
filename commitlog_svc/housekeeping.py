"""Housekeeping: the periodic work of a log, one chore after the other in one thread.

No request waits for a chore. A chore that fails, for example on a full disk or a file that it cannot open, is tried again after
a second at the earliest; the log serves meanwhile. A chore whose flush was refused ends housekeeping and fences the log.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from store.errors import FlushFailedError, StoreError

TICK_SECONDS = 0.05
# Pause after a failure; short, so that the log notices within five seconds that a full disk has room again.
PAUSE_SECONDS = 1.0

_log = structlog.get_logger("reput.commitlog")


@dataclass(slots=True)
class Chore:
    """Work that is repeated.

    Attributes:
        name: appears in the log.
        interval_seconds: the least time between two turns.
        work: does the work; may raise.
    """

    name: str
    interval_seconds: float
    work: Callable[[], None]
    next_at: float = 0.0
    is_failing: bool = False


class Housekeeper:
    """Runs chores until closed.

    Args:
        chores: the work; the first turn of each comes one interval after the start.
        on_flush_failed: is called with the error that ended housekeeping.
        clock: seconds, rising.
    """

    def __init__(
        self,
        chores: list[Chore],
        on_flush_failed: Callable[[FlushFailedError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chores = chores
        self._on_flush_failed = on_flush_failed
        self._clock = clock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commitlog-housekeeping", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        now = self._clock()
        for chore in self._chores:
            chore.next_at = now + chore.interval_seconds
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after the chore that runs now."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            for chore in self._chores:
                if self._clock() < chore.next_at or self._closing.is_set():
                    continue
                try:
                    chore.work()
                    chore.is_failing = False
                except FlushFailedError as error:
                    self._on_flush_failed(error)
                    return
                except Exception as error:
                    self._say(chore, error)
                pause_seconds = PAUSE_SECONDS if chore.is_failing else 0.0
                chore.next_at = self._clock() + max(chore.interval_seconds, pause_seconds)

    def _say(self, chore: Chore, error: Exception) -> None:
        """Logs only the first of several failures in a row: a chore may run many times a second."""
        if chore.is_failing:
            return
        chore.is_failing = True
        if isinstance(error, (StoreError, OSError)):
            _log.warning("housekeeping.failed", chore=chore.name, error=str(error))
        else:
            _log.error("housekeeping.failed", chore=chore.name, exc_info=error)
