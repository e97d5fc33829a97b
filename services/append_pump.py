"""A two-way stream without hand-overs: the thread that polls for gRPC gives the requests on and sends the answers.

Theory of operation: gRPC's threaded server has a handler ask for a request and sleep until the polling thread brings it, and
send an answer and sleep until the polling thread says that it went. For a forwarded stream these changes of threads are most
of the cost. So here the polling thread itself hands a request to `take`, which must not wait, and asks for the next; and an
answer is given to gRPC as soon as the one before went, by whichever thread knows that first.

    caller ─▶ polling thread ─ take ─▶ (whoever works) ─▶ thread of the stream ─ send ─▶ polling thread ─▶ caller

Backpressure: who does not take his answers gets no further request in. A request is asked for only while fewer than
`unanswered_count_max` were not answered, counting as answered what gRPC has taken for the caller; so no more answers wait.

gRPC has no public way to do this. What is used of its inside is in this file and in `unary_call.py`; `is_possible` says
whether it looks as it should. When not, streams take gRPC's own way, which costs more and means the same.
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog
from grpc import _server
from grpc._cython import cygrpc

from services.open_work import Unanswered
from services.stall_watch import Wait

_log = structlog.get_logger("reput.rpc")

PARAMETERS_BY_NAME = {
    "_receive_message": ("state", "call", "request_deserializer"),
    "_send_message": ("state", "token"),
    "_get_initial_metadata_operation": ("state", "metadata"),
    "_is_rpc_state_active": ("state",),
}
SEND_TOKEN = "pump_send"  # noqa: S105 - among the names that gRPC gives to what is under way of a call


def _looks_as_it_should() -> bool:
    for name, parameters in PARAMETERS_BY_NAME.items():
        function = getattr(_server, name, None)
        if function is None or tuple(inspect.signature(function).parameters) != parameters:
            return False
    names = ("ReceiveMessageOperation", "SendMessageOperation")
    return hasattr(_server, "_RECEIVE_MESSAGE_TOKEN") and all(hasattr(cygrpc, name) for name in names)


is_possible = _looks_as_it_should()


def is_possible_for(function: object) -> bool:
    """Whether a two-way handler's function can be driven by `pump`."""
    return is_possible and isinstance(function, Pumped)


class Pumped:
    """Stands in a two-way handler for the function: `pump` drives the stream, `by_thread` does so by iterators.

    Args:
        by_thread: as any handler.
        pump: is given a StreamPump and the context, and returns at the end of the stream; False, having done nothing, asks
            for the other way.
    """

    def __init__(
        self,
        by_thread: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
        pump: "Callable[[StreamPump, grpc.ServicerContext], bool]",
    ) -> None:
        self.pump = pump
        self._by_thread = by_thread

    def __call__(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """For servers without our interceptor."""
        return self._by_thread(requests, context)


class StreamPump:
    """One stream; made while its handler runs and before anything was received or sent.

    Args:
        context: the call's, as gRPC's own server makes it.
        unanswered: where its requests are counted as open work.
        wait: where it is noted that it waits for its caller.
    """

    def __init__(self, context: Any, unanswered: Unanswered, wait: Wait) -> None:
        self._state = context._state
        self._call = context._rpc_event.call
        self._unanswered = unanswered
        self._wait = wait
        self._free_count = 0  # requests that may still be taken
        self._is_receiving = False
        self._is_sending = False
        self._answers: deque[bytes] = deque()  # behind the one that gRPC has
        # They hold nothing of one message, so one of each is enough.
        self._note_request = _server._receive_message(self._state, self._call, None)
        self._note_sent = _server._send_message(self._state, SEND_TOKEN)
        self._take: Callable[[bytes | None], None] = lambda _request: None

    def start(self, take: Callable[[bytes | None], None], unanswered_count_max: int) -> None:
        """Hand each request, and None behind the last one, to `take`, in the thread that polls for all."""
        self._take = take
        self._free_count = unanswered_count_max
        with self._state.condition:
            self._receive()

    def send(self, answer: bytes) -> None:
        """Send an answer behind those before; returns at once. Without effect when the call has ended."""
        with self._state.condition:
            if self._is_sending:
                self._answers.append(answer)
            elif _server._is_rpc_state_active(self._state):
                self._start_send(answer)

    def wait_until_sent(self) -> None:
        """Return when gRPC has taken all answers, or the call has ended."""
        state = self._state
        with state.condition:
            state.condition.wait_for(lambda: not self._is_sending or not _server._is_rpc_state_active(state))

    def _receive(self) -> None:
        """Ask for a request, if one may be taken; holding the condition."""
        if self._is_receiving or not self._free_count or not _server._is_rpc_state_active(self._state):
            return
        self._is_receiving = True
        self._free_count -= 1
        self._call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), self._arrived)
        self._state.due.add(_server._RECEIVE_MESSAGE_TOKEN)

    def _arrived(self, event: Any) -> Any:
        state = self._state
        finished = self._note_request(event)
        request, state.request = state.request, None
        try:
            if request is not None:
                self._unanswered.asked()
            self._take(request)
        except Exception:  # it would end the thread that polls for all
            _log.exception("rpc.failed")
            self._call.cancel()
        if request is not None:
            with state.condition:
                self._is_receiving = False
                self._receive()
        return finished

    def _start_send(self, answer: bytes) -> None:
        state = self._state
        operations: tuple[Any, ...] = (cygrpc.SendMessageOperation(answer, 0),)
        if state.initial_metadata_allowed:
            operations = (_server._get_initial_metadata_operation(state, None), *operations)
            state.initial_metadata_allowed = False
        self._is_sending = True
        self._wait.begin()
        self._call.start_server_batch(operations, self._sent)
        state.due.add(SEND_TOKEN)

    def _sent(self, event: Any) -> Any:
        with self._state.condition:
            self._is_sending = False
            finished = self._note_sent(event)
            self._wait.end()
            self._unanswered.answered()
            self._free_count += 1
            if _server._is_rpc_state_active(self._state):
                if self._answers:
                    self._start_send(self._answers.popleft())
                self._receive()
            return finished
