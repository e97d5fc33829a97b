"""A call of one request whose stream of answers is made elsewhere; it has no thread while it waits, and none to answer.

It is the counterpart of `AnsweredLater` (unary_call.py) for long polls: most of them wait for seconds and answer with little.
The answers of a call are sent one after the other by gRPC's polling thread. They wait in memory until then, so a call is ended
only with answers that fit into what its client may hold (admission/untaken.py).

gRPC has no public way to do this: see grpc_private.py.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import grpc
import structlog
from google.rpc import status_pb2

from services.serving.calls.grpc_private import cygrpc
from services.serving.calls.grpc_private import server as grpc_server
from services.serving.calls.unary_call import UnaryCall
from store.errors import StoreError

_log = structlog.get_logger("reput.rpc")

SEND_TOKEN = "later_send"  # noqa: S105  # no password: gRPC has such names for the pending operations of a call


class Streamable(Protocol):
    """A call that is answered by any number of `send` and ended by one `end` or `fail`, from any thread."""

    def send(self, answer: bytes) -> None:
        """Send a serialized answer after those before; returns at once."""

    def end(self, last: bytes | None = None, then: Callable[[bool], None] | None = None) -> None:
        """End the call after the answers that were sent and this last one; returns at once.

        Args:
            last: the last answer.
            then: called once with whether all answers before the last one went out; False: the caller has gone before.
        """

    def fail(self, status: status_pb2.Status) -> None:
        """End the call with a failure; answers that have not gone out are dropped."""

    def is_active(self) -> bool:
        """Whether the caller still waits."""

    def on_gone(self, gone: Callable[[], None]) -> None:
        """Call this once when the caller goes before the call is ended here; at once when it has gone. Set once."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; without one None, or gRPC's "never" (centuries)."""

    def invocation_metadata(self) -> Any:
        """The metadata that the caller sent."""

    def peer(self) -> str:
        """The caller's address."""


class StreamedLater:
    """Takes the place of the function in a handler of one request and a stream of answers that are made elsewhere.

    Args:
        offer: gets the serialized request and the call. It runs in the thread that polls for all calls, so it must return at
            once. The receiver of the call ends it, unless the caller goes before.
        refused: the answer for a call that has no room; None: it fails with the error.
    """

    def __init__(
        self, offer: Callable[[bytes, Streamable], None], refused: Callable[[StoreError], bytes] | None = None
    ) -> None:
        self.offer = offer
        self.refused = refused

    def __call__(self, _request: bytes, _context: grpc.ServicerContext) -> NoReturn:
        """Never called: see AnsweredLater."""
        raise AssertionError("this call has no thread")


def _nobody() -> None:
    """Default for a receiver that needs no notice when the caller goes."""


def _no_answers(_size_bytes: int) -> None:
    """Default for the end of a call: does nothing."""


_RLock: Any = type(threading.RLock())  # `threading.RLock` is a function


class Unwaited(_RLock):  # type: ignore[misc]  # mypy sees no class
    """The condition of a call that has no thread: nobody waits for it. It has a tenth of the size of `threading.Condition`."""

    __slots__ = ()

    def notify_all(self) -> None:
        """See threading.Condition."""


class _CallOnly:
    """What is left of the event that began a call."""

    __slots__ = ("call",)

    def __init__(self, call: Any) -> None:
        self.call = call


