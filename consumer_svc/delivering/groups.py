"""Groups: their settings, members, queues and lag; RocketMQ's SubscriptionGroupManager and ConsumerManager.

GroupNames: which groups a list is asked for, and which page of them.
"""

import heapq
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from consumer_svc.delivering.life import RELEASED_COUNT_MAX, Life, check_group_name
from consumer_svc.delivering.lite_topics import LiteTopics
from consumer_svc.state.group_states import Change, Group, GroupDeleted, GroupSet, GroupSettings, RequestMode
from consumer_svc.state.queue_state import Postponed, QueueRef, QueueState, Returned
from consumer_svc.wire import check_topic_named, settings_to_proto
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from services.following.state_topic.state_writer import wait_for
from store.errors import GroupNotFoundError, InvalidArgumentError, TopicNotFoundError
from store.format.topic import (
    RETRY_PREFIX,
    is_light_queue,
    pull_retry_topic_of,
    retry_topic_of,
    retry_topic_v2_of,
    validate_topic,
)


@dataclass(frozen=True, slots=True)
class GroupNames:
    """A page of groups by name.

    Attributes:
        count_max: of the page; 0: all.
        after: only names behind it.
        contains: what names hold, in upper or lower case.
        only: the only name; empty: all.
    """

    count_max: int = 0
    after: str = ""
    contains: str = ""
    only: str = ""

    def page(self, names: Iterable[str]) -> tuple[list[str], bool]:
        """The names of the page in order, and whether there are more behind them."""
        contains = self.contains.lower()
        wanted = (
            name
            for name in names
            if name > self.after and self.only in ("", name) and (not contains or contains in name.lower())
        )
        if not self.count_max:
            return sorted(wanted), False
        first = heapq.nsmallest(self.count_max + 1, wanted)
        return first[: self.count_max], len(first) > self.count_max


ALL_GROUPS = GroupNames()


# Of a page of metrics: one line each. An installation with more pairs of groups and topics has its monitoring ask GetGroup.
LAG_COUNT_MAX = 1_000
# Messages of one change: some 100 bytes each.
RETURNED_COUNT_MAX = 1_000
# Topics of which a group has a request mode; they are in each record of its settings.
MODE_COUNT_MAX = 1_024


