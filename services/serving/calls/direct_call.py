"""Calls of a program to a service that it hosts, without gRPC: the handler runs in the thread of the caller, or in a helper.

The handler is the one that gRPC would call, with everything around it (services/serving/interceptors.py): guard, checks of the
request, open work, errors, counts. Bytes go in and come out, so neither side sees the other's objects. Left out are gRPC's
threads, and the lanes that divide them among callers. A query costs less than half of what it costs over a unix socket
(ADR 0120).

Ctrl-C raises KeyboardInterrupt anywhere in the main thread, also between taking a lock and the block that gives it back. So the
main thread waits while a helper makes the call: it shares no lock with the services.
"""

import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import grpc
from google.rpc import status_pb2
from grpc_status import rpc_status

from services import status
from services.serving.calls.open_work import OpenWork
from services.serving.calls.unary_call import Arrived
from store.errors import DeadlineExceededError, ServiceUnavailableError

# A caller whose helper may have ended looks so often whether it has.
LOOK_SECONDS = 1.0
# The end of a channel waits so long for a call of the main thread.
END_SECONDS_MAX = 5.0
# Behind its deadline a call gets its receiver's own error; after this time, another one.
LATE_SECONDS_MAX = 5.0


class DirectCallError(grpc.RpcError):
    """A call has failed; read as any gRPC client reads an RpcError."""

    def __init__(self, ended: Any) -> None:
        super().__init__(ended.details)
        self._ended = ended

    def code(self) -> grpc.StatusCode:
        """Its status code."""
        code: grpc.StatusCode = self._ended.code
        return code

    def details(self) -> str:
        """Its text."""
        details: str = self._ended.details
        return details

    def trailing_metadata(self) -> Any:
        """With the rich status."""
        return self._ended.trailing_metadata


