"""Futures for many messages: each is a `concurrent.futures.Future`, but cheaper.

A plain Future has a lock, a condition and three lists, and is settled by itself. Here all messages of a batch share one
`Settlement`, which is settled once. A future refers to it and has a slot, its place in the batch; it makes its receipt
when it is read. Only waiting threads and callbacks are on a list.

    DeliveryFuture(slot 0) ──┐
    DeliveryFuture(slot 1) ──┼──▶ Settlement ──▶ results, one for each slot that did not fail
    DeliveryFuture(slot 2) ──┘              └──▶ failures by slot

`concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` reach into futures by the names of the standard
library's own attributes; those names are kept, which tests/reput_client/producing/test_futures.py checks.
"""

import logging
import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from reput.message.v1 import message_pb2
from reput_client.errors import ReputClientError
from reput_client.receipt import SendReceipt

OnDelivery = Callable[[SendReceipt | None, ReputClientError | None], object]
DoneCallback = Callable[[Future[SendReceipt]], object]
# A slot, what to call, and with what: a future, or None for receipt and error.
Listener = tuple[int, Callable[..., object], "DeliveryFuture | None"]

_RUNNING = "RUNNING"
_FINISHED = "FINISHED"

_log = logging.getLogger("reput_client")


class Settlement:
    """What becomes of the messages of one batch; for many threads.

    One thread tells it: `fail` for single slots, and `settle` once for those that are left.

    Attributes:
        results: of the slots that did not fail, in their order; None until they are there.
        failures: errors by slot; None while there are none.
    """

    __slots__ = ("_condition", "_listeners", "_lock", "failures", "results")

    def __init__(self) -> None:
        # `concurrent.futures.wait` takes it once for each future that shares it.
        self._lock = threading.RLock()
        self._condition: threading.Condition | None = None
        self._listeners: list[Listener] = []  # never replaced: `listen` appends to it without the lock
        self.results: Sequence[message_pb2.AppendResult] | None = None
        self.failures: dict[int, ReputClientError] | None = None

    @property
    def condition(self) -> threading.Condition:
        """Notified when slots are settled; made when it is first wanted, which for most batches is never."""
        with self._lock:
            if self._condition is None:
                self._condition = threading.Condition(self._lock)
            return self._condition

    def is_settled(self, slot: int) -> bool:
        """Whether the message has its receipt or its error."""
        return self.results is not None or (self.failures is not None and slot in self.failures)

    def error(self, slot: int) -> ReputClientError | None:
        """The error of a settled message; None when it has a receipt."""
        return None if self.failures is None else self.failures.get(slot)

    def receipt(self, slot: int) -> SendReceipt:
        """The receipt of a settled message that has no error."""
        assert self.results is not None
        if self.failures is not None:
            slot -= sum(failed < slot for failed in self.failures)
        return SendReceipt(self.results[slot])

    def wait(self, slot: int, timeout: float | None) -> None:
        """Return when the message is settled; TimeoutError after so many seconds."""
        condition = self.condition
        with condition:
            if not condition.wait_for(lambda: self.is_settled(slot), timeout):
                raise TimeoutError

    def listen(self, slot: int, call: Any, future: "DeliveryFuture | None" = None) -> bool:
        """Have a function called when a message is settled; False when it is settled already.

        Args:
            slot: the message.
            call: `call(future)`, or without a future `call(receipt, error)`.
            future: see there.
        """
        listener = (slot, call, future)
        self._listeners.append(listener)
        if not self.is_settled(slot):
            return True
        # It was settled meanwhile. The thread that removes the listener from the list, under the lock, calls it.
        with self._lock:
            for index, each in enumerate(self._listeners):
                if each is listener:
                    del self._listeners[index]
                    return False
        return True

    def settle(self, results: Sequence[message_pb2.AppendResult]) -> None:
        """All messages that did not fail have receipts, in their order."""
        with self._lock:
            self.results = results
            listeners = self._take_listeners(None)
            if self._condition is not None:
                self._condition.notify_all()
        self._call(listeners)

    def fail(self, errors: dict[int, ReputClientError]) -> None:
        """Some messages, by slot, have failed."""
        with self._lock:
            self.failures = {**(self.failures or {}), **errors}
            listeners = self._take_listeners(errors)
            if self._condition is not None:
                self._condition.notify_all()
        self._call(listeners)

    def _take_listeners(self, slots: Container[int] | None) -> list[Listener]:
        """Take out those of some slots, or all; with the lock held, while others may be added."""
        count = len(self._listeners)
        listeners = self._listeners[:count]
        if slots is None:
            del self._listeners[:count]
            return listeners
        self._listeners[:count] = [each for each in listeners if each[0] not in slots]
        return [each for each in listeners if each[0] in slots]

    def _call(self, listeners: Sequence[Listener]) -> None:
        for slot, call, future in listeners:
            try:
                if future is not None:
                    call(future)
                elif (error := self.error(slot)) is not None:
                    call(None, error)
                else:
                    call(self.receipt(slot), None)
            except Exception:
                _log.exception("a callback of a delivery failed")


