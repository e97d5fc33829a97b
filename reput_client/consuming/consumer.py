"""`Consumer` and `AsyncConsumer`: get messages of a group, with threads and under asyncio. `Delivery`: a message to settle."""

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from reput_client.calls import ADDRESS_DEFAULT
from reput_client.consuming.cache import HeldMessage
from reput_client.consuming.core import ConsumerCore, new_client_id
from reput_client.consuming.loops import LoopTransport
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.consuming.settings import CONCURRENCY_DEFAULT, ConsumerSettings
from reput_client.consuming.subscription import Subscriptions
from reput_client.consuming.threads import ThreadTransport, close_at_exit
from reput_client.errors import ReputClientError
from reput_client.security import ClientSecurity
from reput_client.tracing import LoopTracing, ThreadTracing

Outcome = TypeVar("Outcome")

_log = logging.getLogger("reput_client")


class Delivery(Generic[Outcome]):
    """A message that a consumer got. Settle it once, by one of the methods; a message that is not settled comes again.

    The methods return at once. Their future has None when the gateway has answered, or the error that it ended with:
    ReceiptHandleNotFoundError when the message's time was over. A call is tried again until then; messages share calls.

    Attributes:
        message: the message.
        delivery_attempt: 1 for the first delivery, failures in this process included.
    """

    __slots__ = ("_core", "_held", "delivery_attempt", "message")

    def __init__(self, core: Any, held: HeldMessage) -> None:
        self._core = core
        self._held = held
        self.message: ReceivedMessage = held.message
        self.delivery_attempt = held.attempt

    def ack(self) -> Outcome:
        """It is consumed."""
        return cast(Outcome, self._core.ack(self._held))

    def nack(self, seconds: float | None = None) -> Outcome:
        """It is not consumed: it comes again after so many seconds, by default the back-off of its group."""
        return cast(Outcome, self._core.nack(self._held, seconds))

    def forward_to_dead_letters(self) -> Outcome:
        """It will never be consumed: it becomes a dead letter of the group."""
        return cast(Outcome, self._core.dead(self._held))

    def handler_failed(self, error: BaseException) -> None:
        """A handler raised an error: it is logged, and the message comes again."""
        message = self.message
        _log.warning(
            "the handler failed for message %s of %s at attempt %d: %r",
            *(message.message_id, message.topic, self.delivery_attempt, error),
        )
        self._held.handler_raised = True
        self.nack()

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, delivery_attempt={self.delivery_attempt})"


# Time for consumers that are not closed when the interpreter exits.
EXIT_SECONDS_MAX = 5.0


