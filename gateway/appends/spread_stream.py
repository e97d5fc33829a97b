"""An append stream over several shards: each request goes to its shard, and responses keep the order of the requests.

A stream's requests to one shard are sent one after the other, so its messages keep their order in a queue. Different shards
write at the same time.

    requests   1:a  2:b  3:a  4:b          running    a: 1, then 3          answers  1  2  3  4
                                                      b: 2, then 4

When it is unknown whether a request was written, no later request is sent, and the stream ends with that failure. A
caller that sends this request and the later ones again keeps their order.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from gateway.appends.commitlog import was_not_written
from gateway.appends.spread import AppendSpread, PartCaller
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import refusal_counter
from services.serving.calls.unary_call import Answerable
from services.status import StatusError, error_info, to_status
from store.errors import ServiceUnavailableError

# Reasons of a call that ended without a commitlog's answer: it is unknown whether the messages were written.
UNKNOWN_REASONS = frozenset({"SERVICE_UNAVAILABLE", "DEADLINE_EXCEEDED", "STORE_ERROR"})

_count_refusal = refusal_counter("GatewayService/AppendMessageStream")


class SpreadStream:
    """One stream: `take_all` runs in one thread, another one iterates over the responses.

    Args:
        spread: sends requests.
        seconds_max: the time for one request.
        deadline_seconds: the stream's deadline on the monotonic clock; None: none.
    """

    def __init__(self, spread: AppendSpread, seconds_max: float, deadline_seconds: float | None) -> None:
        self._spread = spread
        self._seconds_max = seconds_max
        self._deadline_seconds = deadline_seconds
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._queues: dict[str, deque[Callable[[], None]]] = {}  # of shards that have one of this stream running
        self._is_all_taken = False
        self._is_cancelled = False
        self._is_broken = False  # by a request whose failure ends the stream

    def take_all(self, requests: Iterator[bytes]) -> None:
        """Send all requests, each as soon as the order allows it."""
        try:
            for request in requests:
                entry = _Entry(self._changed, lambda: not self._is_cancelled, self._break)
                with self._changed:
                    self._entries.append(entry)
                deadline_seconds = time.monotonic() + self._seconds_max
                if self._deadline_seconds is not None:
                    deadline_seconds = min(deadline_seconds, self._deadline_seconds)
                split = self._spread.append(request, deadline_seconds, entry, self._send)
                if split is not None:
                    split.written.wait()  # the next request must not overtake it during its check
        finally:
            with self._changed:
                self._is_all_taken = True
                self._changed.notify_all()

    def cancel(self) -> None:
        """Send nothing more; running requests may still be written."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        """The responses.

        Raises:
            StatusError: a request failed, and it is not known whether its messages were written.
        """
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (self._entries[0].is_ended if self._entries else self._is_all_taken) or self._is_cancelled
                )
                if self._is_cancelled or not self._entries:
                    return
                entry = self._entries.popleft()
            yield entry.response()

    def _send(self, broker_name: str, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """See Send. Sends when the shard has answered the stream's previous request to it."""
        # A failed part ends the stream whatever its failure says, because another part may be written.
        is_part = isinstance(caller, PartCaller) and caller.is_write

        def go() -> None:
            if self._is_cancelled or self._is_broken:
                ended.fail(to_status(ServiceUnavailableError("the stream has ended: this request was not sent")))
            else:
                self._spread.send(broker_name, request, deadline_seconds, ended)

        ended = _InOrder(caller, lambda: self._next_of(broker_name), self._break if is_part else lambda: None)
        with self._changed:
            waiting = self._queues.get(broker_name)
            if waiting is not None:
                waiting.append(go)
                return
            self._queues[broker_name] = deque()
        go()

    def _break(self) -> None:
        self._is_broken = True

    def _next_of(self, broker_name: str) -> None:
        with self._changed:
            waiting = self._queues[broker_name]
            if not waiting:
                del self._queues[broker_name]
                return
            go = waiting.popleft()
        go()


class _Entry:
    """A request of the stream and its response."""

    def __init__(
        self, changed: threading.Condition, is_wanted: Callable[[], bool], ends_all: Callable[[], None]
    ) -> None:
        self._changed = changed
        self._ends_all = ends_all
        self._answer: bytes | None = None
        self._status: Any = None
        self.is_ended = False
        self.is_active = is_wanted

    def time_remaining(self) -> float | None:
        """See Answerable; requests get their deadline beside it."""
        return None

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(response, None)

    def fail(self, status: Any) -> None:
        """See Answerable."""
        if ends_stream(status):
            self._ends_all()
        self._end(None, status)

    def response(self) -> bytes:
        """The response; StatusError when the failure ends the stream."""
        if self._answer is not None:
            return self._answer
        if ends_stream(self._status):
            raise StatusError(self._status)
        _count_refusal(self._status.code)
        return pb.AppendMessageStreamResponse(error=self._status).SerializeToString()

    def _end(self, answer: bytes | None, status: Any) -> None:
        with self._changed:
            self._answer, self._status, self.is_ended = answer, status, True
            self._changed.notify_all()


class _InOrder:
    """Passes the result to the caller, then starts the shard's next request."""

    def __init__(self, caller: Answerable, ended: Callable[[], None], failed: Callable[[], None]) -> None:
        self._caller = caller
        self._ended = ended
        self._failed = failed
        self.is_active = caller.is_active
        self.time_remaining = caller.time_remaining

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._caller.answer(response)
        self._ended()

    def fail(self, status: Any) -> None:
        """See Answerable."""
        self._failed()
        self._caller.fail(status)
        self._ended()


def ends_stream(status: Any) -> bool:
    """Whether this failure ends a stream, because it is unknown whether the messages were written."""
    info = error_info(status)
    return info is None or (info.reason in UNKNOWN_REASONS and not was_not_written(status))


def time_left_until(context: grpc.ServicerContext, seconds_max: float) -> float | None:
    """The stream's deadline on the monotonic clock; None when it is further away than that many seconds."""
    remaining = context.time_remaining()
    return time.monotonic() + remaining if remaining is not None and remaining < seconds_max else None
