"""What happens around every RPC of ours: errors become rich statuses, open work is counted, calls are logged.

A handler just raises: a `StoreError` becomes its status (services/status.py), also in the middle of a stream; an
RpcError from a call to another service is passed on as what it meant; anything else is a bug, logged with its traceback
and answered INTERNAL. Health and reflection (everything outside `reput.`) pass through untouched.

Open work is what a clean stop waits for: a unary call, a stream that ends by itself, and on a two-way stream the
requests not answered yet. Tails never end by themselves: they are ended.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog

from services import status
from store.errors import ResourceBusyError, ServiceUnavailableError, StoreError

OWN_PREFIX = "/reput."
# Streams that go on for ever.
TAIL_METHODS = frozenset({"/reput.commitlog.v1.CommitLogService/Reput"})

_log = structlog.get_logger("reput.rpc")


class OpenWork:
    """Counts what a clean stop waits for, and the streams that hold a thread each.

    Attributes:
        stopping: set once the service drains; tails end when they see it.
    """

    def __init__(self, stream_count_max: int) -> None:
        self.stopping = threading.Event()
        self._stream_count_max = stream_count_max
        self._stream_count = 0
        self._count = 0
        self._changed = threading.Condition()

    def add(self, count: int) -> None:
        """Note that so much work began (positive) or was done (negative)."""
        with self._changed:
            self._count += count
            if self._count <= 0:
                self._changed.notify_all()

    def wait_until_done(self, timeout_seconds: float) -> bool:
        """Wait for all open work; False when the time was over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count <= 0, timeout_seconds)

    def open_stream(self) -> None:
        """Note a stream that holds a thread.

        Raises:
            ResourceBusyError: so many are open that unary calls would find no thread.
        """
        with self._changed:
            if self._stream_count >= self._stream_count_max:
                raise ResourceBusyError(
                    f"{self._stream_count} streams are open, the most that this service takes (worker_count)",
                    streamCountMax=self._stream_count_max,
                )
            self._stream_count += 1

    def close_stream(self) -> None:
        """Note that such a stream ended."""
        with self._changed:
            self._stream_count -= 1


class StatusInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of our own services.

    Args:
        work: where open work is counted.
    """

    def __init__(self, work: OpenWork) -> None:
        self._work = work

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """The wrapped handler, or none for an unknown method."""
        handler: Any = continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or not method.startswith(OWN_PREFIX):
            return handler
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._two_way(method, handler.stream_stream), **codec)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._server_stream(method, handler.unary_stream), **codec)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single_answer(method, handler.stream_unary), **codec)
        return grpc.unary_unary_rpc_method_handler(self._single_answer(method, handler.unary_unary), **codec)

    def _single_answer(self, method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            started = time.perf_counter()
            self._work.add(1)
            try:
                return behaviour(request, context)
            except Exception as error:
                end_with(error, context, method)
            finally:
                self._work.add(-1)
                _log_call(method, started)

        return handle

    def _server_stream(self, method: str, behaviour: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        is_tail = method in TAIL_METHODS
        open_work = 0 if is_tail else 1

        def handle(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            started = time.perf_counter()
            self._work.add(open_work)
            try:
                self._work.open_stream()
                try:
                    for response in behaviour(request, context):
                        yield response
                        if is_tail and self._work.stopping.is_set():
                            raise ServiceUnavailableError("the service is stopping")
                finally:
                    self._work.close_stream()
            except Exception as error:
                end_with(error, context, method)
            finally:
                self._work.add(-open_work)
                _log_call(method, started)

        return handle

    def _two_way(self, method: str, behaviour: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            started = time.perf_counter()
            unanswered = _Unanswered(self._work)
            try:
                self._work.open_stream()
                try:
                    for response in behaviour(unanswered.count(requests), context):
                        yield response
                        unanswered.answered()
                finally:
                    self._work.close_stream()
            except Exception as error:
                end_with(error, context, method)
            finally:
                unanswered.close()
                _log_call(method, started)

        return handle


class _Unanswered:
    """The requests of one two-way stream that have no response yet, as open work."""

    def __init__(self, work: OpenWork) -> None:
        self._work = work
        self._count = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def count(self, requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            self._add(1)
            yield request

    def answered(self) -> None:
        self._add(-1)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._work.add(-self._count)
            self._count = 0

    def _add(self, count: int) -> None:
        with self._lock:
            # Handlers may read on in a thread of their own after the stream ended, or answer more than was asked.
            if not self._is_closed and self._count + count >= 0:
                self._count += count
                self._work.add(count)


def end_with(error: Exception, context: grpc.ServicerContext, method: str) -> None:
    """End the call with the status of an error; never returns."""
    if context.code() is not None:
        raise error  # the handler ended the call itself: this is how `context.abort` leaves it
    if isinstance(error, StoreError):
        _log.debug("rpc.refused", method=method, reason=status.reason_of(type(error)), error=error.message[:200])
        status.raise_status(context, error)
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        status.raise_status(context, status.from_rpc_error(error))
    if not context.is_active():
        raise error  # the caller is gone; whatever broke because of that is not news
    _log.error("rpc.failed", method=method, exc_info=error)
    status.raise_status(context, StoreError(f"{method} failed unexpectedly; the service's log has the cause"))


def _log_call(method: str, started: float) -> None:
    _log.debug("rpc.done", method=method, millis=round((time.perf_counter() - started) * 1000, 3))
