"""Admin: messages by id or key in pages, and the store times of the first and last message of queues."""

from collections.abc import Sequence

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, get_record, list_queues, store_millis
from gateway.ports.shards import Shards, ShardsSource, require_topic
from gateway.ports.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from gateway.queries.by_key import KeyQuestion, MatchAnswer, answer_matches
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.completeness import ShardOutcome
from gateway.queries.freshness import FreshnessWaits, Part
from gateway.queries.page import PageEntry, PageTokens, check_topic
from gateway.rocketmq.messages import resource_of, to_message
from gateway.rocketmq.names import full_name
from gateway.rocketmq.status import RefusedError, ok, status_of
from reput.consumequeue.v1.consumequeue_service_pb2 import Queue
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from services.methods import QUERY_SECONDS
from services.serving.deadline import answer_seconds
from store.errors import (
    InvalidMessageIdError,
    PermissionDeniedError,
    RecordNotFoundError,
    StoreError,
    UnsupportedStoreError,
)

# Each queue needs two reads: of its first and last message.
TIME_SPAN_QUEUE_COUNT_MAX = 1_024
METHOD = "apache.rocketmq.v2.Admin/QueryMessage"


class AdminServicer(v2_grpc.AdminServicer):
    """Serves `apache.rocketmq.v2.Admin`.

    Args:
        shards: the shards.
        tokens: seals and opens scroll ids.
        waits: makes queries wait for what was acknowledged; its own one when absent.
    """

    def __init__(self, shards: ShardsSource, tokens: PageTokens, waits: FreshnessWaits | None = None) -> None:
        self._source = shards
        self._tokens = tokens
        self._waits = waits or FreshnessWaits()

    @property
    def _shards(self) -> Shards:
        return self._source.now()

    def QueryMessage(  # noqa: N802  # the contract's name
        self, request: v2.ListMessageRequest, context: grpc.ServicerContext
    ) -> v2.ListMessageResponse:
        """The messages of a topic with an id or a key, in pages."""
        try:
            return self._query_message(request, _deadline_of(context))
        except (RefusedError, StoreError) as error:
            return v2.ListMessageResponse(status=status_of(error))

    def QueryTimeSpan(  # noqa: N802  # the contract's name
        self, request: v2.QueryTimeSpanRequest, context: grpc.ServicerContext
    ) -> v2.QueryTimeSpanResponse:
        """The store times of the first and last message of each queue of some topics."""
        try:
            return self._query_time_span(request, _deadline_of(context))
        except (RefusedError, StoreError) as error:
            return v2.QueryTimeSpanResponse(status=status_of(error))

    def _query_message(self, request: v2.ListMessageRequest, deadline: Deadline) -> v2.ListMessageResponse:
        _check_supported(request)
        topic = full_name(request.topic)
        shards = self._shards
        if request.broker_name:
            shards = Shards([shards.named(request.broker_name)], shards.fan_out)

        def query(asked: Shards) -> tuple[MatchAnswer, Sequence[ShardOutcome], message_pb2.Completeness]:
            found = self._ask(asked, request, topic, _page_size(request), deadline)
            if len(found.entries) > 1 and any(entry.body_omitted for entry in found.entries):
                # The contract has no way to leave out a body: such pages have one message each.
                found = self._ask(asked, request, topic, 1, deadline)
            return found, found.outcomes, found.completeness

        answer, outcomes, completeness = self._waits.ask(shards, (), Part.INDEX, deadline, query)
        entries = answer.entries
        may_be_id = not entries and request.WhichOneof("search_key") == "message_id" and not request.scroll_id
        if may_be_id:  # its record is read without the index
            entries = _by_offset_msg_id(shards, request.message_id, topic, request, deadline)
        if not may_be_id or not entries:
            for outcome in outcomes:
                # The contract has no PARTIAL, so an incomplete list must be an error. Where a feature is not read that may hold
                # more, every list is incomplete: what there is is given then, and the status says so.
                if outcome.error is not None and not (entries and isinstance(outcome.error, UnsupportedStoreError)):
                    raise outcome.error
        if may_be_id and not entries and completeness != message_pb2.COMPLETENESS_PARTIAL:
            raise RefusedError(v2.MESSAGE_NOT_FOUND, f"topic {topic!r} has no message {request.message_id!r}")
        return v2.ListMessageResponse(
            status=ok(_lag(outcomes)),
            messages=[_message(shards, entry, deadline) for entry in entries],
            scroll_id=answer.next_page_token,
        )

    def _ask(
        self, shards: Shards, request: v2.ListMessageRequest, topic: str, page_size: int, deadline: Deadline
    ) -> MatchAnswer:
        kind = request.WhichOneof("search_key")
        text = request.message_id if kind == "message_id" else request.message_key
        if not text:
            raise RefusedError(
                v2.ILLEGAL_MESSAGE_ID if kind == "message_id" else v2.ILLEGAL_MESSAGE_KEY, f"{kind} is empty"
            )
        queue_id = request.queue_id if request.HasField("queue_id") else None

        def matches(record: StoredMessage) -> bool:
            is_it = record.unique_key == text if kind == "message_id" else text in record.keys
            return is_it and queue_id in (None, record.queue_id)

        window = _window(request)
        query: dict[str, str | int | None] = {
            "topic": topic,
            "kind": kind,
            "text": text,
            "queue_id": queue_id,
            "begin": window.begin_millis,
            "end": window.end_millis,
        }
        return answer_matches(
            shards,
            self._tokens,
            METHOD,
            KeyQuestion(topic, text, window, matches),
            query,
            page_size_asked=page_size,
            page_token=request.scroll_id,
            deadline=deadline,
        )

    def _query_time_span(self, request: v2.QueryTimeSpanRequest, deadline: Deadline) -> v2.QueryTimeSpanResponse:
        if not request.topics:
            raise RefusedError(v2.ILLEGAL_TOPIC, "topics is empty: name at least one topic")
        response = v2.QueryTimeSpanResponse(status=ok())
        for topic in dict.fromkeys(full_name(topic) for topic in request.topics):
            check_topic(topic)
            for shard in self._shards:
                for queue in list_queues(shard, topic, deadline):
                    if len(response.queue_time_span_list) == TIME_SPAN_QUEUE_COUNT_MAX:
                        raise RefusedError(
                            v2.PAYLOAD_TOO_LARGE,
                            f"the topics have more than {TIME_SPAN_QUEUE_COUNT_MAX} queues: ask for fewer topics",
                        )
                    response.queue_time_span_list.append(self._time_span(shard, queue, deadline))
            if not any(topic == full_name(span.message_queue.topic) for span in response.queue_time_span_list):
                require_topic(self._shards, topic, deadline)
        return response

    def _time_span(self, shard: Shard, queue: Queue, deadline: Deadline) -> v2.QueryTimeSpanResponse.QueueTimeSpan:
        span = v2.QueryTimeSpanResponse.QueueTimeSpan(
            message_queue=v2.MessageQueue(
                topic=resource_of(queue.topic),
                id=queue.queue_id,
                permission=v2.READ_WRITE,
                broker=v2.Broker(name=shard.broker_name),
            )
        )

        def millis_at(queue_offset: int) -> int:
            answer = query_by_queue_offset(
                self._shards,
                queue.topic,
                queue.queue_id,
                queue_offset,
                broker_name=shard.broker_name,
                page_size_asked=1,
                deadline=deadline,
            )
            return store_millis(answer.entries[0].record) if answer.entries else 0

        if queue.min_offset < queue.max_offset:
            span.min_timestamp = millis_at(queue.min_offset)
            span.max_timestamp = millis_at(queue.max_offset - 1)
        return span


