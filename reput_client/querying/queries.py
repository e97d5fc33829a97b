"""The queries that a gateway answers, with their arguments; `QueryClient` and `AsyncQueryClient` have each as a method.

client.by_key("Orders", "order-1001")                     sends the query
client.explain(queries.by_key("Orders", "order-1001"))    asks how it is answered
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.encoding import to_timestamp
from reput_client.querying.answers import (
    Boundary,
    FoundOffset,
    Installation,
    Match,
    ServiceStatus,
    Topic,
    found_offset_of,
    installation_of,
    matches_of,
    messages_of,
    statuses_of,
    topics_of,
)
from reput_client.querying.message import Message, message_of
from reput_client.querying.question import Cursor, Question, QueueCursor, SearchCursor, TokenCursor
from reput_client.receipt import SendReceipt

if TYPE_CHECKING:
    from reput_client.querying.explanation import Explanation

PAGE_SIZE_DEFAULT = 64

# Messages that the answer must know of: their receipts, or the receipts' freshness tokens.
After = SendReceipt | str | Iterable[SendReceipt | str]

# Fields of ExplainQueryRequest, by the RPC that is explained.
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
    max_messages: int | None = None,
    page_token: str = "",
) -> Cursor[Message]:
    """Messages by business key, newest first.

    Args:
        topic: the topic.
        key: one business key, whole.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        page_size: messages of one page, 1 to 1,000.
        after: receipts of messages that the answer must know of, or their freshness tokens; also in the other queries.
            The query waits for them as long as the call may take; if one is still missing then, the answer is PARTIAL.
        max_messages: end after this many; None: no limit.
        page_token: continue behind an earlier page (`Page.next_page_token`).
    """
    return _of_index(pb.KEY_TYPE_UNSPECIFIED, topic, key, begin, end, page_size, after, max_messages, page_token)


def by_tag(
    topic: str,
    tags: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    page_size: int = PAGE_SIZE_DEFAULT,
    after: After = (),
    max_messages: int | None = None,
    page_token: str = "",
) -> Cursor[Message]:
    """Messages with these TAGS, whole, newest first; arguments as in `by_key`.

    It needs an index with entries of tags, as RocketMQ 5.5 writes them; `search(topic, tags=[...])` needs none and reads more.
    """
    return _of_index(pb.KEY_TYPE_TAGS, topic, tags, begin, end, page_size, after, max_messages, page_token)


def _of_index(
    key_type: pb.KeyType,
    topic: str,
    key: str,
    begin: datetime | None,
    end: datetime | None,
    page_size: int,
    after: After,
    max_messages: int | None,
    page_token: str,
) -> Cursor[Message]:
    request = pb.QueryMessageByKeyRequest(
        topic=topic,
        key=key,
        page_size=page_size,
        page_token=page_token,
        freshness_tokens=tokens_of(after),
        key_type=key_type,
    )
    _set_window(request, begin, end)
    return TokenCursor("QueryMessageByKey", request, messages_of, max_messages)


def by_unique_key(
    topic: str,
    unique_key: str,
    page_size: int = PAGE_SIZE_DEFAULT,
    after: After = (),
    max_messages: int | None = None,
    page_token: str = "",
) -> Cursor[Message]:
    """Every copy of a message by its producer's id, newest first; arguments as in `by_key`."""
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=topic,
        unique_key=unique_key,
        page_size=page_size,
        page_token=page_token,
        freshness_tokens=tokens_of(after),
    )
    return TokenCursor("QueryMessageByUniqueKey", request, messages_of, max_messages)


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
    page_token: str = "",
) -> Cursor[Message]:
    """Messages in queue order from a position on, up to the end of the queue or to `max_messages`.

    Positions before the queue's begin are skipped: retention has removed their messages.
    """
    request = pb.QueryMessageByOffsetRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        broker_name=broker_name,
        page_size=page_size,
        page_token=page_token,
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
    max_matches: int | None = None,
    page_token: str = "",
    with_tracks: bool = False,
) -> Cursor[Match]:
    """Messages by a text of unknown kind: an offsetMsgId, a unique key or a business key.

    The match by offsetMsgId comes first, the others newest first in each shard. An empty answer is no error.

    Args:
        text: the id or key, whole.
        topic: the only topic to look in; empty: all of them, retry and dead-letter topics included.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        page_size: matches of one page, 1 to 1,000.
        max_millis: time after which a page looks in no further topic; 0: no such limit.
        after: as in `by_key`.
        max_matches: end after this many; None: no limit.
        page_token: as in `by_key`.
        with_tracks: also say what became of the first 16 matches of a page.
    """
    request = pb.FindMessageRequest(
        text=text,
        topic=topic,
        page_size=page_size,
        page_token=page_token,
        max_millis=max_millis,
        freshness_tokens=tokens_of(after),
        with_tracks=with_tracks,
    )
    _set_window(request, begin, end)
    return TokenCursor("FindMessage", request, matches_of, max_matches)


