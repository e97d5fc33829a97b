"""The questions a gateway answers, with their arguments; `QueryClient` and `AsyncQueryClient` have each as a method.

client.by_key("Orders", "order-1001")                     asks
client.explain(queries.by_key("Orders", "order-1001"))    asks how that is answered
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.answers import (
    Boundary,
    FoundOffset,
    Match,
    ServiceStatus,
    Topic,
    found_offset_of,
    matches_of,
    messages_of,
    statuses_of,
    topics_of,
)
from reput_client.encoding import to_timestamp
from reput_client.explanation import Explanation, explanation_of
from reput_client.message import Message, message_of
from reput_client.question import Cursor, Question, QueueCursor, SearchCursor, TokenCursor
from reput_client.receipt import SendReceipt

PAGE_SIZE_DEFAULT = 64

# What was sent before and must be seen: receipts, or their freshness tokens.
After = SendReceipt | str | Iterable[SendReceipt | str]

RESPONSES: dict[str, Any] = {
    "QueryMessageByKey": pb.QueryMessageByKeyResponse,
    "QueryMessageById": pb.QueryMessageByIdResponse,
    "QueryMessageByUniqueKey": pb.QueryMessageByUniqueKeyResponse,
    "QueryMessageByOffset": pb.QueryMessageByOffsetResponse,
    "FindMessage": pb.FindMessageResponse,
    "SearchMessages": pb.SearchMessagesResponse,
    "ExplainQuery": pb.ExplainQueryResponse,
    "SearchOffset": pb.SearchOffsetResponse,
    "ListTopics": pb.ListTopicsResponse,
    "GetStatus": pb.GetStatusResponse,
}
# Of an ExplainQueryRequest, by the RPC that is explained.
EXPLAINED_FIELDS = {
    "QueryMessageByKey": "by_key",
    "QueryMessageByUniqueKey": "by_unique_key",
    "QueryMessageById": "by_id",
    "QueryMessageByOffset": "by_offset",
    "FindMessage": "find",
}


def by_key(
    topic: str,
    key: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    page_size: int = PAGE_SIZE_DEFAULT,
    after: After = (),
) -> Cursor[Message]:
    """Messages by business key, newest first.

    Args:
        topic: the topic.
        key: one business key, whole.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        page_size: messages asked for at once, 1 to 1,000.
        after: receipts of messages that the answer must know of, or their freshness tokens; here and in the other
            queries. They are waited for, as long as the call may take; what is not there by then makes the answer
            PARTIAL.
    """
    request = pb.QueryMessageByKeyRequest(topic=topic, key=key, page_size=page_size, freshness_tokens=tokens_of(after))
    _set_window(request, begin, end)
    return TokenCursor("QueryMessageByKey", request, messages_of)


def by_unique_key(
    topic: str, unique_key: str, page_size: int = PAGE_SIZE_DEFAULT, after: After = ()
) -> Cursor[Message]:
    """Every copy of a message by its producer's id, newest first."""
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=topic, unique_key=unique_key, page_size=page_size, freshness_tokens=tokens_of(after)
    )
    return TokenCursor("QueryMessageByUniqueKey", request, messages_of)


def by_id(offset_msg_id: str, *, topic: str = "", broker_name: str = "") -> Question[Message]:
    """The message that an offsetMsgId names; with a topic, it must be of that one.

    Raises:
        RecordNotFoundError: there is none.
    """
    request = pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id, topic=topic, broker_name=broker_name)
    return Question("QueryMessageById", request, lambda response: message_of(response.message))


def by_offset(
    topic: str,
    queue_id: int,
    queue_offset: int = 0,
    broker_name: str = "",
    max_messages: int | None = None,
    page_size: int = PAGE_SIZE_DEFAULT,
    after: After = (),
) -> Cursor[Message]:
    """Messages in queue order from a position on, to the end of the queue or for `max_messages`.

    Positions before the queue's begin are skipped: retention took them.
    """
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


def find(
    text: str,
    topic: str = "",
    begin: datetime | None = None,
    end: datetime | None = None,
    page_size: int = PAGE_SIZE_DEFAULT,
    max_millis: int = 0,
    after: After = (),
) -> Cursor[Match]:
    """Messages by a text of which it need not be known what it is: an offsetMsgId, a unique key or a business key.

    The one by offsetMsgId first, the others newest first in each shard; nothing found is no error.

    Args:
        text: the id or key, whole.
        topic: the only topic to look in; empty: all of them, retry and dead-letter topics included.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        page_size: matches asked for at once, 1 to 1,000.
        max_millis: time after which one page looks in no further topic; 0: no such limit.
        after: as in `by_key`.
    """
    request = pb.FindMessageRequest(
        text=text, topic=topic, page_size=page_size, max_millis=max_millis, freshness_tokens=tokens_of(after)
    )
    _set_window(request, begin, end)
    return TokenCursor("FindMessage", request, matches_of)


