"""Life: one life of the service between two reads of the state from the log. All that delivery shares.

Rules:
- `lock` is held while the state is changed and its changes are submitted, so memory and log have the same order. Nothing that
  waits is called under it.
- A pop holds the turn of its group and topic while it reads, so two pops never pick the same message.
- When the writer breaks, this life is over: `refuse_if_over` raises, and the next life reads the state from the log.

GroupShares: how many groups each client may make (ADR 0111); services/serving/admission/shares.py has the rule.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from weakref import WeakValueDictionary

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.expiry_heap import ExpiryHeap
from consumer_svc.delivering.lite_news import LiteNews
from consumer_svc.delivering.receipt_handle import ReceiptHandles
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.group_states import (
    GROUP_COUNT_MAX,
    LITE_SUBSCRIPTION_COUNT_MAX,
    Change,
    Group,
    GroupSet,
    GroupSettings,
    GroupStates,
)
from consumer_svc.state.queue_state import Lease, Moved, QueueRef, QueueState, Released
from consumer_svc.state_topic import StateWriter
from consumer_svc.topic_view import TopicView
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from services.following.store_clock import StoreClock
from services.reading.queue_reader import Reader
from services.replica_role import not_leading
from services.serving.admission.shares import Client, client_of_name, kept_shares
from store.errors import (
    GroupDisabledError,
    GroupNotFoundError,
    InvalidArgumentError,
    ResourceBusyError,
    ServiceUnavailableError,
    StoreError,
    StoreReadOnlyError,
)
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS
from store.format.topic import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    dead_letter_topic_of,
    popped_topic_of,
    split_lite_queue,
    validate_topic,
)

# Of groups of brokers and of older versions: they are in the share of none that calls.
NOBODY = Client("nobody", "nobody")


class GroupShares:
    """The groups of a shard by those who made them; see Owners in state/group_states.py. Its owner holds a lock.

    Args:
        group_count_max: groups that may be made; those that are there count, and stay when there are more.
    """

    def __init__(self, group_count_max: int) -> None:
        self._shares = kept_shares(group_count_max)

    def made(self, made_by: str) -> None:
        """See Owners."""
        self._shares.take(client_of_name(made_by) if made_by else NOBODY)

    def deleted(self, made_by: str) -> None:
        """See Owners."""
        self._shares.give_back(client_of_name(made_by) if made_by else NOBODY)

    def check(self, consumer_group: str, caller: str) -> None:
        """ResourceBusyError when the caller may not make this group, because its share is in use."""
        shares, client = self._shares, client_of_name(caller)
        if shares.has_room(client):
            return
        raise ResourceBusyError(
            f"no group {consumer_group[:64]!r} is made: this client made {shares.held(client)} of {shares.count} groups, which "
            f"is its share where there may be {shares.count_max}: delete some, or raise the setting group_count_max of the "
            "consumer service (REPUT_CONSUMER_GROUP_COUNT_MAX)",
            consumerGroup=consumer_group[:64],
            setting="group_count_max",
            countMax=shares.count_max,
        )


GROUP_LENGTH_MAX = 255
# Changes in one request to the log: some 600 bytes each at most.
CHANGE_COUNT_MAX = 1_000
# RocketMQ's maxInvisibleTimeMills.
INVISIBLE_MILLIS_MAX = 12 * 3_600_000
# Hand-outs of a life are far fewer, so its serials never reach those of the next life.
SERIALS_PER_MILLI = 1_000
# After so many deliveries that were no attempts the next one counts whose client ends in order, or whose answer did not go out:
# a program or a gateway may end because of a message, and that one must become a dead letter at last.
RELEASED_COUNT_MAX = 100
# Queues of a group: positions can be committed for any name.
QUEUE_COUNT_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say.

    Attributes:
        delivery_attempts_max: attempts of a group without a number of its own.
        begins_at_end: new groups begin at the end of a queue.
        delay_level_max: the largest delay level of the store.
        group_count_max: groups that may be made, of all callers.
        lite_subscription_count_max: lite topics that clients subscribe to, each as often as there are clients that do.
        why_groups_unknown: why the groups are not known here, and what to do; empty: they are known.
    """

    delivery_attempts_max: int
    begins_at_end: bool
    delay_level_max: int = len(DELAY_LEVELS_MILLIS)
    group_count_max: int = GROUP_COUNT_MAX
    lite_subscription_count_max: int = LITE_SUBSCRIPTION_COUNT_MAX
    why_groups_unknown: str = ""


