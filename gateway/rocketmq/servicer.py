"""MessagingService: the methods that producers and consumers need. Each job has a room of its own; here they meet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.appends.forwarder import AppendForwarder
from gateway.delivery.waiting_room import WaitingRoom
from gateway.groups.joins import Joins
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource
from gateway.ports.groups import is_of_lite_topics
from gateway.ports.shards import Shards, ShardsSource
from gateway.rocketmq import offsets, pulling, receiving, routes
from gateway.rocketmq.acknowledging import Acknowledging
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.caller import Caller, caller_of, consumer_of
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.ending import Ending
from gateway.rocketmq.lite_subscriptions import LiteSubscriptions
from gateway.rocketmq.message_rules import DELIVERY_AHEAD_SECONDS_MAX
from gateway.rocketmq.names import group_of, topic_of
from gateway.rocketmq.pulling import Pulling
from gateway.rocketmq.receiving import DEFAULT_LIMITS, PollLimits, Receiving
from gateway.rocketmq.sending import Sending
from gateway.rocketmq.sessions import QuestionBytes
from gateway.rocketmq.status import RefusedError, ok, status_of
from gateway.rocketmq.telemetry import LITE_TYPES, kind_of, telemetry
from gateway.rocketmq.topic_types import TopicTypes
from gateway.waiting.endings import Endings
from gateway.waiting.producers import Producers
from gateway.waiting.shards import SchedulingShards
from reput.consumer.v1.consumer_service_pb2 import Client
from services.methods import QUERY_SECONDS
from services.serving.admission.callers import caller_here
from services.serving.calls.open_work import OpenWork
from services.serving.calls.raw_handlers import add_with_raw
from services.serving.calls.streamed_later import StreamedLater
from services.serving.calls.unary_call import AnsweredLater
from services.serving.deadline import answer_seconds
from store.errors import StoreError

CONSUMER_TYPES = frozenset({v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER}) | LITE_TYPES

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """What the methods need for messages that wait.

    Attributes:
        endings: passes verdicts and recalls to the shards.
        producers: those that can be asked for verdicts.
        delivery_ahead_seconds_max: how far ahead a delivery time may lie.
    """

    endings: Endings
    producers: Producers
    delivery_ahead_seconds_max: int = DELIVERY_AHEAD_SECONDS_MAX

    @classmethod
    def none(cls) -> "WaitingMessages":
        """For a gateway whose shards have no schedule service."""
        producers = Producers()
        return cls(Endings(SchedulingShards(producers, "")), producers)


class MessagingServicer(v2_grpc.MessagingServiceServicer):
    """Serves `apache.rocketmq.v2.MessagingService`; what takes no thread is in `add_messaging_to_server`.

    Args:
        shards: the shards, for routes and offsets of queues.
        delivering: their consumer services.
        room: where long polls wait.
        clients: the clients that live.
        members: those that can be asked what they do.
        work: a clean stop waits for messages on their way; None: for none.
        types: which messages topics take; None: as these shards say, whoever asks.
        waiting: what ends waits, and who is asked about them; None: nothing waits here.
        limits: of long polls.
        check_group: raises PermissionDeniedError for a group that the caller of the thread may not consume for; None: nobody
            signs in.
    """

    def __init__(
        self,
        shards: ShardsSource,
        delivering: DeliveringSource,
        room: WaitingRoom,
        clients: Clients,
        members: MessagingMembers,
        work: OpenWork | None = None,
        types: TopicTypes | None = None,
        waiting: WaitingMessages | None = None,
        limits: PollLimits = DEFAULT_LIMITS,
        *,
        check_group: Callable[[str], object] | None = None,
    ) -> None:
        self._source = shards
        self._check_group = check_group
        self._delivering = delivering
        self._room = room
        self._clients = clients
        self._members = members
        self.types = types or TopicTypes(shards)
        self.pulling = Pulling(delivering, room, self.types.source)
        joins = Joins(self.types.source)
        self.receiving = Receiving(
            delivering, room, clients, work, self.pulling.check_topic, limits=limits, joins=joins
        )
        self.acknowledging = Acknowledging(delivering, clients)
        self._lite = LiteSubscriptions(delivering, clients, members)
        self.waiting = waiting or WaitingMessages.none()
        self.ending = Ending(self.waiting.endings)
        self._question_bytes = QuestionBytes()

    @property
    def _shards(self) -> Shards:
        return self._source.now()

    def QueryRoute(self, request: v2.QueryRouteRequest, context: grpc.ServicerContext) -> v2.QueryRouteResponse:
        """The queues of a topic in all shards that answer, each with the address of this gateway."""
        return _answered(lambda: routes.query_route(self._shards, request, _deadline(context)), v2.QueryRouteResponse)

    def QueryAssignment(
        self, request: v2.QueryAssignmentRequest, context: grpc.ServicerContext
    ) -> v2.QueryAssignmentResponse:
        """What a member of a group polls."""

        def assignment() -> v2.QueryAssignmentResponse:
            member = self._member(consumer_of(context), group_of(request.group))
            topic_of(request.topic)
            group = self._clients.group(member)
            # Of lite topics, a client polls a whole shard.
            ordered = group.ordered and not is_of_lite_topics(group)
            return routes.query_assignment(self._shards, request, _deadline(context), ordered=ordered)

        return _answered(assignment, v2.QueryAssignmentResponse)

    def Heartbeat(self, request: v2.HeartbeatRequest, context: grpc.ServicerContext) -> v2.HeartbeatResponse:
        """A client lives. One that this gateway does not know yet is taken if it says what it is."""

        def beat() -> v2.HeartbeatResponse:
            caller = caller_of(context)
            known = self._clients.find(caller.client_id)
            is_consumer = request.client_type in CONSUMER_TYPES or (known is not None and known.facts.consumer_group)
            if is_consumer:
                caller = consumer_of(context)
            if self._clients.has_ended(caller.client_id):
                raise RefusedError(v2.UNRECOGNIZED_CLIENT_TYPE, "this client has ended: send its settings again")
            if is_consumer:
                group = group_of(request.group)
                self._clients.beat(self._member(caller, group, kind_of(request.client_type)))
            elif known is not None:
                self._clients.beat(known.facts)
            elif request.client_type not in (v2.PRODUCER, v2.CLIENT_TYPE_UNSPECIFIED):
                raise RefusedError(v2.UNRECOGNIZED_CLIENT_TYPE, "clients of this type are not served")
            return v2.HeartbeatResponse(status=ok())

        return _answered(beat, v2.HeartbeatResponse)

    def ForwardMessageToDeadLetterQueue(
        self, request: v2.ForwardMessageToDeadLetterQueueRequest, context: grpc.ServicerContext
    ) -> v2.ForwardMessageToDeadLetterQueueResponse:
        """Moves a message to the group's dead-letter topic."""
        make = v2.ForwardMessageToDeadLetterQueueResponse
        return _answered(lambda: make(status=self.acknowledging.forward_to_dead_letter_queue(request, context)), make)

    def UpdateOffset(self, request: v2.UpdateOffsetRequest, context: grpc.ServicerContext) -> v2.UpdateOffsetResponse:
        """Sets a group's place in a queue."""
        return _answered(
            lambda: offsets.update_offset(self._shards, self._delivering, request, context), v2.UpdateOffsetResponse
        )

    def GetOffset(self, request: v2.GetOffsetRequest, context: grpc.ServicerContext) -> v2.GetOffsetResponse:
        """A group's place in a queue; OFFSET_NOT_FOUND when it has none."""
        return _answered(
            lambda: offsets.get_offset(self._shards, self._delivering, request, context), v2.GetOffsetResponse
        )

    def QueryOffset(self, request: v2.QueryOffsetRequest, context: grpc.ServicerContext) -> v2.QueryOffsetResponse:
        """The begin or end of a queue, or the first position at or after a time."""
        return _answered(
            lambda: offsets.query_offset(self._shards, request, _deadline(context)), v2.QueryOffsetResponse
        )

    def Telemetry(
        self, requests: Iterator[v2.TelemetryCommand], context: grpc.ServicerContext
    ) -> Iterator[v2.TelemetryCommand]:
        """Answers each settings command with the limits of this gateway; the client is also asked what only it knows."""
        return telemetry(requests, context, self._clients, self.waiting.producers, self._members, self._question_bytes)

    def NotifyClientTermination(
        self, request: v2.NotifyClientTerminationRequest, context: grpc.ServicerContext
    ) -> v2.NotifyClientTerminationResponse:
        """A client has ended: its polls end, and what is renewed for it is delivered again."""
        known = self._clients.find(caller_of(context).client_id)
        known_group = known.facts.consumer_group if known is not None else ""
        if known_group and self._check_group is not None:
            self._check_group(known_group)  # a client says itself which one it is

        def end() -> v2.NotifyClientTerminationResponse:
            caller, group = caller_of(context), known_group
            if request.HasField("group") and request.group.name:
                caller = consumer_of(context)
                group = group_of(request.group)
            if caller.client_id:
                self.waiting.producers.end(caller.client_id)
                if group:
                    self._room.end_client(caller.client_id, group)
                self._clients.end(caller.client_id, group, answer_seconds(context, QUERY_SECONDS))
            return v2.NotifyClientTerminationResponse(status=ok())

        return _answered(end, v2.NotifyClientTerminationResponse)

    def SyncLiteSubscription(
        self, request: v2.SyncLiteSubscriptionRequest, context: grpc.ServicerContext
    ) -> v2.SyncLiteSubscriptionResponse:
        """Which lite topics a client wants; every shard is told."""

        def sync() -> v2.SyncLiteSubscriptionResponse:
            member = self._member(consumer_of(context), group_of(request.group))
            self._lite.sync(request, member, answer_seconds(context, QUERY_SECONDS))
            return v2.SyncLiteSubscriptionResponse(status=ok())

        return _answered(sync, v2.SyncLiteSubscriptionResponse)

    def _member(self, caller: Caller, group: str, kind: str = "") -> Client:
        known = self._clients.find(caller.client_id)
        if known is not None and known.facts.consumer_group == group:
            return known.facts
        return Client(
            client_id=caller.client_id,
            consumer_group=group,
            language=caller.language,
            version=caller.version,
            address=caller.address,
            kind=kind,
            caller=caller_here(),
        )


