"""Tenants: whether what a namespace asks for is within its quotas, at this gateway.

    append ══ topics ══▶ namespaces ══ topics, stored bytes, rates ══▶ all of it passes and is counted, or it is refused whole

Only namespaces that the tenants file names are looked at. A request is counted when it passes, also if it is refused behind
this gateway. A refusal costs the topics of one request, and holds no thread and no place.

What a namespace has (topics, groups, stored bytes) is asked of the shards every LOOK_SECONDS, where the file has a quota of it.
Between two looks, what passes here is added. So what passes at other gateways meanwhile is not counted until the next look; and
until the first one, nothing of it is refused.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import islice
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from gateway.ports.chain import Answering, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.groups import COMMIT_OFFSETS, LOCK_QUEUES, MAKE_GROUP, RESET_OFFSETS, SEND_BACK, UPDATE_GROUP
from gateway.ports.shard import CREATE_TOPIC
from gateway.ports.shards import ShardsSource
from gateway.tenants.rate import Rate
from gateway.tenants.tenants_file import NAMESPACE_COUNT_MAX, Quotas, TenantsFile
from gateway.tenants.usage import Usage, is_topic_of_group, topics_of_groups, usage_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import CounterFamily, Meters
from store.errors import QuotaExceededError, StoreError
from store.format.topic import namespace_of

SENT_BYTES, SENT_MESSAGES = "sent_bytes_per_second", "sent_messages_per_second"
DELIVERED_MESSAGES = "delivered_messages_per_second"
SENT_RATES = (SENT_MESSAGES, SENT_BYTES)
RATES = (*SENT_RATES, DELIVERED_MESSAGES)
TOPICS, GROUPS, STORED_BYTES, CONNECTIONS = "topics", "groups", "stored_bytes", "connections"
# In the names of topics and groups it ends the namespace. Requests without one name none.
PERCENT = b"%"
# Between two looks at what namespaces have.
LOOK_SECONDS = 5.0
# Of one look; a million queues are listed in some seconds.
LOOK_SECONDS_MAX = 30.0
# A client that has said nothing for so long is gone, as for RocketMQ.
CLIENT_SECONDS_MAX = 120.0
# Of a namespace at this gateway: more are not told apart. Clients choose their ids.
CLIENT_COUNT_MAX = 100_000
# Topics, and groups, that pass between two looks; more are not counted before the next look. Clients invent names, also of
# topics that are not there.
NOTED_COUNT_MAX = 65_536
# Calls that make a group which is absent.
NAMING_GROUPS = frozenset((COMMIT_OFFSETS, LOCK_QUEUES, RESET_OFFSETS, SEND_BACK))
SETTING_GROUPS = frozenset((UPDATE_GROUP, MAKE_GROUP))

_log = structlog.get_logger("reput.gateway")


class Tenant:
    """A namespace with quotas, at this gateway.

    Attributes:
        quotas: those of the file.
        rates: by the name of their quota.
        sent_message_count, sent_bytes, delivered_message_count: what passed.
        has: what it had at the last look, and what passed since; None before the first one.
        unseen: topics and groups with a quota that passed since the last look began.
        sent_bytes_unseen: bytes that passed since the last look that came through began.
        clients: those that name it, and when they last said so (s); the one that was silent for longest first.
        connection_count_max: of this gateway; None: no limit.
    """

    __slots__ = (
        *("clients", "connection_count_max", "delivered_message_count", "has", "quotas", "rates", "sent_bytes"),
        *("sent_bytes_unseen", "sent_message_count", "unseen"),
    )

    def __init__(self) -> None:
        self.quotas = Quotas()
        self.rates: dict[str, Rate] = {}
        self.sent_message_count = self.delivered_message_count = 0
        self.sent_bytes = self.sent_bytes_unseen = 0
        self.has: Usage | None = None
        self.unseen = Usage()
        self.clients: dict[Hashable, float] = {}
        self.connection_count_max: int | None = None

    def keep(self, quotas: Quotas, gateway_count: int, now_seconds: float) -> None:
        """Set its quotas; rates that stay keep their levels."""
        self.quotas = quotas
        limit = quotas.connections
        self.connection_count_max = None if limit is None else -(-limit // gateway_count)
        for name in RATES:
            limit = getattr(quotas, name)
            if limit is None:
                self.rates.pop(name, None)
            elif name in self.rates:
                self.rates[name].change(limit / gateway_count)
            else:
                self.rates[name] = Rate(limit / gateway_count, now_seconds)

    def wait_seconds(self, rate: str, now_seconds: float) -> float:
        """How long until something may pass by a rate; 0: now, also where there is no such rate."""
        return self.rates[rate].wait_seconds(now_seconds) if rate in self.rates else 0.0

    def take(self, rate: str, count: int, now_seconds: float) -> None:
        """So much passes by a rate, if there is one."""
        if rate in self.rates:
            self.rates[rate].take(count, now_seconds)

    def first_beyond(self, quota: str, names: Iterable[str]) -> str | None:
        """The first of these topics or groups that would be one too many; None: it has them, or may have all of them."""
        limit = getattr(self.quotas, quota)
        if self.has is None or limit is None:
            return None
        had = getattr(self.has, quota)
        new = dict.fromkeys(name for name in names if name not in had and not self._is_of_group(quota, name))
        return next(islice(new, max(limit - len(had), 0), None), None)

    def note(self, quota: str, name: str) -> None:
        """It has a topic or a group of this name, or will have it; nothing where no quota asks for them."""
        limit = getattr(self.quotas, quota)
        if limit is None and quota == GROUPS and self.quotas.topics is not None:
            limit = NOTED_COUNT_MAX  # their retry topics are no topics of its own
        if limit is None or self._is_of_group(quota, name):
            return
        if len(getattr(self.unseen, quota)) < min(limit + 1, NOTED_COUNT_MAX):
            for usage in (self.has, self.unseen):
                if usage is not None:
                    getattr(usage, quota).add(name)

    def _is_of_group(self, quota: str, name: str) -> bool:
        """Whether it is a retry or dead-letter topic of a group that it has: it counts with its group."""
        has = self.has
        return quota == TOPICS and has is not None and is_topic_of_group(name, has.groups, has.topics)

    def note_client(self, key: Hashable, now_seconds: float) -> None:
        """A client has named it."""
        self.clients.pop(key, None)  # it comes last
        self.clients[key] = now_seconds
        if len(self.clients) > CLIENT_COUNT_MAX:
            del self.clients[next(iter(self.clients))]

    def forget_silent(self, now_seconds: float) -> None:
        """Forget the clients that have said nothing for too long."""
        while self.clients:
            key, seen_seconds = next(iter(self.clients.items()))
            if seen_seconds >= now_seconds - CLIENT_SECONDS_MAX:
                return
            del self.clients[key]


class Tenants:
    """The namespaces of a tenants file; thread-safe.

    Args:
        file: gives its newest valid version, the same object while it has not changed.
        clock: seconds, rising.
    """

    def __init__(self, file: Callable[[], TenantsFile], clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: TenantsFile | None = None
        self._tenants: dict[str, Tenant] = {}
        # Each namespace of the file has a series for each quota, of which it has been refused something.
        self.refused = CounterFamily(
            "tenant_refused",
            "What was refused to a namespace because of a quota.",
            ("namespace", "quota"),
            series_count_max=NAMESPACE_COUNT_MAX * len(Quotas.model_fields) + 1,
        )

    def check_append(self, request: bytes) -> None:
        """Let an append pass, and count it.

        Args:
            request: the bytes of an AppendMessagesRequest, or of one of a stream; the commit log refuses what cannot be parsed.

        Raises:
            QuotaExceededError: nothing of it passes.
        """
        if PERCENT not in request or not (tenants := self.now()):
            return
        try:
            messages = pb.AppendMessagesRequest.FromString(request).messages
        except DecodeError:
            return
        sent: dict[str, tuple[int, int, dict[str, None]]] = {}
        for message in messages:
            namespace = namespace_of(message.topic)
            if namespace in tenants:
                count, size_bytes, topics = sent.get(namespace, (0, 0, {}))
                topics[message.topic] = None
                sent[namespace] = count + 1, size_bytes + message.ByteSize(), topics
        if not sent:
            return
        with self._lock:
            now_seconds = self._clock()
            for namespace, (_, _, topics) in sent.items():
                tenant = tenants[namespace]
                topic = tenant.first_beyond(TOPICS, topics)
                if topic is not None:
                    # The sender takes its messages out: the others would wait with them as long as the quota stays.
                    index = [message.topic for message in messages].index(topic)
                    raise self._refusal(namespace, tenant, TOPICS, topic=topic, index=index)
                self._check_stored(namespace, tenant)
                for rate in SENT_RATES:
                    if tenant.wait_seconds(rate, now_seconds) > 0:
                        raise self._refusal(namespace, tenant, rate)
            for namespace, (count, size_bytes, topics) in sent.items():
                tenant = tenants[namespace]
                for topic in topics:
                    tenant.note(TOPICS, topic)
                tenant.sent_message_count += count
                tenant.sent_bytes += size_bytes
                tenant.sent_bytes_unseen += size_bytes
                tenant.take(SENT_MESSAGES, count, now_seconds)
                tenant.take(SENT_BYTES, size_bytes, now_seconds)

    def check_topic(self, topic: str) -> None:
        """Let a topic be created, and count it; QuotaExceededError."""
        self._check_name(TOPICS, topic)

    def check_group(self, consumer_group: str) -> None:
        """Let something be done that makes a group if it is absent, and count it; QuotaExceededError."""
        self._check_name(GROUPS, consumer_group)

    def check_client(self, key: Hashable, names: Iterable[str]) -> None:
        """Let a client name topics and groups, and count it for their namespaces until it ends or is silent.

        Args:
            key: of the client.
            names: of topics and groups, also of none.

        Raises:
            QuotaExceededError: it is counted for none of them.
        """
        tenants = self.now()
        namespaces = {namespace_of(name) for name in names} & tenants.keys()
        with self._lock:
            now_seconds = self._clock()
            for namespace in namespaces:
                tenant = tenants[namespace]
                tenant.forget_silent(now_seconds)
                limit = tenant.connection_count_max
                if limit is not None and key not in tenant.clients and len(tenant.clients) >= limit:
                    raise self._refusal(namespace, tenant, CONNECTIONS)
            for namespace, tenant in tenants.items():
                if namespace in namespaces or key in tenant.clients:
                    tenant.note_client(key, now_seconds)

    def end_client(self, key: Hashable) -> None:
        """A client has ended."""
        with self._lock:
            for tenant in self._tenants.values():
                tenant.clients.pop(key, None)

    def connection_count(self, namespace: str) -> int:
        """Clients that name a namespace at this gateway."""
        tenant = self.now().get(namespace)
        if tenant is None:
            return 0
        with self._lock:
            tenant.forget_silent(self._clock())
            return len(tenant.clients)

    def delivery_wait_seconds(self, topic: str) -> float:
        """How long until messages of a topic may be handed out; 0: now."""
        tenant = self.now().get(namespace_of(topic))
        if tenant is None:
            return 0.0
        with self._lock:
            return tenant.wait_seconds(DELIVERED_MESSAGES, self._clock())

    def delivered(self, topic: str, message_count: int) -> None:
        """Messages of a topic were handed out."""
        tenant = self.now().get(namespace_of(topic))
        if tenant is not None:
            with self._lock:
                tenant.delivered_message_count += message_count
                tenant.take(DELIVERED_MESSAGES, message_count, self._clock())

    def delivery_refusal(self, topic: str) -> QuotaExceededError:
        """The refusal of messages of a topic that would have to wait too long."""
        namespace = namespace_of(topic)
        return self._refusal(namespace, self.now().get(namespace) or Tenant(), DELIVERED_MESSAGES)

    def link(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """The link of a shard's chain; see Concern.QUOTAS."""
        if method is CREATE_TOPIC:
            self.check_topic(request.topic)
        elif method in NAMING_GROUPS:
            self.check_group(request.consumer_group)
        elif method in SETTING_GROUPS:
            self.check_group(request.settings.consumer_group)
        return below(method, request, deadline)

    def follow(self, shards: ShardsSource, stopping: threading.Event) -> None:
        """Look at what the namespaces have, until the event is set; in a thread of its own."""

        def run() -> None:
            while True:
                try:
                    self.look(shards)
                except StoreError as error:  # the last numbers stay in force
                    _log.warning("tenants.look_failed", error=error.message)
                except Exception:  # a bug; quotas must not be kept by old numbers for ever
                    _log.exception("tenants.look_failed")
                if stopping.wait(LOOK_SECONDS):
                    return

        threading.Thread(target=run, name="gateway-tenants", daemon=True).start()

    def look(self, shards: ShardsSource) -> None:
        """Look at what the namespaces have, if a quota needs it; StoreError when a shard does not answer."""
        tenants = self.now()
        if not any(tenant.quotas.need_usage for tenant in tenants.values()):
            return
        with self._lock:
            sent_bytes = {namespace: tenant.sent_bytes_unseen for namespace, tenant in tenants.items()}
            for tenant in tenants.values():
                tenant.unseen = Usage()
        found = usage_of(shards.now(), Deadline.after(LOOK_SECONDS_MAX))
        with self._lock:
            for namespace, tenant in tenants.items():
                tenant.sent_bytes_unseen -= sent_bytes[namespace]  # now: a look that fails has not seen them
                has = found.get(namespace) or Usage()
                has.groups |= tenant.unseen.groups
                has.topics |= tenant.unseen.topics
                has.topics -= topics_of_groups(has.topics, has.groups)
                tenant.has = has

    def now(self) -> Mapping[str, Tenant]:
        """The namespaces of the newest version of the file, by name."""
        file = self._file()
        if file is not self._kept:
            with self._lock:
                now_seconds = self._clock()
                # A new mapping, because others read the old one without the lock.
                tenants = {name: self._tenants.get(name) or Tenant() for name in file.namespaces}
                for name, quotas in file.namespaces.items():
                    tenants[name].keep(quotas, file.gateway_count, now_seconds)
                self._tenants, self._kept = tenants, file
        return self._tenants

    def refused_count(self, namespace: str) -> int:
        """What was refused to a namespace."""
        return sum(counter.read() for labels, counter in self.refused.items() if labels[0] == namespace)

    def show(self, meters: Meters) -> None:
        """Put what passed, what was refused and what namespaces have on the page of metrics."""
        meters.counters.append(self.refused)

        def total(name: str, text: str, read: Callable[[Tenant], float]) -> None:
            meters.gauge(name, text, lambda: self._numbers(read), ("namespace",), is_total=True)

        def number(name: str, text: str, read: Callable[[Usage], float]) -> None:
            meters.gauge(name, text, lambda: self._numbers_had(read), ("namespace",))

        total(
            "reput_tenant_sent_messages_total", "Messages that passed the quotas.", lambda one: one.sent_message_count
        )
        total("reput_tenant_sent_bytes_total", "Bytes of messages that passed the quotas.", lambda one: one.sent_bytes)
        total(
            "reput_tenant_delivered_messages_total",
            "Messages of a namespace that were handed out.",
            lambda one: one.delivered_message_count,
        )
        meters.gauge(
            "reput_tenant_connections",
            "Clients that name a namespace.",
            lambda: {(name,): float(self.connection_count(name)) for name in self.now()},
            ("namespace",),
        )
        number("reput_tenant_topics", "Topics of a namespace.", lambda has: len(has.topics))
        number("reput_tenant_groups", "Consumer groups of a namespace.", lambda has: len(has.groups))
        number(
            "reput_tenant_stored_bytes", "Bytes of records of a namespace in the logs.", lambda has: has.stored_bytes
        )

    def _numbers(self, read: Callable[[Tenant], float]) -> Mapping[tuple[str, ...], float]:
        return {(name,): float(read(tenant)) for name, tenant in self.now().items()}

    def _numbers_had(self, read: Callable[[Usage], float]) -> Mapping[tuple[str, ...], float]:
        with self._lock:
            had = {name: tenant.has for name, tenant in self._tenants.items()}
            return {(name,): float(read(has)) for name, has in had.items() if has is not None}

    def _check_name(self, quota: str, name: str) -> None:
        namespace = namespace_of(name)
        tenant = self.now().get(namespace)
        if tenant is not None:
            with self._lock:
                self._check_room(namespace, tenant, quota, name)
                tenant.note(quota, name)

    # With the lock held.

    def _check_room(self, namespace: str, tenant: Tenant, quota: str, name: str) -> None:
        if tenant.first_beyond(quota, [name]) is not None:
            raise self._refusal(namespace, tenant, quota)

    def _check_stored(self, namespace: str, tenant: Tenant) -> None:
        limit, has = tenant.quotas.stored_bytes, tenant.has
        if limit is not None and has is not None and has.stored_bytes + tenant.sent_bytes_unseen >= limit:
            raise self._refusal(namespace, tenant, STORED_BYTES)

    def _refusal(self, namespace: str, tenant: Tenant, quota: str, **metadata: object) -> QuotaExceededError:
        self.refused.of(namespace, quota).add()
        limit = getattr(tenant.quotas, quota)
        return QuotaExceededError(
            f"the namespace {namespace} has used up its quota {quota} = {limit}: use less, or have the quota raised in the "
            "tenants file of the gateway",
            namespace=namespace,
            quota=quota,
            quotaMax=limit,
            **metadata,
        )
