"""`Producer` and `AsyncProducer`: send messages from threads and under asyncio; each message gets a future."""

import asyncio
import atexit
import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from reput_client.calls import AsyncGatewayCalls, GatewayCalls
from reput_client.channel import open_async_channel, open_channel
from reput_client.commands import Handle, recall_question, with_delay
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.encoding import with_place
from reput_client.errors import ProducerClosedError, ReputClientError
from reput_client.producing.futures import OnBatch, OnDelivery, Receipts, tell_batch, when_settled
from reput_client.producing.loops import LoopSender
from reput_client.producing.messages import MessageEncoder, NewMessage
from reput_client.producing.requests import TIMEOUT_SECONDS_DEFAULT, ask_for_reply, make_reply
from reput_client.producing.settings import ProducerSettings
from reput_client.producing.threads import ThreadSender
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.receipt import SendReceipt
from reput_client.security import ClientSecurity
from reput_client.threads_and_loops import run_blocking
from reput_client.tracing import NORMAL, LoopTracing, ThreadTracing, all_read_again, message_type_of, read_again

if TYPE_CHECKING:
    from reput_client.querying.message import Message

# Time for the messages of unclosed producers when the interpreter exits.
EXIT_SECONDS_MAX = 10.0

_all: "weakref.WeakSet[ThreadSender]" = weakref.WeakSet()
_unclosed: "weakref.WeakSet[ThreadSender]" = weakref.WeakSet()