class StreamCall(UnaryCall):
    """A call that has no thread; made by `UnaryCall.of`. See Streamable.

    Attributes:
        ending: called with the bytes of all answers when they are known; to be set before.
    """

    __slots__ = (
        "_answers",
        "_gone",
        "_is_ending",
        "_is_given",
        "_is_sending",
        "_last",
        "_note_sent",
        "_then",
        "ending",
    )

    def __init__(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__(run, arguments)
        self._state.condition = Unwaited()  # no other thread knows the call yet
        self._answers: deque[bytes] | None = None
        self._is_sending = False
        self._is_ending = False
        self._is_given = False
        self._last: bytes | None = None
        self._then: Callable[[bool], None] | None = None
        self._note_sent: Callable[[Any], Any] | None = None
        self._gone: Callable[[], None] = _nobody
        self.ending: Callable[[int], None] = _no_answers

    def watch(self) -> None:
        """Notice when the caller goes; once, before anything is sent."""
        self._run = self._arguments = None  # type: ignore[assignment]  # a call that waits for long keeps nothing needless
        if not self._context.add_callback(self._over):
            self._over()

    def forget_caller(self) -> None:
        """Keep neither metadata nor deadline: the receiver has read them, and most calls wait for long."""
        self._event = _CallOnly(self._event.call)
        self._context = grpc_server._Context(self._event, self._state, None)

    def on_gone(self, gone: Callable[[], None]) -> None:
        """See Streamable."""
        with self._state.condition:
            has_gone = self._has_ended and not self._is_ending
            self._gone = gone
        if has_gone:
            gone()

    def send(self, answer: bytes) -> None:
        """See Streamable."""
        with self._state.condition:
            if self._is_ending or self._has_ended:
                return
            self.answer_bytes += len(answer)
            self._pass_on(answer)

    def end(self, last: bytes | None = None, then: Callable[[bool], None] | None = None) -> None:
        """See Streamable."""
        with self._state.condition:
            if self._is_ending:
                return
            has_gone = self._has_ended or not grpc_server._is_rpc_state_active(self._state)
            if not has_gone:
                self._is_ending = True
                self.answer_bytes += 0 if last is None else len(last)
                self._last, self._then = last, then
        if has_gone:
            self._close(is_whole=False)
            if then is not None:
                then(False)
            return
        self.ending(self.answer_bytes)
        with self._state.condition:
            if not self._is_sending and not self._has_ended:
                self._give_status()

    def _end(self, response: bytes | None) -> None:
        with self._state.condition:
            self._answers = None
        self.end(response)

    def _pass_on(self, answer: bytes) -> None:
        """Send an answer now, or after the one that gRPC has; with the condition held."""
        if not self._is_sending:
            self._start_send(answer)
        elif self._answers is None:
            self._answers = deque((answer,))
        else:
            self._answers.append(answer)

    def _start_send(self, answer: bytes) -> None:
        state = self._state
        if not grpc_server._is_rpc_state_active(state):
            return
        if self._note_sent is None:
            self._note_sent = grpc_server._send_message(state, SEND_TOKEN)
        operations: tuple[Any, ...] = (cygrpc.SendMessageOperation(answer, 0),)
        if state.initial_metadata_allowed:
            operations = (grpc_server._get_initial_metadata_operation(state, None), *operations)
            state.initial_metadata_allowed = False
        self._is_sending = True
        self._event.call.start_server_batch(operations, self._sent)
        state.due.add(SEND_TOKEN)

    def _sent(self, event: Any) -> Any:
        """In the polling thread: the answer went out, or the call has broken."""
        with self._state.condition:
            self._is_sending = False
            assert self._note_sent is not None
            finished = self._note_sent(event)
            if event.success and grpc_server._is_rpc_state_active(self._state):
                if self._answers:
                    self._start_send(self._answers.popleft())
                elif self._is_ending and not self._has_ended:
                    self._give_status()
        return finished

    def _give_status(self) -> None:
        """End the call with its last answer, with the condition held; `_over` learns how that went."""
        self._is_given = True
        grpc_server._status(self._event, self._state, self._last)

    def _over(self) -> None:
        """gRPC is done with the call: its caller has all answers and the status, or has gone before."""
        with self._state.condition:
            gone = _nobody if self._is_ending else self._gone
            is_whole = self._is_given and self._state.client is not grpc_server._CANCELLED
        if self._close(is_whole=is_whole):
            gone()

    def _close(self, *, is_whole: bool) -> bool:
        """Whether the call was open until now."""
        with self._state.condition:
            if self._has_ended:
                return False
            self._has_ended = True
            self._answers = self._last = None
            then, self._then = self._then, None
            ended, self.ended = self.ended, _nobody
            self._gone, self.ending = _nobody, _no_answers  # they know this call: a circle would keep it for long
        if not is_whole and not self.status_code:
            self.status_code = grpc.StatusCode.CANCELLED.value[0]
        try:
            ended()
            if then is not None:
                then(is_whole)
        except Exception:  # it would end the thread that polls for all calls
            _log.exception("rpc.failed")
        return True
