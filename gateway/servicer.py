"""GatewayService: the RPCs, each read, asked of the queries and answered; appends take their own way (appends/forwarder.py)."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.appends.forwarder import AppendForwarder
from gateway.completeness import Completeness, ShardOutcome, judge
from gateway.deadline import Deadline
from gateway.explain_answer import explain_query
from gateway.fan_out import FanOut
from gateway.freshness import FreshnessGate, Part
from gateway.limits import BODY_CHUNK_BYTES
from gateway.page import PageEntry
from gateway.page_token import PageTokens
from gateway.ports import Boundary, FoundRecord, ServiceStatus, Shard
from gateway.queries.by_key import query_by_key
from gateway.queries.by_offset_msg_id import find_record, query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.by_unique_key import query_by_unique_key
from gateway.queries.find_message import find_message
from gateway.queries.list_topics import list_topics
from gateway.queries.search_messages import search_messages
from gateway.queries.search_offset import outcome_of, search_offset
from gateway.search.budgets import Budgets
from gateway.search.cancellation import Cancellation
from gateway.search.cel_sandbox import CelSandbox
from gateway.search.filter import Conditions, hex_needle
from gateway.search.message_view import MessageView
from gateway.search.question import OffsetWindow, SearchQuestion
from gateway.search.shard_scan import CallerGoneError
from gateway.shards import Shards, ShardsSource
from gateway.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.deadline import remaining_seconds
from services.raw_handlers import add_with_raw
from services.status import to_status
from store.errors import InvalidArgumentError, ResourceBusyError, StoreError

QUERY_SECONDS_DEFAULT = 30.0
# A search may take seconds, the other queries of the same threads milliseconds; and each holds a few MiB.
SEARCH_COUNT_MAX = 4
BOUNDARIES = {
    pb.BOUNDARY_UNSPECIFIED: Boundary.LOWER,
    pb.BOUNDARY_LOWER: Boundary.LOWER,
    pb.BOUNDARY_UPPER: Boundary.UPPER,
}


class GatewayServicer(pb_grpc.GatewayServiceServicer):
    """Serves the queries over all shards.

    Args:
        shards: the shards.
        tokens: what seals page tokens.
        sandbox: where searches evaluate their expressions; an own one when absent.
        freshness: where queries wait that bring freshness tokens; an own one when absent.
    """

    def __init__(
        self,
        shards: ShardsSource,
        tokens: PageTokens,
        sandbox: CelSandbox | None = None,
        freshness: FreshnessGate | None = None,
    ) -> None:
        self._source = shards
        self._tokens = tokens
        self._sandbox = sandbox or CelSandbox()
        self._freshness = freshness or FreshnessGate()
        self._search_threads = FanOut(SEARCH_COUNT_MAX)
        self._search_places = threading.BoundedSemaphore(SEARCH_COUNT_MAX)

    def close(self) -> None:
        """End the threads of searches, and take no more."""
        self._search_threads.close()

    @property
    def _shards(self) -> Shards:
        """Those of this moment; to be asked for once a call."""
        return self._source.now()

    def QueryMessageByKey(
        self, request: pb.QueryMessageByKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByKeyResponse:
        """See the proto."""
        window = TimeWindow(
            _millis(request, "begin_time", millis_at_or_after), _millis(request, "end_time", millis_at_or_before)
        )
        shards, deadline = self._shards, _deadline(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = query_by_key(
            shards,
            self._tokens,
            request.topic,
            request.key,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.QueryMessageByKeyResponse(
            messages=map(_message, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
            begin_time=_timestamp(window.begin_millis),
            end_time=_timestamp(window.end_millis),
        )

    def QueryMessageById(
        self, request: pb.QueryMessageByIdRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByIdResponse:
        """See the proto."""
        entry = query_by_offset_msg_id(
            self._shards, request.offset_msg_id, request.topic, request.broker_name, _deadline(context)
        )
        return pb.QueryMessageByIdResponse(message=_message(entry))

    def QueryMessageByUniqueKey(
        self, request: pb.QueryMessageByUniqueKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByUniqueKeyResponse:
        """See the proto."""
        shards, deadline = self._shards, _deadline(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = query_by_unique_key(
            shards,
            self._tokens,
            request.topic,
            request.unique_key,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.QueryMessageByUniqueKeyResponse(
            messages=map(_message, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
        )

    def QueryMessageByOffset(
        self, request: pb.QueryMessageByOffsetRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByOffsetResponse:
        """See the proto."""
        shards, deadline = self._shards, _deadline(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        answer = query_by_queue_offset(
            shards,
            request.topic,
            request.queue_id,
            request.queue_offset,
            broker_name=request.broker_name,
            max_messages_asked=request.max_messages,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge([answer.outcome], answer.completeness)
        return pb.QueryMessageByOffsetResponse(
            messages=map(_message, answer.entries),
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
            next_queue_offset=answer.next_queue_offset,
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
        )

    def FindMessage(self, request: pb.FindMessageRequest, context: grpc.ServicerContext) -> pb.FindMessageResponse:
        """See the proto."""
        window = TimeWindow(
            _millis(request, "begin_time", millis_at_or_after), _millis(request, "end_time", millis_at_or_before)
        )
        shards, deadline = self._shards, _deadline(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = find_message(
            shards,
            request.text,
            request.topic,
            window,
            page_size_asked=request.page_size,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.FindMessageResponse(
            matches=[
                pb.FindMessageResponse.Match(message=_message(entry), matched_by=matched_by.value)
                for entry, matched_by in answer.entries
            ],
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
            topic_count=answer.topic_count,
            begin_time=_timestamp(window.begin_millis),
            end_time=_timestamp(window.end_millis),
        )

    def ExplainQuery(self, request: pb.ExplainQueryRequest, context: grpc.ServicerContext) -> pb.ExplainQueryResponse:
        """See the proto."""

        def ask(method: str, shards: ShardsSource, query: Any, context: grpc.ServicerContext) -> Any:
            over_these = copy.copy(self)
            over_these._source = shards
            # The class's own: what is set on this object, such as a timer, would ask its shards.
            return getattr(type(self), method)(over_these, query, context)

        return explain_query(request, context, self._shards, ask)

    def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        """See the proto."""
        shards, deadline = self._shards, _deadline(context)
        question = _search_question(request)
        budgets = Budgets(request.max_records, request.max_bytes, request.max_millis)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        cancellation = Cancellation()
        if not self._search_places.acquire(blocking=False):
            raise ResourceBusyError(
                f"{SEARCH_COUNT_MAX} searches run, the most that this service takes: try again.",
                countMax=SEARCH_COUNT_MAX,
            )
        pending: Future[Any] | None = None
        try:
            if not context.add_callback(cancellation.cancel):
                cancellation.cancel()
            answer = search_messages(
                shards,
                self._search_threads,
                self._tokens,
                self._sandbox,
                question,
                budgets,
                page_size_asked=request.page_size,
                page_token=request.page_token,
                view_of=_view,
                cancellation=cancellation,
                deadline=deadline,
            )
        except CallerGoneError as gone:
            pending = gone.pending
            return pb.SearchMessagesResponse()  # to nobody
        finally:
            # A place is one of the threads: free once a shard that hangs has let go of it.
            if pending is None:
                self._search_places.release()
            else:
                pending.add_done_callback(lambda _: self._search_places.release())
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.SearchMessagesResponse(
            messages=map(_message, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
            scanned_ranges=[
                pb.SearchMessagesResponse.ScannedRange(
                    broker_name=scanned.broker_name,
                    queue_id=scanned.queue_id,
                    begin_offset=scanned.begin_offset,
                    end_offset=scanned.end_offset,
                )
                for scanned in answer.scanned_ranges
            ],
            stop=pb.SearchStop.ValueType(answer.stop.value),
            scanned_record_count=answer.scanned_record_count,
            scanned_bytes=answer.scanned_bytes,
            unreadable_count=answer.unreadable_count,
            cel_error_count=answer.cel_error_count,
            cel_error=answer.cel_error,
            begin_time=_timestamp(question.times.begin_millis),
            end_time=_timestamp(question.times.end_millis),
        )

    def DownloadBody(
        self, request: pb.DownloadBodyRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadBodyResponse]:
        """See the proto. An empty body is one empty chunk."""
        found = find_record(self._shards, request.offset_msg_id, request.broker_name, _deadline(context))
        body = _payload(found.record.payload).body  # all that stays while the reader takes its time

        def chunk(begin: int) -> pb.DownloadBodyResponse:
            return pb.DownloadBodyResponse(chunk=body[begin : begin + BODY_CHUNK_BYTES], body_size_bytes=len(body))

        return map(chunk, range(0, max(len(body), 1), BODY_CHUNK_BYTES))

    def SearchOffset(self, request: pb.SearchOffsetRequest, context: grpc.ServicerContext) -> pb.SearchOffsetResponse:
        """See the proto."""
        if request.boundary not in BOUNDARIES:
            raise InvalidArgumentError(f"boundary {request.boundary} is no Boundary.", field="boundary")
        boundary = BOUNDARIES[request.boundary]
        time_millis = _millis(
            request, "time", millis_at_or_after if boundary is Boundary.LOWER else millis_at_or_before
        )
        if time_millis is None:
            raise InvalidArgumentError("time is missing.", field="time")
        shards, deadline = self._shards, _deadline(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        found = search_offset(
            shards,
            request.topic,
            request.queue_id,
            time_millis,
            boundary=boundary,
            broker_name=request.broker_name,
            deadline=deadline,
        )
        outcome = outcome_of(shards.named(request.broker_name).broker_name, found, boundary)
        outcomes, completeness = freshness.judge([outcome], judge([outcome], more=False))
        return pb.SearchOffsetResponse(
            queue_offset=found.queue_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            completeness=_completeness(completeness),
            shards=map(_shard_outcome, outcomes),
            first_store_time=_timestamp(found.first_store_time_millis),
            last_store_time=_timestamp(found.last_store_time_millis),
        )

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """See the proto."""
        answer = list_topics(self._shards, self._tokens, request.page_size, request.page_token, _deadline(context))
        response = pb.ListTopicsResponse(
            next_page_token=answer.next_page_token,
            completeness=_completeness(answer.completeness),
            shards=map(_shard_outcome, answer.outcomes),
        )
        for row in answer.topics:
            topic = response.topics.add(topic=row.topic)
            for broker_name, queue in row.queues:
                topic.queues.add(
                    broker_name=broker_name,
                    queue_id=queue.queue_id,
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                )
        return response

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto. A service that does not answer has its error in its row."""
        deadline = _deadline(context)

        def ask(shard: Shard) -> Sequence[ServiceStatus]:
            return shard.services.statuses(deadline)

        response = pb.GetStatusResponse(version=_version())
        shards = self._shards
        for shard, statuses in zip(shards, shards.fan_out.ask(shards, ask), strict=True):
            if isinstance(statuses, StoreError):
                raise statuses
            response.services.extend(_service_status(shard.broker_name, status) for status in statuses)
        return response