class Producer:
    """Sends messages through a gateway. One producer serves any number of threads.

        with Producer("127.0.0.1:8081") as producer:
            future = producer.send("Orders", b"hello", keys=["order-1001"])
            print(future.result().offset_msg_id)

    `send` returns at once. Messages share requests, and several requests are in flight. Messages are stored in the order of
    sending, with one exception: a message that was refused alone, or whose request was refused for a full disk, is stored
    after those that were in flight. Every message has a unique key: the store keeps it once, however often it is sent.

    Callbacks, also those of futures, run in the producer's thread: they may send, but must not wait for the producer.

    A producer does not work after a fork: make one in each process.

    Args:
        target: the gateway, `HOST:PORT`.
        channel: used instead of one of its own; `close` leaves it open.
        security: TLS and credentials of its own channel.
        settings: fields of `ProducerSettings`.
    """

    def __init__(
        self,
        target: str = "127.0.0.1:8081",
        *,
        channel: grpc.Channel | None = None,
        security: ClientSecurity | None = None,
        **settings: Any,
    ) -> None:
        self._is_closed = True  # for __del__, should the next line fail
        checked = self._settings = ProducerSettings(**settings)
        self.target = target
        self._encoder = MessageEncoder(UniqueKeyGenerator().create_many)
        opened = channel or open_channel(target, security)
        self._sender = ThreadSender(opened, checked, owns_channel=channel is None)
        self._calls = GatewayCalls(target, channel=opened)
        self._tracing = (
            ThreadTracing.of(target, channel, security, checked.trace_topic, checked.producer_group)
            if checked.trace
            else None
        )
        self._is_closed = False
        _all.add(self._sender)
        if self._tracing is not None:
            _all.add(self._tracing.sender)
        _unclosed.add(self._sender)

    def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
        delivery_time: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int = 0,
        priority: int | None = None,
        lite_topic: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[SendReceipt]:
        """Send a message; returns at once unless the buffer is full.

        Args:
            topic: the topic.
            body: 1 byte to 4 MiB.
            keys: business keys to find it by; without spaces.
            tags: RocketMQ's TAGS: one tag.
            properties: the application's own.
            queue_id: the queue; by default the store takes them in turn.
            unique_key: its id; by default one is made. Two messages with one id are stored once.
            born_time: when it was made, with a time zone; by default the time of storing.
            flag: the application's own 32 bits.
            delivery_time: consumers get it at this time, with a time zone; the past is now. The receipt has a `recall_handle`.
            delay: the same, counted from when the store takes the message.
            delay_level: consumers get it after the delay of this level of RocketMQ (1 is 1 s, 18 is 2 h).
            priority, lite_topic: see `NewMessage`.
            on_delivery: called with `(receipt, None)` or `(None, error)` in the producer's thread.

        Raises:
            BufferFullError: no room in `block_seconds_max`.
            ProducerClosedError: closed, or forked.
            InvalidMessageError: too large for any request.
        """
        properties = with_place(with_delay(properties, delay), priority, lite_topic)
        keys = read_again(keys) if self._settings.trace else keys
        message = NewMessage(
            topic, body, keys, tags, properties, queue_id, unique_key, born_time, flag, delivery_time, delay_level
        )
        wire = self._encoder.encode(message)
        if self._tracing is not None:
            kind = message_type_of(properties, delivery_time, delay_level)
            on_delivery = self._tracing.writer.watch(topic, tags, keys, len(body), kind, on_delivery)
        return self._sender.send(wire, on_delivery, urgent=False)

    def send_oneway(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
    ) -> None:
        """Send a message without asking for its outcome; returns at once unless the buffer is full.

        It is sent, tried again and stored once as those of `send`; arguments and errors are the same.
        """
        keys = read_again(keys) if self._settings.trace else keys
        wire = self._encoder.encode(NewMessage(topic, body, keys, tags, properties, queue_id, None, born_time, flag))
        tracing = self._tracing
        told = None if tracing is None else tracing.writer.watch(topic, tags, keys, len(body), NORMAL, None)
        self._sender.send(wire, told, urgent=False)

    def send_and_wait(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
        delivery_time: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int = 0,
        priority: int | None = None,
        lite_topic: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SendReceipt:
        """Send a message and wait until it is stored; it does not linger while nothing else is under way.

        Raises:
            ReputClientError: as `send`, and what its future fails with.
            TimeoutError: not within `timeout_seconds`; it is tried further.
        """
        properties = with_place(with_delay(properties, delay), priority, lite_topic)
        keys = read_again(keys) if self._settings.trace else keys
        message = NewMessage(
            topic, body, keys, tags, properties, queue_id, unique_key, born_time, flag, delivery_time, delay_level
        )
        wire = self._encoder.encode(message)
        told: OnDelivery | None = None
        if self._tracing is not None:
            kind = message_type_of(properties, delivery_time, delay_level)
            told = self._tracing.writer.watch(topic, tags, keys, len(body), kind, None)
        return self._sender.send(wire, told, urgent=True).result(timeout_seconds)

    def send_batch(self, messages: Iterable[NewMessage]) -> Future[Receipts]:
        """Send messages in one call; returns at once unless the buffer is full.

        The fastest way to send many: the cost of a call is paid once. They are sent in one request if they fit
        (`batch_count_max`, `batch_bytes_max`), and are stored in order, as those of `send` are.

        Args:
            messages: any number; the buffer takes all of them or none.

        Returns:
            One future for all: the receipts in the order of the messages, or a BatchDeliveryError that says which failed.

        Raises:
            BufferFullError: no room in `block_seconds_max`.
            ProducerClosedError: closed, or forked.
            InvalidMessageError, TypeError, ValueError: as `send`, for one of them; none is sent then.
        """
        tracing = self._tracing
        listed = list(messages) if tracing is None else all_read_again(messages)
        wires = self._encoder.encode_all(listed)
        told: OnBatch | None = None if tracing is None else tracing.writer.watch_all(listed)
        spans = self._sender.send_all(wires)
        future: Future[Receipts] = Future()
        future.set_running_or_notify_cancel()
        when_settled(spans, partial(tell_batch, future) if told is None else partial(told, partial(tell_batch, future)))
        return future

    def recall(self, handle: Handle) -> str:
        """Take back a message that waits for its time; its unique key.

        Args:
            handle: its receipt, or the `recall_handle` of it.

        Raises:
            ScheduledMessageNotFoundError: it was delivered or recalled before.
            ReputClientError: the call failed.
        """
        return run_blocking(recall_question(handle).ask, self._calls)

    def request(self, message: NewMessage, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT) -> "Message":
        """Send a request and wait for its reply.

        Args:
            message: the request; the program that consumes it calls `reply`.
            timeout_seconds: for the reply, at most 60.

        Raises:
            DeadlineExceededError: no reply came in time; metadata has the `offsetMsgId` of the request when it is stored.
            ReputClientError: the call failed.
        """
        return run_blocking(ask_for_reply, self._calls, message, timeout_seconds)

    def reply(
        self,
        request: "ReceivedMessage | Message",
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> SendReceipt:
        """Answer a request, as `Consumer` or a query has it, and wait until the reply is stored.

        Raises:
            ValueError: the message is no request.
            ReputClientError: the reply is not stored, or that is not known.
        """
        reply = run_blocking(make_reply, self._calls, request, body, properties)
        return self.send_and_wait(reply.topic, reply.body, properties=reply.properties)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was sent so far is stored or has failed; False when the time is over first."""
        return self._sender.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> None:
        """Deliver what waits, then end; what is not delivered in time fails. A closed producer stays closed.

        Args:
            timeout_seconds: by default `close_seconds_max`.
        """
        self._is_closed = True
        _unclosed.discard(self._sender)
        self._sender.close(timeout_seconds)
        if self._tracing is not None:
            self._tracing.close()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._is_closed or self._sender.is_closed:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        # Its threads run on until its messages are delivered; a finalizer must not wait.
        self._sender.begin_close()

    def __repr__(self) -> str:
        return f"Producer({self.target!r})"


class AsyncProducer:
    """Sends messages through a gateway; for the tasks of one event loop.

        async with AsyncProducer("127.0.0.1:8081") as producer:
            future = await producer.send("Orders", b"hello", keys=["order-1001"])
            print((await future).offset_msg_id)

    Order, unique keys and settings are those of `Producer`. Cancelling a message's future does not call the message back. An
    event loop that ends without `close` drops what was not delivered.

    Args:
        target: the gateway, `HOST:PORT`.
        channel: used instead of one of its own; `close` leaves it open.
        security: TLS and credentials of its own channel.
        settings: fields of `ProducerSettings`.
    """

    def __init__(
        self,
        target: str = "127.0.0.1:8081",
        *,
        channel: grpc.aio.Channel | None = None,
        security: ClientSecurity | None = None,
        **settings: Any,
    ) -> None:
        self._sender: LoopSender | None = None
        self._is_closed = False
        self._settings = ProducerSettings(**settings)
        self.target = target
        self._channel = channel
        self._owns_channel = channel is None
        self._security = security
        self._encoder = MessageEncoder(UniqueKeyGenerator().create_many)
        self._tracing: LoopTracing | None = None

    async def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
        delivery_time: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int = 0,
        priority: int | None = None,
        lite_topic: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> asyncio.Future[SendReceipt]:
        """Send a message and return its future; awaits only while the buffer is full.

        Arguments and errors are those of `Producer.send`; `on_delivery` is called from the event loop.
        """
        properties = with_place(with_delay(properties, delay), priority, lite_topic)
        keys = read_again(keys) if self._settings.trace else keys
        message = NewMessage(
            topic, body, keys, tags, properties, queue_id, unique_key, born_time, flag, delivery_time, delay_level
        )
        wire = self._encoder.encode(message)
        sender = self._started()
        if self._tracing is not None:
            kind = message_type_of(properties, delivery_time, delay_level)
            on_delivery = self._tracing.writer.watch(topic, tags, keys, len(body), kind, on_delivery)
        return await sender.send(wire, on_delivery, urgent=False)

    async def send_oneway(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
    ) -> None:
        """Send a message without asking for its outcome; awaits only while the buffer is full.

        It is sent, tried again and stored once as those of `send`; arguments and errors are the same.
        """
        keys = read_again(keys) if self._settings.trace else keys
        wire = self._encoder.encode(NewMessage(topic, body, keys, tags, properties, queue_id, None, born_time, flag))
        sender = self._started()
        told: OnDelivery = _ignore
        if self._tracing is not None:
            told = self._tracing.writer.watch(topic, tags, keys, len(body), NORMAL, _ignore)
        await sender.send(wire, told, urgent=False)

    async def send_and_wait(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
        delivery_time: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int = 0,
        priority: int | None = None,
        lite_topic: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SendReceipt:
        """See `Producer.send_and_wait`."""
        properties = with_place(with_delay(properties, delay), priority, lite_topic)
        keys = read_again(keys) if self._settings.trace else keys
        message = NewMessage(
            topic, body, keys, tags, properties, queue_id, unique_key, born_time, flag, delivery_time, delay_level
        )
        wire = self._encoder.encode(message)
        sender = self._started()
        told: OnDelivery | None = None
        if self._tracing is not None:
            kind = message_type_of(properties, delivery_time, delay_level)
            told = self._tracing.writer.watch(topic, tags, keys, len(body), kind, None)
        future = await sender.send(wire, told, urgent=True)
        async with asyncio.timeout(timeout_seconds):
            return await asyncio.shield(future)

    async def send_batch(self, messages: Iterable[NewMessage]) -> asyncio.Future[Receipts]:
        """See `Producer.send_batch`; awaits only while the buffer is full."""
        sender = self._started()
        tracing = self._tracing
        listed = list(messages) if tracing is None else all_read_again(messages)
        wires = self._encoder.encode_all(listed)
        told: OnBatch | None = None if tracing is None else tracing.writer.watch_all(listed)
        return await sender.send_all(wires, told)

    async def recall(self, handle: Handle) -> str:
        """See `Producer.recall`."""
        return await recall_question(handle).ask(self._opened_calls())

    async def request(self, message: NewMessage, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT) -> "Message":
        """See `Producer.request`."""
        return await ask_for_reply(self._opened_calls(), message, timeout_seconds)

    async def reply(
        self,
        request: "ReceivedMessage | Message",
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> SendReceipt:
        """See `Producer.reply`."""
        reply = await make_reply(self._opened_calls(), request, body, properties)
        return await self.send_and_wait(reply.topic, reply.body, properties=reply.properties)

    async def flush(self, timeout_seconds: float | None = None) -> bool:
        """See `Producer.flush`."""
        return self._sender is None or await self._sender.core.flush(timeout_seconds)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """See `Producer.close`."""
        self._is_closed = True
        if self._sender is not None:
            await self._sender.close(timeout_seconds)
        if self._tracing is not None:
            await self._tracing.close()

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._is_closed or self._sender is None or self._sender.is_closed:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        # Its tasks live on until its messages are delivered, if its event loop does.
        with contextlib.suppress(RuntimeError):
            self._sender.core.begin_close()

    def __repr__(self) -> str:
        return f"AsyncProducer({self.target!r})"

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = open_async_channel(self.target, self._security)
        return self._channel

    def _opened_calls(self) -> AsyncGatewayCalls:
        self._started()
        return AsyncGatewayCalls(self.target, channel=self._opened())

    def _started(self) -> LoopSender:
        """A channel of grpc's belongs to the event loop that runs when it is made."""
        if self._is_closed:
            raise ProducerClosedError("the producer is closed")
        if self._sender is None:
            owns_channel = self._owns_channel
            channel = self._opened()
            self._sender = LoopSender(channel, self._settings, owns_channel=owns_channel)
            if self._settings.trace:
                given = None if owns_channel else channel
                self._tracing = LoopTracing.of(
                    self.target, given, self._security, self._settings.trace_topic, self._settings.producer_group
                )
        return self._sender


def _close_all() -> None:
    for sender in list(_unclosed):
        sender.close(EXIT_SECONDS_MAX)


def _forget_all() -> None:
    for sender in list(_all):
        sender.is_forked = True
    _unclosed.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)


def _ignore(_receipt: SendReceipt | None, _error: ReputClientError | None) -> None:
    """Of a message without a future: asyncio must not report its error as never retrieved."""
