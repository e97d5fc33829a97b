"""LiveConsumers: the consumers that live, by group, as gateways report them.

They are kept in memory only: after a restart the service learns them within seconds.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.serving.admission.shares import KeptKeys, client_of_name
from store.format.topic import pull_retry_topic_of

# A member of a group that was not heard of for so long is gone. RocketMQ's clientExpiredTimeout.
MEMBER_SECONDS = 120.0
# Heartbeats come every 10 s; what is in flight for a client that missed three of them is not renewed any more.
RENEWED_SECONDS = 30.0
# Above it, and above its share (shares.py), a caller loses the one that was silent for longest, so clients that live are
# remembered beside those that another caller invents.
CLIENT_COUNT_MAX = 100_000
# A client decides how many subscriptions it names. Those of the larger clients have room together; what finds none is not kept.
SMALL_CLIENT_BYTES = 1_024
LARGE_CLIENT_BYTES_MAX = 64 << 20
# What gateways call a member that pulls; a push consumer of remoting pulls as well, and is known by its subscriptions.
PULL_KIND = "pull consumer"


class _Member(NamedTuple):
    seen: float
    client: pb.Client
    large_bytes: int  # 0 for a small one


class LiveConsumers:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        count_max: clients of all callers.
        changed: called with a group when a member comes or goes, or subscribes to something else; must return at once.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        count_max: int = CLIENT_COUNT_MAX,
        changed: Callable[[str], object] = lambda consumer_group: None,
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._started = clock()
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, _Member]] = {}  # by group and client id
        # When a client that is no member, as those behind a proxy of RocketMQ, popped last; only of groups that have members.
        self._popped_by_others: dict[str, float] = {}
        self._order: KeptKeys[tuple[str, str]] = KeptKeys(count_max)  # the one that was silent for longest first
        self._large_bytes = 0

    def begin_again(self) -> None:
        """Gateways report to this service from now on, because its log leads: nothing is known of any client yet."""
        self._started = self._clock()

    def keep(self, client: pb.Client) -> None:
        """Note that a client lives.

        What is remembered is made anew: a part of a request keeps the whole request in memory, and a message that is cleared
        keeps what its fields took. Most clients say the same again: then what is remembered stays.
        """
        size_bytes = client.ByteSize()
        large_bytes = size_bytes if size_bytes > SMALL_CLIENT_BYTES else 0
        with self._lock:
            before = self._take(client.consumer_group, client.client_id)
            self._expire()
            if self._large_bytes + large_bytes > LARGE_CLIENT_BYTES_MAX:
                kept, large_bytes = _remembered(client, ()), 0
            else:
                kept = before if before is not None and client == before else _remembered(client, client.subscriptions)
            self._large_bytes += large_bytes
            members = self._seen.setdefault(client.consumer_group, {})
            members[client.client_id] = _Member(self._clock(), kept, large_bytes)
            too_many = self._order.use((client.consumer_group, client.client_id), client_of_name(client.caller))
            if kept is not before and (before is None or list(before.subscriptions) != list(kept.subscriptions)):
                self._changed(client.consumer_group)
            if too_many is not None:
                self._remove(*too_many)

    def end(self, consumer_group: str, client_id: str, address: str = "") -> bool:
        """Note that a client has ended, unless it lives at another address by now; whether it has.

        A connection may be seen to end after its client has come again by another one, also at another gateway.

        Args:
            consumer_group: its group.
            client_id: its id.
            address: of the connection that has ended; empty: it has ended wherever it was.
        """
        with self._lock:
            member = self._seen.get(consumer_group, {}).get(client_id)
            if member is not None and address not in ("", member.client.address):
                return False
            self._remove(consumer_group, client_id)
            return True

    def is_renewed(self, consumer_group: str, client_id: str) -> bool:
        """Whether what is in flight for the client is to be renewed.

        After a start or a change of leaders nothing is known of any client, so all are taken to live until they had time to
        be heard of.
        """
        now = self._clock()
        if now - self._started < RENEWED_SECONDS:
            return True
        member = self._seen.get(consumer_group, {}).get(client_id)
        return member is not None and now - member.seen < RENEWED_SECONDS

    def is_member(self, consumer_group: str, client_id: str) -> bool:
        """Whether a client was heard of as a member of a group lately."""
        with self._lock:
            self._expire()
            return client_id in self._seen.get(consumer_group, ())

    def members(self, consumer_group: str) -> Sequence[pb.Client]:
        """The members of a group that live, by id."""
        with self._lock:
            self._expire()
            return [member.client for _, member in sorted(self._seen.get(consumer_group, {}).items())]

    def has_pullers(self, consumer_group: str) -> bool:
        """Whether a member of a group keeps its positions itself, as far as is known."""
        with self._lock:
            self._expire()
            return any(_is_puller(member.client) for member in self._seen.get(consumer_group, {}).values())

    def note_pop(self, consumer_group: str, client_id: str) -> None:
        """Note that a client pops for a group, perhaps one that sends no heartbeat."""
        with self._lock:
            members = self._seen.get(consumer_group)
            if members is None:
                return
            member = members.get(client_id)
            if member is None or _is_puller(member.client):
                self._popped_by_others[consumer_group] = self._clock()

    def reads_only_pull_retries(self, consumer_group: str) -> bool:
        """Whether a member that lives reads `%RETRY%group`, and none that pops was heard of for RENEWED_SECONDS.

        A member that pulls and does not subscribe to that topic, as DefaultLitePullConsumer, gets nothing of it.
        """
        now = self._clock()
        if now - self._started < RENEWED_SECONDS:
            return False  # nothing is known of those that pop yet
        with self._lock:
            living = [
                each.client for each in self._seen.get(consumer_group, {}).values() if self._lives(each.seen, now)
            ]
            popped = self._popped_by_others.get(consumer_group)
            return (
                any(map(_reads_pull_retries, living))
                and all(map(_is_puller, living))
                and (popped is None or not self._lives(popped, now))
            )

    def reads_no_pull_retries(self, consumer_group: str) -> bool:
        """Whether a member that lives pops, and none that lives reads `%RETRY%group`."""
        now = self._clock()
        with self._lock:
            living = [
                each.client for each in self._seen.get(consumer_group, {}).values() if self._lives(each.seen, now)
            ]
        return not any(map(_reads_pull_retries, living)) and not all(map(_is_puller, living))

    def groups(self) -> Collection[str]:
        """The groups that have members that live."""
        with self._lock:
            self._expire()
            return list(self._seen)

    def count(self) -> int:
        """Consumers that were heard of."""
        return len(self._order)

    @staticmethod
    def _lives(seen: float, now: float) -> bool:
        return now - seen < RENEWED_SECONDS

    def _expire(self) -> None:
        """Forget those that are gone; with the lock held."""
        before = self._clock() - MEMBER_SECONDS
        while (oldest := self._order.oldest()) is not None:
            consumer_group, client_id = oldest
            if self._seen[consumer_group][client_id].seen > before:
                return
            self._remove(consumer_group, client_id)

    def _remove(self, consumer_group: str, client_id: str) -> None:
        """A member is gone; with the lock held."""
        if self._take(consumer_group, client_id) is not None:
            self._changed(consumer_group)
        if consumer_group not in self._seen:
            self._popped_by_others.pop(consumer_group, None)

    def _take(self, consumer_group: str, client_id: str) -> pb.Client | None:
        """Forget a member, for now; with the lock held."""
        members = self._seen.get(consumer_group, {})
        member = members.pop(client_id, None)
        if member is None:
            return None
        self._large_bytes -= member.large_bytes
        self._order.drop((consumer_group, client_id))
        if not members:
            del self._seen[consumer_group]
        return member.client


def _is_puller(client: pb.Client) -> bool:
    """Whether a member pulls: it says so, or reads what the group's members send back, as RocketMQ's clients over remoting."""
    return client.kind == PULL_KIND or _reads_pull_retries(client)


def _reads_pull_retries(client: pb.Client) -> bool:
    """Whether a member subscribes to what the group's members send back."""
    retry_topic = pull_retry_topic_of(client.consumer_group)
    return any(each.topic == retry_topic for each in client.subscriptions)


def _remembered(client: pb.Client, subscriptions: Iterable[gateway_pb.TopicSubscription]) -> pb.Client:
    """A client as a message of its own, which keeps nothing of the request that named it."""
    return pb.Client(
        client_id=client.client_id,
        consumer_group=client.consumer_group,
        subscriptions=subscriptions,
        language=client.language,
        address=client.address,
        version=client.version,
        kind=client.kind,
        caller=client.caller,
    )
