"""Worker: calls a kind's `work` in a thread of its own, when it is due and when the log has new records for it."""

import threading

import structlog

from schedule_svc.life import Kind, Life
from store.errors import StoreError, failure_fields

# The wall may jump forward while a worker waits: it looks again so often.
WAIT_SECONDS_MAX = 0.5
# What failed is tried again after this time.
AGAIN_SECONDS = 1.0

_log = structlog.get_logger("reput.schedule")


class Worker:
    """See the top of this file.

    Args:
        life: whose kind it is.
        kind: what works.
    """

    def __init__(self, life: Life, kind: Kind) -> None:
        self.kind = kind
        self._life = life
        self._changed = threading.Condition()
        self._is_noted = False
        self._is_closed = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=f"schedule-{kind.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def note(self) -> None:
        """Have `work` called at once."""
        with self._changed:
            self._is_noted = True
            self._changed.notify()

    def close(self) -> None:
        """End, after the call of `work` that is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._is_noted = False
            seconds = self._work()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_noted or self._is_closed, max(0.0, min(seconds, WAIT_SECONDS_MAX))
                )

    def _work(self) -> float:
        """Have it work; seconds until the next time."""
        try:
            next_millis = self.kind.work()
        except StoreError as error:
            if not self._is_over() and error.message != self._problem:
                self._problem = error.message
                _log.warning("work.failed", **failure_fields(error, kind=self.kind.name))
            return self._pause()
        except Exception:
            _log.exception("work.failed", kind=self.kind.name)  # without this thread nothing would be delivered again
            return self._pause()
        self._problem = ""
        return (next_millis - self._life.clock.millis()) / 1000

    def _is_over(self) -> bool:
        return self._life.is_over and not self._life.is_read_only

    def _pause(self) -> float:
        """Wait, whatever the log has."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, AGAIN_SECONDS)
        return 0.0
