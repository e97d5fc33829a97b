"""Tracks: what has become of a message for each group that has a position in its topic."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer_svc.delivering.groups import ALL_GROUPS, GroupNames
from consumer_svc.delivering.life import Life
from consumer_svc.delivering.moves import next_retry_topic_of
from consumer_svc.state.group_states import Group
from consumer_svc.state.queue_state import QueueState
from consumer_svc.wire import filter_of
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import IllegalFilterError
from store.format.topic import DLQ_PREFIX, dead_letter_topic_of


@dataclass(slots=True)
class Track:
    """How a message stands with one group; `state` is the name of the proto's TrackState."""

    consumer_group: str
    state: str
    attempts: int = 0
    visible_millis: int = 0
    client_id: str = ""
    is_online: bool = False
    copy_offset_msg_id: str = field(default="")
    reason: str = ""


class Tracks:
    """Tells the state of messages.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def track(self, message: StoredMessage, names: GroupNames = ALL_GROUPS) -> Sequence[Track]:
        """All of a page; see `page`."""
        return self.page(message, names)[0]

    def page(self, message: StoredMessage, names: GroupNames = ALL_GROUPS) -> tuple[Sequence[Track], bool]:
        """One row for each group that has a position in the message's topic, by name, and whether there are more of them.

        A copy in a retry topic belongs to one group, and a dead letter is one for the group that its topic names. Where the
        groups of the store are not known, there is one row, UNKNOWN, that names no group.
        """
        life = self._life
        if life.rules.why_groups_unknown:
            return [Track("", "UNKNOWN", reason=life.rules.why_groups_unknown)], False
        tracks: list[Track] = []
        topic = message.topic
        is_dead = topic.startswith(DLQ_PREFIX)
        with life.lock:
            groups = life.states.groups
            having = (
                name
                for name, group in groups.items()
                if topic in group.topics or (is_dead and topic == dead_letter_topic_of(name))
            )
            found, has_more = names.page(having)
            for name in found:
                if is_dead and topic == dead_letter_topic_of(name):
                    track = Track(name, "DEAD_LETTER", message.reconsume_times)
                    track.copy_offset_msg_id = message.offset_msg_id
                else:
                    queue = groups[name].topics[topic].get(message.queue_id)
                    track = self._of_queue(name, groups[name], queue or QueueState(), message)
                track.is_online = bool(life.clients.members(name))
                tracks.append(track)
        return tracks, has_more

    def _of_queue(self, name: str, group: Group, queue: QueueState, message: StoredMessage) -> Track:
        at = message.queue_offset
        lease, waiting = queue.leases.get(at), queue.waiting.get(at)
        if lease is not None:
            attempts = message.reconsume_times + lease.attempt_count
            return Track(name, "IN_FLIGHT", attempts, lease.invisible_until_millis, lease.client_id)
        if waiting is not None:
            attempts = message.reconsume_times + waiting.attempt_count
            return Track(name, "RETRYING" if attempts else "NOT_CONSUMED", attempts, waiting.visible_millis)
        if at in queue.moved:  # also before the group's position has passed it: what counts is the copy
            return Track(name, "CONSUMED")
        if at >= queue.next_offset:
            is_wanted = self._is_wanted(name, message)
            return Track(name, "NOT_CONSUMED" if is_wanted else "FILTERED_OUT")
        if any(begin <= at < end for begin, end in queue.resets):
            return Track(name, "SKIPPED")
        if not self._is_wanted(name, message):
            return Track(name, "FILTERED_OUT")
        return Track(name, "CONSUMED")

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
