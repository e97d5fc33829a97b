"""LiteTopics: what clients subscribe to, and what becomes of lite topics and clients with time; RocketMQ's
LiteSubscriptionRegistry and LiteLifecycleManager.

Subscriptions are records of the state, as positions are: after a restart clients need not subscribe again. A shard keeps
those of all clients of its groups, also of lite topics that lie in another shard.

    PARTIAL_ADD in an exclusive group    takes the lite topic from its owner, which is told (LostLiteTopic); what the owner has
                                         in flight stays its own until it is acknowledged or its time is over
    COMPLETE_ADD of what another owns    does not take it; the client is told again
    a client silent for SILENT_MILLIS    has ended
    a lite topic without new messages    is forgotten when its parent topic says so: groups lose positions and subscriptions; a
                                         group that begins anew begins behind what there was
"""

import heapq
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, islice

from consumer_svc.delivering.life import Life, check_bound
from consumer_svc.state.group_states import Change, Group, LightPosition, LiteExpired
from consumer_svc.state.lite_subscriptions import LiteSubscribed
from consumer_svc.state.queue_state import Moved, QueueRef, QueueState
from consumer_svc.wire import check_topic_named
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import LiteTopicGroup
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import QueueRange
from store.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    LiteSubscriptionQuotaExceededError,
    StoreError,
)
from store.format.topic import LITE_TOPIC_NAME, lite_parent_of, lite_queue_name, lite_topic_of, split_lite_queue

# RocketMQ's `lite.sub.client.quota` and `maxLiteSubscriptionCount`.
CLIENT_QUOTA = 2_000
CLIENT_ID_LENGTH_MAX = 255
# Of one request.
LITE_TOPIC_COUNT_MAX = 100_000
# RocketMQ's liteSubscriptionCheckTimeoutMills; clients send their whole list each 30 s.
SILENT_MILLIS = 180_000
# RocketMQ's minLiteTTl: a shorter expiration is taken as this.
EXPIRATION_MINUTES_MIN = 15
# Names in one change: some 60 bytes each.
NAME_COUNT_MAX = 5_000
# A client that subscribes to more lite topics at once has all of the parent looked through, in place of one call for each.
ASKED_COUNT_MAX = 256
# Lite topics that are forgotten in one look; each takes a call.
EXPIRED_COUNT_MAX = 200
# Likewise, that are looked at for whether they are due.
LOOKED_COUNT_MAX = 20_000
# Of a list and of a page of the queues' service.
PAGE_SIZE, PAGE_SIZE_MAX = 64, 1_024
ENDS_PAGE_SIZE = 20_000
# Of such a page, what is compared without giving deliveries the lock.
LOCKED_COUNT = 1_000
CLIENT_COUNT_SHOWN, SUBSCRIBER_COUNT_SHOWN = 64, 1_024
# A group with more lite topics has their ends listed, in place of one call for each.
SUMMED_COUNT_MAX = 64


