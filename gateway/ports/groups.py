"""The administration of consumer groups in one shard, and the values it passes. Times are milliseconds since 1970."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import ClientFacts, GroupSettings
from reput.consumer.v1 import consumer_service_pb2 as pb

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group is in a queue: everything before `consumer_offset` is consumed."""

    topic: str
    queue_id: int
    consumer_offset: int


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A queue of a shard as a group has it.

    Attributes:
        topic, queue_id: the queue; retry topics too.
        consumer_offset: everything before it is consumed.
        next_offset: the next message that was never handed out.
        min_offset, max_offset: the queue's range.
        in_flight_count: messages with clients.
        waiting_count: messages that wait to be handed out again.
        oldest_store_time_millis: of the oldest message that is not consumed; None when there is none.
        removed_count: messages that retention removed before the group got them.
    """

    topic: str
    queue_id: int
    consumer_offset: int
    next_offset: int
    min_offset: int
    max_offset: int
    in_flight_count: int = 0
    waiting_count: int = 0
    oldest_store_time_millis: int | None = None
    removed_count: int = 0

    @property
    def lag_count(self) -> int:
        """Messages that are not consumed: never handed out, in flight, or waiting to be handed out again.

        Negative for a position behind the queue's end, as RocketMQ's consumerProgress has it: so many will not be delivered.
        """
        if self.consumer_offset > self.max_offset:
            return self.max_offset - self.consumer_offset
        unseen_count = max(self.max_offset - max(self.next_offset, self.min_offset), 0)
        return unseen_count + self.in_flight_count + self.waiting_count


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group in one shard: settings, members that live, queues, and what is wrong, in words."""

    settings: GroupSettings
    members: Sequence[ClientFacts] = ()
    queues: Sequence[GroupQueue] = ()
    problems: Sequence[str] = ()


class ResetTo(Enum):
    """Where a reset goes."""

    EARLIEST = "the first message"
    LATEST = "the end"
    TIME = "the first message stored at or after a time"
    OFFSET = "a position, clamped to the queue's range"


@dataclass(frozen=True, slots=True)
class ResetQuestion:
    """Moves a group to other positions of a topic.

    Attributes:
        consumer_group, topic: what is moved.
        to: where.
        value: milliseconds since 1970 for TIME, a queue offset for OFFSET.
        queue_id: the only queue; None: all.
        dry_run: only say what would be done.
    """

    consumer_group: str
    topic: str
    to: ResetTo
    value: int = 0
    queue_id: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """A queue whose position was moved, or would be; `before` is None when the group had none."""

    queue_id: int
    before: int | None
    after: int


class TrackState(Enum):
    """How a message stands with a group; the names are those of `reput.gateway.v1.TrackState`."""

    CONSUMED = "acknowledged"
    NOT_CONSUMED = "not yet delivered"
    IN_FLIGHT = "with a client"
    RETRYING = "delivered without success; it comes again"
    DEAD_LETTER = "given up"
    FILTERED_OUT = "the group's current subscription does not want it"
    SKIPPED = "a reset went past it"
    UNKNOWN = "it cannot be known"


@dataclass(frozen=True, slots=True)
class Track:
    """How a message stands with one group.

    Attributes:
        consumer_group: the group; empty: the groups of the shard are not known.
        state: how it stands.
        delivery_attempts: deliveries so far.
        visible_millis: in flight or retrying, when it may come again; None: not known.
        is_online: whether a member of the group lives.
        client_id: who has it in flight.
        reason: why it is UNKNOWN, and what to do.
    """

    consumer_group: str
    state: TrackState
    delivery_attempts: int = 0
    visible_millis: int | None = None
    is_online: bool = False
    client_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Which groups, and which page of them by name.

    Attributes:
        count_max: of the page.
        topic: only those with a position in it; empty: all. Tracks are of the topic of their message.
        contains: what their names hold, in upper or lower case; empty: anything.
        only: the only one; empty: all.
        after: only those behind this name.
    """

    count_max: int
    topic: str = ""
    contains: str = ""
    only: str = ""
    after: str = ""

    def holds(self, consumer_group: str) -> bool:
        """Whether it is one of them, as far as the name tells."""
        return (
            consumer_group > self.after
            and self.only in ("", consumer_group)
            and (not self.contains or self.contains.lower() in consumer_group.lower())
        )


@dataclass(frozen=True, slots=True)
class GroupPage(Generic[Item]):
    """What is said of each group of a page, by name, and whether there are more."""

    items: Sequence[Item]
    has_more: bool = False


class GroupKeeper(Protocol):
    """Keeps the consumer groups of a shard. Errors as those of the other ports; GroupNotFoundError for an unknown group."""

    def settings(self, choice: GroupChoice, deadline: Deadline) -> GroupPage[GroupSettings]:
        """The settings of groups."""

    def facts(self, consumer_group: str, deadline: Deadline) -> GroupFacts:
        """A group. GroupNotFoundError."""

    def positions(self, consumer_group: str, topic: str, deadline: Deadline) -> Sequence[Position]:
        """The positions of a group, in one topic or all. GroupNotFoundError."""

    def commit(
        self, consumer_group: str, positions: Sequence[Position], deadline: Deadline, *, begins: bool = False
    ) -> None:
        """Set positions, 1 to 1,024. With `begins` those that it has are kept. GroupNotFoundError."""

    def see_topics(self, deadline: Deadline) -> None:
        """Take the groups past what was deleted of topics."""

    def send_back(self, request: pb.SendBackMessagesRequest, deadline: Deadline) -> pb.SendBackMessagesResponse:
        """Give messages to a group again, 1 to 32. GroupNotFoundError, TopicNotFoundError, OffsetOutOfRangeError."""

    def lock(self, request: pb.LockQueuesRequest, deadline: Deadline) -> pb.LockQueuesResponse:
        """Lock or unlock queues, 1 to 1,024."""

    def reset(self, question: ResetQuestion, deadline: Deadline) -> Sequence[Reset]:
        """Move a group. GroupNotFoundError, TopicNotFoundError."""

    def update(self, settings: GroupSettings, deadline: Deadline) -> None:
        """Set the settings of a group; makes it if it is absent."""

    def make(self, settings: GroupSettings, deadline: Deadline) -> None:
        """Make a group if it is absent, and give it these settings unless it has some that somebody has set.

        Settings that nobody has set (`is_set`) make it with the shard's defaults.
        """

    def delete(self, consumer_group: str, deadline: Deadline) -> None:
        """Forget a group; without effect when it is absent."""

    def track(self, message: object, choice: GroupChoice, deadline: Deadline) -> GroupPage[Track]:
        """How a message of this shard stands with groups."""
