"""Tracks: what has become of a message for each group that has a position in its topic."""

from collections.abc import Sequence
from typing import TypeAlias

from consumer_svc.delivering.groups import ALL_GROUPS, GroupNames
from consumer_svc.delivering.life import Life
from consumer_svc.delivering.moves import next_retry_topic_of
from consumer_svc.state.group_states import Group
from consumer_svc.state.queue_state import QueueRef, QueueState
from consumer_svc.wire import filter_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import delivery_count, millis_to_timestamp
from store.errors import IllegalFilterError
from store.format.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, LightPlace, light_places
from store.format.topic import DLQ_PREFIX, dead_letter_topic_of

Track: TypeAlias = pb.TrackMessageResponse.Track


class Tracks:
    """Tells the state of messages.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def page(self, message: StoredMessage, names: GroupNames = ALL_GROUPS) -> pb.TrackMessageResponse:
        """One row for each group that has a position in the message's topic, by name, and whether there are more of them.

        A copy in a retry topic belongs to one group, and a dead letter is one for the group that its topic names. Where the
        groups of the store are not known, there is one row, UNKNOWN, that names no group.
        """
        life = self._life
        if life.rules.why_groups_unknown:
            unknown = Track(state=gateway_pb.TRACK_STATE_UNKNOWN, reason=life.rules.why_groups_unknown)
            return pb.TrackMessageResponse(tracks=[unknown])
        tracks: list[Track] = []
        topic = message.topic
        is_dead = topic.startswith(DLQ_PREFIX)
        with life.lock:
            groups = life.states.groups
            light = light_places(
                message.properties.get(MULTI_DISPATCH, ""), message.properties.get(MULTI_QUEUE_OFFSET, "")
            )
            having = (
                name
                for name, group in groups.items()
                if group.has_position(topic)
                or (is_dead and topic == dead_letter_topic_of(name))
                or _place_of(group, light) is not None
            )
            found, has_more = names.page(having)
            for name in found:
                if is_dead and topic == dead_letter_topic_of(name):
                    track = Track(
                        state=gateway_pb.TRACK_STATE_DEAD_LETTER,
                        delivery_attempts=message.reconsume_times,
                        copy_offset_msg_id=message.offset_msg_id,
                    )
                elif topic not in groups[name].topics and (place := _place_of(groups[name], light)) is not None:
                    state = life.states.find(QueueRef(name, place.queue, 0))
                    track = self._of_queue(name, groups[name], state or QueueState(), message, place.queue_offset)
                else:
                    queue = groups[name].topics[topic].get(message.queue_id)
                    track = self._of_queue(name, groups[name], queue or QueueState(), message)
                track.consumer_group = name
                track.is_online = bool(life.clients.members(name))
                tracks.append(track)
        return pb.TrackMessageResponse(tracks=tracks, has_more=has_more)

    def _of_queue(
        self, name: str, group: Group, queue: QueueState, message: StoredMessage, at: int | None = None
    ) -> Track:
        at = message.queue_offset if at is None else at
        lease, waiting = queue.leases.get(at), queue.waiting.get(at)
        if lease is not None:
            return Track(
                state=gateway_pb.TRACK_STATE_IN_FLIGHT,
                delivery_attempts=delivery_count(message, lease.attempt_count),
                visible_time=millis_to_timestamp(lease.invisible_until_millis),
                client_id=lease.client_id,
            )
        if waiting is not None:
            attempts = delivery_count(message, waiting.attempt_count)
            return Track(
                state=gateway_pb.TRACK_STATE_RETRYING if attempts else gateway_pb.TRACK_STATE_NOT_CONSUMED,
                delivery_attempts=attempts,
                visible_time=millis_to_timestamp(waiting.visible_millis) if waiting.visible_millis else None,
            )
        if at in queue.moved:  # also before the group's position has passed it: what counts is the copy
            return Track(state=gateway_pb.TRACK_STATE_CONSUMED)
        if at >= queue.next_offset:
            is_wanted = self._is_wanted(name, message)
            return Track(
                state=gateway_pb.TRACK_STATE_NOT_CONSUMED if is_wanted else gateway_pb.TRACK_STATE_FILTERED_OUT
            )
        if any(begin <= at < end for begin, end in queue.resets):
            return Track(state=gateway_pb.TRACK_STATE_SKIPPED)
        if not self._is_wanted(name, message):
            return Track(state=gateway_pb.TRACK_STATE_FILTERED_OUT)
        return Track(state=gateway_pb.TRACK_STATE_CONSUMED)

    def _is_wanted(self, consumer_group: str, message: StoredMessage) -> bool:
        """By the current subscription of the group's members; without a member, everything is wanted."""
        topic = message.topic
        for client in self._life.clients.members(consumer_group):
            for subscription in client.subscriptions:
                topics = (subscription.topic, next_retry_topic_of(consumer_group, subscription.topic))
                if topic in topics:
                    try:
                        return filter_of(subscription.filter).matches(message.tags, message.properties)
                    except IllegalFilterError:
                        return True  # its polls fail
        return True


def _place_of(group: Group, light: Sequence[LightPlace]) -> LightPlace | None:
    """The light queue in which a group gets a message."""
    return next((place for place in light if group.has_position(place.queue)), None)
