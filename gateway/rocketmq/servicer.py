"""MessagingService: the methods that producers need."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.appends.forwarder import AppendForwarder
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Boundary, Shard
from gateway.ports.shards import Shards, ShardsSource, topic_not_found
from gateway.ports.time_window import millis_at_or_after
from gateway.queries.limits import check_topic
from gateway.queries.search_offset import search_offset
from gateway.rocketmq.messages import BODY_BYTES_MAX, full_name
from gateway.rocketmq.sending import Sending
from gateway.rocketmq.status import RefusedError, ok, status_of
from services.methods import QUERY_SECONDS
from services.serving.deadline import remaining_seconds
from services.serving.raw_handlers import add_with_raw
from services.serving.unary_call import AnsweredLater
from store.errors import StoreError

# The retry policy that clients get: RocketMQ's proxy's default, few and quick retries.
ATTEMPT_COUNT_MAX = 3
BACKOFF_FIRST = Duration(nanos=10_000_000)
BACKOFF_MAX = Duration(seconds=1)
BACKOFF_FACTOR = 2.0
# Queues of a topic in one shard that a route names, 1 MiB of it; a configured count may be any number of 32 bits.
ROUTE_QUEUE_COUNT_MAX = 8_192


Response = TypeVar("Response")


class MessagingServicer(v2_grpc.MessagingServiceServicer):
    """Serves `apache.rocketmq.v2.MessagingService` except SendMessage.

    Args:
        shards: the shards.
    """

    def __init__(self, shards: ShardsSource[object]) -> None:
        self._source = shards

    @property
    def _shards(self) -> Shards[object]:
        return self._source.now()

    def QueryRoute(self, request: v2.QueryRouteRequest, context: grpc.ServicerContext) -> v2.QueryRouteResponse:
        """The queues of a topic in all shards that answer, each with the address of this gateway."""
        deadline = Deadline.after(remaining_seconds(context, QUERY_SECONDS))

        def queues() -> v2.QueryRouteResponse:
            topic = full_name(request.topic)
            check_topic(topic)
            if not request.endpoints.addresses:
                raise RefusedError(
                    v2.BAD_REQUEST, "endpoints is empty: give the address by which the client called the gateway"
                )
            shards = self._shards
            each = deadline.for_one_of(len(shards))
            counts = shards.fan_out.ask(shards, lambda shard: _queue_count(shard, topic, each))
            failed = [count for count in counts if isinstance(count, StoreError)]
            if len(failed) == len(counts):
                raise failed[0]
            response = v2.QueryRouteResponse(status=ok())
            for shard, count in zip(shards, counts, strict=True):
                # A shard that is down is left out of the route, as a name server leaves out a broker: sending goes on.
                if isinstance(count, StoreError):
                    continue
                for queue_id in range(min(count, ROUTE_QUEUE_COUNT_MAX)):
                    queue = response.message_queues.add(topic=request.topic, id=queue_id, permission=v2.READ_WRITE)
                    queue.broker.name = shard.broker_name
                    queue.broker.endpoints.CopyFrom(request.endpoints)
                    queue.accept_message_types.extend([v2.NORMAL, v2.FIFO])
            if not response.message_queues:
                raise failed[0] if failed else topic_not_found(topic)
            return response

        return _answered(queues, v2.QueryRouteResponse)

    def Heartbeat(self, request: v2.HeartbeatRequest, context: grpc.ServicerContext) -> v2.HeartbeatResponse:
        """Accepts a producer; other clients get UNRECOGNIZED_CLIENT_TYPE."""
        return v2.HeartbeatResponse(status=_status_for(request.client_type))

    def GetOffset(self, request: v2.GetOffsetRequest, context: grpc.ServicerContext) -> v2.GetOffsetResponse:
        """Always OFFSET_NOT_FOUND, because consumer groups have no offsets in this store."""
        return v2.GetOffsetResponse(
            status=v2.Status(code=v2.OFFSET_NOT_FOUND, message="consumer groups have no offsets in this store")
        )

    def QueryOffset(self, request: v2.QueryOffsetRequest, context: grpc.ServicerContext) -> v2.QueryOffsetResponse:
        """The begin or end of a queue, or the first position at or after a time."""
        deadline = Deadline.after(remaining_seconds(context, QUERY_SECONDS))
        policy = request.query_offset_policy

        def offset() -> v2.QueryOffsetResponse:
            if policy not in (v2.BEGINNING, v2.END, v2.TIMESTAMP):
                raise RefusedError(
                    v2.BAD_REQUEST, f"query_offset_policy {policy} is not known: use BEGINNING, END or TIMESTAMP"
                )
            if policy == v2.TIMESTAMP and not request.HasField("timestamp"):
                raise RefusedError(v2.BAD_REQUEST, "timestamp is missing: set it, or use another query_offset_policy")
            time = request.timestamp
            queue = request.message_queue
            found = search_offset(
                self._shards,
                full_name(queue.topic),
                queue.id,
                millis_at_or_after(time.seconds, time.nanos, "timestamp"),
                boundary=Boundary.LOWER,
                broker_name=queue.broker.name,
                deadline=deadline,
            )
            if found.catching_up and policy != v2.BEGINNING:
                raise RefusedError(v2.HA_NOT_AVAILABLE, "the queues are still being built: ask again")
            if found.problem is not None and policy != v2.END:
                raise found.problem
            offsets = {v2.BEGINNING: found.min_offset, v2.END: found.max_offset, v2.TIMESTAMP: found.queue_offset}
            return v2.QueryOffsetResponse(status=ok(), offset=offsets[policy])

        return _answered(offset, v2.QueryOffsetResponse)

    def Telemetry(
        self, requests: Iterator[v2.TelemetryCommand], context: grpc.ServicerContext
    ) -> Iterator[v2.TelemetryCommand]:
        """Answers each settings command with the limits of this gateway; other commands get no answer."""
        for command in requests:
            if command.HasField("settings"):
                yield _agreed(command)

    def NotifyClientTermination(
        self, request: v2.NotifyClientTerminationRequest, context: grpc.ServicerContext
    ) -> v2.NotifyClientTerminationResponse:
        """Accepts the end of a client; nothing is kept about clients."""
        return v2.NotifyClientTerminationResponse(status=ok())


def add_messaging_to_server(servicer: MessagingServicer, server: grpc.Server, forwarder: AppendForwarder) -> None:
    """Serve MessagingService; SendMessage is an append and takes no thread of its own."""
    send: Any = grpc.unary_unary_rpc_method_handler(AnsweredLater(Sending(forwarder).send_message))
    add_with_raw(v2_grpc.add_MessagingServiceServicer_to_server, servicer, {"SendMessage": send}, server)


def _queue_count(shard: Shard[object], topic: str, deadline: Deadline) -> int:
    """The number of queues of the topic in the shard, or of those that the shard would create for it."""
    count = shard.topics.queue_counts(deadline).get(topic)
    if count is not None:
        return count
    queues = shard.queues.list_queues(topic, deadline)
    seen = max((queue.queue_id + 1 for queue in queues), default=0)
    return max(seen, shard.topics.new_topic_queue_count(deadline))


def _answered(make: Callable[[], Response], response: Callable[..., Response]) -> Response:
    try:
        return make()
    except (RefusedError, StoreError) as error:
        return response(status=status_of(error))


def _status_for(client_type: "v2.ClientType") -> v2.Status:
    if client_type in (v2.PRODUCER, v2.CLIENT_TYPE_UNSPECIFIED):
        return ok()
    return v2.Status(
        code=v2.UNRECOGNIZED_CLIENT_TYPE,
        message="this store does not deliver messages: consume from a broker",
    )


def _agreed(command: v2.TelemetryCommand) -> v2.TelemetryCommand:
    """The client's settings with this gateway's limits; unknown fields are returned unchanged."""
    answer = v2.TelemetryCommand(status=_status_for(command.settings.client_type))
    settings = answer.settings
    settings.CopyFrom(command.settings)
    settings.backoff_policy.max_attempts = ATTEMPT_COUNT_MAX
    backoff = settings.backoff_policy.exponential_backoff
    backoff.initial.CopyFrom(BACKOFF_FIRST)
    backoff.max.CopyFrom(BACKOFF_MAX)
    backoff.multiplier = BACKOFF_FACTOR
    if settings.HasField("publishing"):
        settings.publishing.max_body_size = BODY_BYTES_MAX
        settings.publishing.validate_message_type = True
    return answer