def search(
    topic: str,
    *,
    tags: Iterable[str] = (),
    properties: Mapping[str, str | None] | Iterable[tuple[str, str | None]] | None = None,
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
    max_messages: int | None = None,
    page_token: str = "",
) -> Cursor[Message]:
    """Messages for which all given conditions hold, by a scan of the topic's queues, one queue after the other.

    Messages come in that order: shards by name, queues by number, each queue oldest first, or newest first. Not by time.
    A page ends when it is full or one of its budgets is used up; it may be empty. `Page.scan` says what was scanned. A run
    over all messages continues until the whole topic was scanned.

    Args:
        topic: the topic.
        tags: its tag is one of these, at most 64.
        properties: it has these properties, at most 64, with these values; the value None matches any.
        body: its body, inflated, holds this text as UTF-8, or these bytes; at most 64 KiB.
        cel: a CEL expression of type bool over `message` is true of it; the proto lists its fields.
        begin: stored at or after, with a time zone.
        end: stored at or before, with a time zone.
        broker_name: the only shard; empty: all.
        queue_id: the only queue; None: all.
        begin_queue_offset: positions from here on; needs `queue_id`.
        end_queue_offset: positions before this one; needs `queue_id`.
        newest_first: each queue from its end to its begin.
        page_size: messages of one page, 1 to 1,000.
        max_records: positions that one page may scan; 0: 100,000.
        max_bytes: bytes of records that one page may read; 0: 64 MiB.
        max_millis: time that one page may take; 0: 5,000.
        count_total: also count the positions to scan, for `Scan.total_record_count`.
        after: as in `by_key`.
        max_messages: as in `by_key`.
        page_token: as in `by_key`.
    """
    if isinstance(tags, str):
        raise TypeError("tags is a text: give a sequence of tags, such as [tag]")
    pairs = properties.items() if isinstance(properties, Mapping) else properties or ()
    request = pb.SearchMessagesRequest(
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        begin_queue_offset=begin_queue_offset,
        end_queue_offset=end_queue_offset,
        order=pb.SEARCH_ORDER_NEWEST_FIRST if newest_first else pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=tags,
        properties=[pb.SearchMessagesRequest.Property(name=name, value=value) for name, value in pairs],
        cel=cel,
        page_size=page_size,
        page_token=page_token,
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
    return SearchCursor(request, max_messages)


def explain(question: Cursor[Any] | Question[Any]) -> "Question[Explanation]":
    """Explain how a query is answered: index files, candidates, rejections with their reasons, bytes and time.

        client.explain(queries.by_key("Orders", "order-1001"))

    Of a query with several pages the first one is explained. A query that fails is explained too: `error` says why.

    Args:
        question: made by `by_key`, `by_unique_key`, `by_id`, `by_offset` or `find` of `reput_client.querying.queries`.
    """
    from reput_client.querying.explanation import explanation_of

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
        page_size: topics of one page, 1 to 1,000.
        topic: the only one; empty: all.
        name_contains: only topics whose names contain this, ignoring case; empty: all.
    """
    request = pb.ListTopicsRequest(page_size=page_size, topic=topic, name_contains=name_contains)
    return TokenCursor("ListTopics", request, topics_of)


def status() -> Question[tuple[ServiceStatus, ...]]:
    """The state of every service of every shard."""
    return Question("GetStatus", pb.GetStatusRequest(), statuses_of)


def installation() -> Question[Installation]:
    """The gateway's version and the state of every service of every shard."""
    return Question("GetStatus", pb.GetStatusRequest(), installation_of)


def download(message: Message | str, broker_name: str) -> pb.DownloadBodyRequest:
    """The request for the stored body of a message, or of the message with that offsetMsgId."""
    if isinstance(message, Message):
        return pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
    return pb.DownloadBodyRequest(offset_msg_id=message, broker_name=broker_name)


def tokens_of(after: After) -> list[str]:
    """The freshness tokens, each once."""
    each = [after] if isinstance(after, SendReceipt | str) else after
    return list(dict.fromkeys(one if isinstance(one, str) else one.freshness_token for one in each))


def _set_window(request: Any, begin: datetime | None, end: datetime | None) -> None:
    if begin is not None:
        request.begin_time.CopyFrom(to_timestamp(begin, "begin"))
    if end is not None:
        request.end_time.CopyFrom(to_timestamp(end, "end"))
