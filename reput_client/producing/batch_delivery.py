"""The outcome of the messages of one `send_batch`: one future for all of them.

    send_batch ──▶ Spans: where each message will be settled ──▶ Future ──▶ Receipts, in the order of the messages
                                                                    └────▶ BatchDeliveryError: which failed, and why

The messages of a call may share requests with others or need several requests, so they are spans of one or more
settlements. The cost of the future does not depend on their number; a receipt is made when it is read.
"""

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import NamedTuple, overload

from reput_client.errors import BatchDeliveryError, ReputClientError
from reput_client.producing.futures import Settlement
from reput_client.receipt import SendReceipt


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


def watch(spans: Sequence[Span], on_done: Callable[[Receipts | None, BatchDeliveryError | None], object]) -> None:
    """Call `on_done` once, with receipts or the error, when every message has its outcome; at once if all have."""
    _Watch(spans, on_done).begin()


def tell(
    future: "Future[Receipts] | asyncio.Future[Receipts]", receipts: Receipts | None, error: BatchDeliveryError | None
) -> None:
    """Settle a batch's future, unless its holder has cancelled it."""
    if future.done():
        return
    if receipts is not None:
        future.set_result(receipts)
    elif error is not None:
        future.set_exception(error)


class _Watch:
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

    def __init__(self, watch_: _Watch, span: Span) -> None:
        self._watch = watch_
        self._span = span
        self._slot = span.first

    def look(self) -> None:
        """Continue behind the settled slots; the thread that settles the next one calls this again."""
        while (slot := self._span.unsettled_slot(self._slot)) is not None:
            self._slot = slot
            if self._span.settlement.listen(slot, self._told):
                return
        self._watch.settled()

    def _told(self, _receipt: SendReceipt | None, _error: ReputClientError | None) -> None:
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
