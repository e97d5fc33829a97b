"""Calls that are sent once: recalls of messages that wait for a time, and ends of transactions; and delays as properties."""

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.calls import CallCore
from reput_client.receipt import SendReceipt

# RocketMQ's property of a delay that is counted from when the store takes the message.
TIMER_DELAY_MS = "TIMER_DELAY_MS"

Answer = TypeVar("Answer")
# A receipt, or the handle in it.
Handle = SendReceipt | str


class TransactionResolution(Enum):
    """The end of a transaction."""

    COMMIT = pb.TRANSACTION_RESOLUTION_COMMIT  # the message counts
    ROLLBACK = pb.TRANSACTION_RESOLUTION_ROLLBACK  # it does not
    UNKNOWN = pb.TRANSACTION_RESOLUTION_UNSPECIFIED  # not known yet: the producers are asked again later


class Command(NamedTuple, Generic[Answer]):
    """A call that is not sent again after a failure."""

    method: str
    request: Any
    take: Callable[[Any], Answer]

    async def ask(self, calls: CallCore) -> Answer:
        """The answer; ReputClientError when the call fails."""
        return self.take(await calls._ask(self.method, self.request, is_repeatable=False))


def recall_question(handle: Handle) -> Command[str]:
    """Takes back a message: its unique key. ValueError when the message does not wait for a time."""
    text = handle.recall_handle if isinstance(handle, SendReceipt) else handle
    if not text:
        raise ValueError("the receipt has no recall_handle: its message does not wait for a delivery_time")
    request = pb.RecallMessageRequest(topic=topic_of_handle(text), recall_handle=text)
    return Command("RecallMessage", request, lambda answer: str(answer.unique_key))


def end_question(
    topic: str, transaction_id: str, resolution: TransactionResolution, *, is_from_check: bool = False
) -> Command[SendReceipt | None]:
    """Ends a transaction: of a commit, the receipt of the message. ValueError for UNKNOWN, which ends nothing."""
    if resolution is TransactionResolution.UNKNOWN:
        raise ValueError("UNKNOWN ends no transaction: give COMMIT or ROLLBACK")
    request = pb.EndTransactionRequest(
        topic=topic or topic_of_handle(transaction_id), transaction_id=transaction_id, is_from_check=is_from_check
    )
    request.resolution = resolution.value
    return Command(
        "EndTransaction", request, lambda answer: SendReceipt(answer.result) if answer.HasField("result") else None
    )


def topic_of_handle(text: str) -> str:
    """The topic in a recall handle or the id of a transaction; ValueError when the text is neither."""
    return _fields_of(text)[1]


def unique_key_of_handle(text: str) -> str:
    """The unique key in it; errors as `topic_of_handle`."""
    return _fields_of(text)[4]


def _fields_of(text: str) -> list[str]:
    """Version, topic, shard, time or offset, unique key; errors as `topic_of_handle`."""
    try:
        parts = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ", 4)
        if parts[0] in ("v1", "t1") and len(parts) == 5:
            return parts
    except (binascii.Error, ValueError):
        pass
    raise ValueError(f"{text[:64]!r} is no recall handle and no id of a transaction: use that of the receipt")


def with_delay(properties: Mapping[str, str] | None, delay: timedelta | None) -> Mapping[str, str] | None:
    """The properties of a message that is delivered after a delay.

    Raises:
        TypeError: the delay is no timedelta.
        ValueError: it is negative.
    """
    if delay is None:
        return properties
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay is {delay!r}: give a timedelta, for example timedelta(seconds=1)")
    millis = delay // timedelta(milliseconds=1)
    if millis < 0:
        raise ValueError(f"delay is {delay}: it must not be negative")
    return {**(properties or {}), TIMER_DELAY_MS: str(millis)} if millis else properties
