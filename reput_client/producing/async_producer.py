"""`AsyncProducer`: sends messages under asyncio; each gets a future."""

import asyncio
import contextlib
import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from reput_client.calls import AsyncGatewayCalls
from reput_client.channel import open_async_channel
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.errors import ProducerClosedError, ReputClientError
from reput_client.producing.batch_delivery import Receipts
from reput_client.producing.futures import OnDelivery
from reput_client.producing.loops import LoopSender
from reput_client.producing.new_message import NewMessage
from reput_client.producing.requests import (
    TIMEOUT_SECONDS_DEFAULT,
    by_key_question,
    reply_of,
    request_question,
    stored_question,
)
from reput_client.producing.settings import ProducerSettings
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.producing.wire import encode, encode_all
from reput_client.receipt import SendReceipt
from reput_client.security import ClientSecurity
from reput_client.waiting import Handle, recall_question, with_delay

if TYPE_CHECKING:
    from reput_client.querying.message import Message


def _ignore(_receipt: SendReceipt | None, _error: ReputClientError | None) -> None:
    """Of a message without a future: asyncio must not report its error as never retrieved."""


class AsyncProducer:
    """Sends messages through a gateway; for the tasks of one event loop.

        async with AsyncProducer("127.0.0.1:8081") as producer:
            future = await producer.send("Orders", b"hello", keys=["order-1001"])
            print((await future).offset_msg_id)

    What `Producer` says of order, unique keys and settings holds here too. Cancelling a message's future does not call
    the message back. An event loop that ends without `close` drops what was not delivered.

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
        self._create_unique_key = UniqueKeyGenerator().create_ascii

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
        on_delivery: OnDelivery | None = None,
    ) -> asyncio.Future[SendReceipt]:
        """Send a message and return its future; awaits only while the buffer is full.

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
            on_delivery: called with `(receipt, None)` or `(None, error)` from the event loop.

        Raises:
            BufferFullError: no room in `block_seconds_max`.
            ProducerClosedError: closed.
            InvalidMessageError: too large for any request.
        """
        create = self._create_unique_key
        properties = with_delay(properties, delay)
        wire = encode(
            topic,
            body,
            keys,
            tags,
            properties,
            queue_id,
            unique_key,
            born_time,
            flag,
            delivery_time,
            delay_level,
            create,
        )
        return await self._started().send(wire, on_delivery, urgent=False)

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
        create = self._create_unique_key
        wire = encode(topic, body, keys, tags, properties, queue_id, None, born_time, flag, None, 0, create)
        await self._started().send(wire, _ignore, urgent=False)

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
        timeout_seconds: float | None = None,
    ) -> SendReceipt:
        """Send a message and wait until it is stored; it does not linger while nothing else is under way.

        Raises:
            ReputClientError: as `send`, and what its future fails with.
            TimeoutError: not within `timeout_seconds`; it is tried further.
        """
        create = self._create_unique_key
        properties = with_delay(properties, delay)
        wire = encode(
            topic,
            body,
            keys,
            tags,
            properties,
            queue_id,
            unique_key,
            born_time,
            flag,
            delivery_time,
            delay_level,
            create,
        )
        future = await self._started().send(wire, None, urgent=True)
        async with asyncio.timeout(timeout_seconds):
            return await asyncio.shield(future)

    async def send_batch(self, messages: Iterable[NewMessage]) -> asyncio.Future[Receipts]:
        """Send messages in one call; awaits only while the buffer is full.

        The quickest way to send many: what `send` takes for each, this takes once. They travel in one request if they
        fit into one (`batch_count_max`, `batch_bytes_max`), and keep their order as those of `send` do.

        Args:
            messages: any number; the buffer takes all of them or none.

        Returns:
            One future for all: the receipts in the order of the messages, or a BatchDeliveryError that says which failed.

        Raises:
            BufferFullError: no room in `block_seconds_max`.
            ProducerClosedError: closed.
            InvalidMessageError, TypeError, ValueError: as `send`, for one of them; none is sent then.
        """
        return await self._started().send_all(encode_all(messages, self._create_unique_key))

    async def recall(self, handle: Handle) -> str:
        """See `Producer.recall`."""
        return await recall_question(handle).ask(self._opened_calls())

    async def request(self, message: NewMessage, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT) -> "Message":
        """See `Producer.request`."""
        from reput_client.querying.message import message_of  # a producer that sends no requests loads no queries

        return message_of(await request_question(message, timeout_seconds).ask(self._opened_calls()))

    async def reply(
        self,
        request: "ReceivedMessage | Message",
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> SendReceipt:
        """See `Producer.reply`."""
        if isinstance(request, ReceivedMessage):
            known = await stored_question(request).ask(self._opened_calls())
            if known is None:
                known = await by_key_question(request).ask(self._opened_calls())
        else:
            known = request.properties
        reply = reply_of(known, body, properties)
        return await self.send_and_wait(reply.topic, reply.body, properties=reply.properties)

    async def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was sent so far is stored or has failed; False when the time was over first."""
        return self._sender is None or await self._sender.core.flush(timeout_seconds)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Deliver what waits, then end; what is not delivered in time fails. Once closed, always closed.

        Args:
            timeout_seconds: by default `close_seconds_max`.
        """
        self._is_closed = True
        if self._sender is not None:
            await self._sender.close(timeout_seconds)

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
        return self._sender