class Consumer:
    """Gets the messages of a group. All consumers of a group share its messages; each message is for one of them.

        with Consumer("127.0.0.1:8081", "billing", {"Orders": "*"}) as consumer:
            for delivery in consumer:
                print(delivery.message.body)
                delivery.ack()

    Or with a handler, called in threads: returning acknowledges, raising makes the message come again:

            consumer.run(handle, concurrency=20)

    It begins with the first `take`, iteration or `run`, and goes on while gateways come and go, until it is closed.
    In a FIFO group, one message of each message group is handled at a time, in order.

    Args:
        target: a gateway, `HOST:PORT`; those that it names are called, too.
        consumer_group: the group; made when it is new.
        subscriptions: topics, each with the tags that are wanted (`a || b`, `*`) or an `Sql` filter. The same for all consumers
            of a group.
        settings: limits and times.
        security: TLS and credentials.

    Raises:
        OSError, ValueError, TypeError: an argument cannot be used.
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
        self._is_closed = True  # for __del__, should the next lines fail
        if not consumer_group:
            raise ValueError("consumer_group is empty: name the group")
        self.target = target
        self.settings = settings or ConsumerSettings()
        self.client_id = new_client_id()
        self._transport = ThreadTransport(self.client_id, security)
        self._core = ConsumerCore(
            self._transport, target, consumer_group, subscriptions or {}, self.settings, self.client_id
        )
        self._transport.check(target)
        self._tracing: ThreadTracing | None = None
        if self.settings.trace:
            self._tracing = ThreadTracing.of(target, None, security, self.settings.trace_topic, consumer_group)
            self._core.tracer = self._tracing.writer
        self._changed = self._transport.changed
        self._workers: set[threading.Thread] = set()
        self._program_end: BaseException | None = None
        self._is_closed = False
        close_at_exit(self, lambda consumer: consumer.close(EXIT_SECONDS_MAX))

    def take(self, timeout_seconds: float | None = None) -> Delivery[Future[None]] | None:
        """The next message; None when the time is over or the consumer is closed.

        Raises:
            ReputClientError: the gateway does not let this consumer consume; it is closed then.
        """
        self._core.start()
        ends_at = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._changed, self._core.asking():
            while True:
                held = self._core.take()
                if held is not None:
                    return Delivery(self._core, held)
                now = time.monotonic()
                if self._core.is_closing or now >= ends_at:
                    return None
                until = min(ends_at, self._core.next_time() or float("inf"))
                self._changed.wait(None if until == float("inf") else max(0.0, until - now))

    def __iter__(self) -> Iterator[Delivery[Future[None]]]:
        """Message after message, until the consumer is closed; errors as `take`."""
        while (delivery := self.take()) is not None:
            yield delivery

    def run(self, handler: Callable[[ReceivedMessage], object], concurrency: int = CONCURRENCY_DEFAULT) -> None:
        """Give each message to a handler, in threads; returns when the consumer is closed.

        Args:
            handler: its return acknowledges the message. An Exception that it raises makes the message come again after the
                back-off of its group, and is logged. `SystemExit` and the like do so too, and end `run`, which raises them.
            concurrency: handlers at once.

        Raises:
            ReputClientError: as `take`.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: 1 or more is possible")
        self._core.start()
        workers = [
            threading.Thread(target=self._work, args=(handler,), name=f"reput-consumer-{number}", daemon=True)
            for number in range(concurrency)
        ]
        with self._changed:
            self._workers.update(workers)
        for worker in workers:
            worker.start()
        with self._changed:
            self._changed.wait_for(lambda: self._core.is_closed or self._workers.isdisjoint(workers))
            if self._core.failure is not None:
                raise self._core.failure
            if self._program_end is not None:
                raise self._program_end

    def close(self, timeout_seconds: float | None = None) -> None:
        """End: poll no more, wait for handlers and for what was said of their messages, tell the gateway.

        What was received and not handled comes again, to another consumer, without an attempt where no handler got it.
        A handler may call it: then `run` ends, and the consumer is to be closed afterwards.

        Args:
            timeout_seconds: for the handlers; by default `close_seconds_max`.
        """
        self._core.begin_close()
        if threading.current_thread() in self._workers:
            return
        self._is_closed = True
        seconds = self.settings.close_seconds_max if timeout_seconds is None else timeout_seconds
        with self._changed:
            if self._core.is_closed:
                return
            self._changed.wait_for(lambda: not self._workers and self._core.is_quiet, seconds)
            call_seconds = self.settings.request_seconds_max
            if self._core.abandon():
                self._changed.wait_for(lambda: self._core.is_quiet, call_seconds)
            self._core.terminate(call_seconds)
            self._changed.wait_for(lambda: self._core.is_terminated, call_seconds)
            self._changed.notify_all()
        self._transport.close()
        if self._tracing is not None:
            self._tracing.close()

    def _work(self, handler: Callable[[ReceivedMessage], object]) -> None:
        try:
            for delivery in self:
                try:
                    handler(delivery.message)
                except Exception as error:
                    delivery.handler_failed(error)
                except BaseException as error:  # as of sys.exit, which would end this thread only
                    delivery.handler_failed(error)
                    self._program_end = error
                    self._core.begin_close()
                else:
                    delivery.ack()
        except ReputClientError:
            pass  # `run` raises it
        finally:
            with self._changed:
                self._workers.discard(threading.current_thread())
                self._changed.notify_all()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._is_closed:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        self._core.begin_close()

    def __repr__(self) -> str:
        return f"Consumer({self.target!r})"


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
        self._security = security
        self._tracing: LoopTracing | None = None

    def _start(self) -> None:
        """Begin to consume, once. A channel of grpc's belongs to the event loop that runs when it is made."""
        if self.settings.trace and self._tracing is None:
            self._tracing = LoopTracing.of(
                self.target, None, self._security, self.settings.trace_topic, self._core.consumer_group
            )
            self._core.tracer = self._tracing.writer
        self._core.start()

    async def take(self, timeout_seconds: float | None = None) -> "Delivery[asyncio.Future[None]] | None":
        """See `Consumer.take`."""
        self._start()
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
        self._start()
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
        if self._tracing is not None:
            await self._tracing.close()

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
