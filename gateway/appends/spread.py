"""Append requests over several shards: whole to one shard where possible, otherwise in parts.

A request for one shard is forwarded as the bytes received. A request for several shards is first checked by all of them
(`check_only`), so a bad message prevents the whole request; then all parts are written at the same time. When a part fails
then, the response names the messages that are written and those for which it is unknown.

Another shard is tried only for a request that any shard accepts, and only when nothing was written: there was no
connection to send on, or the commitlog said so (outcomes.py). In any other case the caller decides.

    request  m0 m1 m2 m3          parts  a: m0 m3   b: m1 m2          answer  r0 r1 r2 r3

An append stream over several shards (`SpreadStream`): each request goes to its shard, and responses keep the order of the
requests.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from gateway.appends.coalescer import PendingAppend, split_results
from gateway.appends.outcomes import NOT_SENT, broken, may_be_written, was_not_written
from gateway.appends.routes import AppendRoutes, Part
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import refusal_counter
from services.serving.calls.unary_call import Answerable
from services.status import StatusError, error_info, from_status, to_status
from store.errors import BrokerNotFoundError, ServiceUnavailableError, StoreError

# Shards tried for one request. Each try costs time, and when this many are unreachable the next one is likely, too.
ATTEMPT_COUNT_MAX = 3
INDEX = "index"
WRITTEN_INDEXES = "writtenIndexes"
UNKNOWN_INDEXES = "unknownIndexes"

# Sends the bytes of a request to a shard by name, with a deadline on the monotonic clock; the caller is answered later.
Send = Callable[[str, bytes, float, Answerable], None]


class SendsAppends(Protocol):
    """The commitlog of one shard."""

    def send(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """Send a request; returns at once, the caller is answered later."""

    def send_small(self, appends: Sequence[PendingAppend]) -> None:
        """Send requests that came together and may be joined; likewise."""


class AppendSpread:
    """Sends requests to the shards of their messages; thread-safe.

    Args:
        routes: chooses the shards.
    """

    def __init__(self, routes: AppendRoutes) -> None:
        self._routes = routes
        self._commitlogs: Mapping[str, SendsAppends] = {}

    def keep(self, commitlogs: Mapping[str, SendsAppends]) -> None:
        """Set the shards' commitlogs, by name."""
        self._commitlogs = commitlogs
        self._routes.keep(tuple(commitlogs))

    def append(
        self, request: bytes, deadline_seconds: float, caller: Answerable, send: Send | None = None
    ) -> "SplitAppend | None":
        """Send a request; its caller is answered later.

        Args:
            request: the bytes received.
            deadline_seconds: on the monotonic clock.
            caller: gets the response.
            send: sends to a shard; absent: `send` of this object.

        Returns:
            The running parts; None when the request went to one shard.
        """
        send = send or self.send
        try:
            parsed = pb.AppendMessagesRequest.FromString(request)
        except DecodeError:
            parsed = pb.AppendMessagesRequest()  # the commitlog refuses it with its own message
        try:
            parts = self._routes.parts(parsed) if parsed.messages else []
        except StoreError as error:
            caller.fail(to_status(error))
            return None
        if len(parts) > 1:
            split = SplitAppend(parsed, parts, deadline_seconds, caller, send)
            split.begin()
            return split
        part = parts[0] if parts else Part(next(iter(self._commitlogs)), ())
        if part.others:
            caller = _Attempts(request, part, deadline_seconds, caller, send, self._routes)
        send(part.broker_name, request, deadline_seconds, caller)
        return None

    def send(self, broker_name: str, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """See Send."""
        self._commitlogs[broker_name].send(request, deadline_seconds, caller)

    def send_to(self, broker_name: str, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """As `send`, for a name that a caller has chosen; BrokerNotFoundError when it is not known."""
        self.commitlog_of(broker_name).send(request, deadline_seconds, caller)

    def commitlog_of(self, broker_name: str) -> SendsAppends:
        """Where the appends of a shard go; BrokerNotFoundError when it is not known."""
        commitlog = self._commitlogs.get(broker_name)
        if commitlog is None:
            names = ", ".join(self._commitlogs)
            raise BrokerNotFoundError(
                f"No shard is called {broker_name!r}; there are: {names}.", brokerName=broker_name, brokerNames=names
            )
        return commitlog


class _Attempts:
    """The caller of a request that any of several shards accepts: tries the next shard when nothing was written."""

    def __init__(
        self,
        request: bytes,
        part: Part,
        deadline_seconds: float,
        caller: Answerable,
        send: Send,
        routes: AppendRoutes,
    ) -> None:
        self._request = request
        self._name = part.broker_name
        self._others = list(part.others[: ATTEMPT_COUNT_MAX - 1])
        self._deadline_seconds = deadline_seconds
        self._caller = caller
        self._send = send
        self._routes = routes
        self._began_at = routes.clock()
        self.is_active = caller.is_active
        self.time_remaining = caller.time_remaining

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._routes.note_latency(self._name, self._routes.clock() - self._began_at)
        self._caller.answer(response)

    def fail(self, status: Any) -> None:
        """See Answerable."""
        if not was_not_written(status):
            self._caller.fail(status)
            return
        self._routes.rest(self._name)
        if not self._others or self._deadline_seconds <= time.monotonic():
            self._caller.fail(status)
            return
        self._name = self._others.pop(0)
        self._began_at = self._routes.clock()
        self._send(self._name, self._request, self._deadline_seconds, self)


class SplitAppend:
    """A request whose messages go to several shards.

    Args:
        request: the request.
        parts: the messages of each shard.
        deadline_seconds: on the monotonic clock.
        caller: gets the response.
        send: sends to a shard.

    Attributes:
        written: set when all parts were sent, or none will be.
    """

    def __init__(
        self,
        request: pb.AppendMessagesRequest,
        parts: Sequence[Part],
        deadline_seconds: float,
        caller: Answerable,
        send: Send,
    ) -> None:
        self.written = threading.Event()
        self._request = request
        self._parts = parts
        self._deadline_seconds = deadline_seconds
        self._caller = caller
        self._send = send
        self._lock = threading.Lock()
        self._answers: dict[int, bytes] = {}
        self._failures: dict[int, Any] = {}

    def begin(self) -> None:
        """Let all shards check their parts, then write them."""
        self._send_all(self._checked, check_only=True)

    def _send_all(self, then: Callable[[], None], *, check_only: bool) -> None:
        self._answers, self._failures = {}, {}
        for number, part in enumerate(self._parts):
            request = commitlog_pb.AppendMessagesRequest(
                messages=[self._request.messages[index] for index in part.indexes],
                flush=self._request.flush,
                deduplicate=self._request.deduplicate,
                check_only=check_only,
            )
            waiting = PartCaller(number, self._caller, self._ended, then, is_write=not check_only)
            self._send(part.broker_name, request.SerializeToString(), self._deadline_seconds, waiting)

    def _ended(self, number: int, answer: bytes | None, status: Any, then: Callable[[], None]) -> None:
        with self._lock:
            if answer is not None:
                self._answers[number] = answer
            else:
                self._failures[number] = status
            is_last = len(self._answers) + len(self._failures) == len(self._parts)
        if is_last:
            then()

    def _checked(self) -> None:
        if self._failures:
            self._caller.fail(self._failure(is_write=False))
            self.written.set()  # after the failure, so that a stream that ends with it sends no later request
            return
        self._send_all(self._finished, check_only=False)
        self.written.set()

    def _finished(self) -> None:
        if self._failures:
            self._caller.fail(self._failure(is_write=True))
            return
        results: list[bytes] = [b""] * len(self._request.messages)
        for number, part in enumerate(self._parts):
            receipts = split_results(self._answers[number], [1] * len(part.indexes))
            if receipts is None:
                self._caller.fail(broken())
                return
            for index, receipt in zip(part.indexes, receipts, strict=True):
                results[index] = receipt
        self._caller.answer(b"".join(results))

    def _failure(self, *, is_write: bool) -> Any:
        """The failure to answer with: that of the first failed message, by its index in the whole request.

        Failures that leave open what was written come before refusals.
        """
        unknown = [number for number, status in self._failures.items() if is_write and may_be_written(status)]
        number = min(unknown or self._failures, key=lambda number: self._parts[number].indexes)
        status = self._failures[number]
        info = error_info(status)
        part = self._parts[number]
        error: StoreError
        if info is not None:
            error = from_status(status)
            error.metadata = dict(info.metadata)
            index = info.metadata.get(INDEX, "")
            if index.isdecimal() and int(index) < len(part.indexes):
                error.metadata[INDEX] = str(part.indexes[int(index)])
        elif is_write:  # not a commitlog's: it does not cover the other parts
            error = ServiceUnavailableError(status.message)
        else:
            return status
        error.metadata["brokerName"] = part.broker_name
        written = [number for number, answer in self._answers.items() if is_write and answer]
        if written and was_not_written(status):
            # Of the whole request, parts are written: sending it again to another shard would store these twice.
            error = ServiceUnavailableError(error.message, **error.metadata)
            error.metadata.pop(NOT_SENT, None)
        for name, numbers in ((WRITTEN_INDEXES, written), (UNKNOWN_INDEXES, unknown)):
            if numbers:
                error.metadata[name] = ",".join(map(str, sorted(i for n in numbers for i in self._parts[n].indexes)))
        return to_status(error)


class PartCaller:
    """The caller of one part.

    Attributes:
        is_write: whether the part is written, not only checked.
    """

    def __init__(
        self,
        number: int,
        caller: Answerable,
        ended: Callable[[int, bytes | None, Any, Callable[[], None]], None],
        then: Callable[[], None],
        *,
        is_write: bool,
    ) -> None:
        self.is_write = is_write
        self._number = number
        self._ended = ended
        self._then = then
        self.is_active = caller.is_active
        self.time_remaining = caller.time_remaining

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._ended(self._number, response, None, self._then)

    def fail(self, status: Any) -> None:
        """See Answerable."""
        self._ended(self._number, None, status, self._then)


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