def add_to_server(servicer: GatewayServicer, server: grpc.Server, forwarder: AppendForwarder) -> None:
    """Serve the queries by the generated handlers and the appends by the forwarder's.

    The generated ones must not get to the server for an append: they would be asked first, and decode every message.
    """
    add_with_raw(pb_grpc.add_GatewayServiceServicer_to_server, servicer, forwarder.handlers(), server)


def _deadline(context: grpc.ServicerContext) -> Deadline:
    return Deadline.after(remaining_seconds(context, QUERY_SECONDS_DEFAULT))


def _millis(
    request: pb.QueryMessageByKeyRequest | pb.FindMessageRequest | pb.SearchMessagesRequest | pb.SearchOffsetRequest,
    field: str,
    to_millis: Callable[[int, int, str], int],
) -> int | None:
    if not request.HasField(field):
        return None
    time: Timestamp = getattr(request, field)
    return to_millis(time.seconds, time.nanos, field)


def _search_question(request: pb.SearchMessagesRequest) -> SearchQuestion:
    if request.order not in pb.SearchOrder.values():
        raise InvalidArgumentError(f"order {request.order} is no SearchOrder.", field="order")
    properties = {row.name: row.value if row.HasField("value") else None for row in request.properties}
    if len(properties) < len(request.properties):
        raise InvalidArgumentError("a property is asked for twice: `cel` can say more.", field="properties")
    needle = hex_needle(request.body_hex) if request.HasField("body_hex") else request.body_text.encode()

    def number(field: str) -> int | None:
        return getattr(request, field) if request.HasField(field) else None

    return SearchQuestion(
        topic=request.topic,
        broker_name=request.broker_name,
        queue_id=number("queue_id"),
        offsets=OffsetWindow(number("begin_queue_offset"), number("end_queue_offset")),
        times=TimeWindow(
            _millis(request, "begin_time", millis_at_or_after), _millis(request, "end_time", millis_at_or_before)
        ),
        newest_first=request.order == pb.SEARCH_ORDER_NEWEST_FIRST,
        conditions=Conditions(frozenset(request.tags), properties, needle, request.cel),
    )


