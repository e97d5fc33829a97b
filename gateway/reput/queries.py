"""The queries of `reput.gateway.v1`: each function reads the request, runs the query and makes the response.

A function gets the shards with its Call. So ExplainQuery (explain.py) runs the same functions over shards that
record their calls.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Built
from gateway.ports.shards import Shards
from gateway.ports.time_window import millis_at_or_after, millis_at_or_before
from gateway.queries.by_key import MatchAnswer, query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import find_record, query_by_offset_msg_id
from gateway.queries.by_queue_offset import METHOD, QueueAnswer, outcome_of, query_by_queue_offset, search_offset
from gateway.queries.completeness import ShardOutcome, judge
from gateway.queries.find_message import FindAnswer, find_message
from gateway.queries.freshness import FreshnessWaits, Part
from gateway.queries.list_topics import TopicChoice, list_topics
from gateway.queries.page import BODY_CHUNK_BYTES, PageTokens, check_not_negative
from gateway.reput.wire import (
    message_of,
    millis_of,
    settings_of,
    shard_outcome_of,
    timestamp_of,
    window_of,
)
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import InvalidArgumentError
from store.format.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Call:
    """What a query needs beside its request.

    Attributes:
        shards: the shards to ask.
        tokens: seals and opens page tokens.
        waits: makes queries wait for what they should find.
        deadline: the caller's deadline.
    """

    shards: Shards
    tokens: PageTokens
    waits: FreshnessWaits
    deadline: Deadline

    def ask(
        self,
        freshness_tokens: Sequence[str],
        part: Part,
        query: Callable[[Shards], tuple[Answer, Sequence[ShardOutcome], message_pb2.Completeness]],
        broker_name: str = "",
        *,
        before: bool | None = None,
    ) -> tuple[Answer, Sequence[ShardOutcome], message_pb2.Completeness]:
        """See `FreshnessWaits.ask`."""
        return self.waits.ask(self.shards, freshness_tokens, part, self.deadline, query, broker_name, before=before)


def by_key(call: Call, request: pb.QueryMessageByKeyRequest) -> pb.QueryMessageByKeyResponse:
    """QueryMessageByKey; errors as `query_by_key` and `window_of`."""
    window = window_of(request)

    def query(shards: Shards) -> tuple[MatchAnswer, Sequence[ShardOutcome], message_pb2.Completeness]:
        found = query_by_key(
            shards,
            call.tokens,
            request.topic,
            request.key,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=call.deadline,
            of_tags=request.key_type == pb.KEY_TYPE_TAGS,
        )
        return found, found.outcomes, found.completeness

    answer, outcomes, completeness = call.ask(request.freshness_tokens, Part.INDEX, query)
    return pb.QueryMessageByKeyResponse(
        messages=map(message_of, answer.entries),
        next_page_token=answer.next_page_token,
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
        begin_time=timestamp_of(window.begin_millis),
        end_time=timestamp_of(window.end_millis),
    )


def waits_for(record: StoredMessage) -> str:
    """The topic for which a record of a system topic waits, or waited; empty when it is no such message."""
    return "" if TIMER_DEL_UNIQKEY in record.properties else record.properties.get(REAL_TOPIC, "")


def by_unique_key(call: Call, request: pb.QueryMessageByUniqueKeyRequest) -> pb.QueryMessageByUniqueKeyResponse:
    """QueryMessageByUniqueKey; errors as `query_by_unique_key`."""

    def query(shards: Shards) -> tuple[MatchAnswer, Sequence[ShardOutcome], message_pb2.Completeness]:
        found = query_by_unique_key(
            shards,
            call.tokens,
            request.topic,
            request.unique_key,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=call.deadline,
            waits_for=waits_for,
        )
        return found, found.outcomes, found.completeness

    answer, outcomes, completeness = call.ask(request.freshness_tokens, Part.INDEX, query)
    return pb.QueryMessageByUniqueKeyResponse(
        messages=map(message_of, answer.entries),
        next_page_token=answer.next_page_token,
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
    )


def by_id(call: Call, request: pb.QueryMessageByIdRequest) -> pb.QueryMessageByIdResponse:
    """QueryMessageById; errors as `query_by_offset_msg_id`."""
    entry = query_by_offset_msg_id(
        call.shards, request.offset_msg_id, request.topic, request.broker_name, call.deadline
    )
    return pb.QueryMessageByIdResponse(message=message_of(entry))


def by_offset(call: Call, request: pb.QueryMessageByOffsetRequest) -> pb.QueryMessageByOffsetResponse:
    """QueryMessageByOffset; errors as `query_by_queue_offset`, InvalidPageTokenError."""
    # The older name of `page_size`, by which a negative number is refused too.
    check_not_negative(request.max_messages, "max_messages")
    sealed: dict[str, str | int | None] = {
        "topic": request.topic,
        "queue_id": request.queue_id,
        "broker_name": request.broker_name,
    }
    # With a token its position counts. Clients move `queue_offset` along, for gateways that know no tokens.
    begin = int(call.tokens.open(request.page_token, METHOD, sealed).get("next", request.queue_offset))

    def query(shards: Shards) -> tuple[QueueAnswer, Sequence[ShardOutcome], message_pb2.Completeness]:
        found = query_by_queue_offset(
            shards,
            request.topic,
            request.queue_id,
            begin,
            broker_name=request.broker_name,
            page_size_asked=request.page_size or request.max_messages,
            deadline=call.deadline,
        )
        return found, [found.outcome], found.completeness

    answer, outcomes, completeness = call.ask(
        request.freshness_tokens, Part.QUEUES, query, request.broker_name, before=False
    )
    return pb.QueryMessageByOffsetResponse(
        messages=map(message_of, answer.entries),
        min_offset=answer.min_offset,
        max_offset=answer.max_offset,
        next_queue_offset=answer.next_queue_offset,
        next_page_token=call.tokens.seal(METHOD, sealed, {"next": answer.next_queue_offset}) if answer.has_more else "",
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
    )


def find(call: Call, request: pb.FindMessageRequest) -> pb.FindMessageResponse:
    """FindMessage; errors as `find_message` and `window_of`."""
    window = window_of(request)

    def query(shards: Shards) -> tuple[FindAnswer, Sequence[ShardOutcome], message_pb2.Completeness]:
        found = find_message(
            shards,
            call.tokens,
            request.text,
            request.topic,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            max_millis=request.max_millis,
            deadline=call.deadline,
        )
        return found, found.outcomes, found.completeness

    answer, outcomes, completeness = call.ask(request.freshness_tokens, Part.INDEX, query)
    return pb.FindMessageResponse(
        matches=[
            pb.FindMessageResponse.Match(message=message_of(entry), matched_by=matched_by)
            for entry, matched_by in answer.entries
        ],
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
        topic_count=answer.topic_count,
        begin_time=timestamp_of(window.begin_millis),
        end_time=timestamp_of(window.end_millis),
        next_page_token=answer.next_page_token,
    )


def body_chunks(call: Call, request: pb.DownloadBodyRequest) -> Iterator[pb.DownloadBodyResponse]:
    """DownloadBody: the body in chunks of BODY_CHUNK_BYTES, one empty chunk for an empty body; errors as `find_record`."""
    found = find_record(call.shards, request.offset_msg_id, request.broker_name, call.deadline)
    body = found.record.body  # the rest of the record is freed while a slow reader takes the chunks

    def chunk(begin: int) -> pb.DownloadBodyResponse:
        return pb.DownloadBodyResponse(chunk=body[begin : begin + BODY_CHUNK_BYTES], body_size_bytes=len(body))

    return map(chunk, range(0, max(len(body), 1), BODY_CHUNK_BYTES))


def offset_at_time(call: Call, request: pb.SearchOffsetRequest) -> pb.SearchOffsetResponse:
    """SearchOffset; errors as `search_offset`, InvalidArgumentError for an unknown boundary or an absent time."""
    if request.boundary not in pb.Boundary.values():
        raise InvalidArgumentError(
            f"boundary {request.boundary} is not a Boundary: use BOUNDARY_LOWER or BOUNDARY_UPPER.", field="boundary"
        )
    boundary = request.boundary or pb.BOUNDARY_LOWER
    is_lower = boundary == pb.BOUNDARY_LOWER
    time_millis = millis_of(request, "time", millis_at_or_after if is_lower else millis_at_or_before)
    if time_millis is None:
        raise InvalidArgumentError("time is missing.", field="time")

    def query(
        shards: Shards,
    ) -> tuple[Built[queue_pb.SearchOffsetResponse], Sequence[ShardOutcome], message_pb2.Completeness]:
        position = search_offset(
            shards,
            request.topic,
            request.queue_id,
            time_millis,
            boundary=boundary,
            broker_name=request.broker_name,
            deadline=call.deadline,
        )
        outcome = outcome_of(shards.named(request.broker_name).broker_name, position, boundary)
        return position, [outcome], judge([outcome], more=False)

    found, outcomes, completeness = call.ask(
        request.freshness_tokens, Part.QUEUES, query, request.broker_name, before=False
    )
    place = found.answer
    return pb.SearchOffsetResponse(
        queue_offset=place.queue_offset,
        min_offset=place.min_offset,
        max_offset=place.max_offset,
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
        first_store_time=place.first_store_time if place.HasField("first_store_time") else None,
        last_store_time=place.last_store_time if place.HasField("last_store_time") else None,
    )


def topics(call: Call, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
    """ListTopics; errors as `list_topics`."""
    choice = TopicChoice(request.topic, request.name_contains)
    answer = list_topics(call.shards, call.tokens, request.page_size, request.page_token, call.deadline, choice)
    response = pb.ListTopicsResponse(
        next_page_token=answer.next_page_token,
        completeness=answer.completeness,
        shards=map(shard_outcome_of, answer.outcomes),
    )
    for row in answer.topics:
        topic = response.topics.add(topic=row.topic, queue_count=row.queue_count)
        topic.settings.extend(settings_of(broker_name, settings) for broker_name, settings in row.settings)
        for broker_name, queue in row.queues:
            topic.queues.add(
                broker_name=broker_name,
                queue_id=queue.queue_id,
                min_offset=queue.min_offset,
                max_offset=queue.max_offset,
            )
    return response
