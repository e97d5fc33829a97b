"""What one consumer group has of one queue, and the changes to it; pure.

    consumer_offset                     next_offset                queue's end
          │ leases and waiting messages      │ never handed out        │
    ──────┼──────────────────────────────────┼─────────────────────────┤
 consumed │   consumed, in flight, waiting   │

A message below `next_offset` that is neither in flight nor waiting is consumed. A change is applied in memory in the order in
which it is written to the log, so a restart that reads the log has the same state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer_svc.state.message_groups import MessageGroups

# Resets that are remembered for each queue, to tell skipped messages from consumed ones.
RESET_COUNT_MAX = 16
# Moved messages that are remembered for each queue, to answer late acknowledgements rightly.
MOVED_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue of a topic as a group has it."""

    consumer_group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class Lease:
    """A message in flight.

    Attributes:
        queue_offset: its position.
        delivery_number: how often this position was handed out, this time included.
        uncounted: how many of these are no attempts: the message was given back.
        invisible_until_millis: when it becomes visible again.
        renew_until_millis: until when it is renewed while its client lives; 0: it is not renewed.
        client_id: who has it.
        attempt_id: the attempt that got it.
        message_group: in an ordered group, its message group.
        is_delivered: the client has it; only then is it renewed.
        serial: names this delivery among all of the message: its number begins again at 1 after a reset.
        is_released: this delivery is no attempt, however it ends.
        is_moving: it is being moved to another topic; in memory only.
    """

    queue_offset: int
    delivery_number: int
    uncounted: int
    invisible_until_millis: int
    renew_until_millis: int = 0
    client_id: str = ""
    attempt_id: str = ""
    message_group: str = ""
    is_delivered: bool = False
    serial: int = 0
    is_released: bool = False
    is_moving: bool = False

    @property
    def attempt_count(self) -> int:
        """How many of the deliveries from this position are attempts, this one included unless it is none."""
        return self.delivery_number - self.uncounted - self.is_released

    def returned(self) -> "Postponed":
        """The message as it waits to be handed out again when this delivery has ended."""
        return Postponed(self.queue_offset, self.delivery_number, self.uncounted + self.is_released, self.message_group)


@dataclass(frozen=True, slots=True)
class Postponed:
    """A message that waits to be handed out again, or (delivery number 0) for one of its message group before it."""

    queue_offset: int
    delivery_number: int
    uncounted: int
    message_group: str = ""
    visible_millis: int = 0

    @property
    def attempt_count(self) -> int:
        """How many of the deliveries from this position were attempts."""
        return self.delivery_number - self.uncounted


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Messages went to a client, and others were passed."""

    queue: QueueRef
    next_offset: int
    leases: Sequence[Lease] = ()
    passed: Sequence[Postponed] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """Clients have what they were handed out."""

    queue: QueueRef
    queue_offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Ended:
    """Messages are consumed, or moved to another topic."""

    queue: QueueRef
    queue_offsets: Sequence[int]
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Hidden:
    """A message stays hidden until another time, and is not renewed any more."""

    queue: QueueRef
    queue_offset: int
    invisible_until_millis: int
    is_released: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Deliveries are no attempts; the messages stay in flight."""

    queue: QueueRef
    queue_offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Returned:
    """Messages wait to be handed out again."""

    queue: QueueRef
    waiting: Sequence[Postponed]


@dataclass(frozen=True, slots=True)
class Moved:
    """The group goes on at a position; it has nothing in flight."""

    queue: QueueRef
    next_offset: int
    is_reset: bool = False


QueueChange = HandedOut | Delivered | Ended | Hidden | Released | Returned | Moved