def _view(record: FoundRecord) -> MessageView:
    message = _payload(record.payload)
    return MessageView(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        store_size_bytes=message.store_size_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_millis=timestamp_to_millis(message.born_time, "born_time"),
        born_host=message.born_host,
        store_time_millis=record.store_time_millis,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        tags=message.tags,
        keys=record.keys,
        unique_key=message.unique_key,
        properties=message.properties,
        body=message.body,
    )


def _timestamp(time_millis: int | None) -> Timestamp | None:
    return None if time_millis is None else millis_to_timestamp(time_millis)


def _payload(payload: object) -> message_pb2.StoredMessage:
    assert isinstance(payload, message_pb2.StoredMessage)
    return payload


def _message(entry: PageEntry) -> message_pb2.StoredMessage:
    """The message to show, under the name that the gateway knows its shard by."""
    message = _payload(entry.record.payload)
    message.broker_name = entry.broker_name
    message.source = message_pb2.MESSAGE_SOURCE_ARCHIVE if entry.record.is_archived else message_pb2.MESSAGE_SOURCE_LIVE
    if entry.body_omitted:
        message.ClearField("body")
        message.body_omitted = True
    return message


def _completeness(completeness: Completeness) -> message_pb2.Completeness:
    return message_pb2.Completeness.ValueType(completeness.value)


