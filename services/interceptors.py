"""What happens around every RPC: it gets a thread of its lane or a refusal, errors become rich statuses, calls are logged.

A handler just raises: a `StoreError` becomes its status (services/status.py), also in the middle of a stream; an
RpcError from a call to another service is passed on as what it meant; anything else is a bug, logged with its traceback
and answered INTERNAL. Health and reflection get their lanes and are otherwise left alone.

Nobody may hold a thread by doing nothing. Every handler is registered as one that takes a stream of requests, which is
the same on the wire: so it starts before the request is there, waits for it under the eye of the watch, and a refusal
needs no request at all. Answers are serialized before they wait for their reader, so that what waits is bytes and no
objects; nothing here keeps a request or an answer beyond its turn.

Open work (services/open_work.py) is a unary call, a stream that ends by itself, and on a two-way stream the requests not
answered yet. Tails never end by themselves: they are ended.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import grpc
import structlog

from services import append_pump, status, tracing
from services.append_pump import StreamPump
from services.call_guard import CallGuard
from services.lanes import Lane, Lanes
from services.meters import COARSE_SECONDS_BOUNDS, Meters
from services.open_work import OpenWork, Unanswered
from services.stall_watch import REQUEST_SECONDS_MAX, Wait
from services.unary_call import AnsweredLater, Arrived, ThreadedCall
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError

ROCKETMQ_PREFIX = "/apache.rocketmq.v2."
OWN_PREFIXES = ("/reput.", ROCKETMQ_PREFIX)
HEALTH_PREFIX = "/grpc.health."
# Streams that go on for ever.
TAIL_METHODS = frozenset({"/reput.commitlog.v1.CommitLogService/Reput"})
# Two-way streams that live as long as their client, mostly idle, and not every request has an answer.
SESSION_METHODS = frozenset({f"{ROCKETMQ_PREFIX}MessagingService/Telemetry"})
# By number; a number that nobody has is UNKNOWN.
CODE_NAMES = defaultdict(lambda: "UNKNOWN", {code.value[0]: code.name for code in grpc.StatusCode})
# Methods of one process at most, by every code: a closed set, of which no code may hide in `other`. The gateway has 22.
ENDED_SERIES_COUNT_MAX = 40 * len(grpc.StatusCode)

_log = structlog.get_logger("reput.rpc")
_stdlib_log = logging.getLogger("reput.rpc")


class StatusInterceptor(grpc.ServerInterceptor):
    """Wraps all handlers.

    Args:
        work: where open work is counted.
        lanes: where calls run.

    Attributes:
        guard: decides who may call what; None: everybody everything. To be set before the first call.
        meters: where calls are counted and timed.
    """

    def __init__(self, work: OpenWork, lanes: Lanes, meters: Meters | None = None) -> None:
        self._work = work
        self._lanes = lanes
        meters = meters or Meters()
        self._seconds = meters.histogram(
            "rpc_seconds", "Time of a call with one answer.", ("method",), COARSE_SECONDS_BOUNDS
        )
        self._ended = meters.counter(
            "rpc_ended", "Calls that have ended, by how.", ("method", "code"), ENDED_SERIES_COUNT_MAX
        )
        self._wrapped: dict[str, tuple[Lane, Any, Any]] = {}
        self.guard: CallGuard | None = None

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """The wrapped handler or a refusal; none for an unknown method. gRPC calls this from one thread."""
        method: str = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None:
            handler: Any = continuation(handler_call_details)
            if handler is None:
                return None
            if self.guard is not None:
                handler = self.guard.guard(method, handler)
            lane = self._lane_of(method, handler)
            known = self._wrapped[method] = lane, self._wrap(method, handler, lane), self._refuse(lane)
        lane, wrapped, refusal = known
        chosen: grpc.RpcMethodHandler = wrapped if lane.admits() else refusal
        return chosen

    def _lane_of(self, method: str, handler: Any) -> Lane:
        if method in SESSION_METHODS:
            return self._lanes.sessions
        if not method.startswith(OWN_PREFIXES):
            return self._lanes.health if method.startswith(HEALTH_PREFIX) else self._lanes.reflection
        if handler.request_streaming:
            return self._lanes.streams
        if handler.response_streaming:
            return self._lanes.tails if method in TAIL_METHODS else self._lanes.downloads
        return self._lanes.calls

    def _refuse(self, lane: Lane) -> grpc.RpcMethodHandler:
        def handle(_requests: Iterator[bytes], context: grpc.ServicerContext) -> None:
            status.raise_status(context, lane.refusal())

        return _stream_unary(handle, self._lanes.refusals)

    def _wrap(self, method: str, handler: Any, lane: Lane) -> grpc.RpcMethodHandler:
        if getattr(handler.unary_stream, "experimental_non_blocking", False):
            return self._watch_of_health(method, handler, lane)
        if handler.request_streaming and handler.response_streaming:
            return _stream_stream(self._two_way(method, handler, lane), lane, handler.request_deserializer)
        if handler.response_streaming:
            return _stream_stream(self._server_stream(method, handler, lane), lane)
        assert not handler.request_streaming, f"{method}: there is no stream with one answer in the contract"
        if isinstance(handler.unary_unary, AnsweredLater):
            take = self._later(method, handler.unary_unary)
            return _stream_unary(self._threaded(method, take), lane, None, method, take)
        return _stream_unary(self._single_answer(method, handler, lane), lane, handler.response_serializer, method)

    def _later(self, method: str, later: AnsweredLater) -> Callable[[bytes | None, Any], None]:
        """Takes a call without a thread; a part of it runs when it ends."""

        def take(request: bytes | None, call: Any) -> None:
            started = time.perf_counter()
            leave = call.ended
            if request is None:
                call.fail(status.to_status(_no_request(method)))
                return
            end_span = tracing.begin_call(method, call)

            def ended() -> None:
                self._work.add(-1)
                self._note_end(method, started, CODE_NAMES[call.status_code])
                end_span()
                leave()

            self._work.add(1)
            call.ended = ended
            try:
                later.offer(request, call)
            except Exception as error:
                call.fail(status.to_status(_as_store_error(error, method)))

        return take

    def _threaded(self, method: str, take: Callable[[bytes | None, Any], None]) -> Callable[..., bytes]:
        """The same for a call that has a thread."""

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            wait = self._lanes.watch.add(self._lanes.calls.name, method, context)
            wait.begin(REQUEST_SECONDS_MAX)
            try:
                request = next(requests, None)
            finally:
                self._lanes.watch.remove(wait)
            call = ThreadedCall(context)
            take(request, call)
            return call.wait()

        return handle

    def _single_answer(self, method: str, handler: Any, lane: Lane) -> Callable[..., Any]:
        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            started = time.perf_counter()
            open_work = 0
            try:
                request = self._only_request(requests, context, method, handler, lane)
                open_work = 1
                self._work.add(open_work)
                with tracing.call(method, context):
                    return handler.unary_unary(request, context)
            except Exception as error:
                end_with(error, context, method)
            finally:
                self._work.add(-open_work)
                self._note_end(method, started, _code_of(context))

        return handle

    def _server_stream(self, method: str, handler: Any, lane: Lane) -> Callable[..., Iterator[bytes]]:
        is_tail = method in TAIL_METHODS
        serialize = handler.response_serializer or _as_it_is

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            started = time.perf_counter()
            open_work = 0
            wait = self._lanes.watch.add(lane.name, method, context)
            try:
                request = self._only_request(requests, context, method, handler, lane)
                open_work = 0 if is_tail else 1
                self._work.add(open_work)
                for answer in map(serialize, handler.unary_stream(request, context)):
                    wait.begin()
                    yield answer
                    wait.end()
                    if is_tail and self._work.stopping.is_set():
                        raise ServiceUnavailableError("the service is stopping")
            except Exception as error:
                end_with(error, context, method)
            finally:
                self._lanes.watch.remove(wait)
                self._work.add(-open_work)
                self._note_end(method, started, _code_of(context), is_timed=False)

        return handle

    def _two_way(self, method: str, handler: Any, lane: Lane) -> Callable[..., Iterator[bytes]]:
        serialize = handler.response_serializer or _as_it_is
        is_ours = method.startswith(OWN_PREFIXES)
        is_session = method in SESSION_METHODS
        pump = handler.stream_stream.pump if append_pump.is_possible_for(handler.stream_stream) else None

        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
            started = time.perf_counter()
            unanswered = Unanswered(self._work)
            wait = self._lanes.watch.add(lane.name, method, context)
            if is_session:
                taken = requests
            else:
                taken = unanswered.count(requests) if is_ours else _watched(requests, wait)
            try:
                if pump is not None and pump(StreamPump(context, unanswered, wait), context):
                    return
                for answer in map(serialize, handler.stream_stream(taken, context)):
                    wait.begin()
                    yield answer
                    wait.end()
                    if not is_session:
                        unanswered.answered()
            except Exception as error:
                if not is_ours:
                    raise
                end_with(error, context, method)
            finally:
                self._lanes.watch.remove(wait)
                unanswered.close()
                self._note_end(method, started, _code_of(context), is_timed=False)

        return handle

    def _note_end(self, method: str, started: float, code: str, *, is_timed: bool = True) -> None:
        """Streams are counted and not timed: how long one lasts is its caller's affair."""
        if method.startswith(OWN_PREFIXES):
            name = short_name(method)
            if is_timed:
                self._seconds.of(name).observe(time.perf_counter() - started)
            self._ended.of(name, code).add()
        _log_call(method, started)

    def _watch_of_health(self, method: str, handler: Any, lane: Lane) -> grpc.RpcMethodHandler:
        """Health's Watch holds no thread once its request is there."""

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext, send: Callable[[Any], None]) -> Any:
            request = self._only_request(requests, context, method, handler, lane)
            return handler.unary_stream(request, context, send)

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        return _stream_stream(handle, lane, None, handler.response_serializer)

    def _only_request(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, method: str, handler: Any, lane: Lane
    ) -> Any:
        if isinstance(requests, Arrived):
            data = next(requests, None)
        else:
            wait = self._lanes.watch.add(lane.name, method, context)
            wait.begin(REQUEST_SECONDS_MAX)
            try:
                data = next(requests, None)
            finally:
                self._lanes.watch.remove(wait)
        if data is None:
            raise _no_request(method)
        if handler.request_deserializer is None:
            return data
        try:
            return handler.request_deserializer(data)
        except Exception as error:  # protobuf's DecodeError, whichever implementation's
            raise InvalidArgumentError(
                f"the request is no message of {method}'s kind: {error}", field="request"
            ) from error


