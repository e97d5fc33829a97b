"""`AsyncConsumer`: gets messages of a group, under asyncio."""

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any

from reput_client.calls import ADDRESS_DEFAULT
from reput_client.consuming.core import ConsumerCore, new_client_id
from reput_client.consuming.delivery import Delivery
from reput_client.consuming.loops import LoopTransport
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.consuming.settings import CONCURRENCY_DEFAULT, ConsumerSettings
from reput_client.consuming.subscription import Subscriptions
from reput_client.errors import ReputClientError
from reput_client.security import ClientSecurity


class AsyncConsumer:
    """Gets the messages of a group; for the tasks of one event loop.

        async with AsyncConsumer("127.0.0.1:8081", "billing", {"Orders": "*"}) as consumer:
            async for delivery in consumer:
                print(delivery.message.body)
                await delivery.ack()

    Awaiting an acknowledgement waits until the gateway has it. Without `await` several share a call, which is faster.
    Arguments and all else are those of `Consumer`.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        consumer_group: str = "",
        subscriptions: Subscriptions | None = None,
        *,
        settings: ConsumerSettings | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        if not consumer_group:
            raise ValueError("consumer_group is empty: name the group")
        self.target = target
        self.settings = settings or ConsumerSettings()
        self.client_id = new_client_id()
        self._transport = LoopTransport(self.client_id, security)
        self._core = ConsumerCore(
            self._transport, target, consumer_group, subscriptions or {}, self.settings, self.client_id
        )
        self._workers: set[asyncio.Task[None]] = set()

    async def take(self, timeout_seconds: float | None = None) -> "Delivery[asyncio.Future[None]] | None":
        """See `Consumer.take`."""
        self._core.start()
        ends_at = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._core.asking():
            while True:
                held = self._core.take()
                if held is not None:
                    return Delivery(self._core, held)
                now = time.monotonic()
                if self._core.is_closing or now >= ends_at:
                    return None
                until = min(ends_at, self._core.next_time() or float("inf"))
                await self._transport.wait(None if until == float("inf") else max(0.0, until - now))

    async def __aiter__(self) -> "AsyncIterator[Delivery[asyncio.Future[None]]]":
        """Message after message, until the consumer is closed; errors as `take`."""
        while (delivery := await self.take()) is not None:
            yield delivery

    async def run(
        self, handler: Callable[[ReceivedMessage], Awaitable[object]], concurrency: int = CONCURRENCY_DEFAULT
    ) -> None:
        """Give each message to a coroutine function; see `Consumer.run`. Cancelling it cancels the handlers."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: 1 or more is possible")
        self._core.start()
        workers = [asyncio.create_task(self._work(handler)) for _ in range(concurrency)]
        self._workers.update(workers)
        for worker in workers:
            worker.add_done_callback(self._worked)
        try:
            await self._transport.wait_for(
                lambda: self._core.is_closed or self._workers.isdisjoint(workers), float("inf")
            )
        finally:
            for worker in workers:
                worker.cancel()
        if self._core.failure is not None:
            raise self._core.failure

    async def close(self, timeout_seconds: float | None = None) -> None:
        """End; see `Consumer.close`."""
        self._core.begin_close()
        if asyncio.current_task() in self._workers or self._core.is_closed:
            return
        seconds = self.settings.close_seconds_max if timeout_seconds is None else timeout_seconds
        await self._transport.wait_for(lambda: not self._workers and self._core.is_quiet, seconds)
        call_seconds = self.settings.request_seconds_max
        if self._core.abandon():
            await self._transport.wait_for(lambda: self._core.is_quiet, call_seconds)
        self._core.terminate(call_seconds)
        await self._transport.wait_for(lambda: self._core.is_terminated, call_seconds)
        self._transport.wake()
        await self._transport.close()

    async def _work(self, handler: Callable[[ReceivedMessage], Awaitable[object]]) -> None:
        try:
            async for delivery in self:
                try:
                    await handler(delivery.message)
                except Exception as error:
                    delivery.handler_failed(error)
                except asyncio.CancelledError as error:
                    worker = asyncio.current_task()
                    if worker is None or worker.cancelling():
                        raise
                    delivery.handler_failed(error)  # something that the handler awaited was cancelled
                else:
                    delivery.ack()
        except ReputClientError:
            pass  # `run` raises it

    def _worked(self, worker: Any) -> None:
        self._workers.discard(worker)
        self._transport.wake()

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.is_started and not core.is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.target!r})"
