"""`TransactionProducer` and `AsyncTransactionProducer`: messages that count only when their transaction is committed.

What both do stands in `_TransactionCore`, as coroutines (see `threads_and_loops.py`). A half message has RocketMQ's properties.
Gateways ask the checker about transactions that hang; their questions come over a Telemetry stream (`Link`).
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import ADDRESS_DEFAULT, TIMEOUT_SECONDS_DEFAULT, CallCore
from reput_client.commands import TransactionResolution, end_question, unique_key_of_handle
from reput_client.consuming.core import new_client_id
from reput_client.consuming.link import Link
from reput_client.consuming.loops import LoopTransport
from reput_client.consuming.received_message import ReceivedMessage, received_message_of
from reput_client.consuming.refusals import error_of
from reput_client.consuming.subscription import Member
from reput_client.consuming.threads import ThreadTransport
from reput_client.consuming.transport import Transport
from reput_client.errors import ReputClientError
from reput_client.producing.append_client import AnyNewMessage, AppendClient, AsyncAppendClient
from reput_client.producing.messages import NewMessage
from reput_client.producing.settings import PRODUCER_GROUP_DEFAULT, TRACE_TOPIC
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.receipt import SendReceipt
from reput_client.retry import RetryPolicy
from reput_client.security import ClientSecurity
from reput_client.threads_and_loops import run_blocking
from reput_client.tracing import (
    TRAN_MSG,
    LoopTracing,
    ThreadTracing,
    TraceWriter,
    all_read_again,
    read_again,
    store_host_of,
)

CLOSE_SECONDS_MAX = 3.0
PRODUCER_GROUP = "PGROUP"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
V2_RESOLUTIONS = {TransactionResolution.COMMIT: v2.COMMIT, TransactionResolution.ROLLBACK: v2.ROLLBACK}
# RocketMQ's `LocalTransactionState`, as a trace names it.
VERDICTS = {
    TransactionResolution.COMMIT: "COMMIT_MESSAGE",
    TransactionResolution.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionResolution.UNKNOWN: "UNKNOW",
}

# Says how the transaction of a half message ends.
Checker = Callable[[ReceivedMessage], TransactionResolution]
AsyncChecker = Callable[[ReceivedMessage], TransactionResolution | Awaitable[TransactionResolution]]

_log = logging.getLogger("reput_client")


class LinkTimes:
    """The times of a link; see `ConsumerSettings`."""

    heartbeat_seconds = 10.0
    settings_seconds = 300.0
    request_seconds_max = 10.0
    retry = RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=5.0)


class _TransactionCore(CallCore):
    """The part that both transaction producers share.

    `_tracer`: tells of half messages and verdicts; None: nothing is told.
    """

    _create_unique_key: Callable[[], bytes]
    _checker: AsyncChecker | None
    _topics: list[str]
    _link: Link | None
    _tracer: TraceWriter | None = None
    client_id: str

    def _set_up(self, topics: list[str], checker: AsyncChecker | None) -> None:
        self._create_unique_key = UniqueKeyGenerator().create_ascii
        self._checker = checker
        self._topics = topics
        self._link = None
        self.client_id = new_client_id()

    def _half_of(self, message: NewMessage, check_after_seconds: int | None) -> NewMessage:
        return half_of(message, self._create_unique_key().decode(), check_after_seconds)

    async def _end(self, topic: str, transaction_id: str, resolution: TransactionResolution) -> SendReceipt | None:
        receipt = await end_question(topic, transaction_id, resolution).ask(self)
        if self._tracer is not None:
            with contextlib.suppress(ValueError):  # the id is of a later release, and the transaction has ended
                self._tracer.verdict(topic, unique_key_of_handle(transaction_id), VERDICTS[resolution])
        return receipt

    async def _end_half(self, half: "_HalfMessageCore", resolution: TransactionResolution) -> SendReceipt | None:
        message, receipt = half.message, half.receipt
        answer = await end_question(message.topic, receipt.transaction_id, resolution).ask(self)
        if self._tracer is not None:
            self._tracer.verdict(
                message.topic,
                receipt.unique_key,
                VERDICTS[resolution],
                tags=message.tags,
                keys=message.keys,
                store_host=store_host_of(receipt.offset_msg_id),
            )
        return answer

    def _told(self, messages: Sequence[AnyNewMessage], receipts: Sequence[SendReceipt], began: int) -> None:
        """Tell of messages that are stored, but for those of the contract's own class."""
        if self._tracer is not None:
            told = [
                (each, receipt)
                for each, receipt in zip(messages, receipts, strict=True)
                if isinstance(each, NewMessage)
            ]
            self._tracer.sent_all([each for each, _ in told], [receipt for _, receipt in told], began)

    def _began(self) -> int:
        return 0 if self._tracer is None else self._tracer.millis()

    def _open_link(self, transport: Transport) -> None:
        """Ask gateways to ask the checker, if there is one."""
        if not self._topics or self._link is not None:
            return
        member = Member(self.client_id, "", dict.fromkeys(self._topics, "*"), v2.PRODUCER)
        settings_came, failed = (lambda _: None), _log_failure
        self._link = Link(transport, self.target, member, LinkTimes, settings_came, failed, self._asked)
        with transport.lock:
            self._link.open()

    def _close_link(self, transport: Transport, done: Callable[[], None]) -> bool:
        """Tell the gateways to ask no more, then call `done`; False when there is no link, and no call of `done`."""
        link, self._link = self._link, None
        if link is None:
            return False
        with transport.lock:
            link.close(CLOSE_SECONDS_MAX, done)
        return True

    def _asked(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        """A gateway asks how a transaction ends. Called without the lock."""
        raise NotImplementedError

    def _tell(
        self, transport: Transport, question: v2.RecoverOrphanedTransactionCommand, resolution: TransactionResolution
    ) -> None:
        """Answer a question; its outcome has no effect, because a question without an answer comes again."""
        request = end_request(question, resolution)
        if request is None:
            self._tell_verdict(question, resolution)
            return

        def taken(answer: Any) -> None:
            if not isinstance(answer, ReputClientError) and error_of(answer.status) is None:
                self._tell_verdict(question, resolution)

        transport.call(self.target, "EndTransaction", request, LinkTimes.request_seconds_max, taken)

    def _tell_verdict(self, question: v2.RecoverOrphanedTransactionCommand, resolution: TransactionResolution) -> None:
        """Tell of an answer to a question: one that a gateway has taken, or that there is no verdict yet."""
        if self._tracer is not None:
            message, system = question.message, question.message.system_properties
            self._tracer.verdict(
                message.topic.name,
                system.message_id,
                VERDICTS[resolution],
                tags=system.tag,
                keys=system.keys,
                store_host=system.store_host,
                is_from_check=True,
            )


class _HalfMessageCore:
    """The part that both half messages share."""

    def __init__(self, producer: _TransactionCore, message: NewMessage, receipt: SendReceipt) -> None:
        self._producer = producer
        self.message = message
        self.receipt = receipt
        self.resolution = TransactionResolution.UNKNOWN

    async def _end(self, resolution: TransactionResolution) -> SendReceipt | None:
        receipt = await self._producer._end_half(self, resolution)
        self.resolution = resolution
        return receipt

    async def _end_block(self, *, has_failed: bool) -> None:
        """The end of a `with transaction` block, which commits or rolls back unless the block has done so itself."""
        if self.resolution is not TransactionResolution.UNKNOWN:
            return
        if has_failed:
            with contextlib.suppress(ReputClientError):  # the checker is asked
                await self._end(TransactionResolution.ROLLBACK)
        else:
            await self._end(TransactionResolution.COMMIT)


class HalfMessage(_HalfMessageCore):
    """A stored message that no consumer sees until it is committed. Made by `TransactionProducer.send_half`.

    Attributes:
        message: what is sent when it is committed.
        receipt: of the half message.
        resolution: how it ended here; UNKNOWN until then.
    """

    def commit(self) -> SendReceipt | None:
        """Consumers get the message; its receipt. Errors as `TransactionProducer.end`."""
        return run_blocking(self._end, TransactionResolution.COMMIT)

    def rollback(self) -> None:
        """No consumer ever gets the message. Errors as `TransactionProducer.end`."""
        run_blocking(self._end, TransactionResolution.ROLLBACK)


class AsyncHalfMessage(_HalfMessageCore):
    """See `HalfMessage`."""

    async def commit(self) -> SendReceipt | None:
        """See `HalfMessage.commit`."""
        return await self._end(TransactionResolution.COMMIT)

    async def rollback(self) -> None:
        """See `HalfMessage.rollback`."""
        await self._end(TransactionResolution.ROLLBACK)


class TransactionProducer(AppendClient, _TransactionCore):
    """Sends half messages and ends their transactions; for any number of threads.

        def check(message):  # asked about transactions that hang, perhaps of a producer that died
            return TransactionResolution.COMMIT if is_paid(message.keys[0]) else TransactionResolution.ROLLBACK

        with TransactionProducer("127.0.0.1:8081", topics=["Orders"], checker=check) as producer:
            with producer.transaction(NewMessage("Orders", b"hello", keys=["order-1001"])):
                pay("order-1001")  # an exception rolls back, the end of the block commits

    Args:
        target: the gateway, `HOST:PORT`.
        topics: those about whose transactions the checker is asked, also transactions of other producers.
        checker: called in a thread of the producer. What it raises is logged, and the producers are asked again later.
        security: TLS and credentials.
        timeout_seconds: limit of one call with all its attempts.
        retry: how often and how fast the sending of a half message is tried again.
        trace: tell of messages and verdicts in RocketMQ's format; see `ProducerSettings`.
        trace_topic: where traces go.
        producer_group: the name under which this producer is told of.

    Raises:
        ValueError: a checker without topics, or the reverse.
        OSError, ValueError: `security` cannot be used.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        topics: Iterable[str] = (),
        checker: Checker | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        retry: RetryPolicy | None = None,
        trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        producer_group: str = PRODUCER_GROUP_DEFAULT,
    ) -> None:
        checked = check_topics(topics, checker)
        super().__init__(target, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._set_up(checked, checker)
        self._tracing: ThreadTracing | None = None
        if trace:
            self._tracing = ThreadTracing.of(target, None, security, trace_topic, producer_group)
            self._tracer = self._tracing.writer
        self._transport = ThreadTransport(self.client_id, security)
        self._open_link(self._transport)

    def append(self, messages: Iterable[AnyNewMessage], **options: Any) -> tuple[SendReceipt, ...]:
        """See `AppendClient.append`; a message with TRAN_MSG among its properties is a half message."""
        listed, began = all_read_again(messages), self._began()
        receipts = super().append(listed, **options)
        self._told(listed, receipts, began)
        return receipts

    def send_half(self, message: NewMessage, *, check_after_seconds: int | None = None) -> HalfMessage:
        """Store a message whose transaction begins.

        Args:
            message: without a delivery time.
            check_after_seconds: the checkers are asked about it when its transaction has not ended after so long; None: as
                the store is set. After that only the end that answers a question counts.

        Raises:
            ReputClientError: it is not stored; after an UnavailableError it may be, then the checker is asked.
        """
        half = self._half_of(message, check_after_seconds)
        (receipt,) = self.append([half], deduplicate=True)
        return HalfMessage(self, half, receipt)

    @contextlib.contextmanager
    def transaction(self, message: NewMessage, *, check_after_seconds: int | None = None) -> Iterator[HalfMessage]:
        """A block whose end commits, and whose exceptions roll back, unless it has done so itself. Arguments as `send_half`."""
        half = self.send_half(message, check_after_seconds=check_after_seconds)
        try:
            yield half
        except BaseException:
            run_blocking(half._end_block, has_failed=True)
            raise
        run_blocking(half._end_block, has_failed=False)

    def end(self, topic: str, transaction_id: str, resolution: TransactionResolution) -> SendReceipt | None:
        """End a transaction; of a commit, the receipt of the message.

        Raises:
            TransactionNotFoundError: it has ended, or there never was one.
            ReputClientError: the call failed; after an UnavailableError it may have ended.
        """
        return run_blocking(self._end, topic, transaction_id, resolution)

    def close(self) -> None:
        """End; the checker is asked no more."""
        told = self._transport.future()
        if self._close_link(self._transport, lambda: told.set_result(None)):
            with contextlib.suppress(TimeoutError):
                told.result(CLOSE_SECONDS_MAX)
        self._transport.close()
        if self._tracing is not None:
            self._tracing.close()
        super().close()

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        assert self._checker is not None, "a link without a checker"
        resolution: Any = self._checker(half_message_of(question))
        self._tell(self._transport, question, resolution)


class AsyncTransactionProducer(AsyncAppendClient, _TransactionCore):
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
        trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        producer_group: str = PRODUCER_GROUP_DEFAULT,
    ) -> None:
        checked = check_topics(topics, checker)
        super().__init__(target, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._set_up(checked, checker)
        self._transport = LoopTransport(self.client_id, security)
        self._security = security
        self._told_as = (trace_topic, producer_group) if trace else None
        self._tracing: LoopTracing | None = None
        self._checks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "AsyncTransactionProducer":
        self._start_tracing()
        self._open_link(self._transport)
        return self

    def _start_tracing(self) -> None:
        """A channel of grpc's belongs to the event loop that runs when it is made."""
        if self._told_as is not None and self._tracing is None:
            self._tracing = LoopTracing.of(self.target, None, self._security, *self._told_as)
            self._tracer = self._tracing.writer

    async def append(self, messages: Iterable[AnyNewMessage], **options: Any) -> tuple[SendReceipt, ...]:
        """See `TransactionProducer.append`."""
        self._start_tracing()
        listed, began = all_read_again(messages), self._began()
        receipts = await super().append(listed, **options)
        self._told(listed, receipts, began)
        return receipts

    async def send_half(self, message: NewMessage, *, check_after_seconds: int | None = None) -> AsyncHalfMessage:
        """See `TransactionProducer.send_half`."""
        half = self._half_of(message, check_after_seconds)
        (receipt,) = await self.append([half], deduplicate=True)
        return AsyncHalfMessage(self, half, receipt)

    @contextlib.asynccontextmanager
    async def transaction(
        self, message: NewMessage, *, check_after_seconds: int | None = None
    ) -> AsyncIterator[AsyncHalfMessage]:
        """See `TransactionProducer.transaction`."""
        half = await self.send_half(message, check_after_seconds=check_after_seconds)
        try:
            yield half
        except BaseException:
            await half._end_block(has_failed=True)
            raise
        await half._end_block(has_failed=False)

    async def end(self, topic: str, transaction_id: str, resolution: TransactionResolution) -> SendReceipt | None:
        """See `TransactionProducer.end`."""
        return await self._end(topic, transaction_id, resolution)

    async def close(self) -> None:
        """End; the checker is asked no more."""
        told = asyncio.Event()
        if self._close_link(self._transport, told.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), CLOSE_SECONDS_MAX)
        for check in self._checks:
            check.cancel()
        await self._transport.close()
        if self._tracing is not None:
            await self._tracing.close()
        await super().close()

    def _asked(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        task = asyncio.get_running_loop().create_task(self._check(question))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        assert self._checker is not None, "a link without a checker"
        resolution = self._checker(half_message_of(question))
        self._tell(self._transport, question, await resolution if inspect.isawaitable(resolution) else resolution)


def half_of(message: NewMessage, unique_key: str, check_after_seconds: int | None) -> NewMessage:
    """The half message of a message.

    Raises:
        ValueError: it would wait for a time, too.
    """
    if message.delivery_time is not None or message.delay_level:
        raise ValueError("a message of a transaction cannot have a delivery_time or a delay_level")
    properties = {**(message.properties or {}), TRAN_MSG: "true", PRODUCER_GROUP: message.topic}
    if check_after_seconds is not None:
        properties[CHECK_IMMUNITY_SECONDS] = str(check_after_seconds)
    return message._replace(
        properties=properties, unique_key=message.unique_key or unique_key, keys=read_again(message.keys)
    )


def check_topics(topics: Iterable[str], checker: object) -> list[str]:
    """The topics of a checker; ValueError when one comes without the other."""
    if isinstance(topics, str):
        raise TypeError("topics is a text: give a sequence of topics, such as [topic]")
    listed = list(topics)
    if bool(listed) != (checker is not None):
        raise ValueError("topics and checker belong together: give both, or none")
    return listed


def half_message_of(question: v2.RecoverOrphanedTransactionCommand) -> ReceivedMessage:
    """The half message that a question is about."""
    return received_message_of(question.message, "")


def end_request(
    question: v2.RecoverOrphanedTransactionCommand, resolution: TransactionResolution
) -> v2.EndTransactionRequest | None:
    """The answer to a question; None: there is none yet."""
    if resolution is TransactionResolution.UNKNOWN:
        return None
    request = v2.EndTransactionRequest(
        topic=question.message.topic,
        message_id=question.message.system_properties.message_id,
        transaction_id=question.transaction_id,
        source=v2.SOURCE_SERVER_CHECK,
    )
    request.resolution = V2_RESOLUTIONS[resolution]
    return request


def _log_failure(error: ReputClientError) -> None:
    """A gateway has refused a producer's settings, so it asks the producer's checker nothing."""
    _log.error("the checker of this producer is not asked about transactions: %s", error)