def _stream_unary(
    behaviour: Any,
    lane: Any,
    response_serializer: Callable[[Any], bytes] | None = None,
    method: str = "",
    take: Callable[[bytes | None, Any], None] | None = None,
) -> grpc.RpcMethodHandler:
    behaviour.experimental_thread_pool = lane
    behaviour.method = method
    behaviour.take = take
    handler: grpc.RpcMethodHandler = grpc.stream_unary_rpc_method_handler(
        behaviour, response_serializer=response_serializer
    )
    return handler


def _stream_stream(
    behaviour: Any,
    lane: Any,
    request_deserializer: Callable[[bytes], Any] | None = None,
    response_serializer: Callable[[Any], bytes] | None = None,
) -> grpc.RpcMethodHandler:
    behaviour.experimental_thread_pool = lane
    handler: grpc.RpcMethodHandler = grpc.stream_stream_rpc_method_handler(
        behaviour, request_deserializer, response_serializer
    )
    return handler


@lru_cache(maxsize=256)
def short_name(method: str) -> str:
    """A method as labels and spans call it: `GatewayService/GetStatus`, or `v2.Admin/...` for RocketMQ's."""
    service, _, name = method.strip("/").rpartition("/")
    prefix = "v2." if method.startswith(ROCKETMQ_PREFIX) else ""
    return f"{prefix}{service.rpartition('.')[2]}/{name}"