class Life:
    """See the top of this file.

    Args:
        states: of all groups, as the log has them.
        writer: writes changes; None on a store that is only read.
        reader: reads units and records.
        handles: makes and reads receipt handles.
        clients: the consumers that live.
        arrivals: hears of messages that may be delivered.
        rules: the settings.
        clock: the time of leases.
        topics: what the topic table says.
        leadership: epoch in which the log leads its shard (0 without replicas); None on a replica that does not lead.

    Attributes:
        lock: see above.
        expiry: when the leases end.
        dirty: the courtesy files are older than the state.
        news: the lite topics that may have something.
    """

    def __init__(
        self,
        states: GroupStates,
        writer: StateWriter | None,
        reader: Reader,
        handles: ReceiptHandles,
        clients: LiveConsumers,
        arrivals: Arrivals,
        rules: Rules,
        clock: StoreClock,
        topics: TopicView,
        leadership: int | None = 0,
    ) -> None:
        self.states = states
        self._shares = GroupShares(rules.group_count_max)
        states.count_for(self._shares)
        self.reader = reader
        self.handles = handles
        self.clients = clients
        self.arrivals = arrivals
        self.rules = rules
        self.clock = clock
        self.topics = topics
        self.news = LiteNews(states, arrivals)
        self.lock = threading.RLock()
        self.expiry = ExpiryHeap()
        self.dirty = bool(states.groups)
        self.leadership = leadership
        self._writer = writer
        # As long as a pop has it: callers invent groups.
        self._turns: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
        self._serial = max(
            (
                lease.serial
                for group in states.groups.values()
                for _, queue in group.queues()
                for lease in queue.leases.values()
            ),
            default=0,
        )

    def refuse_if_over(self) -> None:
        """Raise StoreReadOnlyError, NotLeaderError or ServiceUnavailableError when nothing can be changed."""
        self.refuse_if_not_current()
        if self._writer is None:
            raise _read_only()
        if self._writer.error is not None:
            raise ServiceUnavailableError(
                f"the state of the groups is being read again: {self._writer.error.message}; try again"
            )

    def refuse_if_not_current(self) -> None:
        """Raise NotLeaderError on a replica that does not lead: the state is what the log had when this life began."""
        if self.leadership is None:
            raise not_leading()

    @property
    def is_over(self) -> bool:
        """Whether nothing can be changed any more."""
        return self._writer is None or self._writer.error is not None

    def note_again(self, ref: QueueRef) -> None:
        """Tell pollers that a group may have messages of a queue again, or only now; the caller holds `lock`."""
        if split_lite_queue(ref.topic) is not None:
            state = self.states.find(ref)
            if state is not None and (state.leases or (not state.waiting and self._is_at_end(ref.topic, state))):
                return  # what is in flight says it at its end
            self.news.note(ref.consumer_group, ref.topic)
            return
        self.arrivals.note_group(ref.consumer_group, popped_topic_of(ref.consumer_group, ref.topic))

    def _is_at_end(self, queue: str, state: QueueState) -> bool:
        """Whether a group has consumed all of a light queue, as far as its end is known."""
        return self.reader.recent.light_end(queue) == state.next_offset

    def change(
        self, changes: Sequence[Change], records: Sequence[InternalRecord] = (), *, may_lose: bool = False
    ) -> "Future[int]":
        """Apply changes and have them written; the caller holds `lock`. See StateWriter.submit."""
        assert self._writer is not None
        for change in changes:
            self.states.apply(change)
        self.dirty = True
        while len(changes) > CHANGE_COUNT_MAX and not records:
            self._writer.submit_changes(changes[:CHANGE_COUNT_MAX], may_lose=may_lose)
            changes = changes[CHANGE_COUNT_MAX:]
        return self._writer.submit_changes(changes, records, may_lose=may_lose)

    def next_serial(self) -> int:
        """A number that no other hand-out has, also of an earlier life: it is a time, and rises. `lock` is held."""
        self._serial = max(self._serial + 1, self.clock.millis() * SERIALS_PER_MILLI)
        return self._serial

    def newest_write(self) -> "Future[int]":
        """Done when everything that is in memory now is in the log."""
        assert self._writer is not None
        return self._writer.newest()

    def write_full(self) -> "Future[int]":
        """Have the full state written."""
        assert self._writer is not None
        with self.lock:
            return self._writer.submit_states(self.states)

    def turn(self, consumer_group: str, topic: str) -> threading.Lock:
        """The lock of a group's pops of a topic and its retry topic."""
        with self.lock:
            return self._turns.setdefault((consumer_group, popped_topic_of(consumer_group, topic)), threading.Lock())

    def settings(self, name: str) -> GroupSettings:
        """The settings of a group, those of a new one when it is unknown; InvalidArgumentError when it is no group's name."""
        group = self.states.groups.get(name)
        if group is not None:
            return group.settings
        check_group_name(name)
        return GroupSettings(name)

    def group(self, name: str, caller: str) -> Group:
        """The group; made for the caller when it is unknown. The caller holds `lock`.

        Raises:
            InvalidArgumentError: it is no name of a group.
            ResourceBusyError: the caller's share of groups is in use.
        """
        group = self.states.groups.get(name)
        if group is None:
            self.make_group(GroupSettings(name), caller, may_lose=True)
            group = self.states.groups[name]
        return group

    def check_known(self, name: str) -> None:
        """Raise GroupNotFoundError when the group is unknown; the caller holds `lock`."""
        if name not in self.states.groups:
            check_group_name(name)
            raise group_not_known(name, begins_at_end=self.rules.begins_at_end)

    def make_group(self, settings: GroupSettings, caller: str, *, may_lose: bool) -> "Future[int]":
        """Make a group that is unknown; see `change`. Errors as `group`; the caller holds `lock`."""
        check_group_name(settings.consumer_group)
        self._shares.check(settings.consumer_group, caller)
        return self.change([GroupSet(settings, caller)], may_lose=may_lose)

    def has_begun(self, name: str, topic: str) -> bool:
        """Whether the group has begun in the topic here, or begins at its first message; the caller holds `lock`."""
        if not self.rules.begins_at_end or topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
            return True
        return self.has_position(name, topic)

    def has_position(self, name: str, topic: str) -> bool:
        """Whether the group has a position in the topic; the caller holds `lock`."""
        group = self.states.groups.get(name)
        return group is not None and group.has_position(topic)

    def ends(self, name: str, topic: str) -> "list[Moved]":
        """The changes that let the group begin at the end of each queue; the caller holds `lock`."""
        # A topic without messages is begun as well: the group gets its first one.
        ends = self.reader.recent.ends(topic) or {0: 0}
        return [Moved(QueueRef(name, topic, queue_id), end, is_reset=True) for queue_id, end in ends.items()]

    def check_room(self, name: str) -> None:
        """Raise InvalidArgumentError when the group has too many queues to get another; the caller holds `lock`."""
        group = self.states.groups.get(name)
        if group is None:
            return
        # Lite topics have a limit of their own: their names are those of messages.
        count = sum(map(len, group.topics.values())) + (len(group.light) if group.settings.lite is None else 0)
        if count >= QUEUE_COUNT_MAX:
            raise InvalidArgumentError(
                f"group {name} has positions in {QUEUE_COUNT_MAX} queues already: delete and make it again, to forget those "
                "that it does not consume",
                field="consumer_group",
            )

    def behind(self, ref: QueueRef, lease: Lease) -> "list[Change]":
        """The change that comes with one that ends a message in flight without consuming it; the caller holds `lock`.

        In an ordered group a program gets those of a message group one by one, so those behind this one were not attempted.
        """
        group, state = self.states.groups.get(ref.consumer_group), self.states.find(ref)
        if group is None or state is None or not group.settings.orders(ref.topic):
            return []
        offsets = state.behind(lease)
        return [Released(ref, offsets)] if offsets else []

    def attempts_max(self, settings: GroupSettings) -> int:
        """Deliveries of a message of the group, the first included."""
        return settings.delivery_attempts_max or self.rules.delivery_attempts_max


