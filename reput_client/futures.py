"""Futures for many messages: a `concurrent.futures.Future` each, without what such a one costs.

A plain Future brings a lock, a condition and three lists: two microseconds, and a dozen objects that the garbage
collector walks again and again while tens of thousands of messages wait for answers. Half of what a producer did was
that. Here futures made one after the other share a condition, and the lists are made when somebody wants them.

`concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` reach into futures by the names of the standard
library's own attributes; those names are kept, which tests/reput_client/test_futures.py holds on to.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from reput_client.receipt import SendReceipt

# Whoever waits for one of so many futures is woken by each of the others.
SHARED_COUNT = 64
_RUNNING = "RUNNING"
_FINISHED = "FINISHED"


class DeliveryFuture(Future[SendReceipt]):
    """Resolves to the receipt, or to a `ReputClientError`. A message cannot be called back: `cancel` returns False.

    Args:
        condition: shared with others.
    """

    __slots__ = ("_callbacks", "_condition", "_exception", "_has_sleeper", "_result", "_state", "_watchers")

    def __init__(self, condition: threading.Condition) -> None:
        self._condition = condition
        self._state = _RUNNING
        self._result = None
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Future[SendReceipt]], object]] | None = None
        self._watchers: list[Any] | None = None
        self._has_sleeper = False

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        """Of `concurrent.futures.wait` and `as_completed`, which hold the condition."""
        if self._watchers is None:
            self._watchers = []
        return self._watchers

    @property
    def _done_callbacks(self) -> list[Callable[[Future[SendReceipt]], object]]:
        """Of `add_done_callback`, which holds the condition."""
        if self._callbacks is None:
            self._callbacks = []
        return self._callbacks

    def result(self, timeout: float | None = None) -> SendReceipt:
        """The receipt; waits for it.

        Raises:
            ReputClientError: why there is none.
            TimeoutError: it took longer than `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # or the traceback and the future would keep one another
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None when there is a receipt; waits for either; raises TimeoutError as `result`."""
        if self._state != _FINISHED:
            with self._condition:
                self._has_sleeper = True
                if not self._condition.wait_for(lambda: self._state == _FINISHED, timeout):
                    raise TimeoutError
        return self._exception

    def set_result(self, result: SendReceipt) -> None:
        """For the producer."""
        with self._condition:
            self._check_open()
            self._result = result
            self._finish("add_result")
        if self._callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def set_exception(self, exception: BaseException | None) -> None:
        """For the producer."""
        with self._condition:
            self._check_open()
            self._exception = exception
            self._finish("add_exception")
        if self._callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def _check_open(self) -> None:
        if self._state == _FINISHED:
            raise InvalidStateError(f"{self._state}: {self!r}")

    def _finish(self, add: str) -> None:
        self._state = _FINISHED
        if self._watchers:
            for watcher in self._watchers:
                getattr(watcher, add)(self)
        if self._has_sleeper:
            self._condition.notify_all()


class FutureMaker:
    """Makes futures that share conditions; two threads at once may make a condition too many, which harms nobody."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._left = SHARED_COUNT

    def create(self) -> DeliveryFuture:
        """A future."""
        self._left -= 1
        if self._left <= 0:
            self._condition = threading.Condition()
            self._left = SHARED_COUNT
        return DeliveryFuture(self._condition)