def _shard_outcome(outcome: ShardOutcome) -> pb.ShardOutcome:
    shard = pb.ShardOutcome(broker_name=outcome.broker_name)
    if outcome.error is not None:
        shard.error.CopyFrom(to_status(outcome.error))
    if outcome.progress is not None:
        shard.indexed_up_to_offset = outcome.progress.next_offset
        shard.log_end_offset = outcome.progress.log_end_offset
        shard.catching_up = outcome.progress.catching_up
        if outcome.progress.built_up_to_millis is not None:
            shard.indexed_up_to_time.CopyFrom(millis_to_timestamp(outcome.progress.built_up_to_millis))
    return shard


def _service_status(broker_name: str, status: ServiceStatus) -> pb.GetStatusResponse.ServiceStatus:
    return pb.GetStatusResponse.ServiceStatus(
        broker_name=broker_name,
        service=status.service,
        address=status.address,
        error=None if status.error is None else to_status(status.error),
        log_first_offset=status.log_first_offset,
        log_end_offset=status.log_end_offset,
        next_offset=status.next_offset,
        catching_up=status.catching_up,
        state=status.state,
        problem=status.problem,
        recovery_begin_offset=status.recovery_begin_offset,
        recovery_next_offset=status.recovery_next_offset,
        recovery_end_offset=status.recovery_end_offset,
        file_count=status.file_count,
        file_size_bytes=status.file_size_bytes,
        key_count=status.key_count,
        disk_total_bytes=status.disk_total_bytes,
        disk_free_bytes=status.disk_free_bytes,
        disk_level=status.disk_level,
        newest_store_time=_timestamp(status.newest_store_time_millis),
    )


def _version() -> str:
    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
