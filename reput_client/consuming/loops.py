"""The transport of `AsyncConsumer`: grpc.aio's channels and tasks of one event loop, in which everything runs."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import Stubs
from reput_client.channel import open_async_channel
from reput_client.consuming.transport import V2_SERVICE, Done, StreamDone, metadata_of
from reput_client.errors import ConsumerClosedError, ReputClientError, error_of_call
from reput_client.security import ClientSecurity
from reput_client.threads_and_loops import LoopSignal

_log = logging.getLogger("reput_client")


class _Call:
    """A call of grpc.aio as a `Cancellable`."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def cancel(self) -> None:
        self._call.cancel()


class _Telemetry(_Call):
    """An open Telemetry stream."""

    def __init__(self, call: Any, commands: "asyncio.Queue[Any]") -> None:
        super().__init__(call)
        self._commands = commands

    def send(self, command: Any) -> None:
        self._commands.put_nowait(command)


class LoopTransport:
    """See `Transport`.

    Args:
        client_id: of the consumer.
        security: TLS and credentials.
    """

    def __init__(self, client_id: str, security: ClientSecurity | None) -> None:
        self.lock = contextlib.nullcontext()
        self._metadata = metadata_of(client_id)
        self._security = security
        self._stubs: dict[str, Stubs] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._signal = LoopSignal()
        self._is_closed = False

    def now(self) -> float:
        """See Transport."""
        return time.monotonic()

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """See Transport."""
        if self._is_closed:
            return

        def due() -> None:
            self._timers.discard(handle)
            function()

        handle = asyncio.get_running_loop().call_later(seconds, due)
        self._timers.add(handle)

    def call(self, target: str, method: str, request: Any, seconds: float, done: Done) -> None:
        """See Transport."""

        async def make() -> None:
            answer: Any
            try:
                answer = await self._stubs_of(target).unary(method)(request, timeout=seconds, metadata=self._metadata)
            except grpc.RpcError as error:
                answer = error_of_call(error)
            except (asyncio.CancelledError, grpc.aio.UsageError) as error:
                answer = ConsumerClosedError(f"the call was cancelled: {error}")
            done(answer)

        self._begin(make())

    def stream(self, target: str, method: str, request: Any, seconds: float, done: StreamDone) -> _Call:
        """See Transport."""
        call = self._stubs_of(target).stream(method)(request, timeout=seconds, metadata=self._metadata)

        async def read() -> None:
            responses: list[Any] = []
            done(responses, await _read(call, responses.append))

        self._begin(read())
        return _Call(call)

    def telemetry(
        self, target: str, taken: Callable[[Any], None], ended: Callable[[ReputClientError | None], None]
    ) -> _Telemetry:
        """See Transport."""
        commands: asyncio.Queue[Any] = asyncio.Queue()
        call = self._stubs_of(target).both_ways("Telemetry", "TelemetryCommand")(
            _until_none(commands), metadata=self._metadata
        )

        async def read() -> None:
            error = await _read(call, taken)
            commands.put_nowait(None)
            ended(error)

        self._begin(read())
        return _Telemetry(call, commands)

    def future(self) -> "asyncio.Future[None]":
        """See Transport."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A program need not await each acknowledgement: asyncio would report those that failed.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def wake(self) -> None:
        """See Transport."""
        self._signal.send()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next `wake`, or after the time."""
        await self._signal.wait(seconds)

    async def wait_for(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so; False when the time is over first."""
        ends_at = time.monotonic() + seconds
        while not is_so():
            left = ends_at - time.monotonic()
            if left <= 0:
                return False
            await self.wait(None if left == float("inf") else left)
        return True

    async def close(self) -> None:
        """Close the channels and end the tasks."""
        self._is_closed = True
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()
        for stubs in self._stubs.values():
            await stubs.channel.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stubs_of(self, target: str) -> Stubs:
        stubs = self._stubs.get(target)
        if stubs is None:
            stubs = self._stubs[target] = Stubs(open_async_channel(target, self._security), V2_SERVICE, v2)
        return stubs

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:  # a bug, which must not go unseen
            _log.error("a consumer's callback failed", exc_info=task.exception())


async def _read(call: Any, take: Callable[[Any], None]) -> ReputClientError | None:
    """Give each response of a stream to a function; the error that ended the stream."""
    try:
        async for response in call:
            take(response)
    except grpc.RpcError as error:
        return error_of_call(error)
    except asyncio.CancelledError as error:
        return ConsumerClosedError(f"the call was cancelled: {error}")
    return None


async def _until_none(commands: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    while (command := await commands.get()) is not None:
        yield command
