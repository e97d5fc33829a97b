"""A unary call without a thread: one is needed only once the request is there, and none while an answer is made elsewhere.

Theory of operation: gRPC's threaded server gives a call to a thread which then asks for the request and waits for it: two
changes of threads for each call, which are most of what a small call costs (an echo of 1 KiB: 250 microseconds of CPU time
so, 120 when the request is asked for by the thread that polls, 85 when that one also answers). So a lane
(services/lanes.py) asks for the request at once, hands a call to its threads when it has come, and a handler that is
`AnsweredLater` is not given a thread at all.

gRPC has no public way to do this. What is used of its inside is all in this file, and `is_possible` says whether it is
there and looks as it should: when not, calls take gRPC's own way, which costs more and means the same. The tests run both.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import structlog
from google.rpc import status_pb2
from grpc import _server
from grpc._cython import cygrpc
from grpc_status import rpc_status

_log = structlog.get_logger("reput.rpc")

PARAMETERS_BY_NAME = {
    "_unary_response_in_pool": (
        *("rpc_event", "state", "behavior", "argument_thunk", "request_deserializer", "response_serializer"),
    ),
    "_receive_message": ("state", "call", "request_deserializer"),
    "_status": ("rpc_event", "state", "serialized_response"),
    "_is_rpc_state_active": ("state",),
}


def _looks_as_it_should() -> bool:
    for name, parameters in PARAMETERS_BY_NAME.items():
        function = getattr(_server, name, None)
        if function is None or tuple(inspect.signature(function).parameters) != parameters:
            return False
    names = ("_RECEIVE_MESSAGE_TOKEN", "_Context")
    return all(hasattr(_server, name) for name in names) and hasattr(cygrpc, "ReceiveMessageOperation")


is_possible = _looks_as_it_should()


class Answerable(Protocol):
    """A call that waits for `answer` or `fail`, one of them, from any thread."""

    def answer(self, response: bytes) -> None:
        """End it with an answer, serialized."""

    def fail(self, status: status_pb2.Status) -> None:
        """End it with a failure."""

    def is_active(self) -> bool:
        """Whether its caller still waits."""

    def time_remaining(self) -> float | None:
        """Seconds until its caller's deadline; None (or aeons) without one."""


class AnsweredLater:
    """Stands in a unary handler for the function: `offer` is given the request, serialized, and must return at once.

    It runs in the thread that polls for all calls. Whoever is given the call ends it.
    """

    def __init__(self, offer: Callable[[bytes, Answerable], None]) -> None:
        self.offer = offer

    def __call__(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """For servers without our interceptor."""
        call = ThreadedCall(context)
        self.offer(request, call)
        return call.wait()


class UnaryCall:
    """A call whose request has not come; made by `of`.

    Attributes:
        behaviour: the function that gRPC was given for it.
        ended: called once, when an answer or a failure was given to gRPC; to be set before.
        status_code: a google.rpc.Code; 0 unless it has failed.
    """

    __slots__ = ("_arguments", "_context", "_event", "_lock", "_run", "_state", "behaviour", "ended", "status_code")

    def __init__(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._run = run
        self._arguments = arguments
        self._event, self._state, self.behaviour = arguments[1:4]
        self._context = _server._Context(self._event, self._state, None)
        self._lock = threading.Lock()
        self.ended: Callable[[], None] | None = None
        self.status_code = 0

    @classmethod
    def of(cls, run: Callable[..., Any], arguments: tuple[Any, ...]) -> "UnaryCall | None":
        """The call that gRPC's server submits to an executor with these arguments; None for anything else."""
        if is_possible and len(arguments) == 7 and arguments[0] is _server._unary_response_in_pool:
            return cls(run, arguments)
        return None

    def receive(self, then: Callable[[bytes | None], None]) -> None:
        """Ask for the request; `then` gets it, in the thread that polls, or None when none will come."""
        state = self._state
        note = _server._receive_message(state, self._event.call, None)

        def arrived(event: Any) -> Any:
            finished = note(event)
            request, state.request = state.request, None
            self._hand_over(then, request)
            return finished

        with state.condition:
            is_active = _server._is_rpc_state_active(state)
            if is_active:
                self._event.call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), arrived)
                state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        if not is_active:
            self._hand_over(then, None)

    def in_thread(self, request: bytes | None) -> tuple[Any, ...]:
        """What an executor is to be given, once the request is there: gRPC's own function, which waits no more."""
        requests = Arrived(request)
        return self._run, *self._arguments[:4], lambda: requests, *self._arguments[5:]

    @property
    def context(self) -> Any:
        """The call's facts: metadata, and what its caller has shown."""
        return self._context

    def cancel(self) -> None:
        """End the call at once."""
        self._event.call.cancel()

    def peer(self) -> str:
        """The caller's address."""
        peer: str = self._context.peer()
        return peer

    def invocation_metadata(self) -> Any:
        """What the caller sent beside the request."""
        return self._context.invocation_metadata()

    def is_active(self) -> bool:
        """See Answerable."""
        return bool(_server._is_rpc_state_active(self._state))

    def time_remaining(self) -> float:
        """See Answerable."""
        seconds: float = self._context.time_remaining()
        return seconds

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(response)

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        self.status_code = status.code
        as_grpc = rpc_status.to_status(status)
        self._context.set_trailing_metadata(as_grpc.trailing_metadata)
        self._context.set_code(as_grpc.code)
        self._context.set_details(as_grpc.details)
        self._end(None)

    def _end(self, response: bytes | None) -> None:
        with self._lock:
            ended, self.ended = self.ended, None
        if ended is None:
            return
        try:
            _server._status(self._event, self._state, response)
        finally:
            ended()

    def _hand_over(self, then: Callable[[bytes | None], None], request: bytes | None) -> None:
        try:
            then(request)
        except Exception:  # it would end the thread that polls for all
            _log.exception("rpc.failed")
            self.cancel()


class Arrived:
    """The requests of a unary call: one that has come, or none."""

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


class ThreadedCall:
    """An Answerable for a call that has a thread: the thread waits.

    Args:
        context: the call's.

    Attributes:
        context: the call's.
        ended: called when there is an answer or a failure.
        status_code: a google.rpc.Code; 0 unless it has failed.
    """

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.status_code = 0
        self.context = context
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._response: bytes | None = None
        self._status: status_pb2.Status | None = None
        self.ended: Callable[[], None] = lambda: None

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(response, None)

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        self._end(None, status)

    def invocation_metadata(self) -> Any:
        """What the caller sent beside the request."""
        return self.context.invocation_metadata()

    def is_active(self) -> bool:
        """See Answerable."""
        return bool(self.context.is_active())

    def time_remaining(self) -> float | None:
        """See Answerable."""
        seconds: float | None = self.context.time_remaining()
        return seconds

    def wait(self) -> bytes:
        """The answer; a failure ends the call as `context.abort_with_status` does. Whoever took the call has the limit."""
        self._is_ended.wait()
        if self._status is not None:
            self.context.abort_with_status(rpc_status.to_status(self._status))
        assert self._response is not None
        return self._response

    def _end(self, response: bytes | None, status: status_pb2.Status | None) -> None:
        with self._lock:
            if self._is_ended.is_set():
                return
            self._response, self._status = response, status
            self.status_code = 0 if status is None else status.code
            self.ended()
            self._is_ended.set()