class DirectContext:
    """The part of a `grpc.ServicerContext` that handlers use.

    Args:
        seconds: until the caller's deadline; None: it has none.
    """

    __slots__ = ("_callbacks", "_deadline", "_ended")

    def __init__(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._ended: Any = None
        self._callbacks: list[Callable[[], None]] = []

    def peer(self) -> str:
        """The caller's address: this process."""
        return f"direct:{os.getpid()}"

    def invocation_metadata(self) -> tuple[Any, ...]:
        """None is sent."""
        return ()

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def is_active(self) -> bool:
        """Whether the caller waits."""
        return self._ended is None

    def code(self) -> grpc.StatusCode | None:
        """The code of a call that was ended with one."""
        return None if self._ended is None else self._ended.code

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have it called at the end of the call."""
        self._callbacks.append(callback)
        return True

    def cancel(self) -> None:
        """Without effect: the caller is a thread that cannot be ended."""

    def abort_with_status(self, ended: Any) -> None:
        """End the call."""
        self._ended = ended
        raise DirectCallError(ended)

    def over(self) -> None:
        """The call has ended."""
        for callback in self._callbacks:
            callback()


class DirectChannel:
    """A channel to one service of this process. Calls with one answer are made directly, all others over a channel of gRPC.

    Args:
        handler_of: the handler of a method by its path, as gRPC's server gets it; None when calls of it are not direct.
        work: of the service; counts calls, and says when it takes no more.
        open_channel: opens the channel for the other calls.
    """

    def __init__(
        self,
        handler_of: Callable[[str], Any],
        work: OpenWork,
        open_channel: Callable[[], grpc.Channel],
    ) -> None:
        self._handler_of = handler_of
        self._work = work
        self._channel = open_channel()  # connects with the first call
        self._free: list[_Helper] = []
        self._helpers: list[_Helper] = []  # of each interrupted call, too, until the channel is closed

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
    ) -> Callable[..., Any]:
        """A function that makes the call: `call(request, timeout=seconds)`."""
        handler = self._handler_of(path)
        if handler is None:
            over_grpc: Callable[..., Any] = self._channel.unary_unary(path, request_serializer, response_deserializer)
            return over_grpc

        def call(request: Any, timeout: float | None = None) -> Any:
            data = request_serializer(request)
            if threading.get_ident() == _MAIN_THREAD.ident:
                return response_deserializer(self._in_helper(self._answer, handler, data, timeout))
            return response_deserializer(self._answer(handler, data, timeout))

        return call

    def _answer(self, handler: Any, data: bytes, timeout: float | None) -> bytes:
        """The answer of a call, which the end of the service waits for. Never in the main thread: see the top of this file."""
        self._work.add(1)  # first: either the end sees this call, or the call sees the end
        try:
            if self._work.stopping.is_set():
                raise _stopping()
            return _answer(handler, data, timeout)
        finally:
            self._work.add(-1)

    def _in_helper(self, *work: Any) -> bytes:
        """For the main thread, which makes one call at a time; of an interrupted call the helper is not used again."""
        if not self._free:
            try:
                helper = _Helper()
            except RuntimeError as error:
                # Ctrl-C while `threading` waits for the new thread may come as an error of its own lock.
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from error
                raise
            self._helpers.append(helper)
            self._free.append(helper)
        helper = self._free.pop()
        answer = helper.make(work)
        self._free.append(helper)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """See grpc.Channel."""
        return self._channel.unary_stream(*arguments, **options)

    def close(self) -> None:
        """Close the channel for the other calls, and end the helpers."""
        for helper in self._helpers:
            helper.end()
        self._channel.close()


_Call = tuple[tuple[Any, ...], list[Any], threading.Lock]


class _Helper:
    """A thread that makes calls for another, until `end` or until this object is forgotten."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=_make_calls, args=(self._calls,), name="direct-calls", daemon=True)
        self._thread.start()

    def make(self, work: tuple[Any, ...]) -> bytes | BaseException:
        """The answer of a call, or what it raised."""
        answers: list[Any] = []
        is_done = threading.Lock()
        is_done.acquire()
        self._calls.put((work, answers, is_done))
        while not is_done.acquire(timeout=LOOK_SECONDS):
            if not self._thread.is_alive() and not answers:  # another thread has closed the channel meanwhile
                raise _stopping()
        answer: bytes | BaseException = answers[0]
        return answer

    def end(self) -> None:
        """End the thread after its call; a call that takes long is left to itself."""
        self._calls.put(None)
        self._thread.join(END_SECONDS_MAX)

    def __del__(self) -> None:
        if calls := getattr(self, "_calls", None):  # an interrupt may have ended `__init__`
            calls.put(None)


def _make_calls(calls: "SimpleQueue[_Call | None]") -> None:
    while (call := calls.get()) is not None:
        work, answers, is_done = call
        try:
            answers.append(work[0](*work[1:]))
        except BaseException as error:
            answers.append(error)
        finally:
            is_done.release()
            del call, work, answers, is_done  # nothing of a call is kept until the next


def _answer(handler: Any, request: bytes, timeout: float | None) -> bytes:
    context = DirectContext(timeout)
    behaviour = handler.stream_unary
    try:
        if behaviour.take is not None:
            return _LaterCall(context).answer_of(behaviour.take, request)
        answer: bytes = behaviour(Arrived(request), context)
    finally:
        context.over()
    return answer


class _LaterCall:
    """A call whose answer is made elsewhere (AnsweredLater, unary_call.py), while the caller's thread waits for it.

    Attributes:
        ended: called once, at the answer or the failure.
        status_code: a google.rpc.Code; 0 unless it has failed.
    """

    def __init__(self, context: DirectContext) -> None:
        self.ended: Callable[[], None] = lambda: None
        self.status_code = 0
        self.peer, self.invocation_metadata = context.peer, context.invocation_metadata
        self.time_remaining, self.is_active = context.time_remaining, context.is_active
        self._context = context
        self._outcomes: SimpleQueue[bytes | status_pb2.Status] = SimpleQueue()
        self._lock = threading.Lock()
        self._has_ended = False

    def answer_of(self, take: Callable[[bytes, Any], None], request: bytes) -> bytes:
        """The answer; DirectCallError when the call fails. The receiver of the call keeps its deadline."""
        take(request, self)
        seconds = self.time_remaining()
        try:
            outcome = self._outcomes.get(timeout=None if seconds is None else seconds + LATE_SECONDS_MAX)
        except Empty:
            error = DeadlineExceededError(
                "the call was not answered within its deadline: whether it took effect is not known"
            )
            self.fail(status.to_status(error))
            outcome = self._outcomes.get()  # that one, or the answer that came just now
        if isinstance(outcome, status_pb2.Status):
            self._context.abort_with_status(rpc_status.to_status(outcome))
        assert isinstance(outcome, bytes)
        return outcome

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(response)

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        self._end(status)

    def _end(self, outcome: bytes | status_pb2.Status) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self.status_code = outcome.code if isinstance(outcome, status_pb2.Status) else 0
        self.ended()
        self._outcomes.put(outcome)


def _stopping() -> DirectCallError:
    error = ServiceUnavailableError("the service is stopping: make no more calls")
    return DirectCallError(rpc_status.to_status(status.to_status(error)))


_MAIN_THREAD = threading.main_thread()


def handler_details(path: str) -> Any:
    """As an interceptor gets it."""
    return SimpleNamespace(method=path, invocation_metadata=())
