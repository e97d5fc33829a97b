"""The state of all groups of a shard, in memory; pure. See `queue_state.py` for a queue."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from consumer_svc.state.queue_state import QueueChange, QueueRef, QueueState

Queues = dict[int, QueueState]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group.

    Attributes:
        consumer_group: its name.
        ordered: messages of one message group are delivered one after the other.
        delivery_attempts_max: deliveries of a message, the first included, before it becomes a dead letter; 0: the service's
            default.
        consume_enabled: whether it gets messages.
        broadcast: each member consumes every message and keeps its positions itself.
    """

    consumer_group: str
    ordered: bool = False
    delivery_attempts_max: int = 0
    consume_enabled: bool = True
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class GroupSet:
    """A group is made, or gets other settings."""

    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """A group is forgotten, with its positions."""

    consumer_group: str


Change = QueueChange | GroupSet | GroupDeleted


@dataclass(slots=True)
class Group:
    """A group: its settings, and its queues by topic and number."""

    settings: GroupSettings
    topics: dict[str, Queues] = field(default_factory=dict)

    def queues(self) -> Iterator[tuple[QueueRef, QueueState]]:
        """All queues, by topic and number."""
        name = self.settings.consumer_group
        for topic in sorted(self.topics):
            for queue_id, queue in sorted(self.topics[topic].items()):
                yield QueueRef(name, topic, queue_id), queue


class GroupStates:
    """All groups, by name. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        """The group; made in memory when it is unknown, with the default settings."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(GroupSettings(name))
        return group

    def find(self, ref: QueueRef) -> QueueState | None:
        """What the group has of the queue; None when it never consumed from it."""
        group = self.groups.get(ref.consumer_group)
        return None if group is None else group.topics.get(ref.topic, {}).get(ref.queue_id)

    def queue(self, ref: QueueRef) -> QueueState:
        """What the group has of the queue; made when there is nothing."""
        queues = self.group(ref.consumer_group).topics.setdefault(ref.topic, {})
        state = queues.get(ref.queue_id)
        if state is None:
            state = queues[ref.queue_id] = QueueState()
        return state

    def apply(self, change: Change) -> None:
        """Apply a change."""
        match change:
            case GroupSet():
                name = change.settings.consumer_group
                self.groups[name] = replace_settings(self.groups.get(name), change.settings)
            case GroupDeleted():
                self.groups.pop(change.consumer_group, None)
            case _:
                self.queue(change.queue).apply(change)

    def in_flight_count(self) -> int:
        """Messages in flight, of all groups."""
        return sum(len(queue.leases) for group in self.groups.values() for _, queue in group.queues())


def replace_settings(group: Group | None, settings: GroupSettings) -> Group:
    """The group with other settings."""
    return Group(settings) if group is None else replace(group, settings=settings)
