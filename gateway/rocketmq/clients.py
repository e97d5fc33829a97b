"""The clients that live, as far as this gateway knows: their settings, their heartbeats, and the settings of their groups.

Heartbeats of consumers go to the consumer service of every shard, collected for a second; with them goes which deliveries have
reached their clients, because a shard renews only these. Nothing depends on this memory but speed: a client that comes from
another gateway is taken by its next heartbeat, and a delivery that is not reported comes again after 60 s.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from gateway.ports.delivery import Delivering, DeliveringSource, client_bytes, count_in_one_call
from gateway.ports.groups import default_settings, is_of_lite_topics, settings_that_count
from reput.consumer.v1.consumer_service_pb2 import Client, GroupSettings
from services.serving.admission.shares import KeptKeys, client_of_name
from store.errors import (
    DeadlineExceededError,
    NotLeaderError,
    ResourceBusyError,
    ServiceUnavailableError,
    StoreError,
    StoreRecoveringError,
)

if TYPE_CHECKING:
    from gateway.tenants.tenants import Tenants

KEEP_SECONDS = 1.0
KEEP_CALL_SECONDS = 2.0
# Deliveries that one KeepClients names: with handles of 800 bytes, beside the clients, it stays below the limit of 4 MiB.
DELIVERED_COUNT_MAX = 2_048
# Groups that get their settings in a shard where nobody has set some; the next heartbeat of a member goes on.
SET_COUNT_MAX = 64
# Deliveries that wait for it, of one shard; beyond this the oldest are forgotten, and come again after their 60 s.
DELIVERED_WAITING_COUNT_MAX = 100_000
# Clients that are remembered, 2 KiB each. Above it, and above its share (shares.py), a caller loses the one that was silent
# for longest for a new one.
CLIENT_COUNT_MAX = 65_536
# A client decides how many subscriptions it names. Those of the larger clients have room together; what finds none is not kept.
SMALL_CLIENT_BYTES = 1_024
LARGE_CLIENT_BYTES_MAX = 32 << 20
# A client without heartbeat for so long is gone: RocketMQ's channel expiry.
EXPIRE_SECONDS = 120.0
# Ended clients that are remembered, to tell their late heartbeats.
ENDED_COUNT_MAX = 16_384
GROUP_COUNT_MAX = 16_384
# For so long the settings of a group are not asked for again when they are needed.
GROUP_SECONDS = 5.0
REQUEST_SECONDS_DEFAULT = 3.0
# Of a client of lite topics, its kind (telemetry.py) begins so.
LITE_KIND = "lite "
# After these a shard will take what it was told: it is away, begins a life, or leads soon.
NOT_NOW = (
    ServiceUnavailableError,
    DeadlineExceededError,
    StoreRecoveringError,
    NotLeaderError,
    ResourceBusyError,
)

_log = structlog.get_logger("reput.gateway")


class KnownClient:
    """A client that lives.

    Attributes:
        facts: what its group's members know of it; the group is empty for a producer.
        request_seconds: its request timeout.
        seen_at: its last sign of life.
        begun_at: the first one.
        large_bytes: what its facts take; 0 for a small client.
    """

    __slots__ = ("begun_at", "facts", "large_bytes", "request_seconds", "seen_at")

    def __init__(
        self,
        facts: Client,
        request_seconds: float,
        seen_at: float,
        large_bytes: int = 0,
        before: "KnownClient | None" = None,
    ) -> None:
        self.facts = facts
        self.request_seconds = request_seconds
        self.seen_at = seen_at
        self.begun_at: float = seen_at if before is None else before.begun_at
        self.large_bytes = large_bytes


class Clients:
    """All clients of a gateway; thread-safe.

    Args:
        shards: their consumer services.
        clock: seconds, rising.
        count_max: clients of all callers.
        tenants: the namespaces with quotas; None: there are none.
    """

    def __init__(
        self,
        shards: DeliveringSource,
        clock: Callable[[], float] = time.monotonic,
        count_max: int = CLIENT_COUNT_MAX,
        tenants: "Tenants | None" = None,
    ) -> None:
        self._tenants = tenants
        self._shards = shards
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, KnownClient] = {}  # by id
        self._order: KeptKeys[str] = KeptKeys(count_max)  # the one that was silent for longest first
        self._large_bytes = 0
        self._ended: dict[str, float] = {}
        self._groups: dict[str, tuple[GroupSettings, float]] = {}
        self._to_keep: dict[str, Client] = {}
        self._delivered: dict[str, OrderedDict[str, None]] = {}  # receipt handles by shard, the oldest first
        self._stopping = threading.Event()

    def find(self, client_id: str) -> KnownClient | None:
        """The client; None when it is not known here."""
        return self._known.get(client_id)

    def age_seconds(self, client: KnownClient) -> float:
        """For how long a client has been known here."""
        return self._clock() - client.begun_at

    def has_ended(self, client_id: str) -> bool:
        """Whether the client said that it has ended, and has not come back."""
        return client_id in self._ended

    def request_seconds(self, client_id: str) -> float:
        """The request timeout in a client's settings, or RocketMQ's default."""
        known = self._known.get(client_id)
        return REQUEST_SECONDS_DEFAULT if known is None else known.request_seconds

    def settle(self, facts: Client, request_seconds: float, topics: Iterable[str] = ()) -> None:
        """A client has told its settings: it lives, also when it had ended.

        Args:
            facts: what its group's members know of it.
            request_seconds: its request timeout.
            topics: those that it sends to.

        Raises:
            QuotaExceededError: a namespace that it names has as many clients as it may have.
        """
        self._check_tenants(facts, topics)
        size_bytes = client_bytes(facts)
        large_bytes = size_bytes if size_bytes > SMALL_CLIENT_BYTES else 0
        with self._lock:
            self._ended.pop(facts.client_id, None)
            before = self._forget(facts.client_id)
            if self._large_bytes + large_bytes > LARGE_CLIENT_BYTES_MAX:
                facts, large_bytes = _without_subscriptions(facts), 0
            self._note(KnownClient(facts, request_seconds, self._clock(), large_bytes, before))

    def beat(self, facts: Client) -> None:
        """A sign of life. What is known of the client's settings stays. QuotaExceededError as from `settle`."""
        self._check_tenants(facts)
        with self._lock:
            known = self._forget(facts.client_id)
            if known is not None and known.facts.consumer_group == facts.consumer_group:
                known.seen_at = self._clock()
                self._note(known)
            else:
                less = _without_subscriptions(facts)
                self._note(KnownClient(less, REQUEST_SECONDS_DEFAULT, self._clock(), before=known))

    def end(self, client_id: str, consumer_group: str, seconds: float) -> None:
        """A client has ended: forget it, and tell every shard.

        Raises:
            StoreError: a shard was not told; there the client's messages are renewed until its heartbeats are missed.
        """
        if self._tenants is not None:
            self._tenants.end_client(client_id)
        with self._lock:
            self._forget(client_id)
            self._to_keep.pop(client_id, None)
            self._ended[client_id] = self._clock()
            if len(self._ended) > ENDED_COUNT_MAX:
                del self._ended[next(iter(self._ended))]
        failure: StoreError | None = None
        for shard in self._shards.all() if consumer_group else ():
            try:
                shard.end_client(client_id, consumer_group, seconds)
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    def _check_tenants(self, facts: Client, topics: Iterable[str] = ()) -> None:
        if self._tenants is not None:
            subscribed = (each.topic for each in facts.subscriptions)
            self._tenants.check_client(facts.client_id, (facts.consumer_group, *subscribed, *topics))

    def note_delivered(self, broker_name: str, receipt_handles: Iterable[str]) -> None:
        """Clients have these deliveries; the shard learns it with the next `keep`."""
        with self._lock:
            waiting = self._delivered.setdefault(broker_name, OrderedDict())
            waiting.update(dict.fromkeys(receipt_handles))
            _trim(waiting)

    def note_acknowledged(self, broker_name: str, receipt_handles: Iterable[str]) -> None:
        """These deliveries are over: the shard need not learn of them. Most are, before the next `keep`."""
        with self._lock:
            waiting = self._delivered.get(broker_name)
            if waiting is None:
                return
            for handle in receipt_handles:
                waiting.pop(handle, None)

    def group(self, member: Client, *, ask_again: bool = False) -> GroupSettings:
        """The settings of a member's group; the shards are told that the member lives.

        Args:
            member: the client.
            ask_again: the shards are asked, however young what is known is.

        Raises:
            StoreError: no shard answers.
        """
        name = member.consumer_group
        known = self._groups.get(name)
        if known is not None and self._clock() - known[1] < GROUP_SECONDS and not ask_again:
            return known[0]
        answers: list[GroupSettings] = []
        failure: StoreError | None = ServiceUnavailableError("no shard has a consumer service", service="consumer")
        for shard in self._shards.all():
            try:
                answers += shard.keep_clients([member], KEEP_CALL_SECONDS)
                failure = None
            except StoreError as error:
                failure = error if failure is not None else None
        if failure is not None:
            raise failure
        settings = settings_that_count([*answers, default_settings(name)])
        self._note_groups([settings])
        return settings

    def is_ordered(self, consumer_group: str) -> bool | None:
        """Whether a group is ordered, as far as that is known."""
        known = self._groups.get(consumer_group)
        return None if known is None else known[0].ordered

    def is_of_lite_topics(self, consumer_group: str, client_id: str) -> bool:
        """Whether a group consumes lite topics, as far as its settings or this client's kind are known."""
        known = self._groups.get(consumer_group)
        if known is not None:
            return is_of_lite_topics(known[0])
        client = self._known.get(client_id)
        return client is not None and client.facts.kind.startswith(LITE_KIND)

    def note_lite(self, consumer_group: str, topic: str) -> None:
        """A shard says that a group consumes lite topics of a topic; its other settings are not known."""
        settings = default_settings(consumer_group)
        settings.lite.bind_topic = topic
        with self._lock:
            self._groups[consumer_group] = settings, self._clock() - GROUP_SECONDS

    def start(self) -> None:
        """Start the thread that passes heartbeats on."""
        threading.Thread(target=self._run, name="keep-clients", daemon=True).start()

    def close(self) -> None:
        """Stop it, when the shards have been told what waits for them."""
        self._stopping.set()
        if self._delivered:
            self.keep()

    def keep(self) -> None:
        """Tell every shard which clients gave a sign of life since the last time, and what was delivered."""
        with self._lock:
            to_keep, self._to_keep = self._to_keep, {}
            delivered, self._delivered = self._delivered, {}
            self._expire()
        clients = list(to_keep.values())
        said: dict[str, list[tuple[Delivering, GroupSettings]]] = {}
        for shard in self._shards.all():
            if not self._keep_in(shard, clients, list(delivered.get(shard.broker_name, ())), said):
                with self._lock:  # not those that are forgotten meanwhile, while a shard is away for long
                    known = {client_id: facts for client_id, facts in to_keep.items() if client_id in self._known}
                    self._to_keep = known | self._to_keep
        self._note_groups([settings_that_count([settings for _, settings in of_group]) for of_group in said.values()])
        self._set_unset(said, {facts.consumer_group: facts.caller for facts in clients})

    def _run(self) -> None:
        while not self._stopping.wait(KEEP_SECONDS):
            try:
                self.keep()
            except Exception:  # it would end the thread, and no client would live any more
                _log.exception("delivery.keep_failed")

    def _set_unset(
        self, said: Mapping[str, Sequence[tuple[Delivering, GroupSettings]]], callers: Mapping[str, str]
    ) -> None:
        """Give a group its settings in shards where nobody has set some: they joined, or came back, after it was set."""
        unset = [
            (shard, counted)
            for of_shards in said.values()
            if (counted := settings_that_count([settings for _, settings in of_shards])).is_set
            for shard, settings in of_shards
            if not settings.is_set
        ]
        failed: set[str] = set()
        for shard, counted in unset[:SET_COUNT_MAX]:
            if shard.broker_name in failed:
                continue
            try:
                shard.make_group(counted, callers.get(counted.consumer_group, ""), KEEP_CALL_SECONDS)
            except StoreError as error:
                failed.add(shard.broker_name)
                _log.info("group.not_set", broker_name=shard.broker_name, error=error.message)

    def _keep_in(
        self,
        shard: Delivering,
        clients: Sequence[Client],
        delivered: Sequence[str],
        said: dict[str, list[tuple[Delivering, GroupSettings]]],
    ) -> bool:
        """Whether a shard was told; `said` gets the settings that it has."""
        of_shard: dict[str, GroupSettings] = {}
        try:
            while clients or delivered:
                count = count_in_one_call(clients)
                some = delivered[:DELIVERED_COUNT_MAX]
                kept = shard.keep_clients(clients[:count], KEEP_CALL_SECONDS, some)
                of_shard.update((group.consumer_group, group) for group in kept)
                clients, delivered = clients[count:], delivered[DELIVERED_COUNT_MAX:]
        except StoreError as error:
            if isinstance(error, NOT_NOW):
                self._put_back(shard.broker_name, delivered)
            _log.info("delivery.keep_failed", broker_name=shard.broker_name, error=error.message)
            return False
        for name, settings in of_shard.items():
            said.setdefault(name, []).append((shard, settings))
        return True

    def _put_back(self, broker_name: str, delivered: Sequence[str]) -> None:
        """Before what was noted meanwhile."""
        with self._lock:
            waiting = OrderedDict.fromkeys(delivered)
            waiting.update(self._delivered.get(broker_name, {}))
            _trim(waiting)
            if waiting:
                self._delivered[broker_name] = waiting

    def _note_groups(self, groups: Sequence[GroupSettings]) -> None:
        now = self._clock()
        with self._lock:
            for group in groups:
                # A copy: a message of an answer keeps the whole answer in memory.
                settings = GroupSettings()
                settings.CopyFrom(group)
                self._groups.pop(group.consumer_group, None)
                self._groups[group.consumer_group] = settings, now
            while len(self._groups) > GROUP_COUNT_MAX:
                del self._groups[next(iter(self._groups))]

    def _note(self, client: KnownClient) -> None:
        """Remember a client that is not known now; with the lock held."""
        facts = client.facts
        self._known[facts.client_id] = client
        self._large_bytes += client.large_bytes
        too_many = self._order.use(facts.client_id, client_of_name(facts.caller))
        if too_many is not None:
            self._forget(too_many)
        if facts.consumer_group:
            self._to_keep[facts.client_id] = facts

    def _forget(self, client_id: str) -> KnownClient | None:
        """What was known of a client; with the lock held."""
        known = self._known.pop(client_id, None)
        if known is not None:
            self._order.drop(client_id)
            self._large_bytes -= known.large_bytes
        return known

    def _expire(self) -> None:
        """With the lock held."""
        before = self._clock() - EXPIRE_SECONDS
        while (oldest := self._order.oldest()) is not None and self._known[oldest].seen_at < before:
            self._forget(oldest)
        while self._ended and (client_id := next(iter(self._ended))) and self._ended[client_id] < before:
            del self._ended[client_id]


def _without_subscriptions(facts: Client) -> Client:
    # Not a copy that is cleared: a message keeps the memory of fields that it had.
    return Client(
        client_id=facts.client_id,
        consumer_group=facts.consumer_group,
        language=facts.language,
        version=facts.version,
        address=facts.address,
        kind=facts.kind,
        caller=facts.caller,
    )


def _trim(waiting: OrderedDict[str, None]) -> None:
    while len(waiting) > DELIVERED_WAITING_COUNT_MAX:
        waiting.popitem(last=False)