def _code_of(context: grpc.ServicerContext) -> str:
    """The status that the call has now, by its name; none yet, and a plain answer, are OK."""
    code = context.code()
    if code is None:
        return "OK" if context.is_active() else "CANCELLED"  # by its caller or its deadline
    return code.name if isinstance(code, grpc.StatusCode) else CODE_NAMES[int(code)]


def _as_it_is(answer: bytes) -> bytes:
    return answer


def _watched(requests: Iterator[Any], wait: Wait) -> Iterator[Any]:
    """The requests, each of which has to come soon."""
    while True:
        wait.begin(REQUEST_SECONDS_MAX)
        request = next(requests, None)
        wait.end()
        if request is None:
            return
        yield request


def end_with(error: Exception, context: grpc.ServicerContext, method: str) -> None:
    """End the call with the status of an error; never returns."""
    if context.code() is not None:
        raise error  # the handler ended the call itself: this is how `context.abort` leaves it
    is_typed = isinstance(error, StoreError) or (isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call))
    if not is_typed and not context.is_active():
        raise error  # the caller is gone; whatever broke because of that is not news
    status.raise_status(context, _as_store_error(error, method))


def _as_store_error(error: Exception, method: str) -> StoreError:
    if isinstance(error, StoreError):
        if _stdlib_log.isEnabledFor(logging.DEBUG):
            _log.debug("rpc.refused", method=method, reason=status.reason_of(type(error)), error=error.message[:200])
        return error
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return status.from_rpc_error(error)
    _log.error("rpc.failed", method=method, exc_info=error)
    return StoreError(f"{method} failed unexpectedly; the service's log has the cause")


def _no_request(method: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{method} takes one request, and none came", field="request")


def _log_call(method: str, started: float) -> None:
    if not _stdlib_log.isEnabledFor(logging.DEBUG):
        return  # the logger's own chain of processors costs more than an answer from memory
    _log.debug("rpc.done", method=method, millis=round((time.perf_counter() - started) * 1000, 3))
