"""GroupKeeper over a consumer service."""

from collections.abc import Sequence
from typing import Any

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import ALL_MESSAGES, ClientFacts, Filter, FilterKind, GroupSettings
from gateway.ports.groups import (
    GroupChoice,
    GroupFacts,
    GroupPage,
    GroupQueue,
    Item,
    Position,
    Reset,
    ResetQuestion,
    ResetTo,
    Track,
    TrackState,
)
from gateway.shards.remote_delivery import settings_of, settings_to
from gateway.shards.remote_services import optional_millis
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.client import ServiceClient
from services.calling.port_calls import port_call
from services.convert import millis_to_timestamp
from services.rpcs import consumer as rpc
from services.serving.admission.callers import caller_here

TRACK_STATES = {gateway_pb.TrackState.Value(f"TRACK_STATE_{state.name}"): state for state in TrackState}


class RemoteGroups:
    """See GroupKeeper.

    Args:
        client: calls the consumer service.
    """

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    @port_call("consumer.list-groups")
    def settings(self, choice: GroupChoice, deadline: Deadline) -> GroupPage[GroupSettings]:
        """See the port."""
        request = pb.ListGroupsRequest(topic=choice.topic, **_page_of(choice))
        answer = self._client.call(rpc.LIST_GROUPS, request, deadline.remaining_seconds())
        groups = [settings_of(group) for group in answer.groups if choice.holds(group.consumer_group)]
        return _cut(groups, choice, answer.has_more)

    @port_call("consumer.get-group")
    def facts(self, consumer_group: str, deadline: Deadline) -> GroupFacts:
        """See the port."""
        request = pb.GetGroupRequest(consumer_group=consumer_group)
        answer = self._client.call(rpc.GET_GROUP, request, deadline.remaining_seconds())
        return GroupFacts(
            settings_of(answer.settings),
            [_client(client) for client in answer.clients],
            [_queue(queue) for queue in answer.queues],
            list(answer.problems),
        )

    @port_call("consumer.get-offsets")
    def positions(self, consumer_group: str, topic: str, deadline: Deadline) -> Sequence[Position]:
        """See the port."""
        request = pb.GetOffsetsRequest(consumer_group=consumer_group, topic=topic)
        answer = self._client.call(rpc.GET_OFFSETS, request, deadline.remaining_seconds())
        return [Position(each.topic, each.queue_id, each.queue_offset) for each in answer.offsets]

    @port_call("consumer.commit-offsets")
    def commit(
        self, consumer_group: str, positions: Sequence[Position], deadline: Deadline, *, begins: bool = False
    ) -> None:
        """See the port."""
        offsets = [
            pb.QueueOffset(topic=each.topic, queue_id=each.queue_id, queue_offset=each.consumer_offset)
            for each in positions
        ]
        request = pb.CommitOffsetsRequest(
            consumer_group=consumer_group, offsets=offsets, begins=begins, known_only=True, caller=caller_here()
        )
        self._client.call(rpc.COMMIT_OFFSETS, request, deadline.remaining_seconds())

    @port_call("consumer.see-topics")
    def see_topics(self, deadline: Deadline) -> None:
        """See the port."""
        self._client.call(rpc.SEE_TOPICS, pb.SeeTopicsRequest(), deadline.remaining_seconds())

    @port_call("consumer.send-back")
    def send_back(self, request: pb.SendBackMessagesRequest, deadline: Deadline) -> pb.SendBackMessagesResponse:
        """See the port."""
        request.known_only, request.caller = True, caller_here()
        return self._client.call(rpc.SEND_BACK_MESSAGES, request, deadline.remaining_seconds())

    @port_call("consumer.lock-queues")
    def lock(self, request: pb.LockQueuesRequest, deadline: Deadline) -> pb.LockQueuesResponse:
        """See the port."""
        request.caller = caller_here()
        return self._client.call(rpc.LOCK_QUEUES, request, deadline.remaining_seconds())

    @port_call("consumer.reset-offsets")
    def reset(self, question: ResetQuestion, deadline: Deadline) -> Sequence[Reset]:
        """See the port."""
        request = pb.ResetOffsetsRequest(
            consumer_group=question.consumer_group,
            topic=question.topic,
            queue_id=question.queue_id,
            dry_run=question.dry_run,
            known_only=True,
            caller=caller_here(),
        )
        match question.to:
            case ResetTo.EARLIEST:
                request.earliest = True
            case ResetTo.LATEST:
                request.latest = True
            case ResetTo.TIME:
                request.time.CopyFrom(millis_to_timestamp(question.value))
            case ResetTo.OFFSET:
                request.queue_offset = question.value
        answer = self._client.call(rpc.RESET_OFFSETS, request, deadline.remaining_seconds())
        return [
            Reset(each.queue_id, each.before if each.HasField("before") else None, each.after) for each in answer.resets
        ]

    @port_call("consumer.update-group")
    def update(self, settings: GroupSettings, deadline: Deadline) -> None:
        """See the port."""
        request = pb.UpdateGroupRequest(settings=settings_to(settings), caller=caller_here())
        self._client.call(rpc.UPDATE_GROUP, request, deadline.remaining_seconds())

    @port_call("consumer.make-group")
    def make(self, settings: GroupSettings, deadline: Deadline) -> None:
        """See the port."""
        request = pb.UpdateGroupRequest(settings=settings_to(settings), if_unset=True, caller=caller_here())
        self._client.call(rpc.UPDATE_GROUP, request, deadline.remaining_seconds())

    @port_call("consumer.delete-group")
    def delete(self, consumer_group: str, deadline: Deadline) -> None:
        """See the port."""
        request = pb.DeleteGroupRequest(consumer_group=consumer_group)
        self._client.call(rpc.DELETE_GROUP, request, deadline.remaining_seconds())

    @port_call("consumer.track")
    def track(self, message: object, choice: GroupChoice, deadline: Deadline) -> GroupPage[Track]:
        """See the port."""
        assert isinstance(message, StoredMessage), "a shard of services has messages of the contract"
        request = pb.TrackMessageRequest(message=message, **_page_of(choice))
        request.message.ClearField("body")  # filters read properties only
        answer = self._client.call(rpc.TRACK_MESSAGE, request, deadline.remaining_seconds())
        tracks = [
            Track(
                each.consumer_group,
                TRACK_STATES.get(each.state, TrackState.UNKNOWN),
                each.delivery_attempts,
                optional_millis(each, "visible_time"),
                each.is_online,
                each.client_id,
                each.reason,
            )
            for each in answer.tracks
            if not each.consumer_group or choice.holds(each.consumer_group)
        ]
        return _cut(tracks, choice, answer.has_more)


