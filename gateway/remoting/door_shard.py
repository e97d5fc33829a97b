"""DoorShard: what the handlers of a door have of its shard, which is the same that the gRPC doors have of all shards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gateway.appends.forwarder import AppendForwarder
from gateway.delivery.waiting_room import WaitingRoom
from gateway.groups.asked_members import AskedMembers
from gateway.groups.asking import ask_groups
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Delivering, DeliveringSource
from gateway.ports.groups import GET_FIGURES, GET_GROUP
from gateway.ports.shard import CREATE_TOPIC, STATUSES, Shard
from gateway.ports.shards import Shards, ShardsSource
from gateway.queries.freshness import FreshnessWaits
from gateway.remoting.builder_waits import Arrival, BuilderWaits
from gateway.remoting.door import Answer, Ask, Handler
from gateway.remoting.door_clients import DoorClient, DoorClients
from gateway.remoting.passed_locks import PassedLocks
from gateway.remoting.position_order import PositionOrder
from gateway.remoting.topic_copy import Topic, TopicCopy
from gateway.waiting.endings import Endings
from gateway.waiting.producers import Producers
from reput.commitlog.v1.commitlog_service_pb2 import CreateTopicRequest
from reput.consumer.v1.consumer_service_pb2 import (
    Client,
    Figure,
    FigureKey,
    FigureSpan,
    GetFiguresRequest,
    GetGroupRequest,
    GetGroupResponse,
    WatchArrivalsResponse,
)
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.remoting_server import Connection
from services.settings.certificates import client_context
from store.errors import GroupNotFoundError
from store.format.topic import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    import ssl

    from gateway.tenants.tenants import Tenants

LogStatus = gateway_pb.GetStatusResponse.ServiceStatus

# Of a call to a service of the shard; clients wait 3 to 15 s.
CALL_SECONDS = 3.0
OWNED_QUEUE_COUNT = 1  # of retry and dead-letter topics: RocketMQ's retryQueueNums


@dataclass(frozen=True, slots=True)
class DoorShard:
    """See the top of this file.

    Attributes:
        broker_name: the shard.
        cluster_name: the installation.
        listens_at: where the door listens.
        source: all shards, as the caller of the thread may see them.
        whole: all shards, without the limits of a caller.
        deliverings: their consumer services.
        endings: passes verdicts to their schedule services.
        producers: those that can be asked for verdicts.
        forwarder: sends appends.
        room: where pulls wait.
        clients: what the connections have said.
        topics: those of the shard.
        waits: make queries wait for what they should find.
        builder_waits: likewise requests that a builder's delay would have refused; without a thread.
        on_arrivals: called with each shard's name and arrivals.
        on_close: called when the door is closed.
        on_beat: called with each client whose heartbeat was taken, in a thread that may wait.
        on_turn_ended: called by the loop of the connections when all requests that have come were begun.
        takers: called by it with a connection, a frame that is not decoded, and what makes the request of it; each returns
            what begins the request, or None.
        locks: of queues that this door has passed on.
        position_order: has the newest position of a group stored last.
        asked_members: asks the members over other doors, and those of this one for others.
        tenants: the namespaces with quotas; None: there are none.
        nameserver_tls: gives the context of a TLS connection to a name server; OSError when its files cannot be read.
    """

    broker_name: str
    cluster_name: str
    listens_at: str
    source: ShardsSource
    whole: ShardsSource
    deliverings: DeliveringSource
    endings: Endings
    producers: Producers
    forwarder: AppendForwarder
    room: WaitingRoom
    clients: DoorClients
    topics: TopicCopy
    waits: FreshnessWaits
    builder_waits: BuilderWaits
    on_arrivals: list[Callable[[str, WatchArrivalsResponse], object]] = field(default_factory=list)
    on_close: list[Callable[[], object]] = field(default_factory=list)
    on_beat: list[Callable[[DoorClient], object]] = field(default_factory=list)
    on_turn_ended: list[Callable[[], object]] = field(default_factory=list)
    takers: list[Callable[[Connection, bytes, Callable[[Connection, bytes], Ask]], Callable[[], object] | None]] = (
        field(default_factory=list)
    )
    locks: PassedLocks = field(default_factory=PassedLocks)
    position_order: PositionOrder = field(default_factory=PositionOrder)
    asked_members: AskedMembers = field(default_factory=AskedMembers)
    tenants: "Tenants | None" = None
    nameserver_tls: "Callable[[], ssl.SSLContext]" = client_context

    @property
    def shard(self) -> Shard:
        """The shard as the caller of the thread may see it; BrokerNotFoundError while it is not known."""
        return self.source.now().named(self.broker_name)

    @property
    def whole_shard(self) -> Shard:
        """The shard without the limits of a caller, for what the door does by itself; likewise."""
        return self.whole.now().named(self.broker_name)

    @property
    def shards(self) -> Shards:
        """The shard as the only one: for queries that ask all shards."""
        now = self.source.now()
        return Shards([now.named(self.broker_name)], now.fan_out, is_limited=now.is_limited)

    @property
    def delivering(self) -> Delivering:
        """Its consumer service, for the frequent calls; ServiceUnavailableError when it has none."""
        return self.deliverings.named(self.broker_name)

    def when_built(self, answer: Callable[[Ask, Arrival], Answer | None]) -> Handler:
        """As `in_thread`, for an answer that may need what a builder has not built yet; see `BuilderWaits`."""
        return lambda ask: self.work_when_built(ask, partial(answer, ask))

    def once_built(self, answer: "Callable[[DoorShard, Ask], Answer | None]") -> Handler:
        """As `when_built`, for an answer that itself says that a builder is behind."""
        return self.when_built(lambda ask, arrival: answer(self, ask))

    def work_when_built(self, ask: Ask, work: Callable[[Arrival], Answer | None]) -> None:
        """As `Ask.work`, likewise."""
        self.builder_waits.work(ask, lambda: self.whole_shard, work)

    def address(self, log: LogStatus | None = None) -> str:
        """Where clients are told the door is; where the door listens, if the commit log does not say; waits.

        Args:
            log: the commit log's status, if it is known.
        """
        if log is None:
            statuses = self.whole_shard.call(STATUSES, None, Deadline.after(CALL_SECONDS))
            log = next(each.status for each in statuses if each.status.service == "commitlog")
        return log.broker_address or self.listens_at

    def create_topic(self, name: str, queue_count: int = OWNED_QUEUE_COUNT) -> Topic:
        """Create a topic to read and write, and have it in the copy; waits. TopicExistsError, StoreError.

        The caller has checked who asks for it.
        """
        request = CreateTopicRequest(topic=name, queue_count=queue_count, perm=PERM_READ | PERM_WRITE)
        made = self.whole_shard.call(CREATE_TOPIC, request, Deadline.after(CALL_SECONDS)).topic
        self.topics.look()
        return made

    def members_of(self, consumer_group: str) -> Sequence[Client]:
        """The members of a group, of all doors; none of a group that is not known. ServiceUnavailableError likewise.

        They have to be the same for each of them, so none is left out; the caller has checked the group.
        """
        return self._group(consumer_group).clients

    def figures(self, keys: Sequence[FigureKey]) -> Sequence[Figure]:
        """What the shard's consumer service has counted, in the order of the keys; waits. ServiceUnavailableError.

        The caller has checked the client's rights.
        """
        if not keys:
            return ()
        request = GetFiguresRequest(keys=keys)
        return ask_groups(self.whole_shard, GET_FIGURES, request, Deadline.after(CALL_SECONDS)).figures

    def has_locks(self, consumer_group: str) -> bool:
        """Whether a member of a group has locked a queue, over any door; ServiceUnavailableError."""
        return self.locks.has_some(consumer_group) or self._group(consumer_group).has_locks

    def _group(self, consumer_group: str) -> GetGroupResponse:
        request = GetGroupRequest(consumer_group=consumer_group, without_queues=True)
        try:
            return ask_groups(self.whole_shard, GET_GROUP, request, Deadline.after(CALL_SECONDS))
        except GroupNotFoundError:
            return GetGroupResponse()


def per_second(span: FigureSpan, count: int) -> float:
    """The rate of what was counted in a span; 0 for none."""
    return count * 1_000 / span.duration_millis if span.duration_millis else 0.0
