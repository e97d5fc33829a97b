"""RouteTable: which brokers there are, and which queues of which topics they have. Pure; all in memory.

A broker registers every 30 s, and tells its topics each time. It is gone when it says so, when its connection ends, or when
it has not registered for 120 s; its topics go with its last address. Routes name every address of a broker, by id; 0 is the
master.

It answers as RocketMQ's name server (`RouteInfoManager`, 5.3.3 and 5.5.0) with two differences:

- A registration that differs is taken, whatever its version says. RocketMQ passes over topics that it knows when the version is
  the one it has, and so loses one of two changes that were sent with one version.
- A broker may register one topic first. RocketMQ refuses it, because such a registration is no whole one, and keeps a broker
  without an address, which breaks `mqadmin clusterList`. Here the broker is known, and its version is not: it is asked for a
  whole registration (QUERY_DATA_VERSION says that something has changed).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from services.rocketmq.registration import QueueData, Registration
from store.errors import ResourceBusyError
from store.format.topic import DataVersion

MASTER_ID = 0
PERM_READ, PERM_WRITE = 4, 2
UNIT, UNIT_SUBSCRIPTION = 0x1, 0x2  # bits of topicSysFlag
# What a table of an attacked name server may grow to.
BROKER_COUNT_MAX = 10_000
CLUSTER_COUNT_MAX = 1_000
QUEUE_DATA_COUNT_MAX = 5_000_000


@dataclass(slots=True)
class Broker:
    """A broker by its name.

    Attributes:
        name: its name.
        cluster: the cluster that it was first registered in.
        acts_for_master: see Registration.
        addresses: by id.
    """

    name: str
    cluster: str
    acts_for_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class LiveBroker:
    """A broker at an address.

    Attributes:
        name, broker_id, cluster: as it was last registered.
        version: of its topics; None: not known.
        ha_address: where its slaves find it.
        owner: the connection that it came over.
        seen_at: when it last registered (seconds of the clock).
        timeout_seconds: after so long it is gone.
        filter_servers: addresses.
    """

    name: str
    broker_id: int
    cluster: str
    version: DataVersion | None
    ha_address: str
    owner: object
    seen_at: float
    timeout_seconds: float
    filter_servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic is.

    Attributes:
        queues: by broker name.
        brokers: those that have queues of it, and an address.
        filter_servers: by address of a broker.
    """

    queues: Mapping[str, QueueData]
    brokers: tuple[Broker, ...]
    filter_servers: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """What a slave is told at its registration; empty when there is no master."""

    address: str = ""
    ha_address: str = ""


