"""`AsyncTransactionProducer`: messages that count only when their transaction is committed, under asyncio."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import ADDRESS_DEFAULT, TIMEOUT_SECONDS_DEFAULT
from reput_client.consuming.core import new_client_id
from reput_client.consuming.link import Link
from reput_client.consuming.loops import LoopTransport
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.errors import ReputClientError
from reput_client.producing.append_client import AsyncAppendClient
from reput_client.producing.half_messages import (
    LinkSettings,
    half_message_of,
    half_of,
    ignore,
    open_link,
    verdict_request,
)
from reput_client.producing.new_message import NewMessage
from reput_client.producing.transactions import CLOSE_SECONDS_MAX, check_topics, log_failure
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.receipt import SendReceipt
from reput_client.retry import RetryPolicy
from reput_client.security import ClientSecurity
from reput_client.waiting import TransactionResolution, end_question

AsyncChecker = Callable[[ReceivedMessage], TransactionResolution | Awaitable[TransactionResolution]]


class AsyncHalfMessage:
    """See `HalfMessage`."""

    def __init__(self, producer: "AsyncTransactionProducer", topic: str, receipt: SendReceipt) -> None:
        self._producer = producer
        self._topic = topic
        self.receipt = receipt
        self.resolution = TransactionResolution.UNKNOWN

    async def commit(self) -> SendReceipt | None:
        """See `HalfMessage.commit`."""
        return await self._end(TransactionResolution.COMMIT)

    async def rollback(self) -> None:
        """See `HalfMessage.rollback`."""
        await self._end(TransactionResolution.ROLLBACK)

    async def _end(self, resolution: TransactionResolution) -> SendReceipt | None:
        receipt = await self._producer.end(self._topic, self.receipt.transaction_id, resolution)
        self.resolution = resolution
        return receipt


class AsyncTransactionProducer(AsyncAppendClient):
    """The same as `TransactionProducer` for the tasks of one event loop; the checker may be a coroutine function.

    `async with` begins to answer questions. Arguments are those of `TransactionProducer`.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        topics: Iterable[str] = (),
        checker: AsyncChecker | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._topics = check_topics(topics, checker)
        super().__init__(target, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._create_unique_key = UniqueKeyGenerator().create_ascii
        self._checker = checker
        self.client_id = new_client_id()
        self._transport = LoopTransport(self.client_id, security)
        self._checks: set[asyncio.Task[None]] = set()
        self._link: Link | None = None

    async def __aenter__(self) -> "AsyncTransactionProducer":
        if self._topics and self._link is None:
            target, topics = self.target, self._topics
            self._link = open_link(self._transport, target, self.client_id, topics, self._asked, log_failure)
        return self

    async def send_half(self, message: NewMessage, *, check_after_seconds: int | None = None) -> AsyncHalfMessage:
        """See `TransactionProducer.send_half`."""
        half = half_of(message, self._create_unique_key().decode(), check_after_seconds)
        (receipt,) = await self.append([half], deduplicate=True)
        return AsyncHalfMessage(self, message.topic, receipt)

    @contextlib.asynccontextmanager
    async def transaction(
        self, message: NewMessage, *, check_after_seconds: int | None = None
    ) -> AsyncIterator[AsyncHalfMessage]:
        """See `TransactionProducer.transaction`."""
        half = await self.send_half(message, check_after_seconds=check_after_seconds)
        try:
            yield half
        except BaseException:
            if half.resolution is TransactionResolution.UNKNOWN:
                with contextlib.suppress(ReputClientError):  # the checker is asked
                    await half.rollback()
            raise
        if half.resolution is TransactionResolution.UNKNOWN:
            await half.commit()

    async def end(self, topic: str, transaction_id: str, resolution: TransactionResolution) -> SendReceipt | None:
        """See `TransactionProducer.end`."""
        return await end_question(topic, transaction_id, resolution).aask(self)

    async def close(self) -> None:
        """End; the checker is asked no more."""
        link, self._link = self._link, None
        if link is not None:
            told = asyncio.Event()
            link.close(CLOSE_SECONDS_MAX, told.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), CLOSE_SECONDS_MAX)
        for check in self._checks:
            check.cancel()
        await self._transport.close()
        await super().close()

    def _asked(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(question))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _answer(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        assert self._checker is not None, "a link without a checker"
        verdict = self._checker(half_message_of(question))
        request = verdict_request(question, await verdict if inspect.isawaitable(verdict) else verdict)
        if request is not None:
            self._transport.call(self.target, "EndTransaction", request, LinkSettings.request_seconds_max, ignore)
