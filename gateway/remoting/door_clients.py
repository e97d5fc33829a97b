"""DoorClients: what the heartbeats of each connection have said: client, groups, subscriptions.

RocketMQ's ConsumerManager and ProducerManager, for the connections of this door only. The consumer service knows the
members of each group (ADR 0127); a door needs this to filter pulls, to ask producers, and to tell members of changes.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.ports.delivery import TAG
from services.rocketmq.remoting_server import Connection

# Groups and subscriptions of one connection; a heartbeat that names more is refused.
GROUP_COUNT_MAX = 1_024
SUBSCRIPTION_COUNT_MAX = 1_024
# A client without a heartbeat for so long is gone although its connection is there (`CHANNEL_EXPIRED_TIMEOUT`).
BEAT_SECONDS_MAX = 120.0


class Allowed(Protocol):
    """What a client that has signed in may do; an Access."""

    @property
    def may_write_some(self) -> bool:
        """Whether it may send to any topic at all."""

    def may_write(self, topic: str, /) -> bool:
        """Whether it may send to a topic."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic that a member wants.

    Attributes:
        topic: its name.
        expression: `a || b`, `*`, or SQL92.
        expression_type: TAG or SQL92.
        version: rises with each change; of the client's clock.
    """

    topic: str
    expression: str = "*"
    expression_type: str = TAG
    version: int = 0


@dataclass(frozen=True, slots=True)
class Membership:
    """A consumer group of a client.

    Attributes:
        group: its name.
        consume_type: CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull) or CONSUME_POP.
        message_model: CLUSTERING or BROADCASTING.
        from_where: CONSUME_FROM_LAST_OFFSET and others.
        subscriptions: by topic.
    """

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)


@dataclass(slots=True)
class DoorClient:
    """A client with a connection.

    Attributes:
        connection: the connection.
        client_id: its id, as the client chose it.
        language: of its library.
        version: MQVersion's ordinal of its library.
        producer_groups: that it sends for.
        memberships: its consumer groups, by name.
        access: the rights of its last heartbeat; None: clients do not sign in.
        caller_name: in whose share its members count; empty: that of its connection.
    """

    connection: Connection
    client_id: str
    language: str
    version: int
    producer_groups: frozenset[str] = frozenset()
    memberships: Mapping[str, Membership] = field(default_factory=dict)
    access: Allowed | None = None
    caller_name: str = ""


class DoorClients:
    """The clients of a door; thread-safe.

    Args:
        clock: seconds, for the ages of heartbeats.

    Attributes:
        on_end: called with each client whose connection has ended, in the thread of the server.
        on_close: called with each connection that has ended, also without a client.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beat_at: dict[Connection, float] = {}
        self._by_connection: dict[Connection, DoorClient] = {}
        self._by_group: dict[str, dict[Connection, None]] = {}
        self._by_producer_group: dict[str, dict[Connection, None]] = {}
        self._by_client_id: dict[str, dict[Connection, None]] = {}
        self.on_end: list[Callable[[DoorClient], object]] = []
        self.on_close: list[Callable[[Connection], object]] = []

    def of(self, connection: Connection) -> DoorClient | None:
        """The client of a connection; None before its first heartbeat."""
        return self._by_connection.get(connection)

    def all(self) -> Sequence[DoorClient]:
        """The clients of all connections; of these and of those below without the ones that are silent."""
        with self._lock:
            return self._alive(self._by_connection)

    def members(self, group: str) -> Sequence[DoorClient]:
        """Those that consume for a group."""
        return self._found(self._by_group, group)

    def producers(self, group: str) -> Sequence[DoorClient]:
        """Those that send for a group."""
        return self._found(self._by_producer_group, group)

    def named(self, client_id: str) -> Sequence[DoorClient]:
        """Those with an id; more than one while a client connects again."""
        return self._found(self._by_client_id, client_id)

    def settle(self, client: DoorClient) -> bool:
        """This is what a connection's client says of itself now; False: the connection has ended."""
        with self._lock:
            self._remove(client.connection)
            if client.connection.is_closed:  # `end` has been called, or will be
                return False
            self._by_connection[client.connection] = client
            self._beat_at[client.connection] = self._clock()
            for table, names in self._tables(client):
                for name in names:
                    table.setdefault(name, {})[client.connection] = None
        return True

    def take_back(self, connection: Connection, before: DoorClient | None) -> None:
        """What a connection's client said last was refused; `before`: what it had said before that."""
        if before is not None:
            self.settle(before)
            return
        with self._lock:
            self._remove(connection)

    def end(self, connection: Connection) -> None:
        """A connection has ended."""
        with self._lock:
            client = self._remove(connection)
        for closed in self.on_close:
            closed(connection)
        if client is not None:
            for ended in self.on_end:
                ended(client)

    def _tables(self, client: DoorClient) -> "tuple[tuple[dict[str, dict[Connection, None]], Iterable[str]], ...]":
        return (
            (self._by_group, client.memberships),
            (self._by_producer_group, client.producer_groups),
            (self._by_client_id, (client.client_id,)),
        )

    def _found(self, table: Mapping[str, Mapping[Connection, None]], name: str) -> Sequence[DoorClient]:
        with self._lock:
            return self._alive(table.get(name, ()))

    def _alive(self, connections: Iterable[Connection]) -> list[DoorClient]:
        since = self._clock() - BEAT_SECONDS_MAX
        return [self._by_connection[each] for each in connections if self._beat_at[each] >= since]

    def _remove(self, connection: Connection) -> DoorClient | None:
        client = self._by_connection.pop(connection, None)
        self._beat_at.pop(connection, None)
        if client is not None:
            for table, names in self._tables(client):
                for name in names:
                    connections = table[name]
                    connections.pop(connection, None)
                    if not connections:
                        del table[name]
        return client