def add_messaging_to_server(servicer: MessagingServicer, server: grpc.Server, forwarder: AppendForwarder) -> None:
    """Serve MessagingService. What is frequent or waits takes no thread of its own."""
    receiver, puller, acknowledging = servicer.receiving, servicer.pulling, servicer.acknowledging
    sending = Sending(forwarder, servicer.types, servicer.waiting.delivery_ahead_seconds_max)
    handlers: dict[str, Any] = {
        "SendMessage": _later(sending.send_message),
        "EndTransaction": _later(servicer.ending.end_transaction),
        "RecallMessage": _later(servicer.ending.recall_message),
        "AckMessage": _later(acknowledging.ack_message),
        "ChangeInvisibleDuration": _later(acknowledging.change_invisible_duration),
        "ReceiveMessage": _polled(StreamedLater(receiver.receive_message, receiving.refused)),
        "PullMessage": _polled(StreamedLater(puller.pull_message, pulling.refused)),
    }
    add_with_raw(v2_grpc.add_MessagingServiceServicer_to_server, servicer, handlers, server)


def _later(offer: Callable[[bytes, Any], None]) -> Any:
    return grpc.unary_unary_rpc_method_handler(AnsweredLater(offer))


def _polled(later: StreamedLater) -> Any:
    return grpc.unary_stream_rpc_method_handler(later)


def _deadline(context: grpc.ServicerContext) -> Deadline:
    return Deadline.after(answer_seconds(context, QUERY_SECONDS))


def _answered(make: Callable[[], Response], response: Callable[..., Response]) -> Response:
    try:
        return make()
    except (RefusedError, StoreError) as error:
        return response(status=status_of(error))
