"""A two-way stream without changes of threads: gRPC's polling thread passes the requests on and sends the answers.

Theory of operation: in gRPC's threaded server a handler asks for a request and sleeps until the polling thread brings it, then
sends an answer and sleeps until the polling thread reports that it went. For a forwarded stream these changes of threads are
most of the cost (ADR 0017 has the figures). So here the polling thread itself gives a request to `take`, which must not wait,
and asks for the next one. An answer is given to gRPC as soon as the one before went, by the thread that knows it first.

    caller ─▶ polling thread ─ take ─▶ (worker) ─▶ thread of the stream ─ send ─▶ polling thread ─▶ caller

Backpressure: a request is asked for only while fewer than `unanswered_count_max` requests are unanswered. A request counts as
answered when gRPC has taken its answer for the caller. So a caller that takes no answers gets no further request in, and no
more answers wait here than that.

gRPC has no public way to do this: see grpc_private.py.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog

from services.serving.calls.grpc_private import cygrpc
from services.serving.calls.grpc_private import server as grpc_server
from services.serving.calls.open_work import Unanswered
from services.serving.stall_watch import Wait
from store.errors import StoreError

_log = structlog.get_logger("reput.rpc")

SEND_TOKEN = "pump_send"  # noqa: S105  # no password: gRPC has such names for the pending operations of a call


class Pumped:
    """Takes the place of the function in a two-way handler: `pump` drives the stream, or `by_thread` with iterators.

    Args:
        by_thread: as any handler's function.
        pump: gets a StreamPump and the context, and returns at the end of the stream. It returns False, having done
            nothing, to have `by_thread` called.
    """

    def __init__(
        self,
        by_thread: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
        pump: "Callable[[StreamPump, grpc.ServicerContext], bool]",
    ) -> None:
        self.pump = pump
        self._by_thread = by_thread

    def __call__(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Serve the call on a server that has no StatusInterceptor."""
        return self._by_thread(requests, context)


class StreamPump:
    """One stream; made while its handler runs and before anything was received or sent.

    Args:
        context: gRPC's context of the call.
        unanswered: where its requests are counted as open work.
        wait: where it notes that it waits for its caller.

    Attributes:
        refusal: why it was ended here; to be raised when the handler has returned.
    """

    def __init__(self, context: Any, unanswered: Unanswered, wait: Wait) -> None:
        self._state = context._state
        self._call = context._rpc_event.call
        self._unanswered = unanswered
        self._wait = wait
        self._free_count = 0  # requests that may be taken now
        self.refusal: StoreError | None = None
        self._is_receiving = False
        self._is_sending = False
        self._answers: deque[bytes] = deque()  # to be sent after the one that gRPC has
        # They keep nothing of a message, so one of each is enough.
        self._note_request = grpc_server._receive_message(self._state, self._call, None)
        self._note_sent = grpc_server._send_message(self._state, SEND_TOKEN)
        self._take: Callable[[bytes | None], None] = lambda _request: None

    def start(self, take: Callable[[bytes | None], None], unanswered_count_max: int) -> None:
        """Give each request to `take`, and None after the last one, in the polling thread."""
        self._free_count = unanswered_count_max
        with self._state.condition:
            self._take = take
            is_ended = self.refusal is not None
            self._receive()
        if is_ended:
            take(None)

    def end(self, refusal: StoreError) -> None:
        """Take no further request, as if the caller had sent its last one; then the call ends with the refusal."""
        with self._state.condition:
            if self.refusal is not None:
                return
            self.refusal = refusal
            take = self._take
        take(None)

    def send(self, answer: bytes) -> None:
        """Send an answer after those before; returns at once. Without effect when the call has ended."""
        with self._state.condition:
            if self._is_sending:
                self._answers.append(answer)
            elif grpc_server._is_rpc_state_active(self._state):
                self._start_send(answer)

    def wait_until_sent(self) -> None:
        """Return when gRPC has taken all answers, or the call has ended."""
        state = self._state
        with state.condition:
            state.condition.wait_for(lambda: not self._is_sending or not grpc_server._is_rpc_state_active(state))

    def _receive(self) -> None:
        """Ask for a request if one may be taken; called with the condition held."""
        if (
            self._is_receiving
            or not self._free_count
            or self.refusal is not None
            or not grpc_server._is_rpc_state_active(self._state)
        ):
            return
        self._is_receiving = True
        self._free_count -= 1
        self._call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), self._arrived)
        self._state.due.add(grpc_server._RECEIVE_MESSAGE_TOKEN)

    def _arrived(self, event: Any) -> Any:
        state = self._state
        finished = self._note_request(event)
        request, state.request = state.request, None
        if self.refusal is not None:
            return finished  # a request that comes now was not taken: its caller gets the refusal
        try:
            if request is not None:
                self._unanswered.asked()
            self._take(request)
        except Exception:  # it would end the thread that polls for all calls
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
            operations = (grpc_server._get_initial_metadata_operation(state, None), *operations)
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
            if grpc_server._is_rpc_state_active(self._state):
                if self._answers:
                    self._start_send(self._answers.popleft())
                self._receive()
            return finished
