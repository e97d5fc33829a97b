"""Arguments of a query to its request: what both query clients share."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.answers import Boundary, Cursor, QueueCursor, TokenCursor, Topic, messages_of, topics_of
from reput_client.encoding import to_timestamp
from reput_client.message import Message
from reput_client.receipt import SendReceipt

PAGE_SIZE_DEFAULT = 64

# What was sent before and must be seen: receipts, or their freshness tokens.
After = SendReceipt | str | Iterable[SendReceipt | str]

RESPONSES: dict[str, Any] = {
    "QueryMessageByKey": pb.QueryMessageByKeyResponse,
    "QueryMessageById": pb.QueryMessageByIdResponse,
    "QueryMessageByUniqueKey": pb.QueryMessageByUniqueKeyResponse,
    "QueryMessageByOffset": pb.QueryMessageByOffsetResponse,
    "SearchOffset": pb.SearchOffsetResponse,
    "ListTopics": pb.ListTopicsResponse,
    "GetStatus": pb.GetStatusResponse,
}


def tokens_of(after: After) -> list[str]:
    """The freshness tokens, each once."""
    each = [after] if isinstance(after, SendReceipt | str) else after
    return list(dict.fromkeys(one if isinstance(one, str) else one.freshness_token for one in each))


def by_key(
    topic: str, key: str, begin: datetime | None, end: datetime | None, page_size: int, after: After
) -> TokenCursor[Message]:
    """Pages of messages by business key."""
    request = pb.QueryMessageByKeyRequest(topic=topic, key=key, page_size=page_size, freshness_tokens=tokens_of(after))
    if begin is not None:
        request.begin_time.CopyFrom(to_timestamp(begin))
    if end is not None:
        request.end_time.CopyFrom(to_timestamp(end))
    return TokenCursor("QueryMessageByKey", request, messages_of)


def by_unique_key(topic: str, unique_key: str, page_size: int, after: After) -> TokenCursor[Message]:
    """Pages of copies by unique key."""
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=topic, unique_key=unique_key, page_size=page_size, freshness_tokens=tokens_of(after)
    )
    return TokenCursor("QueryMessageByUniqueKey", request, messages_of)


def by_offset(
    topic: str,
    queue_id: int,
    queue_offset: int,
    broker_name: str,
    max_messages: int | None,
    page_size: int,
    after: After,
) -> Cursor[Message]:
    """Pages of a queue."""
    if max_messages is not None and max_messages < 0:
        raise ValueError(f"max_messages is {max_messages}: 0 or more, or None for no limit")
    request = pb.QueryMessageByOffsetRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        broker_name=broker_name,
        max_messages=page_size,
        freshness_tokens=tokens_of(after),
    )
    return QueueCursor(request, max_messages)


def topics(page_size: int) -> TokenCursor[Topic]:
    """Pages of topics."""
    return TokenCursor("ListTopics", pb.ListTopicsRequest(page_size=page_size), topics_of)


def by_id(offset_msg_id: str, topic: str, broker_name: str) -> pb.QueryMessageByIdRequest:
    """One message by its offsetMsgId."""
    return pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id, topic=topic, broker_name=broker_name)


def search_offset(
    topic: str, queue_id: int, time: datetime, boundary: Boundary, broker_name: str, after: After
) -> pb.SearchOffsetRequest:
    """A position by store time."""
    return pb.SearchOffsetRequest(
        topic=topic,
        queue_id=queue_id,
        time=to_timestamp(time),
        boundary=boundary.value,
        broker_name=broker_name,
        freshness_tokens=tokens_of(after),
    )


def download(message: Message | str, broker_name: str) -> pb.DownloadBodyRequest:
    """The body of a message, or of the one with that offsetMsgId."""
    if isinstance(message, Message):
        return pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
    return pb.DownloadBodyRequest(offset_msg_id=message, broker_name=broker_name)
