"""The transport of `Consumer` and `PullConsumer`: grpc's channels, a thread for each stream, and one for the time.

At the end of the interpreter it closes consumers that the program has not closed: then others get their messages at once.
"""

import atexit
import heapq
import itertools
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import Stubs
from reput_client.channel import open_channel
from reput_client.consuming.transport import V2_SERVICE, Done, StreamDone, metadata_of
from reput_client.errors import ConsumerClosedError, ReputClientError, error_of_call
from reput_client.security import ClientSecurity

_log = logging.getLogger("reput_client")


class _Call:
    """A call of grpc as a `Cancellable`."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def cancel(self) -> None:
        self._call.cancel()


class _Telemetry(_Call):
    """An open Telemetry stream."""

    def __init__(self, call: Any, commands: "queue.SimpleQueue[Any]") -> None:
        super().__init__(call)
        self._commands = commands

    def send(self, command: Any) -> None:
        self._commands.put(command)


class ThreadTransport:
    """See `Transport`.

    Args:
        client_id: of the consumer.
        security: TLS and credentials.
    """

    def __init__(self, client_id: str, security: ClientSecurity | None) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._metadata = metadata_of(client_id)
        self._security = security
        self._stubs: dict[str, Stubs] = {}
        self._is_closed = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._due = threading.Condition()
        self._clock_thread: threading.Thread | None = None

    def check(self, target: str) -> None:
        """Raise what is wrong with the security settings: OSError or ValueError."""
        self._stubs_of(target)

    def now(self) -> float:
        """See Transport."""
        return time.monotonic()

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """See Transport."""
        with self._due:
            if self._is_closed:
                return
            heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), function))
            if self._clock_thread is None:
                self._clock_thread = threading.Thread(target=self._tick, name="reput-consumer-clock", daemon=True)
                self._clock_thread.start()
            self._due.notify()

    def call(self, target: str, method: str, request: Any, seconds: float, done: Done) -> None:
        """See Transport."""
        try:
            stub = self._stubs_of(target).unary(method)
            future = stub.future(request, timeout=seconds, metadata=self._metadata)
        except ValueError as error:  # of a closed channel
            closed = ConsumerClosedError(str(error))
            threading.Thread(target=done, args=(closed,), daemon=True).start()
            return

        def ended(call: Any) -> None:
            try:
                answer = call.result()
            except grpc.RpcError as error:
                answer = error_of_call(error)
            except grpc.FutureCancelledError:
                answer = ConsumerClosedError("the call was cancelled")
            _guarded(done, answer)

        future.add_done_callback(ended)

    def stream(self, target: str, method: str, request: Any, seconds: float, done: StreamDone) -> _Call:
        """See Transport."""
        call = self._stubs_of(target).stream(method)(request, timeout=seconds, metadata=self._metadata)

        def read() -> None:
            responses: list[Any] = []
            error: ReputClientError | None = None
            try:
                responses.extend(call)  # keeps what came before a failure
            except grpc.RpcError as rpc_error:
                error = error_of_call(rpc_error)
            _guarded(done, responses, error)

        threading.Thread(target=read, name="reput-consumer-poll", daemon=True).start()
        return _Call(call)

    def telemetry(
        self, target: str, taken: Callable[[Any], None], ended: Callable[[ReputClientError | None], None]
    ) -> _Telemetry:
        """See Transport."""
        commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = self._stubs_of(target).both_ways("Telemetry", "TelemetryCommand")(
            _until_none(commands), metadata=self._metadata
        )

        def read() -> None:
            error: ReputClientError | None = None
            try:
                for command in call:
                    _guarded(taken, command)
            except grpc.RpcError as rpc_error:
                error = error_of_call(rpc_error)
            commands.put(None)
            _guarded(ended, error)

        threading.Thread(target=read, name="reput-consumer-telemetry", daemon=True).start()
        return _Telemetry(call, commands)

    def ask(self, target: str, method: str, request: Any, seconds: float) -> Any:
        """The answer of a unary call; waits for it. ReputClientError when there is none."""
        try:
            return self._stubs_of(target).unary(method)(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_of_call(error) from error

    def future(self) -> Future[None]:
        """See Transport."""
        return Future()

    def wake(self) -> None:
        """See Transport."""
        self.changed.notify_all()

    def close(self) -> None:
        """Close the channels; nothing is called later any more."""
        with self._due:
            self._is_closed = True
            self._timers.clear()
            self._due.notify()
        for stubs in self._stubs.values():
            stubs.channel.close()

    def _stubs_of(self, target: str) -> Stubs:
        with self.lock:
            stubs = self._stubs.get(target)
            if stubs is None:
                stubs = self._stubs[target] = Stubs(open_channel(target, self._security), V2_SERVICE, v2)
            return stubs

    def _tick(self) -> None:
        while True:
            with self._due:
                while not self._is_closed and (not self._timers or self._timers[0][0] > time.monotonic()):
                    self._due.wait(self._timers[0][0] - time.monotonic() if self._timers else None)
                if self._is_closed:
                    return
                function = heapq.heappop(self._timers)[2]
            _guarded(function)


def _until_none(commands: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    while (command := commands.get()) is not None:
        yield command


def _guarded(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function of the consumer. An error in it is a bug, which must not end the thread silently."""
    try:
        function(*arguments)
    except Exception:
        _log.exception("a consumer's callback failed")


Closed = TypeVar("Closed")

_closers: "weakref.WeakKeyDictionary[Any, Callable[[Any], None]]" = weakref.WeakKeyDictionary()


def close_at_exit(consumer: Closed, close: Callable[[Closed], None]) -> None:
    """Call `close` with the consumer when the interpreter exits. It has no effect on a consumer that is closed by then."""
    _closers[consumer] = close


def _close_all() -> None:
    for consumer, close in list(_closers.items()):
        close(consumer)


atexit.register(_close_all)
