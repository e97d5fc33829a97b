"""BatchWriter: appends to the log what callers submit, as one request for all that came meanwhile.

One thread writes. A caller that waits for what it submits may write itself when nothing is being written: then it wakes no
thread, and none wakes it. What is submitted meanwhile is left to the thread, so that the caller gets its outcome first.

An append that fails may have been carried out all the same. Then only the log knows, and the writer is broken from then on:
everything submitted fails, and its owner starts a new life, which reads the log.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from store.errors import ServiceUnavailableError, StoreError


class Submission(Protocol):
    """The records that one caller wants written.

    Attributes:
        done: its outcome.
    """

    done: "Future[Any]"


Item = TypeVar("Item", bound=Submission)


class BatchWriter(ABC, Generic[Item]):
    """See the top of this file; thread-safe.

    A subclass sets its own attributes before it calls `__init__`: writing begins there.

    Args:
        thread_name: of the thread.
        what: for errors: what could not be written.
        on_broken: called once, by the thread that wrote, when it broke.

    Attributes:
        error: why it is broken; None while it works.
    """

    def __init__(self, thread_name: str, what: str, on_broken: Callable[[StoreError], None]) -> None:
        self.error: StoreError | None = None
        self._what = what
        self._on_broken = on_broken
        self._submitted: deque[Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_writing = False
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is submitted, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    @abstractmethod
    def _take(self, submitted: "deque[Item]") -> list[Item]:
        """Take from the front what one request writes; there is something."""

    @abstractmethod
    def _write(self, taken: Sequence[Item]) -> None:
        """Append it, and set the outcomes; an error breaks the writer."""

    @abstractmethod
    def _broken(self, error: StoreError | None) -> ServiceUnavailableError:
        """The error that callers get when nothing is written any more; None: it is closed."""

    def _accepted(self, item: Item) -> None:
        """An item was put behind the others; called under the lock."""

    def _put(self, *items: Item, writes_here: bool = False) -> None:
        """Submit items; with `writes_here` they are written in this thread, unless something is being written."""
        taken: list[Item] = []
        with self._changed:
            is_open = self.error is None and not self._is_closed
            if is_open:
                self._submitted.extend(items)
                for item in items:
                    self._accepted(item)
                if not self._is_writing:  # otherwise the one that writes looks again
                    if writes_here:
                        taken = self._take(self._submitted)
                        self._is_writing = True
                    else:
                        self._changed.notify()
        if not is_open:
            for item in items:
                item.done.set_exception(self._broken(self.error))
        if taken:
            self._write_taken(taken)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_writing and (self._submitted or self._is_over))
                if not self._submitted:
                    return
                taken = self._take(self._submitted)
                self._is_writing = True
            self._write_taken(taken)

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self.error is not None

    def _write_taken(self, taken: Sequence[Item]) -> None:
        try:
            self._write(taken)
        except StoreError as error:
            self._break(error, taken)
        except Exception as error:
            self._break(ServiceUnavailableError(f"{self._what} could not be written: {error!r}"), taken)
            raise
        finally:
            with self._changed:
                self._is_writing = False
                if self._submitted or self._is_over:
                    self._changed.notify()

    def _break(self, error: StoreError, taken: Sequence[Item]) -> None:
        with self._changed:
            self.error = error
            failed = [item for item in (*taken, *self._submitted) if not item.done.done()]
            self._submitted.clear()
        self._on_broken(error)
        for item in failed:
            item.done.set_exception(self._broken(error))