def check_consuming(settings: GroupSettings) -> None:
    """Raise GroupDisabledError for a group that is not to get messages, as RocketMQ's NO_PERMISSION, with its words."""
    if not settings.consume_enabled:
        raise GroupDisabledError(
            f"subscription group no permission, {settings.consumer_group}: the group is configured not to consume; allow it "
            "with `reput group update GROUP --consume`",
            consumerGroup=settings.consumer_group,
        )


def check_bound(settings: GroupSettings, topic: str) -> None:
    """Raise InvalidArgumentError unless the group consumes lite topics of this parent topic."""
    if settings.lite is None or settings.lite.bind_topic != topic:
        bound = "none" if settings.lite is None else settings.lite.bind_topic
        raise InvalidArgumentError(
            f"group {settings.consumer_group[:64]} consumes lite topics of {bound}, not of {topic[:64]!r}: use a group that is "
            "bound to it (`reput group update GROUP --lite-bind-topic TOPIC` makes one)",
            field="consumer_group",
        )


def group_not_known(name: str, *, begins_at_end: bool) -> GroupNotFoundError:
    """The error for a group that this shard has to be told of, or where it began; gateway/groups/joining.py."""
    return GroupNotFoundError(
        f"this shard does not know the consumer group {name[:64]!r}, or where it began: ask again",
        consumerGroup=name[:64],
        beginsAtEnd="true" if begins_at_end else "false",
    )


def check_group_name(name: str) -> None:
    """Raise InvalidArgumentError unless it is a name that RocketMQ takes for a group."""
    try:
        validate_topic(dead_letter_topic_of(name))
        if not name or len(name) > GROUP_LENGTH_MAX:
            raise ValueError("it is empty or too long")
    except Exception as error:
        raise InvalidArgumentError(
            f"{name[:64]!r} is no name of a consumer group: use 1 to 255 letters, digits, % | _ and -",
            field="consumer_group",
        ) from error


def _read_only() -> StoreError:
    return StoreReadOnlyError("this store is only read: groups get nothing and positions do not move")