def search(
    topic: str,
    *,
    tags: Iterable[str] = (),
    properties: Mapping[str, str | None] | None = None,
    body: str | bytes = b"",
    cel: str = "",
    begin: datetime | None = None,
    end: datetime | None = None,
    broker_name: str = "",
    queue_id: int | None = None,
    begin_queue_offset: int | None = None,
    end_queue_offset: int | None = None,
    newest_first: bool = False,
    page_size: int = PAGE_SIZE_DEFAULT,
    max_records: int = 0,
    max_bytes: int = 0,
    max_millis: int = 0,
    count_total: bool = False,
    after: After = (),
) -> Cursor[Message]:
    """Messages for which all conditions hold that are given, by a scan of the topic's queues, one queue after the other.

    A page ends when it is full or its budgets are used up, and may be empty; `Page.scan` says what was looked at. A run
    over all messages goes on until everything was.

    Args:
        topic: the topic.
        tags: its tag is one of these, at most 64.
        properties: it has these properties, at most 64, with these values; None: with any.
        body: its body, inflated, holds this text as UTF-8, or these bytes; at most 64 KiB.
        cel: a CEL expression of type bool over `message` is true of it; the proto lists its fields.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        broker_name: the only shard; empty: all.
        queue_id: the only queue; None: all.
        begin_queue_offset: positions from here on; needs `queue_id`.
        end_queue_offset: positions before this one; needs `queue_id`.
        newest_first: each queue from its end to its begin.
        page_size: messages asked for at once, 1 to 1,000.
        max_records: positions that one page may look at; 0: 100,000.
        max_bytes: bytes of records that one page may read; 0: 64 MiB.
        max_millis: time that one page may take; 0: 5,000.
        count_total: also count the positions that there are to look at, for `Scan.total_record_count`.
        after: as in `by_key`.
    """
    if isinstance(tags, str):
        raise TypeError("tags is a sequence of tags: give [tag]")
    request = pb.SearchMessagesRequest(
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        begin_queue_offset=begin_queue_offset,
        end_queue_offset=end_queue_offset,
        order=pb.SEARCH_ORDER_NEWEST_FIRST if newest_first else pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=tags,
        properties=[
            pb.SearchMessagesRequest.Property(name=name, value=value) for name, value in (properties or {}).items()
        ],
        cel=cel,
        page_size=page_size,
        max_records=max_records,
        max_bytes=max_bytes,
        max_millis=max_millis,
        count_total=count_total,
        freshness_tokens=tokens_of(after),
    )
    if body:
        if isinstance(body, str):
            request.body_text = body
        else:
            request.body_hex = body.hex()
    _set_window(request, begin, end)
    return SearchCursor(request)


def explain(question: Cursor[Any] | Question[Any]) -> Question[Explanation]:
    """How a question would be answered: index files, candidates, what was rejected and why, bytes and time.

        client.explain(queries.by_key("Orders", "order-1001"))

    Of a run over pages the first one. A question that fails is explained as well, its error in the explanation.

    Args:
        question: made by `by_key`, `by_unique_key`, `by_id`, `by_offset` or `find` of `reput_client.queries`.
    """
    asked = question.next_request()
    if asked is None or asked[0] not in EXPLAINED_FIELDS:
        name = "nothing more" if asked is None else asked[0]
        raise ValueError(f"{name} cannot be explained: {', '.join(EXPLAINED_FIELDS)} can")
    request = pb.ExplainQueryRequest(**{EXPLAINED_FIELDS[asked[0]]: asked[1]})
    return Question("ExplainQuery", request, explanation_of)


def search_offset(
    topic: str,
    queue_id: int,
    time: datetime,
    boundary: Boundary = Boundary.LOWER,
    broker_name: str = "",
    after: After = (),
) -> Question[FoundOffset]:
    """The position of a queue for a store time, and the queue's range and time span."""
    request = pb.SearchOffsetRequest(
        topic=topic,
        queue_id=queue_id,
        time=to_timestamp(time),
        boundary=boundary.value,
        broker_name=broker_name,
        freshness_tokens=tokens_of(after),
    )
    return Question("SearchOffset", request, found_offset_of, may_be_partial=True)


def topics(page_size: int = PAGE_SIZE_DEFAULT, topic: str = "", name_contains: str = "") -> Cursor[Topic]:
    """Topics by name with their queues and ranges.

    Args:
        page_size: topics asked for at once, 1 to 1,000.
        topic: the only one; empty: all.
        name_contains: only those whose names hold this, upper and lower case being the same; empty: all.
    """
    request = pb.ListTopicsRequest(page_size=page_size, topic=topic, name_contains=name_contains)
    return TokenCursor("ListTopics", request, topics_of)


def status() -> Question[tuple[ServiceStatus, ...]]:
    """The state of every service of every shard."""
    return Question("GetStatus", pb.GetStatusRequest(), statuses_of)


def download(message: Message | str, broker_name: str) -> pb.DownloadBodyRequest:
    """The body of a message, or of the one with that offsetMsgId."""
    if isinstance(message, Message):
        return pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
    return pb.DownloadBodyRequest(offset_msg_id=message, broker_name=broker_name)


def tokens_of(after: After) -> list[str]:
    """The freshness tokens, each once."""
    each = [after] if isinstance(after, SendReceipt | str) else after
    return list(dict.fromkeys(one if isinstance(one, str) else one.freshness_token for one in each))


def _set_window(request: Any, begin: datetime | None, end: datetime | None) -> None:
    if begin is not None:
        request.begin_time.CopyFrom(to_timestamp(begin))
    if end is not None:
        request.end_time.CopyFrom(to_timestamp(end))
