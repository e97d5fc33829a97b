"""The state of all groups of a shard, in memory; pure. See `queue_state.py` for a queue.

A group may have positions in a million light queues. One in which nothing is in flight, and nothing waits, is kept as a number
(`Group.light`); a QueueState is made of it when something is handed out there, and goes when all of it is consumed.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Protocol

from consumer_svc.state.lite_subscriptions import LiteSubscribed, LiteSubscriptions
from consumer_svc.state.queue_state import Moved, QueueChange, QueueRef, QueueState
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX, LiteConfig
from store.format.topic import is_light_queue, split_lite_queue

# Of a shard, unless the setting says another number.
GROUP_COUNT_MAX = 100_000
# Light queues of a group in a list.
LIGHT_COUNT_SHOWN = 1_000
# Likewise, lite topics that clients subscribe to: some 300 bytes of memory each (RocketMQ's maxLiteSubscriptionCount).
LITE_SUBSCRIPTION_COUNT_MAX = 100_000

Queues = dict[int, QueueState]
# The next position, or that and the ranges that resets went past.
LightPosition = int | tuple[int, tuple[tuple[int, int], ...]]


def light_state(position: LightPosition) -> QueueState:
    """A position in a light queue as a state."""
    next_offset, resets = (position, ()) if isinstance(position, int) else position
    return QueueState(next_offset, resets=list(resets), popped_from=next_offset)


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
        lite: it consumes lite topics of a parent topic; None: it does not.
    """

    consumer_group: str
    ordered: bool = False
    delivery_attempts_max: int = 0
    consume_enabled: bool = True
    broadcast: bool = False
    request_modes: tuple[RequestMode, ...] = ()
    priority_factor: int = PRIORITY_FACTOR_MAX
    lite: LiteConfig | None = None

    def orders(self, topic: str) -> bool:
        """Whether messages of a queue are delivered one after the other: those of a lite topic always are."""
        return self.ordered or (self.lite is not None and is_light_queue(topic))

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


@dataclass(frozen=True, slots=True)
class LiteExpired:
    """Lite topics are forgotten: groups lose positions and subscriptions there; see the proto. `queues` are light queues."""

    topic: str
    queues: Sequence[str]
    queue_offsets: Sequence[int]
    commit_log_offset: int


Change = QueueChange | GroupSet | GroupDeleted | Began | LiteSubscribed | LiteExpired