class Groups:
    """Serves the administration of groups.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def named(self, consumer_group: str) -> Group:
        """The group; one that only has members has nothing but its name. GroupNotFoundError when there is neither."""
        group = self._life.states.groups.get(consumer_group)
        if group is None and self._life.clients.members(consumer_group):
            group = Group(GroupSettings(consumer_group))
        if group is None:
            raise GroupNotFoundError(
                f"there is no consumer group {consumer_group[:64]!r}", consumerGroup=consumer_group[:64]
            )
        return group

    def settings(self, consumer_group: str) -> pb.GroupSettings:
        """The settings of a group, those of a new one if it is unknown."""
        group = self._life.states.groups.get(consumer_group)
        settings = group.settings if group is not None else GroupSettings(consumer_group)
        return settings_to_proto(settings, self._life.attempts_max(settings))

    def page(self, topic: str, names: GroupNames = ALL_GROUPS) -> tuple[Sequence[pb.GroupSettings], bool]:
        """The settings of a page of groups, by name, and whether there are more.

        With a topic: the groups that have a position in it, or consume its lite topics. Without one: all that are kept or have
        members.
        """
        life = self._life
        members = () if topic else life.clients.groups()
        with life.lock:
            groups = life.states.groups
            bound = life.states.bound.get(topic, ())
            known = (name for name, group in groups.items() if not topic or group.has_position(topic) or name in bound)
            found, has_more = names.page(itertools.chain(known, (name for name in members if name not in groups)))
            settings = [groups[name].settings if name in groups else GroupSettings(name) for name in found]
        return [settings_to_proto(each, life.attempts_max(each)) for each in settings], has_more

    def update(self, settings: GroupSettings, caller: str = "", *, if_unset: bool = False) -> None:
        """Set the settings of a group; makes it for the caller if it is absent, errors as Life.group. Then it is in the log.

        With `if_unset` those that somebody has set are kept.
        """
        check_group_name(settings.consumer_group)
        life = self._life
        life.refuse_if_over()
        with life.lock:
            before = life.states.groups.get(settings.consumer_group)
            is_kept = if_unset and before is not None and (before.settings.is_set or not settings.is_set)
            was_enabled = before is None or before.settings.consume_enabled
            if before is None:
                written = life.make_group(settings, caller, may_lose=False)
            elif is_kept:
                written = life.newest_write()  # it may still be under way
            else:
                settings = _keeping_lite(settings, before.settings)
                written = life.change([GroupSet(replace(settings, request_modes=before.settings.request_modes))])
            if is_kept:
                pass
            elif settings.consume_enabled is was_enabled:
                life.arrivals.note_group(settings.consumer_group, "")
            else:
                # Polls and pulls that wait are refused, or go on. Pulls wait for topics, also for those that it has not read.
                life.arrivals.note_all()
        wait_for(written)

    def make_retry_topics(self, consumer_groups: Iterable[str], *, wait: bool) -> None:
        """Have the topics of what members of these groups send back, unless nothing is changed here; see TopicView.

        Only of groups that were made: these are limited (GroupShares), and names in heartbeats are not.
        """
        life = self._life
        if life.leadership is not None and not life.is_over:
            life.topics.make_retry_topics([name for name in consumer_groups if name in life.states.groups], wait=wait)

    def set_mode(self, consumer_group: str, mode: RequestMode, caller: str) -> None:
        """Set how members of a group get the messages of a topic. In the log when this returns; errors as `update`."""
        check_group_name(consumer_group)
        check_topic_named(mode.topic)
        validate_topic(mode.topic)
        life = self._life
        life.refuse_if_over()
        known = life.states.groups.get(consumer_group)
        kept = {mode.topic}
        if known is not None and len(known.settings.request_modes) >= MODE_COUNT_MAX:
            kept |= life.topics.queue_counts().keys()  # the modes of topics that are no more make room; it waits
        with life.lock:
            settings = life.group(consumer_group, caller).settings.with_mode(mode)
            if len(settings.request_modes) > MODE_COUNT_MAX:
                modes = tuple(each for each in settings.request_modes if each.topic in kept)
                settings = replace(settings, request_modes=modes)
            if len(settings.request_modes) > MODE_COUNT_MAX:
                raise InvalidArgumentError(
                    f"group {consumer_group} has request modes of {MODE_COUNT_MAX} topics: no more are possible",
                    field="request_mode",
                )
            written = life.change([GroupSet(settings)])
        wait_for(written)

    def delete(self, consumer_group: str) -> None:
        """Forget a group and its positions. In the log when this returns."""
        life = self._life
        life.refuse_if_over()
        with life.lock:
            if consumer_group not in life.states.groups:
                return
            written = life.change([GroupDeleted(consumer_group)])
            life.news.forget(consumer_group)
            life.arrivals.note_group(consumer_group, "")
        life.topics.want_no_retry_topic(consumer_group)
        wait_for(written)

    def end_client(self, consumer_group: str, client_id: str) -> None:
        """Messages renewed for a client that has ended in order come again at once; they were not attempted (ADR 0106)."""
        life = self._life
        changes: list[Change] = []
        with life.lock:
            group = life.states.groups.get(consumer_group)
            now = life.clock.millis()
            for ref, queue in group.queues() if group is not None else ():
                waiting: list[Postponed] = []
                for lease in queue.leases.values():
                    if lease.client_id != client_id or not lease.renew_until_millis or lease.is_moving:
                        continue
                    if lease.uncounted < RELEASED_COUNT_MAX:
                        lease.is_released = True
                        waiting.append(lease.returned())
                    else:
                        lease.invisible_until_millis = lease.renew_until_millis = now
                        life.expiry.note(now, ref, lease.queue_offset, lease.delivery_number)
                begins = range(0, len(waiting), RETURNED_COUNT_MAX)
                changes += [Returned(ref, waiting[begin : begin + RETURNED_COUNT_MAX]) for begin in begins]
            if not changes or life.is_over:  # where nothing can be written, they end by their time
                return
            for change in changes:  # one by one: together they may be more than the log takes in one record
                written = life.change([change])
            for ref in {change.queue for change in changes if isinstance(change, Returned)}:
                life.note_again(ref)
        wait_for(written)

    def describe(self, consumer_group: str, *, without_queues: bool = False) -> pb.GetGroupResponse:
        """A group with its members, queues and problems."""
        life = self._life
        with life.lock:
            group = self.named(consumer_group)
            rows = []
            if not without_queues:
                rows = [_row(ref, state) for ref, state in group.shown_queues()]
                rows += map(_unread_row, self._unread_retries(consumer_group, group))
            settings = group.settings
        for row in rows:
            self._add_range(row)
        members = life.clients.members(consumer_group)
        return pb.GetGroupResponse(
            settings=settings_to_proto(settings, life.attempts_max(settings)),
            clients=members,
            queues=rows,
            problems=_problems(members),
            lite_topics=LiteTopics(life).summaries(group, without_lag=without_queues),
        )

    def _unread_retries(self, consumer_group: str, group: Group) -> Iterable[QueueRef]:
        """Queues of its retry topics that have messages, and in which it has no position: no member has read them yet."""
        topics = [topic for topic in group.topics if not is_light_queue(topic) and not topic.startswith(RETRY_PREFIX)]
        retry_topics = {pull_retry_topic_of(consumer_group)}
        for topic in topics:
            retry_topics |= {retry_topic_of(consumer_group, topic), retry_topic_v2_of(consumer_group, topic)}
        for topic in sorted(retry_topics):
            for queue_id in sorted(self._life.reader.recent.ends(topic).keys() - group.topics.get(topic, {}).keys()):
                yield QueueRef(consumer_group, topic, queue_id)

    def lag_counts(self) -> Mapping[tuple[str, str], int]:
        """Messages that are not consumed, by group and topic: never handed out, in flight, or waiting to be handed out again.

        Queues of such a topic, and of the group's retry topics, that the group never read count from their beginning. Of
        LAG_COUNT_MAX pairs at most, those with most messages.
        """
        life = self._life
        with life.lock:
            counts = {
                (name, topic): 0
                for name, group in life.states.groups.items()
                for topic, queues in group.topics.items()
                if queues and not is_light_queue(topic)
            }
            for name, group in life.states.groups.items():
                counts |= {(name, ref.topic): 0 for ref in self._unread_retries(name, group)}
            read = {
                ref: (state.next_offset, len(state.leases) + len(state.waiting))
                for group in life.states.groups.values()
                for ref, state in group.queues()
                if not is_light_queue(ref.topic)
            }
        unread = {
            QueueRef(*pair, queue_id) for pair in counts for queue_id in life.reader.recent.ends(pair[1])
        } - read.keys()
        for ref, (next_offset, known_count) in {**read, **dict.fromkeys(unread, (0, 0))}.items():
            counts[ref.consumer_group, ref.topic] += known_count + self._unseen_count(ref, next_offset)
        return dict(heapq.nlargest(LAG_COUNT_MAX, counts.items(), key=operator.itemgetter(1)))

    def _unseen_count(self, ref: QueueRef, next_offset: int) -> int:
        """Messages of a queue from a position on; only a queue that has some is asked for its first."""
        if next_offset >= self._life.reader.recent.end(ref.topic, ref.queue_id):
            return 0
        known = self._life.reader.range(ref.topic, ref.queue_id)
        return max(known.max_offset - max(next_offset, known.min_offset), 0)

    def reset_targets(self, request: pb.ResetOffsetsRequest) -> dict[int, int]:
        """The position that each queue shall get; not yet clamped.

        The group need not have consumed yet. As with RocketMQ, queues without messages are moved too.

        Raises:
            TopicNotFoundError, InvalidArgumentError: nothing can be reset.
            UnsupportedStoreError: store times of a queue may fall, and the position of the time is not known.
        """
        reader = self._life.reader
        check_group_name(request.consumer_group)
        ends = reader.recent.ends(request.topic)
        if is_light_queue(request.topic) and (end := reader.range(request.topic, 0).max_offset):
            ends = {0: end}
        configured = range(self._life.topics.queue_counts().get(request.topic, 0))
        if not ends and not configured:
            raise TopicNotFoundError(f"this shard has no topic {request.topic!r}", topic=request.topic)
        queue_ids = [request.queue_id] if request.HasField("queue_id") else sorted({*ends, *configured})
        match request.WhichOneof("to"):
            case "earliest":
                return dict.fromkeys(queue_ids, 0)
            case "latest":
                return {queue_id: ends.get(queue_id, 0) for queue_id in queue_ids}
            case "queue_offset":
                return dict.fromkeys(queue_ids, request.queue_offset)
            case "time":
                millis = timestamp_to_millis(request.time, "time")
                return {
                    queue_id: reader.offset_at(request.topic, queue_id, millis, is_exact=True)
                    if queue_id in ends
                    else 0
                    for queue_id in queue_ids
                }
            case _:
                raise InvalidArgumentError("to is missing: set earliest, latest, time or queue_offset", field="to")

    def _add_range(self, row: pb.GroupQueue) -> None:
        """Adds the range that log and queue have; it reads, so not under the life's lock."""
        reader = self._life.reader
        known = reader.range(row.topic, row.queue_id)
        row.min_offset, row.max_offset = known.min_offset, known.max_offset
        if row.consumer_offset < row.max_offset:
            run = reader.units(row.topic, row.queue_id, row.consumer_offset, 1)
            for outcome in reader.records(run.units, 1):
                if isinstance(outcome, StoredMessage):
                    row.oldest_store_time.CopyFrom(outcome.store_time)


