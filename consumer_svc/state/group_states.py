"""The state of all groups of a shard, in memory; pure. See `queue_state.py` for a queue."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from consumer_svc.state.queue_state import Moved, QueueChange, QueueRef, QueueState
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX

# Of a shard, unless the setting says another number.
GROUP_COUNT_MAX = 100_000

Queues = dict[int, QueueState]


@dataclass(frozen=True, slots=True)
class RequestMode:
    """How the members of a group that ask the server for their queues get the messages of a topic; see the proto."""

    topic: str
    is_pop: bool
    pop_share_queue_count: int = 0


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
        request_modes: of topics, by name; one of each.
        priority_factor: of 100 pops of a topic of the type PRIORITY, so many are by priority.
    """

    consumer_group: str
    ordered: bool = False
    delivery_attempts_max: int = 0
    consume_enabled: bool = True
    broadcast: bool = False
    request_modes: tuple[RequestMode, ...] = ()
    priority_factor: int = PRIORITY_FACTOR_MAX

    @property
    def is_set(self) -> bool:
        """Whether somebody has set them, modes apart: gateways and brokers always name a number of attempts."""
        return self != GroupSettings(self.consumer_group, request_modes=self.request_modes)

    def pops(self, topic: str) -> bool:
        """Whether somebody has said that members pop a topic."""
        return any(mode.topic == topic and mode.is_pop for mode in self.request_modes)

    def with_mode(self, mode: RequestMode) -> "GroupSettings":
        """The same with another mode of a topic."""
        others = [each for each in self.request_modes if each.topic != mode.topic]
        return replace(self, request_modes=tuple(sorted([*others, mode], key=lambda each: each.topic)))


@dataclass(frozen=True, slots=True)
class GroupSet:
    """A group is made, or gets other settings. `made_by` counts only when it is made: who made it; empty: not known."""

    settings: GroupSettings
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """A group is forgotten, with its positions."""

    consumer_group: str


@dataclass(frozen=True, slots=True)
class Began:
    """A group begins in a topic, at a position of each queue, -1: at none there; positions that it has stay."""

    consumer_group: str
    topic: str
    queue_offsets: Sequence[int]


Change = QueueChange | GroupSet | GroupDeleted | Began


@dataclass(slots=True)
class Group:
    """A group: its settings, its queues by topic and number, and who made it."""

    settings: GroupSettings
    topics: dict[str, Queues] = field(default_factory=dict)
    made_by: str = ""

    def queues(self) -> Iterator[tuple[QueueRef, QueueState]]:
        """All queues, by topic and number."""
        name = self.settings.consumer_group
        for topic in sorted(self.topics):
            for queue_id, queue in sorted(self.topics[topic].items()):
                yield QueueRef(name, topic, queue_id), queue


class Owners(Protocol):
    """Counts groups by those who made them."""

    def made(self, made_by: str) -> None:
        """A group is there."""

    def deleted(self, made_by: str) -> None:
        """It is there no more."""


class GroupStates:
    """All groups, by name. Not thread-safe: its owner holds a lock.

    Attributes:
        groups: by name; changed by `apply` and `queue` only.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._owners: Owners | None = None

    def count_for(self, owners: Owners) -> None:
        """Tell it of each group: of those that there are now, and of each change from now on."""
        self._owners = owners
        for group in self.groups.values():
            owners.made(group.made_by)

    def find(self, ref: QueueRef) -> QueueState | None:
        """The state of the group in the queue; None when it never consumed from it."""
        group = self.groups.get(ref.consumer_group)
        return None if group is None else group.topics.get(ref.topic, {}).get(ref.queue_id)

    def queue(self, ref: QueueRef) -> QueueState:
        """The state of the group in the queue; made with its group when there is none."""
        group = self.groups.get(ref.consumer_group)
        if group is None:
            group = self._make(GroupSettings(ref.consumer_group), "")
        queues = group.topics.setdefault(ref.topic, {})
        state = queues.get(ref.queue_id)
        if state is None:
            state = queues[ref.queue_id] = QueueState()
        return state

    def apply(self, change: Change) -> None:
        """Apply a change."""
        match change:
            case GroupSet():
                name = change.settings.consumer_group
                group = self.groups.get(name)
                if group is None:
                    self._make(change.settings, change.made_by)
                else:
                    self.groups[name] = replace(group, settings=change.settings)
            case GroupDeleted():
                deleted = self.groups.pop(change.consumer_group, None)
                if deleted is not None and self._owners is not None:
                    self._owners.deleted(deleted.made_by)
            case Began():
                for queue_id, queue_offset in enumerate(change.queue_offsets):
                    ref = QueueRef(change.consumer_group, change.topic, queue_id)
                    if queue_offset >= 0 and self.find(ref) is None:
                        self.queue(ref).apply(Moved(ref, queue_offset, is_reset=True))
            case _:
                self.queue(change.queue).apply(change)

    def in_flight_count(self) -> int:
        """Messages in flight, of all groups."""
        return sum(len(queue.leases) for group in self.groups.values() for _, queue in group.queues())

    def _make(self, settings: GroupSettings, made_by: str) -> Group:
        group = self.groups[settings.consumer_group] = Group(settings, made_by=made_by)
        if self._owners is not None:
            self._owners.made(made_by)
        return group