@dataclass(slots=True)
class QueueState:
    """The state of a group in a queue.

    Attributes:
        next_offset: the next position that was never handed out.
        leases: messages in flight, by position.
        waiting: messages that wait to be handed out again, by position.
        resets: ranges that resets went past, newest last.
        moved: positions of the newest messages that were moved to another topic, newest last; messages that were sent back
            are moved before the group's position has passed them.
        popped_from: from here to `next_offset` messages were handed out by pops since the group was moved last.
        removed_count: messages that retention removed before they were handed out; since the start of the service.
        version: counts the moves; in memory only.

    From the first question about a message group on, `apply` alone adds leases and waiting messages.
    """

    next_offset: int = 0
    leases: dict[int, Lease] = field(default_factory=dict)
    waiting: dict[int, Postponed] = field(default_factory=dict)
    resets: list[tuple[int, int]] = field(default_factory=list)
    moved: dict[int, None] = field(default_factory=dict)
    popped_from: int = 0
    removed_count: int = 0
    version: int = 0
    # Only queues of ordered groups are asked about message groups, so only they have it.
    _message_groups: MessageGroups | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def consumer_offset(self) -> int:
        """Everything before it is consumed."""
        return min(self.next_offset, *self.leases, *self.waiting, self.next_offset)

    def passed_by(self, queue_offset: int) -> Sequence[int] | None:
        """What is consumed when a member that pulls has read up to a position: what is in flight or waits before it.

        Members that pop are at another place of the queue, and keep what they have behind the position. None: the position lies
        outside of what was popped, so the whole group goes there.
        """
        if not self.popped_from <= queue_offset < self.next_offset:
            return None
        return sorted(at for at in {*self.leases, *self.waiting} if at < queue_offset)

    def behind(self, lease: Lease) -> Sequence[int]:
        """In an ordered group: the positions of messages in flight behind one of their message group that are not released."""
        return self._by_message_group().behind(lease.message_group, lease.queue_offset)

    def is_behind(self, lease: Lease) -> bool:
        """Whether an earlier message of the message group is in flight or waits; in an ordered group."""
        return self._by_message_group().is_behind(lease.message_group, lease.queue_offset)

    def apply(self, change: QueueChange) -> None:
        """Apply a change of this queue."""
        match change:
            case HandedOut():
                self.next_offset = max(self.next_offset, change.next_offset)
                for waiting in change.passed:
                    self.waiting[waiting.queue_offset] = waiting
                    self._note(waiting)
                for lease in change.leases:
                    self.waiting.pop(lease.queue_offset, None)
                    self.leases[lease.queue_offset] = lease
                    self._note(lease)
            case Delivered():
                for queue_offset in change.queue_offsets:
                    if queue_offset in self.leases:
                        self.leases[queue_offset].is_delivered = True
            case Ended():
                for queue_offset in change.queue_offsets:
                    self.leases.pop(queue_offset, None)
                    self.waiting.pop(queue_offset, None)
                    if change.moved:
                        self.moved[queue_offset] = None
                while len(self.moved) > MOVED_COUNT_MAX:
                    del self.moved[next(iter(self.moved))]
            case Hidden():
                lease_now = self.leases.get(change.queue_offset)
                if lease_now is not None:
                    counts_again = lease_now.is_released and not change.is_released
                    lease_now.invisible_until_millis = change.invisible_until_millis
                    lease_now.renew_until_millis = 0
                    lease_now.is_released = change.is_released
                    if counts_again:
                        self._note(lease_now)
            case Released():
                for queue_offset in change.queue_offsets:
                    if queue_offset in self.leases:
                        self.leases[queue_offset].is_released = True
            case Returned():
                for waiting in change.waiting:
                    before = self.leases.pop(waiting.queue_offset, None)
                    self.waiting[waiting.queue_offset] = waiting
                    if before is None or before.message_group != waiting.message_group:
                        self._note(waiting)
            case Moved():
                if change.is_reset and self.consumer_offset < change.next_offset:
                    self.resets.append((self.consumer_offset, change.next_offset))
                    del self.resets[:-RESET_COUNT_MAX]
                if change.is_reset or change.next_offset < self.consumer_offset:  # what follows is consumed anew
                    self.moved = {at: None for at in self.moved if at < change.next_offset}
                    self.resets = [
                        (begin, min(end, change.next_offset))
                        for begin, end in self.resets
                        if begin < change.next_offset
                    ]
                self.next_offset = self.popped_from = change.next_offset
                self.version += 1
                self.leases.clear()
                self.waiting.clear()
        if self._message_groups is not None and self._message_groups.is_outdated:
            self._message_groups = None

    def _by_message_group(self) -> MessageGroups:
        if self._message_groups is None:
            self._message_groups = MessageGroups(self.leases, self.waiting)
        return self._message_groups

    def _note(self, one: Lease | Postponed) -> None:
        if self._message_groups is not None:
            self._message_groups.note(one)
