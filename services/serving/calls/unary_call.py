"""A call of one request that takes a thread only after its request has arrived, and none while its answer is made elsewhere.

Theory of operation: gRPC's threaded server gives a call to a thread, which then asks for the request and waits for it. These
two changes of threads are most of the cost of a small call: an echo of 1 KiB takes 250 microseconds of CPU that way, 120 when
the polling thread asks for the request, 85 when the polling thread also answers. So a lane (services/serving/lanes.py) asks
for the request at once and passes the call to its threads when the request has arrived. A handler that is `AnsweredLater`
gets no thread at all.

gRPC has no public way to do this: see grpc_private.py.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import grpc
import structlog
from google.rpc import status_pb2
from grpc_status import rpc_status

from services.serving.admission.shares import Client
from services.serving.calls.grpc_private import cygrpc
from services.serving.calls.grpc_private import server as grpc_server

_log = structlog.get_logger("reput.rpc")


class Answerable(Protocol):
    """A call that is ended by one `answer` or one `fail`, from any thread."""

    def answer(self, response: bytes) -> None:
        """End the call with a serialized answer."""

    def fail(self, status: status_pb2.Status) -> None:
        """End the call with a failure."""

    def is_active(self) -> bool:
        """Whether the caller still waits."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; without one None, or gRPC's "never" (centuries)."""


class AnsweredLater:
    """Takes the place of the function in a unary handler whose answer is made elsewhere.

    `offer` gets the serialized request and the call. It runs in the thread that polls for all calls, so it must return at
    once. The receiver of the call ends it.
    """

    def __init__(self, offer: Callable[[bytes, Answerable], None]) -> None:
        self.offer = offer

    def __call__(self, _request: bytes, _context: grpc.ServicerContext) -> NoReturn:
        """Never called: StatusInterceptor has the call's lane give the request to `offer`."""
        raise AssertionError("this call has no thread")


def _nothing() -> None:
    """Default for the end of a call: does nothing."""


class UnaryCall:
    """A call that has no thread yet; made by `of`.

    Attributes:
        behaviour: the function that gRPC was given for the method.
        client: who calls; to be set by the lane.
        ended: called once, after gRPC got the answer or the failure; to be set before that.
        answer_bytes: of the answer that gRPC got.
        status_code: a google.rpc.Code; 0 unless it has failed.
    """

    __slots__ = (
        *("_arguments", "_context", "_event", "_has_ended", "_lock", "_run", "_state"),
        *("answer_bytes", "behaviour", "client", "ended", "status_code"),
    )

    client: Client

    def __init__(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._run = run
        self._arguments = arguments
        self._event, self._state, self.behaviour = arguments[1:4]
        self._context = grpc_server._Context(self._event, self._state, None)
        self._lock = threading.Lock()
        self._has_ended = False
        self.ended: Callable[[], None] = _nothing
        self.answer_bytes = 0
        self.status_code = 0

    @classmethod
    def of(cls, run: Callable[..., Any], arguments: tuple[Any, ...]) -> "UnaryCall | None":
        """The call that gRPC's server submits to an executor with these arguments; None for anything else."""
        if len(arguments) != 7:
            return None
        function = arguments[0]
        if function is grpc_server._unary_response_in_pool or function is grpc_server._stream_response_in_pool:
            kind: type[UnaryCall] = getattr(arguments[3], "call_class", cls)
            return kind(run, arguments)
        return None

    def receive(self, then: Callable[[bytes | None], None]) -> None:
        """Ask for the request. `then` gets it in the polling thread; None when no request will come."""
        state = self._state
        note = grpc_server._receive_message(state, self._event.call, None)

        def arrived(event: Any) -> Any:
            finished = note(event)
            request, state.request = state.request, None
            self._hand_over(then, request)
            return finished

        with state.condition:
            is_active = grpc_server._is_rpc_state_active(state)
            if is_active:
                self._event.call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), arrived)
                state.due.add(grpc_server._RECEIVE_MESSAGE_TOKEN)
        if not is_active:
            self._hand_over(then, None)

    def in_thread(self, request: bytes | None) -> tuple[Any, ...]:
        """The function to submit to an executor after the request has arrived: gRPC's own, which then does not wait."""
        requests = Arrived(request)
        return self._run, *self._arguments[:4], lambda: requests, *self._arguments[5:]

    def as_stream(self) -> tuple[Any, ...]:
        """The function to submit to an executor for a call with a stream of requests: gRPC's own."""
        return self._run, *self._arguments

    @property
    def context(self) -> Any:
        """gRPC's context of the call: metadata, and the caller's certificate."""
        return self._context

    def cancel(self) -> None:
        """End the call at once."""
        self._event.call.cancel()

    def peer(self) -> str:
        """The caller's address."""
        peer: str = self._context.peer()
        return peer

    def invocation_metadata(self) -> Any:
        """The metadata that the caller sent."""
        return self._context.invocation_metadata()

    def is_active(self) -> bool:
        """See Answerable."""
        return bool(grpc_server._is_rpc_state_active(self._state))

    def time_remaining(self) -> float:
        """See Answerable."""
        seconds: float = self._context.time_remaining()
        return seconds

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(response)

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable; also while the request has not arrived."""
        self.status_code = status.code
        as_grpc = rpc_status.to_status(status)
        self._context.set_trailing_metadata(as_grpc.trailing_metadata)
        self._context.set_code(as_grpc.code)
        self._context.set_details(as_grpc.details)
        self._end(None)

    def _end(self, response: bytes | None) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self.answer_bytes = 0 if response is None else len(response)
        try:
            grpc_server._status(self._event, self._state, response)
        finally:
            ended, self.ended = self.ended, _nothing
            ended()

    def _hand_over(self, then: Callable[[bytes | None], None], request: bytes | None) -> None:
        try:
            then(request)
        except Exception:  # it would end the thread that polls for all calls
            _log.exception("rpc.failed")
            self.cancel()


class Arrived:
    """The requests of a unary call: one that has arrived, or none."""

    __slots__ = ("_request",)

    def __init__(self, request: bytes | None) -> None:
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        request, self._request = self._request, None
        if request is None:
            raise StopIteration
        return request
