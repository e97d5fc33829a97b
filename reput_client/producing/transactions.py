"""`TransactionProducer`: messages that count only when their transaction is committed."""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from types import TracebackType

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import ADDRESS_DEFAULT, TIMEOUT_SECONDS_DEFAULT
from reput_client.consuming.core import new_client_id
from reput_client.consuming.link import Link
from reput_client.consuming.threads import ThreadTransport
from reput_client.errors import ReputClientError
from reput_client.producing.append_client import AppendClient
from reput_client.producing.half_messages import (
    Checker,
    LinkSettings,
    half_message_of,
    half_of,
    ignore,
    open_link,
    verdict_request,
)
from reput_client.producing.new_message import NewMessage
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.receipt import SendReceipt
from reput_client.retry import RetryPolicy
from reput_client.security import ClientSecurity
from reput_client.waiting import TransactionResolution, end_question

CLOSE_SECONDS_MAX = 3.0

_log = logging.getLogger("reput_client")


class HalfMessage:
    """A stored message that no consumer sees until it is committed. Made by `TransactionProducer.send_half`.

    Attributes:
        receipt: of the half message.
        resolution: how it ended here; UNKNOWN until then.
    """

    def __init__(self, producer: "TransactionProducer", topic: str, receipt: SendReceipt) -> None:
        self._producer = producer
        self._topic = topic
        self.receipt = receipt
        self.resolution = TransactionResolution.UNKNOWN

    def commit(self) -> SendReceipt | None:
        """Consumers get the message; its receipt. Errors as `TransactionProducer.end`."""
        return self._end(TransactionResolution.COMMIT)

    def rollback(self) -> None:
        """No consumer ever gets the message. Errors as `TransactionProducer.end`."""
        self._end(TransactionResolution.ROLLBACK)

    def _end(self, resolution: TransactionResolution) -> SendReceipt | None:
        receipt = self._producer.end(self._topic, self.receipt.transaction_id, resolution)
        self.resolution = resolution
        return receipt


class TransactionProducer(AppendClient):
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
    ) -> None:
        topics = check_topics(topics, checker)
        super().__init__(target, security=security, timeout_seconds=timeout_seconds, retry=retry)
        self._create_unique_key = UniqueKeyGenerator().create_ascii
        self._checker = checker
        self.client_id = new_client_id()
        self._transport = ThreadTransport(self.client_id, security)
        self._link: Link | None = None
        if topics:
            self._link = open_link(self._transport, target, self.client_id, topics, self._asked, log_failure)

    def send_half(self, message: NewMessage, *, check_after_seconds: int | None = None) -> HalfMessage:
        """Store a message whose transaction begins.

        Args:
            message: without a delivery time.
            check_after_seconds: producers are asked about it after so long without a verdict; None: as the store is set. A
                verdict that was not asked for does not count after it.

        Raises:
            ReputClientError: it is not stored; after an UnavailableError it may be, then the checker is asked.
        """
        half = half_of(message, self._create_unique_key().decode(), check_after_seconds)
        (receipt,) = self.append([half], deduplicate=True)
        return HalfMessage(self, message.topic, receipt)

    @contextlib.contextmanager
    def transaction(self, message: NewMessage, *, check_after_seconds: int | None = None) -> Iterator[HalfMessage]:
        """A block whose end commits, and whose exceptions roll back, unless it has done so itself. Arguments as `send_half`."""
        half = self.send_half(message, check_after_seconds=check_after_seconds)
        try:
            yield half
        except BaseException:
            if half.resolution is TransactionResolution.UNKNOWN:
                with contextlib.suppress(ReputClientError):  # the checker is asked
                    half.rollback()
            raise
        if half.resolution is TransactionResolution.UNKNOWN:
            half.commit()

    def end(self, topic: str, transaction_id: str, resolution: TransactionResolution) -> SendReceipt | None:
        """End a transaction; of a commit, the receipt of the message.

        Raises:
            TransactionNotFoundError: it has ended, or there never was one.
            ReputClientError: the call failed; after an UnavailableError it may have ended.
        """
        return end_question(topic, transaction_id, resolution).ask(self)

    def close(self) -> None:
        """End; the checker is asked no more."""
        link, self._link = self._link, None
        if link is not None:
            told = self._transport.future()
            with self._transport.lock:
                link.close(CLOSE_SECONDS_MAX, lambda: told.set_result(None))
            with contextlib.suppress(TimeoutError):
                told.result(CLOSE_SECONDS_MAX)
        self._transport.close()
        super().close()

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, question: v2.RecoverOrphanedTransactionCommand) -> None:
        assert self._checker is not None, "a link without a checker"
        request = verdict_request(question, self._checker(half_message_of(question)))
        if request is not None:
            self._transport.call(self.target, "EndTransaction", request, LinkSettings.request_seconds_max, ignore)


def check_topics(topics: Iterable[str], checker: object) -> list[str]:
    """The topics of a checker; ValueError when one comes without the other."""
    if isinstance(topics, str):
        raise TypeError("topics is a text: give a sequence of topics, such as [topic]")
    listed = list(topics)
    if bool(listed) != (checker is not None):
        raise ValueError("topics and checker belong together: give both, or none")
    return listed


def log_failure(error: ReputClientError) -> None:
    """What happens when a gateway refuses a producer's settings: it is not asked."""
    _log.error("this producer is asked for no verdicts: %s", error)