class LiteTopics:
    """See the top of this file.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._began_millis = life.clock.millis()
        # Of parents with an expiration: when lite topics got their newest messages (s since 1970), since the life began.
        self._newest: dict[str, int] = {}
        self._pages: Iterator[None] | None = None
        # Of parents: what `expire` has not looked at yet, of those with lite topics; likewise of `_newest`.
        self._left: dict[str, Iterator[str]] = {}
        self._times: Iterator[str] | None = None

    # -- subscriptions

    def sync(self, request: pb.SyncLiteSubscriptionRequest) -> pb.SyncLiteSubscriptionResponse:
        """Take what a client subscribes to. In the log when this returns.

        Raises:
            GroupNotFoundError, InvalidArgumentError, LiteSubscriptionQuotaExceededError: nothing was changed.
            StoreError: positions cannot be told now, and nothing was changed; or it is not known.
        """
        check_topic_named(request.topic)
        queues = _queues_of(request)
        life = self._life
        life.refuse_if_over()
        name, client_id = request.consumer_group, request.client_id
        with life.lock:
            group = self._group(request)
            client = group.lite.clients.get(client_id)
            known = client.queues if client is not None else set()
            news, removed, _ = _difference(request, queues, group, known)
            # Before anything is read for each of them.
            self._check_quota(request, group, len(known) + len(news) - len(removed))
        begins = self._beginnings(request, news, group)
        with life.lock:
            group = self._group(request)
            client = group.lite.clients.get(client_id)
            known = client.queues if client is not None else set()
            if request.action == pb.LITE_ACTION_COMPLETE_ADD and life.news.is_late(name, client_id, request.version):
                return pb.SyncLiteSubscriptionResponse(lite_topic_count=len(known))
            added, removed, owned = _difference(request, queues, group, known)
            count = len(known) + len(added) - len(removed)
            self._check_quota(request, group, count)
            was_wildcard = client is not None and client.is_wildcard
            is_wildcard = _is_wildcard(group) and (was_wildcard or request.action == pb.LITE_ACTION_COMPLETE_ADD)
            changes = self._changes(request, group, added, removed, begins)
            taken = request.action == pb.LITE_ACTION_PARTIAL_ADD and _is_exclusive(group)
            if taken:
                owners = _owners(group, added, client_id)
                changes = [*self._taken(request, group, owners, begins), *changes]
                lost = [
                    (name, request.topic, owner, lite_topic_of(queue))
                    for owner, named in owners.items()
                    for queue in named
                ]
                life.arrivals.note_lost(lost)
            is_ended = request.action == pb.LITE_ACTION_COMPLETE_REMOVE
            written: Future[int] | None = None
            if is_ended and client is not None:
                changes.append(LiteSubscribed(name, request.topic, client_id, is_ended=True))
                life.news.forget(name, client_id)
            elif not is_ended and (added or removed or client is None or was_wildcard is not is_wildcard):
                changes += _parts(name, request.topic, client_id, added, removed, is_wildcard=is_wildcard)
            for part in _in_parts(changes):
                written = life.change(part)
            written = written or life.newest_write()
            if not is_ended:
                life.news.hear(name, client_id, life.clock.millis())
                life.news.note_version(name, client_id, request.version)
                self._note_added(request, group, added, is_new_wildcard=is_wildcard and not was_wildcard)
        wait_for(written)
        return pb.SyncLiteSubscriptionResponse(
            lite_topic_count=count, lost_lite_topics=map(lite_topic_of, sorted(owned))
        )

    def _group(self, request: pb.SyncLiteSubscriptionRequest) -> Group:
        """The group of a request; the caller holds the lock."""
        group = self._life.states.groups.get(request.consumer_group)
        if group is None:
            raise GroupNotFoundError(
                f"this shard does not know the consumer group {request.consumer_group[:64]!r}: make it and bind it to "
                f"{request.topic}",
                consumerGroup=request.consumer_group[:64],
            )
        check_bound(group.settings, request.topic)
        if request.action == pb.LITE_ACTION_PARTIAL_ADD and _is_wildcard(group):
            raise InvalidArgumentError(
                f"group {request.consumer_group} gets all lite topics of {request.topic}: its clients cannot name some",
                field="action",
            )
        return group

    def _check_quota(self, request: pb.SyncLiteSubscriptionRequest, group: Group, count: int) -> None:
        """LiteSubscriptionQuotaExceededError when a client may not have so many lite topics; the caller holds the lock."""
        lite, client = group.settings.lite, group.lite.clients.get(request.client_id)
        if client is None and request.action == pb.LITE_ACTION_COMPLETE_REMOVE:
            return
        # A client counts as one with none, too: callers invent clients.
        more = max(count, 1) - (max(len(client.queues), 1) if client is not None else 0)
        quota = (lite.client_quota if lite is not None else 0) or CLIENT_QUOTA
        name = group.settings.consumer_group
        if more > 0 and 0 < quota < count:
            raise LiteSubscriptionQuotaExceededError(
                f"a client of group {name} subscribes to {count} lite topics: its quota is {quota}; raise it with "
                "`reput group update GROUP --lite-client-quota`",
                consumerGroup=name,
                countMax=quota,
            )
        count_max = self._life.rules.lite_subscription_count_max
        states = self._life.states
        names = [each for named in states.bound.values() for each in named] if more > 0 else ()
        total = sum(states.groups[each].lite.count for each in names)
        if more > 0 and total + more > count_max:
            raise LiteSubscriptionQuotaExceededError(
                f"the clients of this shard subscribe to {total} lite topics, and at most {count_max} are "
                "possible: raise the setting lite_subscription_count_max of the consumer service "
                "(REPUT_CONSUMER_LITE_SUBSCRIPTION_COUNT_MAX)",
                setting="lite_subscription_count_max",
                countMax=count_max,
            )

    def _beginnings(
        self, request: pb.SyncLiteSubscriptionRequest, queues: Sequence[str], group: Group
    ) -> dict[str, int]:
        """Where the group shall go on in lite topics that the client names anew, clamped; reads, so not under the lock."""
        at = request.begins.WhichOneof("at")
        is_adding = request.action in (pb.LITE_ACTION_PARTIAL_ADD, pb.LITE_ACTION_COMPLETE_ADD)
        if not is_adding or _is_wildcard(group) or not (at or self._life.rules.begins_at_end):
            return {}
        life = self._life
        found: dict[str, int] = {}
        for queue in queues:
            with life.lock:
                state = life.states.find(QueueRef(request.consumer_group, queue, 0))
                floor = life.states.begin_offset(queue)
                # A group that subscribes, or did until it expired, gets what has come since.
                has_begun = state is not None or queue in life.states.lite_floors or bool(group.lite.subscribers(queue))
            if at is None:
                if not has_begun:
                    found[queue] = life.reader.range(queue, 0).max_offset
                continue
            known = life.reader.range(queue, 0)
            target = self._target(request.begins, queue, known, state)
            found[queue] = max(known.min_offset, floor, min(target, known.max_offset))
        return found

    def _target(self, begins: pb.LiteOffset, queue: str, known: QueueRange, state: QueueState | None) -> int:
        match begins.WhichOneof("at"):
            case "latest":
                return known.max_offset
            case "queue_offset":
                return begins.queue_offset
            case "last_count":
                at = known.max_offset if state is None else min(state.consumer_offset, known.max_offset)
                return at - max(begins.last_count, 0)
            case "time":
                if known.min_offset >= known.max_offset:
                    return known.max_offset
                return self._life.reader.offset_at(queue, 0, timestamp_to_millis(begins.time, "time"), is_exact=True)
            case _:
                return known.min_offset

    def _changes(
        self,
        request: pb.SyncLiteSubscriptionRequest,
        group: Group,
        added: Sequence[str],
        removed: Sequence[str],
        begins: dict[str, int],
    ) -> list[Change]:
        """How positions change with a subscription; the caller holds the lock."""
        says_where = request.begins.WhichOneof("at") is not None
        changes = [
            move
            for queue in added
            if queue in begins and (says_where or self._has_not_begun(group, queue))
            for move in self._moved(group, queue, begins[queue])
        ]
        lite = group.settings.lite
        if request.action == pb.LITE_ACTION_PARTIAL_REMOVE and lite is not None and lite.reset_offset_unsubscribe:
            for queue in removed:
                if group.lite.subscribers(queue) == (request.client_id,):
                    changes += self._moved(group, queue, self._life.states.begin_offset(queue))
        return changes

    def _taken(
        self,
        request: pb.SyncLiteSubscriptionRequest,
        group: Group,
        owners: dict[str, list[str]],
        begins: dict[str, int],
    ) -> Iterator[Change]:
        """How an exclusive group changes when a client takes lite topics from others; the caller holds the lock."""
        lite = group.settings.lite
        for owner, queues in owners.items():
            yield from _parts(request.consumer_group, request.topic, owner, (), queues)
            if lite is not None and lite.reset_offset_exclusive:
                for queue in queues:
                    if queue not in begins:
                        yield from self._moved(group, queue, self._life.states.begin_offset(queue))

    def _has_not_begun(self, group: Group, queue: str) -> bool:
        """Whether the group has neither a position nor a subscriber: another call may have begun while the end was read."""
        ref = QueueRef(group.settings.consumer_group, queue, 0)
        return self._life.states.find(ref) is None and not group.lite.subscribers(queue)

    def _moved(self, group: Group, queue: str, target: int) -> list[Change]:
        ref = QueueRef(group.settings.consumer_group, queue, 0)
        rules, state = self._life.rules, self._life.states.find(ref)
        # Where groups begin at the end, one that began without a message keeps that, also while none of its clients lives.
        is_kept = rules.begins_at_end and len(group.light) < rules.lite_subscription_count_max
        if state is None and not target and not is_kept:
            return []  # it begins at the first message
        if state is not None and state.next_offset == state.consumer_offset == target:
            return []
        return [Moved(ref, target, is_reset=True)]

    def _note_added(
        self, request: pb.SyncLiteSubscriptionRequest, group: Group, added: Sequence[str], *, is_new_wildcard: bool
    ) -> None:
        news = self._life.news
        if is_new_wildcard or len(added) > ASKED_COUNT_MAX:
            news.check_all(request.topic)
            return
        for queue in added:
            self._life.note_again(QueueRef(group.settings.consumer_group, queue, 0))

    # -- clients

    def end_client(self, consumer_group: str, client_id: str) -> None:
        """A client has ended: it subscribes to nothing any more. In the log when this returns."""
        life = self._life
        with life.lock:
            written = self._end(consumer_group, client_id)
        if written is not None:
            wait_for(written)

    def _end(self, consumer_group: str, client_id: str) -> "Future[int] | None":
        life = self._life
        group = life.states.groups.get(consumer_group)
        if group is None or group.settings.lite is None or client_id not in group.lite.clients or life.is_over:
            return None
        life.news.forget(consumer_group, client_id)
        topic = group.settings.lite.bind_topic
        return life.change([LiteSubscribed(consumer_group, topic, client_id, is_ended=True)])

    def end_silent(self) -> None:
        """End clients that were not heard of for SILENT_MILLIS: neither a poll, nor a subscription, nor a heartbeat."""
        life = self._life
        with life.lock:
            before = life.clock.millis() - SILENT_MILLIS
            if self._began_millis > before:
                return  # they had no time to be heard of
            names = [name for groups in life.states.bound.values() for name in groups]
            for name in names:
                for client_id in list(life.states.groups[name].lite.clients):
                    is_heard = life.news.heard_millis(name, client_id) > before
                    if not is_heard and not life.clients.is_member(name, client_id):
                        self._end(name, client_id)

    # -- news of all lite topics

    def look_through(self) -> bool:
        """Compare a page of the ends of lite topics with the positions; whether there is more to look at.

        StoreError when the queues cannot be asked now: all of the parent is looked through again.
        """
        life = self._life
        if self._pages is None:
            with life.lock:
                topic = life.news.unchecked()
            if topic is None:
                return False
            self._pages = self._look_through(topic)
        try:
            next(self._pages)
        except StopIteration:
            self._pages = None
        except StoreError:
            self._pages = None
            raise
        return True

    def _look_through(self, topic: str) -> Iterator[None]:
        life = self._life
        try:
            for page in life.reader.light_ends(lite_queue_name(topic, ""), ENDS_PAGE_SIZE):
                for begin in range(0, len(page), LOCKED_COUNT):
                    with life.lock:
                        life.news.see_ends(topic, page[begin : begin + LOCKED_COUNT])
                yield
        except StoreError:
            with life.lock:
                life.news.check_all(topic)
            raise

    # -- expiry

    def hear(self, queues: Iterable[str], store_time_millis: int) -> None:
        """Lite topics have new messages; the caller holds the lock."""
        life = self._life
        seconds = store_time_millis // 1000
        life.news.arrived(queues)
        for queue in queues if life.topics.has_lite_expiration else ():
            lite = split_lite_queue(queue)
            if lite is not None and life.topics.lite_expiration_minutes(lite[0]) > 0:
                self._newest[queue] = seconds

    def expire(self, log_first_offset: int) -> int:
        """Forget some lite topics without a new message for the time that their parent says; how many. See `expires_more`.

        What came before this life began is not known, so none expires before the life is as old.
        """
        life = self._life
        with life.lock:
            life.states.drop_floors(log_first_offset)
            parents = list(life.states.bound)
        count = 0
        for topic in parents:
            before_seconds = self._expired_before(topic)
            if before_seconds:
                count += self._expire(topic, before_seconds)
            else:
                self._left.pop(topic, None)
        for topic in self._left.keys() - set(parents):
            del self._left[topic]
        if not self._left:
            self._forget_times()
        return count

    def _expired_before(self, topic: str) -> int:
        """Lite topics of a parent without a message since then (s since 1970) expire; 0: none does now."""
        minutes = self._life.topics.lite_expiration_minutes(topic)
        before_millis = self._life.clock.millis() - max(minutes, EXPIRATION_MINUTES_MIN) * 60_000
        return before_millis // 1000 if minutes > 0 and self._began_millis <= before_millis else 0

    def _expire(self, topic: str, before_seconds: int) -> int:
        life = self._life
        due = self._due(topic, before_seconds)
        expired: list[tuple[str, int]] = []
        log_end = life.reader.log_end() if due else 0
        for queue in due:
            known = life.reader.range(queue, 0)
            with life.lock:
                at = max([known.max_offset, *(state.next_offset for state in self._states(topic, queue))])
            if at:  # else it has had no message yet
                expired.append((queue, at))
        with life.lock:
            if life.is_over:
                return 0
            rows = [
                (queue, at)
                for queue, at in expired
                if self._newest.get(queue, 0) < before_seconds
                and not any(state.leases for state in self._states(topic, queue))
            ]
            written: Future[int] | None = None
            if rows:
                queues, offsets = zip(*rows, strict=True)
                written = life.change([LiteExpired(topic, queues, offsets, log_end)])
        if written is not None:
            wait_for(written)
        return len(rows)

    def _states(self, topic: str, queue: str) -> list[QueueState]:
        """Of a lite topic: the states of the groups that have one; the caller holds the lock."""
        states = self._life.states
        found = (states.find(QueueRef(name, queue, 0)) for name in states.bound.get(topic, ()))
        return [state for state in found if state is not None]

    def _due(self, topic: str, before_seconds: int) -> list[str]:
        """Lite topics of a parent that may be forgotten, at most EXPIRED_COUNT_MAX; the next call goes on behind them.

        They are looked for without the lock. One that was forgotten, and that a client has named again since, is passed: there
        is nothing to forget but what the client would say again.
        """
        life = self._life
        prefix = lite_queue_name(topic, "")
        with life.lock:
            groups = [life.states.groups[name] for name in life.states.bound.get(topic, ())]
            if topic not in self._left:
                self._left[topic] = chain.from_iterable(
                    [list(names) for group in groups for names in (group.topics, group.light, group.lite.queues())]
                )
        left, floors = self._left[topic], life.states.lite_floors
        found: dict[str, None] = {}
        for _ in range(LOOKED_COUNT_MAX):
            queue = next(left, None)
            if queue is None:
                del self._left[topic]
                break
            if self._newest.get(queue, 0) >= before_seconds or not queue.startswith(prefix):
                continue
            if queue not in floors or any(group.has_position(queue) for group in groups):
                found[queue] = None
            if len(found) >= EXPIRED_COUNT_MAX:
                break
        return list(found)

    @property
    def expires_more(self) -> bool:
        """Whether `expire` has not looked at all lite topics yet."""
        return bool(self._left) or self._times is not None

    def _forget_times(self) -> None:
        """Drop the times of lite topics that may expire by now, also of those without a subscriber."""
        with self._life.lock:
            if self._times is None:
                self._times = iter(list(self._newest))
        before: dict[str, int] = {}
        old: list[tuple[str, int]] = []
        queue: str | None = None
        for queue in islice(self._times, LOOKED_COUNT_MAX):
            topic = lite_parent_of(queue)
            if topic not in before:
                before[topic] = self._expired_before(topic)
            if self._newest.get(queue, 0) < before[topic]:
                old.append((queue, before[topic]))
        if queue is None:
            self._times = None
        for begin in range(0, len(old), NAME_COUNT_MAX):
            with self._life.lock:
                for old_queue, before_seconds in old[begin : begin + NAME_COUNT_MAX]:
                    if self._newest.get(old_queue, 0) < before_seconds:
                        self._newest.pop(old_queue, None)

    # -- lists

    def page(self, request: pb.ListLiteTopicsRequest) -> pb.ListLiteTopicsResponse:
        """Lite topics with their ranges, positions and subscribers; see the proto."""
        life = self._life
        if request.page_size < 0:
            raise InvalidArgumentError(f"page_size is {request.page_size}: 0 means {PAGE_SIZE}", field="page_size")
        topic, groups = self._listed(request)
        count_max = min(request.page_size or PAGE_SIZE, PAGE_SIZE_MAX)
        names = heapq.nsmallest(count_max + 1, self._names(request, topic, groups))
        answer = pb.ListLiteTopicsResponse(has_more=len(names) > count_max)
        newest: list[tuple[pb.LiteTopic, int]] = []
        for lite_topic in names[:count_max]:
            queue = lite_queue_name(topic, lite_topic)
            known = life.reader.range(queue, 0)
            row = answer.lite_topics.add(
                lite_topic=lite_topic, min_offset=known.min_offset, max_offset=known.max_offset
            )
            with life.lock:
                row.groups.extend(each for name in groups if (each := self._part(name, queue, known)) is not None)
            newest.append((row, known.max_offset - 1))
        for row, at in newest:
            run = life.reader.units(lite_queue_name(topic, row.lite_topic), 0, at, 1) if at >= row.min_offset else None
            for outcome in life.reader.records(run.units, 1) if run is not None else ():
                if isinstance(outcome, StoredMessage):
                    row.last_store_time.CopyFrom(outcome.store_time)
        return answer

    def _listed(self, request: pb.ListLiteTopicsRequest) -> tuple[str, list[str]]:
        """The parent topic of a list, and the groups that it tells of."""
        life = self._life
        name, topic = request.consumer_group, request.topic
        with life.lock:
            if not name:
                check_topic_named(topic)
                return topic, sorted(life.states.bound.get(topic, ()))
            group = life.states.groups.get(name)
            if group is None:
                raise GroupNotFoundError(f"there is no consumer group {name[:64]!r}", consumerGroup=name[:64])
            check_bound(group.settings, topic or (group.settings.lite.bind_topic if group.settings.lite else ""))
            assert group.settings.lite is not None
            return group.settings.lite.bind_topic, [name]

    def _names(self, request: pb.ListLiteTopicsRequest, topic: str, groups: Sequence[str]) -> Iterator[str]:
        """The names that a list asks for, each once."""
        life = self._life
        if request.lite_topic:
            if LITE_TOPIC_NAME.fullmatch(request.lite_topic) is None:
                raise _illegal(request.lite_topic)
            yield request.lite_topic
            return
        prefix = lite_queue_name(topic, "")
        contains = request.lite_topic_contains.lower()
        with life.lock:
            kept = [life.states.groups[name] for name in groups if name in life.states.groups]
            known: list[list[str]] = []  # there may be a million, and deliveries wait for the lock
            for group in kept:
                client = group.lite.clients.get(request.client_id) if request.client_id else None
                if request.client_id:
                    known.append(list(client.queues) if client is not None else [])
                else:
                    known += [list(group.light), list(group.topics), list(group.lite.queues())]
        names = {queue[len(prefix) :] for queue in chain.from_iterable(known) if queue.startswith(prefix)}
        if not request.consumer_group:
            for page in life.reader.light_ends(prefix, ENDS_PAGE_SIZE):
                names.update(queue[len(prefix) :] for queue, _ in page)
        yield from (name for name in names if name > request.after and contains in name.lower())

    def _part(self, name: str, queue: str, known: QueueRange) -> LiteTopicGroup | None:
        group = self._life.states.groups.get(name)
        if group is None:
            return None
        state = self._life.states.find(QueueRef(name, queue, 0))
        clients = sorted(group.lite.subscribers(queue))[:CLIENT_COUNT_SHOWN]
        if state is None and not clients and not any(group.lite.wildcards()):
            return None
        begin = self._life.states.begin_offset(queue)
        at = max(begin if state is None else state.next_offset, known.min_offset)
        waiting = 0 if state is None else len(state.leases) + len(state.waiting)
        return LiteTopicGroup(
            consumer_group=name,
            consumer_offset=None if state is None else state.consumer_offset,
            in_flight_count=0 if state is None else len(state.leases),
            lag_count=waiting + max(known.max_offset - at, 0),
            client_ids=clients,
        )

    def summaries(self, group: Group, *, without_lag: bool = False) -> list[pb.LiteSummary]:
        """The lite topics of a group in one row: nothing is told of each."""
        life, lite = self._life, group.settings.lite
        if lite is None:
            return []
        prefix = lite_queue_name(lite.bind_topic, "")
        with life.lock:
            in_flight = waiting = 0
            hot: dict[str, int] = {}
            for queue, queues in group.topics.items():
                if queue.startswith(prefix):
                    for state in queues.values():
                        hot[queue] = state.next_offset
                        in_flight += len(state.leases)
                        waiting += len(state.waiting)
            begun: dict[str, LightPosition] = {}
            if not without_lag:
                begun.update((queue, life.states.begin_offset(queue)) for queue in group.lite.queues())
                begun.update(group.light)
                begun.update(hot)
            has_all = any(group.lite.wildcards())
            light = list(group.light)  # there may be a million, and deliveries wait for the lock
            subscribers = [
                pb.LiteSubscriber(client_id=each, lite_topic_count=len(client.queues), is_wildcard=client.is_wildcard)
                for each, client in heapq.nsmallest(
                    SUBSCRIBER_COUNT_SHOWN, group.lite.clients.items(), key=lambda row: row[0]
                )
            ]
        count = len(hot) + sum(queue.startswith(prefix) for queue in light)
        lag = 0 if without_lag else in_flight + waiting + sum(self._unread(prefix, begun, has_all=has_all))
        return [
            pb.LiteSummary(
                topic=lite.bind_topic,
                lite_topic_count=count,
                lag_count=lag,
                in_flight_count=in_flight,
                subscribers=subscribers,
            )
        ]

    def _unread(self, prefix: str, begun: Mapping[str, LightPosition], *, has_all: bool) -> Iterator[int]:
        """Messages that were never handed out, behind each position; `has_all`: also of lite topics without one.

        It reads, so not under the lock.
        """
        reader = self._life.reader
        if len(begun) <= SUMMED_COUNT_MAX and not has_all:
            ends: Iterable[tuple[str, int]] = [
                (queue, reader.range(queue, 0).max_offset) for queue in begun if queue.startswith(prefix)
            ]
        else:
            ends = (row for page in reader.light_ends(prefix, ENDS_PAGE_SIZE) for row in page)
        for queue, end in ends:
            at = begun.get(queue)
            if at is None and has_all:
                at = self._life.states.begin_offset(queue)
            if at is not None:
                yield max(end - (at[0] if isinstance(at, tuple) else at), 0)


def _queues_of(request: pb.SyncLiteSubscriptionRequest) -> list[str]:
    """The light queues that a request names, each once; InvalidArgumentError when it cannot be."""
    if request.action not in (
        pb.LITE_ACTION_PARTIAL_ADD,
        pb.LITE_ACTION_PARTIAL_REMOVE,
        pb.LITE_ACTION_COMPLETE_ADD,
        pb.LITE_ACTION_COMPLETE_REMOVE,
    ):
        raise InvalidArgumentError(f"action {request.action} is none: name one", field="action")
    if not 1 <= len(request.client_id) <= CLIENT_ID_LENGTH_MAX:
        raise InvalidArgumentError(
            f"client_id has {len(request.client_id)} characters: 1 to {CLIENT_ID_LENGTH_MAX} are possible",
            field="client_id",
        )
    if len(request.lite_topics) > LITE_TOPIC_COUNT_MAX:
        raise InvalidArgumentError(
            f"{len(request.lite_topics)} lite topics: at most {LITE_TOPIC_COUNT_MAX} are possible", field="lite_topics"
        )
    for lite_topic in request.lite_topics:
        if LITE_TOPIC_NAME.fullmatch(lite_topic) is None:
            raise _illegal(lite_topic)
    return list(dict.fromkeys(sys.intern(lite_queue_name(request.topic, each)) for each in request.lite_topics))


def _difference(
    request: pb.SyncLiteSubscriptionRequest, queues: Sequence[str], group: Group, known: Collection[str]
) -> tuple[list[str], list[str], set[str]]:
    """What a client subscribes to from now on and to what no longer, and what it names and another owns.

    Lists of all that a client subscribes to are made for COMPLETE actions only: it may be very many.
    """
    match request.action:
        case pb.LITE_ACTION_PARTIAL_ADD:
            return [queue for queue in queues if queue not in known], [], set()
        case pb.LITE_ACTION_PARTIAL_REMOVE:
            return [], sorted(queue for queue in queues if queue in known), set()
        case pb.LITE_ACTION_COMPLETE_REMOVE:
            return [], sorted(known), set()
    if _is_wildcard(group):
        return [], sorted(known), set()
    owned: set[str] = set()
    if _is_exclusive(group):
        owned = {queue for queue in queues if group.lite.subscribers(queue) not in ((), (request.client_id,))}
    wanted = set(queues) - owned
    added = [queue for queue in queues if queue in wanted and queue not in known]
    return added, sorted(queue for queue in known if queue not in wanted), owned


def _illegal(lite_topic: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{lite_topic[:64]!r} is no lite topic: use 1 to 64 letters, digits, _ and -", field="lite_topics"
    )


def _is_wildcard(group: Group) -> bool:
    return group.settings.lite is not None and group.settings.lite.is_wildcard


def _is_exclusive(group: Group) -> bool:
    return group.settings.lite is not None and group.settings.lite.is_exclusive and not group.settings.lite.is_wildcard


def _owners(group: Group, queues: Iterable[str], client_id: str) -> dict[str, list[str]]:
    """Of lite topics: the clients but one that subscribe to them."""
    owners: dict[str, list[str]] = {}
    for queue in queues:
        for owner in group.lite.subscribers(queue):
            if owner != client_id:
                owners.setdefault(owner, []).append(queue)
    return owners


def _parts(
    name: str,
    topic: str,
    client_id: str,
    added: Sequence[str],
    removed: Sequence[str],
    *,
    is_wildcard: bool = False,
) -> Iterator[LiteSubscribed]:
    """A change of subscriptions in changes that the log takes."""
    for begin in range(0, max(len(added), len(removed), 1), NAME_COUNT_MAX):
        part = slice(begin, begin + NAME_COUNT_MAX)
        yield LiteSubscribed(name, topic, client_id, tuple(added[part]), tuple(removed[part]), is_wildcard=is_wildcard)


def _in_parts(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes that go into the log together, with at most NAME_COUNT_MAX names."""
    part: list[Change] = []
    count = 0
    for change in changes:
        names = 1 + (len(change.added) + len(change.removed) if isinstance(change, LiteSubscribed) else 0)
        if part and count + names > NAME_COUNT_MAX:
            yield part
            part, count = [], 0
        part.append(change)
        count += names
    if part:
        yield part
