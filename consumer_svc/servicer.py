"""Serves reput.consumer.v1: translates between the proto messages and the domain."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import grpc

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.acks import Acks
from consumer_svc.delivering.groups import GroupNames
from consumer_svc.delivering.life import check_group_name
from consumer_svc.delivering.life_parts import LifeParts
from consumer_svc.delivering.pulls import EncodedBatch
from consumer_svc.figures import DELIVERED, SENT_BACK, Figures
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.queue_locks import QueueLocks, check
from consumer_svc.state.codec import mode_of
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import QueueRef
from consumer_svc.wire import check_topic_named, duration_millis, settings_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.consumer.v1 import consumer_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.following.follower_process import FollowerState
from services.following.follower_progress import FollowerProgress
from services.local.server import Handler, RevocableAnswer, over_bytes
from services.local.wire import LocalMethod
from services.serving.calls.raw_handlers import AnyHandler, add_with_raw
from store.errors import (
    InvalidArgumentError,
    ServiceUnavailableError,
    StoreError,
    StoreRecoveringError,
    TopicNotFoundError,
)

HEARTBEAT_SECONDS = 1.0
# A service that follows its log is some milliseconds behind it.
BEHIND_SECONDS_MAX = 5.0
CLIENT_COUNT_MAX = 1_024
DELIVERED_COUNT_MAX = 8_192


class ConsumerServicer(pb_grpc.ConsumerServiceServicer):
    """The service; all calls but GetStatus, KeepClients and WatchArrivals fail with StoreRecoveringError until `open`.

    So does a KeepClients that names deliveries, when it has kept its clients.

    Args:
        progress: of the follower.
        clients: the consumers that live.
        locks: of queues, for those that pull in order.
        arrivals: hears of messages that may be delivered.
        is_stopping: whether the process ends.
        figures: count what comes and goes.

    Attributes:
        state: of the follower.
    """

    def __init__(
        self,
        progress: FollowerProgress,
        clients: LiveConsumers,
        locks: QueueLocks,
        arrivals: Arrivals,
        is_stopping: Callable[[], bool],
        figures: Figures | None = None,
    ) -> None:
        self._figures = figures or Figures()
        self.state: Callable[[], FollowerState] = lambda: FollowerState("waiting", 0, "")
        self._progress = progress
        self._clients = clients
        self._locks = locks
        self._arrivals = arrivals
        self._is_stopping = is_stopping
        self._open: LifeParts | None = None
        self._leadership: int | None = None

    def open(self, delivery: LifeParts) -> None:
        """Serve this life from now on.

        With a new leadership the leader before had the clients and locks: they are waited for as after a start.
        """
        leadership = delivery.life.leadership
        if leadership is not None and leadership != self._leadership:
            self._clients.begin_again()
            self._locks.begin_again()
        self._leadership = leadership
        self._open = delivery
        self._arrivals.note_all()

    def shut(self) -> None:
        """Serve nothing until the next `open`: the state is being read."""
        self._open = None

    def PopMessages(self, request: pb.PopMessagesRequest, context: grpc.ServicerContext) -> pb.PopMessagesResponse:
        """See the proto."""
        delivery = self._delivery
        popped = delivery.pops.pop(request)
        self._count_popped(request, popped)
        if popped.deliveries and not context.is_active():
            _give_back(delivery.acks, request.consumer_group, popped)
        return popped

    def pop_locally(self, request: pb.PopMessagesRequest, _context: object) -> RevocableAnswer:
        """PopMessages over a local socket."""
        delivery = self._delivery
        popped = delivery.pops.pop(request)
        self._count_popped(request, popped)
        give_back = partial(_give_back, delivery.acks, request.consumer_group, popped)
        return RevocableAnswer(popped.SerializeToString(), give_back)

    def local_tails(self) -> dict[LocalMethod, Handler]:
        """What gateways follow, for callers on this machine: services/local/server.py."""
        return {LocalMethod.WATCH_ARRIVALS: over_bytes(pb.WatchArrivalsRequest, self.WatchArrivals)}

    def local_calls(self) -> dict[LocalMethod, Handler]:
        """The calls that consumers make most, for gateways of this machine: services/local/server.py."""
        return {
            LocalMethod.POP_MESSAGES: over_bytes(pb.PopMessagesRequest, self.pop_locally),
            LocalMethod.ACK_MESSAGES: over_bytes(pb.AckMessagesRequest, self.AckMessages),
            LocalMethod.CHANGE_INVISIBLE_DURATION: over_bytes(
                pb.ChangeInvisibleDurationRequest, self.ChangeInvisibleDuration
            ),
            LocalMethod.PULL_MESSAGES: over_bytes(pb.PullMessagesRequest, self.pull_bytes),
            LocalMethod.LIST_GROUPS: over_bytes(pb.ListGroupsRequest, self.ListGroups),
            LocalMethod.GET_GROUP: over_bytes(pb.GetGroupRequest, self.GetGroup),
            LocalMethod.GET_FIGURES: over_bytes(pb.GetFiguresRequest, self.GetFigures),
            LocalMethod.TRACK_MESSAGE: over_bytes(pb.TrackMessageRequest, self.TrackMessage),
        }

    def AckMessages(self, request: pb.AckMessagesRequest, context: grpc.ServicerContext) -> pb.AckMessagesResponse:
        """See the proto."""
        outcomes = self._delivery.acks.ack(request.consumer_group, request.receipt_handles)
        return pb.AckMessagesResponse(outcomes=outcomes)

    def ChangeInvisibleDuration(
        self, request: pb.ChangeInvisibleDurationRequest, context: grpc.ServicerContext
    ) -> pb.ChangeInvisibleDurationResponse:
        """See the proto."""
        acks = self._delivery.acks
        millis = duration_millis(request.invisible_duration, "invisible_duration")
        if request.give_back and not millis:
            acks.give_back(request.consumer_group, request.receipt_handle)
            return pb.ChangeInvisibleDurationResponse()
        handle = acks.change_invisible(
            request.consumer_group,
            request.receipt_handle,
            millis,
            is_released=request.give_back,
            suspends=request.suspend,
        )
        return pb.ChangeInvisibleDurationResponse(receipt_handle=handle)

    def ForwardToDeadLetterTopic(
        self, request: pb.ForwardToDeadLetterTopicRequest, context: grpc.ServicerContext
    ) -> pb.ForwardToDeadLetterTopicResponse:
        """See the proto."""
        self._delivery.acks.give_up(request.consumer_group, request.receipt_handle)
        return pb.ForwardToDeadLetterTopicResponse()

    def PullMessages(self, request: pb.PullMessagesRequest, context: grpc.ServicerContext) -> pb.PullMessagesResponse:
        """See the proto."""
        return pb.PullMessagesResponse.FromString(self.pull_bytes(request, context))

    def pull_bytes(self, request: pb.PullMessagesRequest, _context: object) -> bytes:
        """PullMessages, answered as bytes: the messages stand behind the other fields (services/calling/pulled_bytes.py)."""
        seen_offset = max(self._progress.next_offset, 0)  # before the pull: what comes meanwhile may be missing in it
        try:
            pulled = self._delivery.pulls.pull(request, seen_offset)
        except TopicNotFoundError as error:
            error.metadata["seenOffset"] = str(seen_offset)
            raise
        answer, batch = pulled.answer, pulled.messages
        if isinstance(batch, EncodedBatch):
            data = b"".join(batch.data)
            self._figures.add(DELIVERED, request.topic, request.consumer_group, len(batch), len(data))
            return answer.SerializeToString() + data
        size_bytes = sum(message.store_size_bytes for message in batch)
        self._figures.add(DELIVERED, request.topic, request.consumer_group, len(batch), size_bytes)
        answer.messages.extend(batch)
        return answer.SerializeToString()

    def SendBackMessages(
        self, request: pb.SendBackMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SendBackMessagesResponse:
        """See the proto."""
        check_topic_named(request.topic)
        ref = QueueRef(request.consumer_group, request.topic, request.queue_id)
        outcomes = self._delivery.send_backs.send_back(
            ref,
            request.queue_offsets,
            request.delay_level,
            request.caller,
            known_only=request.known_only,
            attempts_max=max(request.delivery_attempts_max, 0),
            for_pullers=request.for_pullers,
        )
        count = len(outcomes) - outcomes.count(gateway_pb.SEND_BACK_OUTCOME_REMOVED)
        self._figures.add(SENT_BACK, request.topic, request.consumer_group, count, 0)
        return pb.SendBackMessagesResponse(outcomes=outcomes)

    def LockQueues(self, request: pb.LockQueuesRequest, context: grpc.ServicerContext) -> pb.LockQueuesResponse:
        """See the proto."""
        states = self._current.life.states
        check_group_name(request.consumer_group)
        queues = [QueueRef(request.consumer_group, each.topic, each.queue_id) for each in request.queues]
        if request.unlock:
            self._locks.unlock(request.client_id, queues)
            return pb.LockQueuesResponse()
        check(request.client_id, queues)
        unknown = self._unknown(queues)
        known = [ref for ref in queues if ref not in unknown]
        held = (
            self._locks.lock(
                request.client_id,
                known,
                renew=request.renew,
                was_consumed=lambda ref: states.find(ref) is not None,
                caller=request.caller,
            )
            if known
            else []
        )
        return pb.LockQueuesResponse(
            queues=[gateway_pb.TopicQueue(topic=each.topic, queue_id=each.queue_id) for each in held],
            unknown_queues=[gateway_pb.TopicQueue(topic=each.topic, queue_id=each.queue_id) for each in unknown],
        )

    def _unknown(self, queues: Sequence[QueueRef]) -> Mapping[QueueRef, None]:
        """The queues that do not exist: locks of invented names would be kept without a use."""
        life = self._delivery.life
        without = [ref for ref in queues if ref.queue_id not in life.reader.recent.ends(ref.topic)]
        counts = life.topics.queue_counts() if without else {}
        return dict.fromkeys(ref for ref in without if ref.queue_id >= counts.get(ref.topic, 0))

    def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: grpc.ServicerContext
    ) -> pb.CommitOffsetsResponse:
        """See the proto."""
        is_beginning, beginning = request.HasField("beginning"), request.beginning
        if is_beginning and request.offsets:
            raise InvalidArgumentError("offsets and beginning are set: set one of them", field="beginning")
        offsets = [(one.topic, one.queue_id, one.queue_offset) for one in request.offsets]
        if is_beginning:
            offsets = [(beginning.topic, queue_id, at) for queue_id, at in enumerate(beginning.queue_offsets)]
        recent = self._delivery.life.reader.recent
        if any(queue_offset > recent.end(topic, queue_id) for topic, queue_id, queue_offset in offsets):
            # The queues' service may know messages that this service has not seen. A pop would take such a position back.
            self._see_all()
        if is_beginning:
            self._delivery.pulls.begin(
                request.consumer_group, beginning.topic, beginning.queue_offsets, known_only=request.known_only
            )
            return pb.CommitOffsetsResponse()
        self._delivery.pulls.commit(
            request.consumer_group,
            offsets,
            request.caller,
            member=request.member,
            begins=request.begins,
            known_only=request.known_only,
        )
        return pb.CommitOffsetsResponse()

    def GetOffsets(self, request: pb.GetOffsetsRequest, context: grpc.ServicerContext) -> pb.GetOffsetsResponse:
        """See the proto."""
        delivery = self._current
        delivery.groups.named(request.consumer_group)
        return pb.GetOffsetsResponse(
            offsets=[
                pb.QueueOffset(topic=ref.topic, queue_id=ref.queue_id, queue_offset=at)
                for ref, at in delivery.pulls.offsets(request.consumer_group, request.topic)
            ]
        )

    def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: grpc.ServicerContext) -> pb.ResetOffsetsResponse:
        """See the proto."""
        delivery = self._current
        self._see_all()  # the ends of the queues are what the log has now
        targets = delivery.groups.reset_targets(request)
        resets = delivery.pulls.reset(
            request.consumer_group,
            request.topic,
            targets,
            dry_run=request.dry_run,
            caller=request.caller,
            known_only=request.known_only,
        )
        return pb.ResetOffsetsResponse(resets=resets)

    def KeepClients(self, request: pb.KeepClientsRequest, context: grpc.ServicerContext) -> pb.KeepClientsResponse:
        """See the proto."""
        if len(request.clients) > CLIENT_COUNT_MAX:
            raise InvalidArgumentError(
                f"{len(request.clients)} clients: at most {CLIENT_COUNT_MAX} are possible", field="clients"
            )
        delivered = request.delivered_receipt_handles
        if len(delivered) > DELIVERED_COUNT_MAX:
            raise InvalidArgumentError(
                f"{len(delivered)} receipt handles: at most {DELIVERED_COUNT_MAX} are possible",
                field="delivered_receipt_handles",
            )
        for client in request.clients:
            self._clients.keep(client)
        if delivered:
            self._delivery.acks.note_delivered(delivered)
        delivery = self._current_or_none
        names = sorted({client.consumer_group for client in request.clients})
        settings = [] if delivery is None else list(map(delivery.groups.settings, names))
        if delivery is not None:
            delivery.groups.make_retry_topics(names, wait=True)
        return pb.KeepClientsResponse(groups=settings)

    def EndClient(self, request: pb.EndClientRequest, context: grpc.ServicerContext) -> pb.EndClientResponse:
        """See the proto."""
        if not self._clients.end(request.consumer_group, request.client_id, request.address):
            return pb.EndClientResponse()
        if not request.keep_locks:
            self._locks.end_client(request.consumer_group, request.client_id)
        self._delivery.groups.end_client(request.consumer_group, request.client_id)
        self._delivery.lite.end_client(request.consumer_group, request.client_id)
        return pb.EndClientResponse()

    def SyncLiteSubscription(
        self, request: pb.SyncLiteSubscriptionRequest, context: grpc.ServicerContext
    ) -> pb.SyncLiteSubscriptionResponse:
        """See the proto."""
        return self._delivery.lite.sync(request)

    def ListLiteTopics(
        self, request: pb.ListLiteTopicsRequest, context: grpc.ServicerContext
    ) -> pb.ListLiteTopicsResponse:
        """See the proto."""
        return self._current.lite.page(request)

    def WatchArrivals(
        self, request: pb.WatchArrivalsRequest, context: grpc.ServicerContext | None
    ) -> Iterator[pb.WatchArrivalsResponse]:
        """See the proto."""
        watcher = self._arrivals.watch()
        try:
            while (context is None or context.is_active()) and not self._is_stopping():
                arrived = watcher.take(HEARTBEAT_SECONDS)
                yield from arrived.messages()
        finally:
            self._arrivals.forget(watcher)

    def ListGroups(self, request: pb.ListGroupsRequest, context: grpc.ServicerContext) -> pb.ListGroupsResponse:
        """See the proto."""
        groups, has_more = self._current.groups.page(request.topic, _names(request))
        return pb.ListGroupsResponse(groups=groups, has_more=has_more)

    def GetGroup(self, request: pb.GetGroupRequest, context: grpc.ServicerContext) -> pb.GetGroupResponse:
        """See the proto."""
        described = self._current.groups.describe(request.consumer_group, without_queues=request.without_queues)
        described.has_locks = self._locks.has_some(request.consumer_group)
        return described

    def UpdateGroup(self, request: pb.UpdateGroupRequest, context: grpc.ServicerContext) -> pb.UpdateGroupResponse:
        """See the proto."""
        settings = settings_of(request.settings)
        if request.HasField("request_mode"):
            self._delivery.groups.set_mode(settings.consumer_group, mode_of(request.request_mode), request.caller)
            return pb.UpdateGroupResponse()
        if request.if_unset and not request.settings.is_set:
            settings = GroupSettings(settings.consumer_group)
        self._delivery.groups.update(settings, request.caller, if_unset=request.if_unset)
        if request.if_unset:  # a consumer has come; its first heartbeat waits for the topic
            self._delivery.groups.make_retry_topics([settings.consumer_group], wait=False)
        return pb.UpdateGroupResponse()

    def DeleteGroup(self, request: pb.DeleteGroupRequest, context: grpc.ServicerContext) -> pb.DeleteGroupResponse:
        """See the proto."""
        self._delivery.groups.delete(request.consumer_group)
        return pb.DeleteGroupResponse()

    def SeeTopics(self, request: pb.SeeTopicsRequest, context: grpc.ServicerContext) -> pb.SeeTopicsResponse:
        """See the proto."""
        self._delivery.deletions.see_now()
        return pb.SeeTopicsResponse()

    def GetFigures(self, request: pb.GetFiguresRequest, context: grpc.ServicerContext) -> pb.GetFiguresResponse:
        """See the proto."""
        return self._figures.answer(request)

    def TrackMessage(self, request: pb.TrackMessageRequest, context: grpc.ServicerContext) -> pb.TrackMessageResponse:
        """See the proto."""
        return self._current.tracks.page(request.message, _names(request))

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        state = self.state()
        response = pb.GetStatusResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            state=state.state,
            last_error=state.last_error,
            failure_count=state.failure_count,
            client_count=self._clients.count(),
        )
        delivery = self._open
        if delivery is not None:
            with delivery.life.lock:
                response.group_count = len(delivery.life.states.groups)
                response.in_flight_count = delivery.life.states.in_flight_count()
        return response

    def lag_counts(self) -> Mapping[tuple[str, ...], int]:
        """Messages that are not consumed, by group and topic; none while the groups' state is being read or not current."""
        delivery = self._current_or_none
        return dict(delivery.groups.lag_counts().items()) if delivery is not None else {}

    def _count_popped(self, request: pb.PopMessagesRequest, popped: pb.PopMessagesResponse) -> None:
        by_topic: dict[str, list[int]] = {}
        for one in popped.deliveries:
            by_topic.setdefault(one.message.topic, []).append(one.message.store_size_bytes)
        for topic, sizes in by_topic.items():
            self._figures.add(DELIVERED, topic, request.consumer_group, len(sizes), sum(sizes))

    @property
    def _delivery(self) -> LifeParts:
        delivery = self._open
        if delivery is None:
            raise StoreRecoveringError("the state of the consumer groups is being read: try again soon")
        return delivery

    def _see_all(self) -> None:
        """Wait until this service has seen what the log has now.

        Raises:
            ServiceUnavailableError: it has not after BEHIND_SECONDS_MAX.
        """
        end_offset = self._delivery.life.reader.log_end()
        if not self._progress.wait_past(end_offset - 1, BEHIND_SECONDS_MAX):
            raise ServiceUnavailableError(
                f"this service has seen the log up to byte {self._progress.next_offset}, and it has {end_offset}: where the "
                "queues end is not known; try again soon",
                service="consumer",
            )

    @property
    def _current(self) -> LifeParts:
        """For what tells of groups: NotLeaderError on a replica that does not lead, whose state is older than the log."""
        delivery = self._delivery
        delivery.life.refuse_if_not_current()
        return delivery

    @property
    def _current_or_none(self) -> LifeParts | None:
        delivery = self._open
        return delivery if delivery is not None and delivery.life.leadership is not None else None


def add_to_server(servicer: ConsumerServicer, server: grpc.Server) -> None:
    """Add the generated handlers, and for pulls one that answers with bytes."""
    pull: AnyHandler = grpc.unary_unary_rpc_method_handler(
        servicer.pull_bytes, request_deserializer=pb.PullMessagesRequest.FromString
    )
    add_with_raw(pb_grpc.add_ConsumerServiceServicer_to_server, servicer, {"PullMessages": pull}, server)


def _give_back(acks: Acks, consumer_group: str, popped: pb.PopMessagesResponse) -> None:
    """Hand out again what was popped for a caller that has gone."""
    for one in popped.deliveries:
        with contextlib.suppress(StoreError):
            acks.give_back(consumer_group, one.receipt_handle)


def _names(request: pb.ListGroupsRequest | pb.TrackMessageRequest) -> GroupNames:
    return GroupNames(max(request.page_size, 0), request.after, request.name_contains, request.consumer_group)
