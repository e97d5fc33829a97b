"""What happens around every RPC: it gets a thread of its lane or a refusal, errors become rich statuses, calls are counted.

The facts about a method (lane, kind) come from services/methods.py; a method without a row there is not served. Errors become
statuses in call_end.py, also in the middle of a stream. Handlers of health and reflection get their lanes and are otherwise
left alone.

A caller that does nothing must not hold a thread. So every handler is registered as one that takes a stream of requests, which
is the same on the wire: its lane asks for the request and gives the call a thread when it is whole, and a refusal needs no
request. Answers are serialized before they wait for their reader, so bytes wait and not objects. No request or answer
is kept here beyond its turn.

Open work (open_work.py) is a unary call, a stream that ends by itself, and on a two-way stream the requests that have no
answer yet. Tails and sessions are no open work: a stop ends them.

check_field_count: how many fields a request may have at its top level, counted in its bytes, before protobuf makes objects
of them.

Two bytes are an empty message of a repeated field, of which protobuf makes an object of 60 to 130 bytes: 3.8 MB of them take
250 MiB, and twelve callers at once took 1.5 GiB of a commitlog service.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import structlog

from services import status
from services.methods import METHODS, Kind, Method, short_name
from services.observing import tracing
from services.observing.meters import COARSE_SECONDS_BOUNDS, Meters
from services.serving.admission.callers import WorkingFor, client_here
from services.serving.admission.lane import Lane
from services.serving.call_guard import CallGuard
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.calls.at_once import AtOnce
from services.serving.calls.call_end import CODE_NAMES, as_store_error, code_name_of, end_with, no_request
from services.serving.calls.open_work import OpenWork, Unanswered
from services.serving.calls.raw_handlers import AnyHandler
from services.serving.calls.streamed_later import StreamCall, StreamedLater
from services.serving.calls.unary_call import AnsweredLater, UnaryCall
from services.serving.calls.woken_requests import WokenRequests
from services.serving.lanes import Lanes
from services.serving.stall_watch import REQUEST_SECONDS_MAX, Wait
from store.errors import InvalidArgumentError, ServiceUnavailableError

# The largest requests that are meant: 1,024 messages of many joined requests, the ends of 2,048 deliveries, 65,536 clients.
FIELD_COUNT_MAX = 1 << 17
# A field has a tag and at least one byte more.
_FIELD_BYTES_MIN = 2
_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}


def check_field_count(request: bytes, path: str) -> None:
    """InvalidArgumentError when the request has more than FIELD_COUNT_MAX fields; bytes that are no protobuf pass."""
    end = len(request)
    if end <= FIELD_COUNT_MAX * _FIELD_BYTES_MIN:
        return
    position = 0
    for _ in range(FIELD_COUNT_MAX):
        if position >= end:
            return
        tag, position = _varint(request, position, end)
        kind = tag & 7
        if kind == _DELIMITED:
            size_bytes, position = _varint(request, position, end)
            position += size_bytes
        elif kind == _VARINT:
            _, position = _varint(request, position, end)
        elif kind in _FIXED_SIZES:
            position += _FIXED_SIZES[kind]
        else:
            return  # protobuf says what is wrong
    if position < end:
        raise InvalidArgumentError(
            f"the request of {path} has more than {FIELD_COUNT_MAX:,} fields: split it", field="request"
        )


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number at the position and the position behind it."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:  # longer than any number: protobuf refuses it
            return 0, end
    return value, position


# The methods of one process at most, times all codes: a closed set, so no code may hide in `other`. The gateway has 45 methods.
ENDED_SERIES_COUNT_MAX = 64 * len(grpc.StatusCode)

_log = structlog.get_logger("reput.rpc")
_stdlib_log = logging.getLogger("reput.rpc")


class StatusInterceptor(grpc.ServerInterceptor):
    """Wraps all handlers.

    Args:
        work: where open work is counted.
        lanes: where calls run.

    Attributes:
        guard: decides which callers may call which methods; None: no check. To be set before the first call.
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
        self._wrapped: dict[str, AnyHandler] = {}
        self.guard: CallGuard | None = None
        for lane in lanes.all():
            lane.note_failed = self._note_failed

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], AnyHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> AnyHandler | None:
        """The wrapped handler; None for an unknown method and for one without a row. gRPC uses one thread."""
        path = handler_call_details.method
        known = self._wrapped.get(path)
        if known is None:
            handler: Any = continuation(handler_call_details)
            method = METHODS.get(path)
            if handler is None or method is None:
                return None
            if self.guard is not None:
                handler = self.guard.guard(path, handler)
            known = self._wrapped[path] = self._wrap(method, handler, self._lanes.of(method.lane))
        return known

    def _wrap(self, method: Method, handler: Any, lane: Lane) -> AnyHandler:
        if getattr(handler.unary_stream, "experimental_non_blocking", False):
            return self._watch_of_health(method, handler, lane)
        if handler.request_streaming and handler.response_streaming:
            return _stream_stream(self._two_way(method, handler, lane), lane, method.path, handler.request_deserializer)
        if isinstance(handler.unary_stream, StreamedLater):
            return self._polled(method, handler.unary_stream, lane)
        if handler.response_streaming:
            return _stream_stream(self._server_stream(method, handler, lane), lane, method.path, has_one_request=True)
        assert not handler.request_streaming, f"{method.path}: no contract has a stream of requests with one answer"
        if isinstance(later := handler.unary_unary, AnsweredLater):
            return _stream_unary(partial(later), lane, method.path, self._later(method, later))
        at_once = self._at_once(method, handler, later) if isinstance(later, AtOnce) else None
        return _stream_unary(self._single_answer(method, handler, lane), lane, method.path, at_once=at_once)

    def _later(self, method: Method, later: AnsweredLater) -> Callable[[bytes | None, Any], None]:
        """Takes a call that needs no thread; the inner function runs when the call ends."""

        def take(request: bytes | None, call: Any) -> None:
            started = time.perf_counter()
            leave = call.ended
            if request is None:
                call.fail(status.to_status(no_request(method.path)))
                self._note_failed(method.path, call.status_code)
                return
            end_span = tracing.begin_call(method.path, call)

            def ended() -> None:
                self._work.add(-1)
                self._note_end(method, started, CODE_NAMES[call.status_code])
                end_span()
                leave()

            self._work.add(1)
            call.ended = ended
            try:
                check_field_count(request, method.path)
                later.offer(request, call)
            except Exception as error:
                call.fail(status.to_status(as_store_error(error, method.path)))

        return take

    def _at_once(self, method: Method, handler: Any, first: AtOnce) -> Callable[[bytes, UnaryCall], bool]:
        """Tries a call in the thread that polls; whether it has ended."""

        def attempt(request: bytes, call: UnaryCall) -> bool:
            if tracing.is_on():
                return False
            started = time.perf_counter()
            self._work.add(1)
            try:
                check_field_count(request, method.path)
                with WorkingFor(call.client):
                    answer = first.attempt(handler.request_deserializer(request), call.context)
                data = handler.response_serializer(answer)
            except Exception:  # also a bug: the thread that makes the call tells what it is
                self._work.add(-1)
                return False
            try:
                call.answer(data)  # it has ended then, also when this raises: no thread may answer it again
            finally:
                self._work.add(-1)
            self._note_end(method, started, CODE_NAMES[call.status_code])
            return True

        return attempt

    def _polled(self, method: Method, later: StreamedLater, lane: Lane) -> AnyHandler:
        """A call whose stream of answers needs no thread. While it waits it is no open work."""
        untaken = self._lanes.untaken

        def take(request: bytes | None, call: Any) -> None:
            started = time.perf_counter()
            leave = call.ended
            if request is None:
                call.watch()
                call.fail(status.to_status(no_request(method.path)))
                self._note_failed(method.path, call.status_code)
                return
            client = call.client
            if later.refused is not None and not untaken.has_room(client, method.path):
                call.watch()
                call.end(later.refused(lane.refusal()))
                self._note_failed(method.path, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
                return
            end_span = tracing.begin_call(method.path, call)

            def ended() -> None:
                self._note_end(method, started, CODE_NAMES[call.status_code], is_timed=False)
                end_span()
                leave()

            call.ended = ended
            call.ending = lambda size_bytes: untaken.add(client, call.context, size_bytes, method.path)
            call.watch()
            try:
                check_field_count(request, method.path)
                later.offer(request, call)
            except Exception as error:
                call.fail(status.to_status(as_store_error(error, method.path)))
            call.forget_caller()

        behaviour: Any = partial(later)  # for what is noted on it
        _describe(behaviour, lane, method.path, take, has_one_request=True)
        behaviour.call_class = StreamCall
        behaviour.refused = later.refused
        return grpc.stream_stream_rpc_method_handler(behaviour)

    def _given(self, answer: bytes, context: grpc.ServicerContext, method: Method) -> bytes:
        """An answer that gRPC is about to get: it counts until its caller has taken it."""
        self._lanes.untaken.add(client_here(context), context, len(answer), method.path)
        return answer

    def _single_answer(self, method: Method, handler: Any, lane: Lane) -> Callable[..., Any]:
        serialize = handler.response_serializer or _as_it_is

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            started = time.perf_counter()
            open_work = 0
            try:
                request = self._only_request(requests, context, method, handler, lane)
                open_work = 1
                self._work.add(open_work)
                if tracing.is_on():
                    with tracing.call(method.path, context):
                        answer = serialize(handler.unary_unary(request, context))
                else:
                    answer = serialize(handler.unary_unary(request, context))
                return self._given(answer, context, method)
            except Exception as error:
                end_with(error, context, method.path)
            finally:
                self._work.add(-open_work)
                self._note_end(method, started, code_name_of(context))

        return handle

    def _server_stream(self, method: Method, handler: Any, lane: Lane) -> Callable[..., Iterator[bytes]]:
        is_tail = method.kind is Kind.TAIL
        serialize = handler.response_serializer or _as_it_is

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            started = time.perf_counter()
            open_work = 0
            wait = self._lanes.watch.add(lane.name, method.path, context)
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
                end_with(error, context, method.path)
            finally:
                self._lanes.watch.remove(wait)
                self._work.add(-open_work)
                self._note_end(method, started, code_name_of(context), is_timed=False)

        return handle

    def _two_way(self, method: Method, handler: Any, lane: Lane) -> Callable[..., Iterator[bytes]]:
        serialize = handler.response_serializer or _as_it_is
        is_session = method.kind is Kind.SESSION
        pump = handler.stream_stream.pump if isinstance(handler.stream_stream, Pumped) else None

        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
            started = time.perf_counter()
            unanswered = Unanswered(self._work)
            wait = self._lanes.watch.add(lane.name, method.path, context, client_here(context))
            if not is_session and method.is_ours:
                wait.unanswered = unanswered
            if is_session:
                taken: Iterator[Any] = WokenRequests(requests)
            else:
                taken = unanswered.count(requests) if method.is_ours else _watched(requests, wait)
            try:
                if pump is not None:
                    stream_pump = StreamPump(context, unanswered, wait)
                    wait.end_with = stream_pump.end
                    is_done = pump(stream_pump, context)
                    wait.end_with = None
                    if stream_pump.refusal is not None:
                        raise stream_pump.refusal
                    if is_done:
                        return
                for answer in map(serialize, handler.stream_stream(taken, context)):
                    wait.begin()
                    yield answer
                    wait.end()
                    if not is_session:
                        unanswered.answered()
            except Exception as error:
                if not method.is_ours:
                    raise
                end_with(error, context, method.path)
            finally:
                self._lanes.watch.remove(wait)
                unanswered.close()
                self._note_end(method, started, code_name_of(context), is_timed=False)

        return handle

    def _note_end(self, method: Method, started: float, code: str, *, is_timed: bool = True) -> None:
        """Streams are counted and not timed: their callers decide how long they last."""
        if method.is_ours:
            name = short_name(method.path)
            if is_timed:
                self._seconds.of(name).observe(time.perf_counter() - started)
            self._ended.of(name, code).add()
        if _stdlib_log.isEnabledFor(
            logging.DEBUG
        ):  # the logger's own chain of processors costs more than a small answer
            _log.debug("rpc.done", method=method.path, millis=round((time.perf_counter() - started) * 1000, 3))

    def _note_failed(self, path: str, code: int) -> None:
        """A call that ended before its handler."""
        method = METHODS.get(path)
        if method is not None and method.is_ours:
            self._ended.of(short_name(path), CODE_NAMES[code]).add()

    def _watch_of_health(self, method: Method, handler: Any, lane: Lane) -> AnyHandler:
        """Health's Watch holds no thread after its request has arrived."""

        def handle(requests: Iterator[bytes], context: grpc.ServicerContext, send: Callable[[Any], None]) -> Any:
            request = self._only_request(requests, context, method, handler, lane)
            return handler.unary_stream(request, context, send)

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]  # gRPC reads it from the function
        return _stream_stream(handle, lane, method.path, None, handler.response_serializer, has_one_request=True)

    def _only_request(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, method: Method, handler: Any, lane: Lane
    ) -> Any:
        data = next(requests, None)
        if data is None:
            raise no_request(method.path)
        check_field_count(data, method.path)
        if handler.request_deserializer is None:
            return data
        try:
            return handler.request_deserializer(data)
        except Exception as error:  # protobuf's DecodeError; each implementation of protobuf has its own
            raise InvalidArgumentError(
                f"the request cannot be read as the request message of {method.path}: {error}", field="request"
            ) from error


