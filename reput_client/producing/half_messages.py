"""What both kinds of transaction producers share: half messages as requests, and questions of gateways."""

from collections.abc import Callable, Iterable
from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.link import Link
from reput_client.consuming.received_message import ReceivedMessage, received_message_of
from reput_client.consuming.subscription import Member
from reput_client.consuming.transport import Transport
from reput_client.errors import ReputClientError
from reput_client.producing.new_message import NewMessage
from reput_client.retry import RetryPolicy
from reput_client.waiting import TransactionResolution

TRAN_MSG = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
V2_RESOLUTIONS = {TransactionResolution.COMMIT: v2.COMMIT, TransactionResolution.ROLLBACK: v2.ROLLBACK}

# Gives a verdict on a half message.
Checker = Callable[[ReceivedMessage], TransactionResolution]


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
    return message._replace(properties=properties, unique_key=message.unique_key or unique_key)


class LinkSettings:
    """The times of a link; see `ConsumerSettings`."""

    heartbeat_seconds = 10.0
    settings_seconds = 300.0
    request_seconds_max = 10.0
    retry = RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=5.0)


def open_link(
    transport: Transport,
    target: str,
    client_id: str,
    topics: Iterable[str],
    asked: Callable[[v2.RecoverOrphanedTransactionCommand], None],
    failed: Callable[[ReputClientError], None],
) -> Link:
    """A link of a producer that is asked about its topics."""
    member = Member(client_id, "", dict.fromkeys(topics, "*"), v2.PRODUCER)
    link = Link(transport, target, member, LinkSettings, lambda _: None, failed, asked)
    with transport.lock:
        link.open()
    return link


def verdict_request(
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


def half_message_of(question: v2.RecoverOrphanedTransactionCommand) -> ReceivedMessage:
    """The half message that a question is about."""
    return received_message_of(question.message, "")


def ignore(_: Any) -> None:
    """The outcome of a verdict that answers a question: without effect, the question comes again."""
