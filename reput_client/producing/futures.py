"""Futures of sent messages: one for each message, or one for all messages of a `send_batch`.

The future of a message is a `concurrent.futures.Future`, but cheaper. A plain Future has a lock, a condition and three lists,
and is settled by itself. Here all messages of a batch share one `Settlement`, which is settled once. A future refers to it and
has a slot, its place in the batch; it makes its receipt when it is read. Only waiting threads and callbacks are on a list.

    DeliveryFuture(slot 0) ──┐
    DeliveryFuture(slot 1) ──┼──▶ Settlement ──▶ results, one for each slot that did not fail
    DeliveryFuture(slot 2) ──┘              └──▶ failures by slot

`concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` reach into futures by the names of the standard
library's own attributes; those names are kept, which tests/reput_client/producing/test_futures.py checks.

    send_batch ──▶ Spans: where each message will be settled ──▶ Future ──▶ Receipts, in the order of the messages
                                                                    └────▶ BatchDeliveryError: which failed, and why

The messages of a `send_batch` may share requests with others or need several requests, so they are spans of one or more
settlements. The cost of the future does not depend on their number; a receipt is made when it is read.
"""

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from itertools import accumulate
from typing import Any, NamedTuple, overload

from reput.message.v1 import message_pb2
from reput_client.errors import BatchDeliveryError, ReputClientError
from reput_client.receipt import SendReceipt

OnDelivery = Callable[[SendReceipt | None, ReputClientError | None], object]
# Called when all messages of a call have their outcomes; the second one calls the first.
OnOutcome = Callable[["Receipts | None", "BatchDeliveryError | None"], object]
OnBatch = Callable[[OnOutcome, "Receipts | None", "BatchDeliveryError | None"], object]
DoneCallback = Callable[[Future[SendReceipt]], object]
# A slot, what to call, and with what: a future, or None for receipt and error.
Listener = tuple[int, Callable[..., object], "DeliveryFuture | None"]

_RUNNING = "RUNNING"
_FINISHED = "FINISHED"

_log = logging.getLogger("reput_client")


class Settlement:
    """The outcomes of the messages of one batch; for many threads.

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


class Span(NamedTuple):
    """`message_count` messages of one call, from slot `first` of a settlement on."""

    settlement: Settlement
    first: int
    message_count: int

    def unsettled_slot(self, begin: int) -> int | None:
        """The next slot from `begin` on whose message has no outcome yet."""
        for slot in range(begin, self.first + self.message_count):
            if not self.settlement.is_settled(slot):
                return slot
            if self.settlement.results is not None:
                return None
        return None


class Receipts(Sequence[SendReceipt]):
    """The receipts of the messages of a call, in order; each is made when it is read.

    Args:
        spans: settled, without a failure.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._ends = list(accumulate(span.message_count for span in spans))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> SendReceipt: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendReceipt]: ...

    def __getitem__(self, index: int | slice) -> SendReceipt | list[SendReceipt]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        number = bisect_right(self._ends, index)
        span = self._spans[number]
        return span.settlement.receipt(span.first + index - (self._ends[number] - span.message_count))

    def __iter__(self) -> Iterator[SendReceipt]:
        for settlement, first, message_count in self._spans:
            for slot in range(first, first + message_count):
                yield settlement.receipt(slot)

    def __repr__(self) -> str:
        return f"<{len(self)} receipts>"


def when_settled(
    spans: Sequence[Span], on_done: Callable[[Receipts | None, BatchDeliveryError | None], object]
) -> None:
    """Call `on_done` once, with receipts or the error, when every message has its outcome; at once if all have."""
    _SpansWatch(spans, on_done).begin()


def tell_batch(
    future: "Future[Receipts] | asyncio.Future[Receipts]", receipts: Receipts | None, error: BatchDeliveryError | None
) -> None:
    """Settle a batch's future, unless its holder has cancelled it."""
    if future.done():
        return
    if receipts is not None:
        future.set_result(receipts)
    elif error is not None:
        future.set_exception(error)


class _SpansWatch:
    """Waits for one unsettled slot of each span at a time: the messages of a request are usually settled together."""

    def __init__(
        self, spans: Sequence[Span], on_done: Callable[[Receipts | None, BatchDeliveryError | None], object]
    ) -> None:
        self._spans = spans
        self._on_done = on_done
        self._lock = threading.Lock()
        self._left_count = len(spans)

    def begin(self) -> None:
        """Wait for all of them."""
        if not self._spans:
            self._on_done(Receipts(()), None)
        for span in self._spans:
            _SpanWatch(self, span).look()

    def settled(self) -> None:
        """One span is settled."""
        with self._lock:
            self._left_count -= 1
            if self._left_count:
                return
        failures = _failures(self._spans)
        if failures:
            message_count = sum(span.message_count for span in self._spans)
            self._on_done(None, BatchDeliveryError.of(failures, message_count))
        else:
            self._on_done(Receipts(self._spans), None)


class _SpanWatch:
    __slots__ = ("_slot", "_span", "_watch")

    def __init__(self, watch: _SpansWatch, span: Span) -> None:
        self._watch = watch
        self._span = span
        self._slot = span.first

    def look(self) -> None:
        """Continue behind the settled slots; the thread that settles the next one calls this again."""
        while (slot := self._span.unsettled_slot(self._slot)) is not None:
            self._slot = slot
            if self._span.settlement.listen(slot, self._look_on):
                return
        self._watch.settled()

    def _look_on(self, _receipt: SendReceipt | None, _error: ReputClientError | None) -> None:
        self.look()


def _failures(spans: Sequence[Span]) -> dict[int, ReputClientError]:
    """Errors by the message's place in the call."""
    failures: dict[int, ReputClientError] = {}
    begin = 0
    for settlement, first, message_count in spans:
        if settlement.failures is not None:
            for slot in range(first, first + message_count):
                error = settlement.error(slot)
                if error is not None:
                    failures[begin + slot - first] = error
        begin += message_count
    return failures