def _check_supported(request: v2.ListMessageRequest) -> None:
    kind = request.WhichOneof("search_key")
    if kind is None:
        raise RefusedError(v2.BAD_REQUEST, "the query is empty: set message_id or message_key")
    if kind not in ("message_id", "message_key"):
        raise RefusedError(v2.UNSUPPORTED, f"{kind} is not served: set message_id or message_key")
    if request.page_num > 1 and not request.scroll_id:
        raise RefusedError(
            v2.UNSUPPORTED, "a page cannot be chosen by its number: pass the scroll_id of the page before"
        )
    for field in ("max_message_nums", "page_num", "page_size"):
        if getattr(request, field) < 0:
            raise RefusedError(v2.BAD_REQUEST, f"{field} is {getattr(request, field)}: it must be 0 or more")


def _page_size(request: v2.ListMessageRequest) -> int:
    return min((size for size in (request.max_message_nums, request.page_size) if size), default=0)


def _window(request: v2.ListMessageRequest) -> TimeWindow:
    begin, end = request.begin_timestamp, request.end_timestamp
    return TimeWindow(
        millis_at_or_after(begin.seconds, begin.nanos, "begin_timestamp")
        if request.HasField("begin_timestamp")
        else None,
        millis_at_or_before(end.seconds, end.nanos, "end_timestamp") if request.HasField("end_timestamp") else None,
    )


def _by_offset_msg_id(
    shards: Shards, offset_msg_id: str, topic: str, request: v2.ListMessageRequest, deadline: Deadline
) -> tuple[PageEntry, ...]:
    window = _window(request)
    try:
        entry = query_by_offset_msg_id(shards, offset_msg_id, topic, "", deadline)
    except (InvalidMessageIdError, RecordNotFoundError, PermissionDeniedError):
        return ()
    is_wanted = window.holds(store_millis(entry.record)) and (
        not request.HasField("queue_id") or request.queue_id == entry.record.queue_id
    )
    return (entry,) if is_wanted else ()


def _message(shards: Shards, entry: PageEntry, deadline: Deadline) -> v2.Message:
    stored = entry.record
    if entry.body_omitted:
        stored = get_record(shards.named(entry.broker_name), entry.record.commit_log_offset, deadline)
    return to_message(stored)


def _lag(outcomes: Sequence[ShardOutcome]) -> str:
    """The status message: OK, or which indexes do not hold the newest messages yet."""
    behind = [
        outcome.broker_name
        if progress.is_limited
        else f"{outcome.broker_name} by {progress.log_end_offset - progress.next_offset} bytes"
        for outcome in outcomes
        if (progress := outcome.progress) is not None and progress.is_behind
    ]
    why = [f"the index is behind the log: {', '.join(behind)}"] if behind else []
    why += [outcome.error.message for outcome in outcomes if outcome.error is not None]
    return f"OK, but {'; '.join(why)}" if why else "OK"


def _deadline_of(context: grpc.ServicerContext) -> Deadline:
    return Deadline.after(answer_seconds(context, QUERY_SECONDS))