class DeliveryFuture(Future[SendReceipt]):
    """Resolves to the receipt, or to a `ReputClientError`. A message cannot be called back: `cancel` returns False.

    Args:
        settlement: of its batch.
        slot: its place there.
    """

    __slots__ = ("_settlement", "_slot", "_watchers")

    def __init__(self, settlement: Settlement, slot: int) -> None:
        self._settlement = settlement
        self._slot = slot

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """Held by `concurrent.futures.wait` and `as_completed` while they look and while they join the waiters."""
        return self._settlement.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return _FINISHED if self._settlement.is_settled(self._slot) else _RUNNING

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        """Of `concurrent.futures.wait` and `as_completed`, which hold the condition."""
        try:
            return self._watchers
        except AttributeError:
            self._watchers: list[Any] = []
            self._settlement.listen(self._slot, _tell_watchers, self)
            return self._watchers

    def cancel(self) -> bool:
        """False: what was sent is sent."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def running(self) -> bool:
        """Whether it is under way."""
        return not self._settlement.is_settled(self._slot)

    def done(self) -> bool:
        """Whether there is a receipt or an error."""
        return self._settlement.is_settled(self._slot)

    def result(self, timeout: float | None = None) -> SendReceipt:
        """The receipt; waits for it.

        Raises:
            ReputClientError: why there is none.
            TimeoutError: it took longer than `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is None:
            return self._settlement.receipt(self._slot)
        try:
            raise error
        finally:
            del self, error  # or the traceback and the future would keep one another

    def exception(self, timeout: float | None = None) -> ReputClientError | None:
        """The error, None when there is a receipt; waits for either; raises TimeoutError as `result`."""
        settlement = self._settlement
        if not settlement.is_settled(self._slot):
            settlement.wait(self._slot, timeout)
        return settlement.error(self._slot)

    def add_done_callback(self, fn: DoneCallback) -> None:
        """Have `fn(future)` called when it is done: in the producer's thread, or here when it is done already."""
        if not self._settlement.listen(self._slot, fn, self):
            try:
                fn(self)
            except Exception:
                _log.exception("a callback of a delivery failed")

    def set_running_or_notify_cancel(self) -> bool:
        """It runs from the beginning and is never cancelled."""
        raise InvalidStateError("a message's future belongs to its producer")

    def set_result(self, result: SendReceipt) -> None:
        """Only the answer to its batch settles it."""
        raise InvalidStateError("a message's future belongs to its producer")

    def set_exception(self, exception: BaseException | None) -> None:
        """Only the end of its batch settles it."""
        raise InvalidStateError("a message's future belongs to its producer")

    def __repr__(self) -> str:
        if not self.done():
            return f"<DeliveryFuture at {id(self):#x} state=pending>"
        return f"<DeliveryFuture at {id(self):#x} {self.exception() or self.result()!r}>"


def _tell_watchers(future: DeliveryFuture) -> None:
    for watcher in list(future._waiters):
        if future.exception() is None:
            watcher.add_result(future)
        else:
            watcher.add_exception(future)
