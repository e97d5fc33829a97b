"""GatewayService: the RPCs, each read, asked of the queries and answered; appends take their own way (append_forwarder.py)."""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.append_forwarder import AppendForwarder
from gateway.completeness import Completeness, ShardOutcome
from gateway.deadline import Deadline
from gateway.limits import BODY_CHUNK_BYTES
from gateway.page import PageEntry
from gateway.page_token import PageTokens
from gateway.ports import Boundary, ServiceStatus, Shard
from gateway.queries.by_key import query_by_key
from gateway.queries.by_offset_msg_id import find_record, query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.by_unique_key import query_by_unique_key
from gateway.queries.list_topics import list_topics
from gateway.queries.search_offset import search_offset
from gateway.shards import Shards
from gateway.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from services.deadline import remaining_seconds
from services.raw_handlers import add_with_raw
from services.status import to_status
from store.errors import InvalidArgumentError, StoreError

QUERY_SECONDS_DEFAULT = 30.0
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
    """

    def __init__(self, shards: Shards, tokens: PageTokens) -> None:
        self._shards = shards
        self._tokens = tokens

    def QueryMessageByKey(
        self, request: pb.QueryMessageByKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByKeyResponse:
        """See the proto."""
        window = TimeWindow(
            _millis(request, "begin_time", millis_at_or_after), _millis(request, "end_time", millis_at_or_before)
        )
        answer = query_by_key(
            self._shards,
            self._tokens,
            request.topic,
            request.key,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=_deadline(context),
        )
        return pb.QueryMessageByKeyResponse(
            messages=map(_message, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=_completeness(answer.completeness),
            shards=map(_shard_outcome, answer.outcomes),
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
        answer = query_by_unique_key(
            self._shards,
            self._tokens,
            request.topic,
            request.unique_key,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=_deadline(context),
        )
        return pb.QueryMessageByUniqueKeyResponse(
            messages=map(_message, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=_completeness(answer.completeness),
            shards=map(_shard_outcome, answer.outcomes),
        )

    def QueryMessageByOffset(
        self, request: pb.QueryMessageByOffsetRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByOffsetResponse:
        """See the proto."""
        answer = query_by_queue_offset(
            self._shards,
            request.topic,
            request.queue_id,
            request.queue_offset,
            broker_name=request.broker_name,
            max_messages_asked=request.max_messages,
            deadline=_deadline(context),
        )
        return pb.QueryMessageByOffsetResponse(
            messages=map(_message, answer.entries),
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
            next_queue_offset=answer.next_queue_offset,
            completeness=_completeness(answer.completeness),
            shards=[_shard_outcome(answer.outcome)],
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
        found = search_offset(
            self._shards,
            request.topic,
            request.queue_id,
            time_millis,
            boundary=boundary,
            broker_name=request.broker_name,
            deadline=_deadline(context),
        )
        return pb.SearchOffsetResponse(
            queue_offset=found.queue_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            completeness=_completeness(Completeness.PARTIAL if found.catching_up else Completeness.COMPLETE),
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
        for shard, statuses in zip(self._shards, self._shards.fan_out.ask(self._shards, ask), strict=True):
            if isinstance(statuses, StoreError):
                raise statuses
            response.services.extend(_service_status(shard.broker_name, status) for status in statuses)
        return response


def add_to_server(servicer: GatewayServicer, forwarder: AppendForwarder, server: grpc.Server) -> None:
    """Serve the queries by the generated handlers and the appends by the forwarder's.

    The generated ones must not get to the server for an append: they would be asked first, and decode every message.
    """
    add_with_raw(pb_grpc.add_GatewayServiceServicer_to_server, servicer, forwarder.handlers(), server)


def _deadline(context: grpc.ServicerContext) -> Deadline:
    return Deadline.after(remaining_seconds(context, QUERY_SECONDS_DEFAULT))


def _millis(
    request: pb.QueryMessageByKeyRequest | pb.SearchOffsetRequest,
    field: str,
    to_millis: Callable[[int, int, str], int],
) -> int | None:
    if not request.HasField(field):
        return None
    time: Timestamp = getattr(request, field)
    return to_millis(time.seconds, time.nanos, field)


def _timestamp(time_millis: int | None) -> Timestamp | None:
    return None if time_millis is None else millis_to_timestamp(time_millis)


def _payload(payload: object) -> message_pb2.StoredMessage:
    assert isinstance(payload, message_pb2.StoredMessage)
    return payload


def _message(entry: PageEntry) -> message_pb2.StoredMessage:
    """The message to show, under the name that the gateway knows its shard by."""
    message = _payload(entry.record.payload)
    message.broker_name = entry.broker_name
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
    )


def _version() -> str:
    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