def _stream_unary(
    behaviour: Any,
    lane: Any,
    method: str,
    take: Callable[[bytes | None, Any], None] | None = None,
    at_once: Callable[[bytes, UnaryCall], bool] | None = None,
) -> AnyHandler:
    _describe(behaviour, lane, method, take, has_one_request=True)
    behaviour.at_once = at_once
    return grpc.stream_unary_rpc_method_handler(behaviour)


def _stream_stream(
    behaviour: Any,
    lane: Any,
    method: str,
    request_deserializer: Callable[[bytes], Any] | None = None,
    response_serializer: Callable[[Any], bytes] | None = None,
    *,
    has_one_request: bool = False,
) -> AnyHandler:
    _describe(behaviour, lane, method, None, has_one_request=has_one_request)
    return grpc.stream_stream_rpc_method_handler(behaviour, request_deserializer, response_serializer)


def _describe(behaviour: Any, lane: Any, method: str, take: Any, *, has_one_request: bool) -> None:
    """Note on the function what gRPC (the first) and the lane (the others) want to know of it."""
    behaviour.experimental_thread_pool = lane
    behaviour.method = method
    behaviour.take = take
    behaviour.has_one_request = has_one_request


def _as_it_is(answer: bytes) -> bytes:
    return answer


def _watched(requests: Iterator[Any], wait: Wait) -> Iterator[Any]:
    """The requests; the stall watch sets a limit for each."""
    while True:
        wait.begin(REQUEST_SECONDS_MAX)
        request = next(requests, None)
        wait.end()
        if request is None:
            return
        yield request