class RouteTable:
    """See the top; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, LiveBroker] = {}
        # What a broker registered, by its name and topic; what routes say, which a command may have changed, by topic and name.
        self._registered: dict[str, dict[str, QueueData]] = {}
        self._served: dict[str, dict[str, QueueData]] = {}
        self._queue_data_count = 0

    @property
    def broker_count(self) -> int:
        """Addresses of brokers."""
        return len(self._live)

    @property
    def topic_count(self) -> int:
        """Topics that have a route."""
        return len(self._served)

    # --- brokers come and go

    def is_known(self, address: str) -> bool:
        """Whether a broker is registered at an address."""
        return address in self._live

    def register(self, registration: Registration, owner: object) -> MasterAddress:
        """A broker says that it is there.

        Raises:
            ResourceBusyError: the table is full; nothing was changed.
        """
        with self._lock:
            self._check_room(registration)
            # Every address of a broker is a live one under its name: what an address was before ends here.
            before = self._live.get(registration.address)
            if before is not None and before.name != registration.name:
                self.unregister(before.name, registration.address)
                before = None
            known = self._brokers.get(registration.name)
            former = known.addresses.get(registration.broker_id) if known else None
            if known and former is not None and self._is_older(registration, former):
                self.unregister(registration.name, registration.address)
                return MasterAddress()
            if known and former not in (None, registration.address):
                self._live.pop(former, None)
            broker = known or Broker(registration.name, registration.cluster)
            self._brokers[registration.name] = broker
            self._clusters.setdefault(registration.cluster, set()).add(registration.name)
            broker.acts_for_master = bool(registration.acts_for_master)
            # A broker that changed its id has one address still.
            for broker_id in [one for one, address in broker.addresses.items() if address == registration.address]:
                del broker.addresses[broker_id]
            broker.addresses[registration.broker_id] = registration.address
            version: DataVersion | None = registration.version
            if before is None and len(registration.topics) == 1:
                version = None
            self._live[registration.address] = LiveBroker(
                registration.name,
                registration.broker_id,
                registration.cluster,
                version,
                registration.ha_address,
                owner,
                self._clock(),
                registration.timeout_millis / 1000,
                registration.filter_servers
                if registration.filter_servers is not None
                else (before.filter_servers if before else ()),
            )
            has_topics = registration.broker_id == MASTER_ID
            if not has_topics and registration.acts_for_master is not None:
                # From 5.0 on the first of the slaves tells the topics while no master is there.
                has_topics = registration.broker_id == min(broker.addresses)
            if has_topics:
                self._take_topics(registration, before.version if before else None)
            if registration.broker_id == MASTER_ID:
                return MasterAddress()
            if has_topics and registration.acts_for_master:
                self.set_write_perm(registration.name, writable=False)
            master = broker.addresses.get(MASTER_ID, "")
            live = self._live.get(master)
            return MasterAddress(master, live.ha_address) if live else MasterAddress()

    def _is_older(self, registration: Registration, former: str) -> bool:
        """Whether another broker of that name and id has been the master of a later epoch."""
        live = self._live.get(former)
        if former == registration.address or live is None or live.version is None:
            return False
        return registration.version.state_version < live.version.state_version

    def _take_topics(self, registration: Registration, version: DataVersion | None) -> None:
        is_same_version = version == registration.version
        registered = self._registered.setdefault(registration.name, {})
        for topic, queues in registration.topics.items():
            before = registered.get(topic)
            if is_same_version and before == queues:
                continue  # what a command changed stays until the broker says something else
            if before is None:
                self._queue_data_count += 1
            registered[topic] = queues
            self._served.setdefault(topic, {})[registration.name] = queues

    def _check_room(self, registration: Registration) -> None:
        clusters = self._clusters
        if registration.cluster not in clusters and len(clusters) >= CLUSTER_COUNT_MAX:
            raise ResourceBusyError(f"{CLUSTER_COUNT_MAX} clusters are registered, and no more are taken")
        is_new = registration.address not in self._live
        if is_new and len(self._live) >= BROKER_COUNT_MAX:
            raise ResourceBusyError(f"{BROKER_COUNT_MAX} brokers are registered, and no more are taken")
        if self._queue_data_count + len(registration.topics) > QUEUE_DATA_COUNT_MAX:
            new = len(registration.topics.keys() - self._registered.get(registration.name, {}).keys())
            if self._queue_data_count + new > QUEUE_DATA_COUNT_MAX:
                raise ResourceBusyError(
                    f"brokers have registered {self._queue_data_count} topics, at most {QUEUE_DATA_COUNT_MAX} are taken"
                )

    def unregister(self, name: str, address: str) -> None:
        """A broker says that it goes; nothing happens when it is not known."""
        with self._lock:
            live = self._live.get(address)
            if live is not None and live.name == name:
                del self._live[address]
            broker = self._brokers.get(name)
            if broker is None:
                return
            for one in [one for one, its_address in broker.addresses.items() if its_address == address]:
                del broker.addresses[one]
            if not broker.addresses:
                self._forget(broker)
            elif broker.acts_for_master and MASTER_ID not in broker.addresses:
                self.set_write_perm(name, writable=False)  # a slave stands in, and takes no messages

    def _forget(self, broker: Broker) -> None:
        del self._brokers[broker.name]
        for cluster, names in list(self._clusters.items()):
            names.discard(broker.name)
            if not names:
                del self._clusters[cluster]
        for topic in list(self._registered.get(broker.name, ())):
            self._drop(topic, broker.name)
        self._registered.pop(broker.name, None)

    def _drop(self, topic: str, name: str) -> None:
        """A broker has a topic no longer."""
        del self._registered[name][topic], self._served[topic][name]
        if not self._served[topic]:
            del self._served[topic]
        self._queue_data_count -= 1

    def end_owner(self, owner: object) -> list[str]:
        """A connection has ended: the brokers that came over it are gone; their addresses."""
        with self._lock:
            addresses = [address for address, live in self._live.items() if live.owner is owner]
            for address in addresses:
                live = self._live[address]
                self.unregister(live.name, address)
            return addresses

    def expire(self) -> list[tuple[str, object]]:
        """Brokers that have not registered in time are gone; their addresses and connections."""
        with self._lock:
            now = self._clock()
            late = [
                (address, live) for address, live in self._live.items() if now - live.seen_at > live.timeout_seconds
            ]
            for address, live in late:
                self.unregister(live.name, address)
            return [(address, live.owner) for address, live in late]

    def note_heartbeat(self, address: str) -> None:
        """A broker says that it lives, without its topics."""
        with self._lock:
            live = self._live.get(address)
            if live is not None:
                live.seen_at = self._clock()

    def check_version(self, address: str) -> DataVersion | None:
        """The version of a broker's topics that is known; a broker that asks has been seen now."""
        with self._lock:
            live = self._live.get(address)
            if live is None:
                return None
            live.seen_at = self._clock()
            return live.version

    # --- what is asked

    def route(self, topic: str) -> Route | None:
        """Where a topic is; None when no broker with an address has it."""
        with self._lock:
            queues = self._served.get(topic)
            if not queues:
                return None
            brokers = tuple(_shown(self._brokers[name]) for name in queues)
            addresses = [address for broker in brokers for address in broker.addresses.values()]
            filters = {address: self._live[address].filter_servers for address in addresses}
            return Route(dict(queues), brokers, {address: servers for address, servers in filters.items() if servers})

    def brokers(self) -> list[Broker]:
        """All brokers, by name."""
        with self._lock:
            return [_shown(broker) for _, broker in sorted(self._brokers.items())]

    def broker(self, name: str) -> Broker | None:
        """One broker; None when it is not known."""
        with self._lock:
            broker = self._brokers.get(name)
            return None if broker is None else _shown(broker)

    def live(self) -> dict[str, LiveBroker]:
        """What was last said of each address."""
        with self._lock:
            return {address: replace(live) for address, live in sorted(self._live.items())}

    def clusters(self) -> dict[str, list[str]]:
        """The names of brokers by cluster."""
        with self._lock:
            return {cluster: sorted(names) for cluster, names in sorted(self._clusters.items())}

    def topics(self) -> list[str]:
        """All topics, by name."""
        with self._lock:
            return sorted(self._served)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics that a broker of a cluster has."""
        with self._lock:
            names = self._clusters.get(cluster, set())
            return sorted(topic for topic, by_broker in self._served.items() if not names.isdisjoint(by_broker))

    def topics_by_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """The topics whose topicSysFlag matches at a broker."""
        with self._lock:
            return sorted(
                topic
                for topic, by_broker in self._served.items()
                if any(matches(queues.sys_flag) for queues in by_broker.values())
            )

    # --- commands

    def set_write_perm(self, name: str, *, writable: bool) -> int:
        """Takes the right to write from all topics of a broker, or gives it back; for how many.

        The broker's next registration with another version, or with other queues of a topic, ends it.
        """
        with self._lock:
            topics = self._registered.get(name, {})
            for topic in topics:
                queues = self._served[topic][name]
                perm = PERM_READ | PERM_WRITE if writable else queues.perm & ~PERM_WRITE
                self._served[topic][name] = replace(queues, perm=perm)
            return len(topics)

    def delete_topic(self, topic: str, cluster: str = "") -> None:
        """Forgets a topic, of one cluster or of all, until a broker registers it again."""
        with self._lock:
            served = self._served.get(topic, {})
            for name in self._clusters.get(cluster, set()) & served.keys() if cluster else set(served):
                self._drop(topic, name)


def _shown(broker: Broker) -> Broker:
    """A copy that the table does not change, its addresses by id."""
    return replace(broker, addresses=dict(sorted(broker.addresses.items())))
