"""Messages that wait, as a gateway lists them; `QueryClient` has each function as a method."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.commands import Handle, TransactionResolution, end_question, recall_question
from reput_client.encoding import from_timestamp, time_or_none
from reput_client.querying.queries import PAGE_SIZE_DEFAULT
from reput_client.querying.question import Cursor, Question, TokenCursor
from reput_client.receipt import SendReceipt


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that waits for a verdict.

    Attributes:
        broker_name: its shard.
        topic, unique_key: of the message.
        transaction_id: names it for `end_transaction`.
        producer_group: that it names; may be empty.
        offset_msg_id: of the record of the half message.
        born_time: when its producer made it.
        check_count: how often producers were asked.
        next_check_time: when they are asked next; None: when one is there.
    """

    broker_name: str
    topic: str
    unique_key: str
    transaction_id: str
    producer_group: str
    offset_msg_id: str
    born_time: datetime
    check_count: int
    next_check_time: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that waits for a time.

    Attributes:
        broker_name: its shard.
        topic, unique_key: of the message.
        offset_msg_id: of the record that waits.
        delivery_time: when it is due.
        delay_level: 0: it waits by the timer.
        recall_handle: recalls it; empty when it waits by a delay level.
    """

    broker_name: str
    topic: str
    unique_key: str
    offset_msg_id: str
    delivery_time: datetime
    delay_level: int
    recall_handle: str


def pending_transactions(
    topic: str = "", page_size: int = PAGE_SIZE_DEFAULT, max_count: int | None = None
) -> Cursor[PendingTransaction]:
    """The half messages that wait for a verdict, shard by shard, the oldest first.

    Args:
        topic: the only one; empty: all.
        page_size: of one page, 1 to 1,000.
        max_count: end after so many; None: no limit.
    """
    request = pb.ListPendingTransactionsRequest(topic=topic, page_size=page_size)
    return TokenCursor("ListPendingTransactions", request, _transactions_of, max_count)


def scheduled_messages(
    topic: str = "", page_size: int = PAGE_SIZE_DEFAULT, max_count: int | None = None
) -> Cursor[ScheduledMessage]:
    """The messages that wait for a time, shard by shard, the next due one first. Arguments as `pending_transactions`."""
    request = pb.ListScheduledMessagesRequest(topic=topic, page_size=page_size)
    return TokenCursor("ListScheduledMessages", request, _messages_of, max_count)


def recall(handle: Handle) -> Question[str]:
    """Take back a message that waits for its time; its unique key.

    Args:
        handle: its receipt, or the `recall_handle` of it.

    Raises:
        ScheduledMessageNotFoundError: it was delivered or recalled before.
    """
    asked = recall_question(handle)
    return Question(asked.method, asked.request, asked.take, is_repeatable=False)


def end_transaction(
    transaction_id: str, resolution: TransactionResolution, *, topic: str = "", is_from_check: bool = False
) -> Question[SendReceipt | None]:
    """End a transaction; of a commit, the receipt of the message.

    Args:
        transaction_id: from a receipt, or from `pending_transactions`.
        resolution: COMMIT or ROLLBACK.
        topic: of the message; empty: as the id says.
        is_from_check: it counts also after the time that the message sets for its first check; for operators.

    Raises:
        TransactionNotFoundError: it has ended, or there never was one.
    """
    asked = end_question(topic, transaction_id, resolution, is_from_check=is_from_check)
    return Question(asked.method, asked.request, asked.take, is_repeatable=False)


def _transactions_of(answer: Any) -> tuple[PendingTransaction, ...]:
    return tuple(
        PendingTransaction(
            each.broker_name,
            each.topic,
            each.unique_key,
            each.transaction_id,
            each.producer_group,
            each.offset_msg_id,
            from_timestamp(each.born_time),
            each.check_count,
            time_or_none(each, "next_check_time"),
        )
        for each in answer.transactions
    )


def _messages_of(answer: Any) -> tuple[ScheduledMessage, ...]:
    return tuple(
        ScheduledMessage(
            each.broker_name,
            each.topic,
            each.unique_key,
            each.offset_msg_id,
            from_timestamp(each.delivery_time),
            each.delay_level,
            each.recall_handle,
        )
        for each in answer.messages
    )