def _keeping_lite(settings: GroupSettings, before: GroupSettings) -> GroupSettings:
    """New settings with what the group is for, which does not change; InvalidArgumentError for another parent topic."""
    if before.lite is None:
        return settings
    if settings.lite is None:
        return replace(settings, lite=before.lite)
    if settings.lite.bind_topic != before.lite.bind_topic:
        raise InvalidArgumentError(
            f"group {settings.consumer_group} consumes lite topics of {before.lite.bind_topic}: it cannot be bound to "
            f"{settings.lite.bind_topic}; make another group, or delete this one before",
            field="lite",
        )
    return settings


def _row(ref: QueueRef, state: QueueState) -> pb.GroupQueue:
    return pb.GroupQueue(
        topic=ref.topic,
        queue_id=ref.queue_id,
        consumer_offset=state.consumer_offset,
        next_offset=state.next_offset,
        in_flight_count=len(state.leases),
        waiting_count=len(state.waiting),
        removed_count=state.removed_count,
    )


def _unread_row(ref: QueueRef) -> pb.GroupQueue:
    return pb.GroupQueue(topic=ref.topic, queue_id=ref.queue_id)


def _problems(members: Sequence[pb.Client]) -> Sequence[str]:
    """Members whose subscriptions differ: some messages are lost to filters of the others."""
    wanted: dict[bytes, list[str]] = {}
    for member in members:
        subscriptions = sorted(one.SerializeToString(deterministic=True) for one in member.subscriptions)
        wanted.setdefault(b"\0".join(subscriptions), []).append(member.client_id)
    if len(wanted) <= 1:
        return ()
    names = "; ".join(", ".join(ids[:3]) for ids in wanted.values())
    return [f"members subscribe to different topics or with different filters, so messages are missed: {names}"]