@dataclass(slots=True)
class Group:
    """A group.

    Attributes:
        settings: its settings.
        topics: its queues by topic and number.
        made_by: who made it.
        light: its positions in light queues that are not in `topics`, by name.
        lite: what its clients subscribe to.
    """

    settings: GroupSettings
    topics: dict[str, Queues] = field(default_factory=dict)
    made_by: str = ""
    light: dict[str, LightPosition] = field(default_factory=dict)
    lite: LiteSubscriptions = field(default_factory=LiteSubscriptions)

    def has_position(self, topic: str) -> bool:
        """Whether it has a position in a topic, or a light queue."""
        return topic in self.topics or topic in self.light

    def light_position(self, queue: str) -> QueueState | None:
        """A position of `light` as a state."""
        position = self.light.get(queue)
        return None if position is None else light_state(position)

    def light_queues(self) -> Iterator[tuple[str, QueueState]]:
        """All light queues in which it has a position; the states of `light` are made one by one."""
        for topic, queues in self.topics.items():
            if is_light_queue(topic):
                for state in queues.values():
                    yield topic, state
        for queue, position in self.light.items():
            yield queue, light_state(position)

    def shown_queues(self) -> Iterator[tuple[QueueRef, QueueState]]:
        """The queues by topic and number; of light queues some, and none of lite topics: there may be a million."""
        yield from (row for row in self.queues() if not is_light_queue(row[0].topic))
        light = (
            queue for queue, _ in self.light_queues() if self.settings.lite is None or split_lite_queue(queue) is None
        )
        for queue in nsmallest(LIGHT_COUNT_SHOWN, light):
            found = self.topics.get(queue, {}).get(0) or self.light_position(queue)
            if found is not None:
                yield QueueRef(self.settings.consumer_group, queue, 0), found

    def queues(self) -> Iterator[tuple[QueueRef, QueueState]]:
        """The queues by topic and number, without those of `light`."""
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
        bound: the groups of lite topics by their parent topic.
        lite_floors: of lite topics that were forgotten, by light queue: where a group begins (in messages), and the byte of the
            log that retention must pass before that is of no use.
        from_later_count: changes and full states of a later release in the log, of which this one knows a part or nothing.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.bound: dict[str, set[str]] = {}
        self.from_later_count = 0
        self.lite_floors: dict[str, tuple[int, int]] = {}
        self._owners: Owners | None = None

    def count_for(self, owners: Owners) -> None:
        """Tell it of each group: of those that there are now, and of each change from now on."""
        self._owners = owners
        for group in self.groups.values():
            owners.made(group.made_by)

    def find(self, ref: QueueRef) -> QueueState | None:
        """The state of the group in the queue; None when it never consumed from it."""
        group = self.groups.get(ref.consumer_group)
        if group is None:
            return None
        state = group.topics.get(ref.topic, {}).get(ref.queue_id)
        if state is None and group.light and not ref.queue_id:
            return group.light_position(ref.topic)
        return state

    def queue(self, ref: QueueRef) -> QueueState:
        """The state of the group in the queue; made with its group when there is none."""
        group = self.groups.get(ref.consumer_group)
        if group is None:
            group = self._make(GroupSettings(ref.consumer_group), "")
        queues = group.topics.setdefault(ref.topic, {})
        state = queues.get(ref.queue_id)
        if state is None:
            known = group.light_position(ref.topic) if not ref.queue_id else None
            state = queues[ref.queue_id] = known or QueueState()
            if known is not None:
                del group.light[ref.topic]
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
                    self._bind(group.settings, is_bound=False)
                    self._bind(change.settings)
                    self.groups[name] = replace(group, settings=change.settings)
            case GroupDeleted():
                deleted = self.groups.pop(change.consumer_group, None)
                if deleted is not None:
                    self._bind(deleted.settings, is_bound=False)
                if deleted is not None and self._owners is not None:
                    self._owners.deleted(deleted.made_by)
            case Began():
                for queue_id, queue_offset in enumerate(change.queue_offsets):
                    ref = QueueRef(change.consumer_group, change.topic, queue_id)
                    if queue_offset >= 0 and self.find(ref) is None:
                        self.queue(ref).apply(Moved(ref, queue_offset, is_reset=True))
            case LiteSubscribed():
                group = self.groups.get(change.consumer_group)
                if group is not None:
                    group.lite.apply(change)
            case LiteExpired():
                for queue, queue_offset in zip(change.queues, change.queue_offsets, strict=False):
                    self._forget(change.topic, queue)
                    self.lite_floors[sys.intern(queue)] = (queue_offset, change.commit_log_offset)
            case _:
                state = self.queue(change.queue)
                state.apply(change)
                if is_light_queue(change.queue.topic):
                    self.rest(change.queue, state)

    def rest(self, ref: QueueRef, state: QueueState) -> None:
        """Keep the state of a light queue as a number, if nothing more is to be kept of it."""
        if state.leases or state.waiting or state.moved or ref.queue_id:
            return
        group = self.groups[ref.consumer_group]
        group.topics.pop(ref.topic, None)
        position = (state.next_offset, tuple(state.resets)) if state.resets else state.next_offset
        group.light[sys.intern(ref.topic)] = position

    def begin_offset(self, queue: str) -> int:
        """Where a group begins in a light queue: behind what was forgotten."""
        return self.lite_floors.get(queue, (0, 0))[0]

    def drop_floors(self, log_first_offset: int) -> None:
        """Forget where groups begin in lite topics of which the log has nothing from before (bytes)."""
        for queue in [queue for queue, (_, before) in self.lite_floors.items() if before <= log_first_offset]:
            del self.lite_floors[queue]

    def light_count(self) -> int:
        """Positions in light queues."""
        return sum(len(group.light) for group in self.groups.values())

    def in_flight_count(self) -> int:
        """Messages in flight, of all groups."""
        return sum(len(queue.leases) for group in self.groups.values() for _, queue in group.queues())

    def _make(self, settings: GroupSettings, made_by: str) -> Group:
        group = self.groups[settings.consumer_group] = Group(settings, made_by=made_by)
        self._bind(settings)
        if self._owners is not None:
            self._owners.made(made_by)
        return group

    def _bind(self, settings: GroupSettings, *, is_bound: bool = True) -> None:
        if settings.lite is None:
            return
        names = self.bound.setdefault(settings.lite.bind_topic, set())
        if is_bound:
            names.add(settings.consumer_group)
            return
        names.discard(settings.consumer_group)
        if not names:
            del self.bound[settings.lite.bind_topic]

    def _forget(self, topic: str, queue: str) -> None:
        for name in self.bound.get(topic, ()):
            group = self.groups[name]
            group.light.pop(queue, None)
            group.topics.pop(queue, None)
            group.lite.drop(queue)
