"""Small appends of many callers, sent as one request.

Theory of operation: a call to a commitlog costs the same for one message and for many, and much more than a message. So
each flush mode has a few senders. A request that finds all senders idle is sent at once. While one is busy, requests collect
until as many wait as are under way; then another sender sends them. A sender that is done sends what waits under the same
rule, or else leaves it to the one that is still busy. So batches grow to a share of the callers, and appends that wait for
disks share their flush in this way, here and on the replicas.

Each caller sees the same result as if its request had been sent alone. When a batch is refused and nothing of it was
written, the request with the refused message is sent again alone, and the others again together. Any other failure goes to
all callers of the batch, and nothing is sent again.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

# Senders for one flush mode. With a single one, the commitlog would be idle while responses are handed out.
SENDER_COUNT = 2
# The limits of a commitlog for one request.
MESSAGE_COUNT_MAX = 1_024
REQUEST_BYTES_MAX = 4 * 1024 * 1024

_log = structlog.get_logger("reput.gateway")


class Caller(Protocol):
    """A call that waits for its response or failure (services/serving/calls/unary_call.py)."""

    def answer(self, response: bytes) -> None:
        """End the call with a response."""

    def fail(self, status: Any) -> None:
        """End the call with a failure."""

    def is_active(self) -> bool:
        """Whether the call is not cancelled."""


class AppendFailedError(Exception):
    """An append has failed.

    Args:
        status: the google.rpc.Status for the caller, unchanged.
        is_refused: nothing was written, and the request itself is the reason.
        index: the index of the message that is the reason; None when it is not known.
    """

    def __init__(self, status: Any, *, is_refused: bool = False, index: int | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self.is_refused = is_refused
        self.index = index


@dataclass(slots=True)
class PendingAppend:
    """A request that waits for a sender.

    Attributes:
        request: the bytes as received.
        message_count: the number of its messages.
        flush: its FlushMode.
        deadline_seconds: the caller's deadline on the coalescer's clock.
        caller: gets the response.
    """

    request: bytes
    message_count: int
    flush: int
    deadline_seconds: float
    caller: Caller


class AppendCoalescer:
    """Collects requests and sends them in batches; thread-safe. `offer` never blocks.

    services/serving/lanes.py limits the number of callers, and so what collects here: 64 KiB for each.

    Args:
        send: sends a request with a timeout in seconds; raises AppendFailedError.
        split: splits a response by the message counts of the requests; None when the counts do not match.
        executor: runs the senders; it needs `SENDER_COUNT` threads for each flush mode.
        clock: seconds, rising.
        expired: makes the status for a caller whose deadline passed before its request was sent.
        broken: makes the status for callers whose response cannot be split.
        sender_count: senders for each flush mode.
    """

    def __init__(
        self,
        send: Callable[[bytes, float], bytes],
        split: Callable[[bytes, Sequence[int]], list[bytes] | None],
        executor: Executor,
        *,
        clock: Callable[[], float],
        expired: Callable[[], Any],
        broken: Callable[[], Any],
        sender_count: int = SENDER_COUNT,
    ) -> None:
        self._send = send
        self._split = split
        self._executor = executor
        self._clock = clock
        self._expired = expired
        self._broken = broken
        self._sender_count = sender_count
        self._waiting: dict[int, deque[PendingAppend]] = {}
        self._busy_counts: dict[int, int] = {}
        self._sent_counts: dict[int, int] = {}  # requests under way
        self._lock = threading.Lock()

    def offer(self, append: PendingAppend) -> None:
        """Add a request; another thread answers its caller later."""
        with self._lock:
            self._waiting.setdefault(append.flush, deque()).append(append)
            busy_count = self._busy_counts.get(append.flush, 0)
            needs_sender = busy_count < self._sender_count and self._is_worth_sending(append.flush)
            if needs_sender:
                self._busy_counts[append.flush] = busy_count + 1
        if needs_sender:
            self._executor.submit(self._send_all, append.flush)

    def _is_worth_sending(self, flush: int) -> bool:
        """Whether a sender that is free should not wait for one that is busy; with the lock held."""
        return len(self._waiting[flush]) >= self._sent_counts.get(flush, 0)

    def _send_all(self, flush: int) -> None:
        done_count = 0
        while True:
            batch = self._take(flush, done_count)
            if batch is None:
                return
            done_count = len(batch)
            alive = []
            for append in batch:
                if append.deadline_seconds <= self._clock() or not append.caller.is_active():
                    append.caller.fail(self._expired())
                else:
                    alive.append(append)
            if alive:
                self._send_batch(alive)

    def _take(self, flush: int, done_count: int) -> list[PendingAppend] | None:
        """The next batch, as many requests as fit into one, after one of so many; None when the sender is idle then."""
        batch: list[PendingAppend] = []
        message_count = size_bytes = 0
        with self._lock:
            waiting = self._waiting[flush]
            self._sent_counts[flush] = self._sent_counts.get(flush, 0) - done_count
            if not waiting or not self._is_worth_sending(flush):
                self._busy_counts[flush] -= 1
                return None
            while waiting:
                message_count += waiting[0].message_count
                size_bytes += len(waiting[0].request)
                if batch and (message_count > MESSAGE_COUNT_MAX or size_bytes > REQUEST_BYTES_MAX):
                    break
                batch.append(waiting.popleft())
            self._sent_counts[flush] += len(batch)
        return batch

    def _send_batch(self, batch: list[PendingAppend]) -> None:
        try:
            while batch:
                batch = self._send_once(batch)
        except Exception:  # a sender that ended here would leave later callers without an answer
            _log.exception("append.failed", count=len(batch))
            for append in batch:
                append.caller.fail(self._broken())

    def _send_once(self, batch: list[PendingAppend]) -> list[PendingAppend]:
        """Send a batch and answer its callers; the requests that must be sent again."""
        seconds = max(append.deadline_seconds for append in batch) - self._clock()
        try:
            response = self._send(b"".join([append.request for append in batch]), seconds)
        except AppendFailedError as error:
            if len(batch) == 1 or not error.is_refused:
                for append in batch:
                    append.caller.fail(error.status)
                return []
            refused = _at_message(batch, error.index)
            self._send_once([batch[refused]])
            return batch[:refused] + batch[refused + 1 :]
        if len(batch) == 1:
            batch[0].caller.answer(response)
            return []
        responses = self._split(response, [append.message_count for append in batch])
        for i, append in enumerate(batch):
            if responses is None:
                append.caller.fail(self._broken())
            else:
                append.caller.answer(responses[i])
        return []


def _at_message(batch: Sequence[PendingAppend], index: int | None) -> int:
    """The position of the request that holds the message with this index; 0 when none does."""
    if index is not None and index >= 0:
        for i, append in enumerate(batch):
            if index < append.message_count:
                return i
            index -= append.message_count
    return 0