def _page_of(choice: GroupChoice) -> dict[str, Any]:
    return {
        "page_size": choice.count_max,
        "after": choice.after,
        "name_contains": choice.contains,
        "consumer_group": choice.only,
    }


def _cut(items: list[Item], choice: GroupChoice, has_more: bool) -> GroupPage[Item]:
    """The page. A service of an older version answers all, whatever it was asked for."""
    return GroupPage(items[: choice.count_max], has_more or len(items) > choice.count_max)


def _client(client: pb.Client) -> ClientFacts:
    return ClientFacts(
        client.client_id,
        client.consumer_group,
        tuple((each.topic, _asked(each.filter)) for each in client.subscriptions),
        client.language,
        client.version,
        client.address,
        client.kind,
    )


def _asked(wanted: gateway_pb.MessageFilter) -> Filter:
    if wanted.WhichOneof("expression") == "sql":
        return Filter(FilterKind.SQL, wanted.sql)
    return Filter(FilterKind.TAGS, wanted.tags) if wanted.tags else ALL_MESSAGES


def _queue(queue: pb.GroupQueue) -> GroupQueue:
    return GroupQueue(
        queue.topic,
        queue.queue_id,
        queue.consumer_offset,
        queue.next_offset,
        queue.min_offset,
        queue.max_offset,
        queue.in_flight_count,
        queue.waiting_count,
        optional_millis(queue, "oldest_store_time"),
        queue.removed_count,
    )
