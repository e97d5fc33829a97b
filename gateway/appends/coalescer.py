"""Small appends of many callers, sent together: the first goes at once, who comes meanwhile goes with the next.

Theory of operation: a call to a commitlog costs the same for one message and for many, and much more than a message. So
for each way to flush there are a few senders. A caller who finds one idle is sent alone, without any delay; while all are
under way, callers gather, and the first sender that is back takes all of them. Callers who wait for the disk so share
its flush as well.

What a caller sees is what he would see alone. A refusal that means "nothing of this request was written" is found its
culprit: the message that it names is sent with its own request alone, the others again together, so that each gets the
answer that is his. Any other failure is everybody's who was under way, and nothing is sent twice.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

# Under way at the same time for one way to flush. With one, the commitlog is idle while answers are handed out.
SENDER_COUNT = 2
# What a commitlog takes in one request.
MESSAGE_COUNT_MAX = 1_024
REQUEST_BYTES_MAX = 4 * 1024 * 1024

_log = structlog.get_logger("reput.gateway")


class Caller(Protocol):
    """Whoever waits for an answer, and takes the first one: services/unary_call.py."""

    def answer(self, response: bytes) -> None:
        """End the call with an answer."""

    def fail(self, status: Any) -> None:
        """End the call with a failure."""

    def is_active(self) -> bool:
        """Whether somebody still waits."""


class AppendFailedError(Exception):
    """What a commitlog, or the way to it, answered instead of receipts.

    Args:
        status: for the caller, as it is.
        is_refused: whether surely nothing was written and the request itself is the reason.
        index: the message that is the reason, when it is known.
    """

    def __init__(self, status: Any, *, is_refused: bool = False, index: int | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self.is_refused = is_refused
        self.index = index


@dataclass(slots=True)
class PendingAppend:
    """A request and who waits for its answer.

    Attributes:
        request: the bytes that came.
        message_count: its messages.
        flush: its FlushMode.
        deadline_seconds: on the coalescer's clock; no answer is wanted later.
        caller: who waits.
    """

    request: bytes
    message_count: int
    flush: int
    deadline_seconds: float
    caller: Caller


class AppendCoalescer:
    """Gathers and sends; thread-safe, and `offer` never waits.

    How much gathers is limited by whoever lets callers in: services/lanes.py, 64 KiB a caller.

    Args:
        send: sends a request, waiting at most so many seconds; raises AppendFailedError.
        split: the response for each request, given the counts of their messages; None when it does not fit them.
        executor: where senders run; it needs `SENDER_COUNT` threads for each way to flush.
        clock: seconds, rising.
        expired: the status for a caller whose time was over before his request was sent.
        broken: the status for callers whose receipts cannot be told apart.
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
        self._lock = threading.Lock()

    def offer(self, append: PendingAppend) -> None:
        """Take a request; its caller is answered later, from another thread."""
        with self._lock:
            self._waiting.setdefault(append.flush, deque()).append(append)
            busy_count = self._busy_counts.get(append.flush, 0)
            needs_sender = busy_count < self._sender_count
            if needs_sender:
                self._busy_counts[append.flush] = busy_count + 1
        if needs_sender:
            self._executor.submit(self._send_all, append.flush)

    def _send_all(self, flush: int) -> None:
        while True:
            group = self._take(flush)
            if group is None:
                return
            alive = []
            for append in group:
                if append.deadline_seconds <= self._clock() or not append.caller.is_active():
                    append.caller.fail(self._expired())
                else:
                    alive.append(append)
            if alive:
                self._send_group(alive)

    def _take(self, flush: int) -> list[PendingAppend] | None:
        """Those who wait, as many as fit into one request; None (and the sender is idle) when nobody does."""
        group: list[PendingAppend] = []
        message_count = size_bytes = 0
        with self._lock:
            waiting = self._waiting[flush]
            if not waiting:
                self._busy_counts[flush] -= 1
                return None
            while waiting:
                message_count += waiting[0].message_count
                size_bytes += len(waiting[0].request)
                if group and (message_count > MESSAGE_COUNT_MAX or size_bytes > REQUEST_BYTES_MAX):
                    break
                group.append(waiting.popleft())
        return group

    def _send_group(self, group: list[PendingAppend]) -> None:
        try:
            while group:
                group = self._send_once(group)
        except Exception:  # the sender must live: without it, later callers would wait for ever
            _log.exception("append.failed", count=len(group))
            for append in group:
                append.caller.fail(self._broken())

    def _send_once(self, group: list[PendingAppend]) -> list[PendingAppend]:
        """Send and answer; who is left is to be sent again."""
        seconds = max(append.deadline_seconds for append in group) - self._clock()
        try:
            response = self._send(b"".join([append.request for append in group]), seconds)
        except AppendFailedError as error:
            if len(group) == 1 or not error.is_refused:
                for append in group:
                    append.caller.fail(error.status)
                return []
            culprit = _at_message(group, error.index)
            self._send_once([group[culprit]])
            return group[:culprit] + group[culprit + 1 :]
        if len(group) == 1:
            group[0].caller.answer(response)
            return []
        responses = self._split(response, [append.message_count for append in group])
        for i, append in enumerate(group):
            if responses is None:
                append.caller.fail(self._broken())
            else:
                append.caller.answer(responses[i])
        return []


def _at_message(group: Sequence[PendingAppend], index: int | None) -> int:
    """Which request of the group has the message with this index; the first one when there is none such."""
    if index is not None and index >= 0:
        for i, append in enumerate(group):
            if index < append.message_count:
                return i
            index -= append.message_count
    return 0
