"""A shard with replicas as one query reads it: the leader and replicas behind one another.

    lists of queues and topics        the leader, then a replica
    units, keys, positions            as the caller chose
    records                           likewise; old ones a replica, then the leader
    end of the log                    the leader only

A record, a unit and a key have the same offsets on all replicas, and no replica shows anything behind the confirm offset. So
the answers of several may be mixed, and each says by its progress what it may lack. What a replica does not have or does not
answer is asked of the next one; the answer of the leader counts. A leader that does not answer is followed by replicas; then
the end is not known either, and the answer is PARTIAL.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    IS_WRITTEN_AT,
    KEYS_PROGRESS,
    LIST_QUEUES,
    LIST_TOPICS,
    LOG_END,
    QUEUES_PROGRESS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STORE_FACTS,
    Shard,
)
from gateway.shards.facts.with_facts import with_facts
from gateway.shards.replica_choice import Choice, ReadFrom, ReplicaFacts, Staleness, is_near, staleness_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.observing.meters import CounterFamily
from store.errors import (
    DeadlineExceededError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordNotFoundError,
    ResourceBusyError,
    ServiceUnavailableError,
    StoreError,
    StoreRecoveringError,
    TopicNotFoundError,
)

# A replica that is well answers in milliseconds, from a cold disk within a second.
FIRST_SECONDS_MAX = 1.0
AWAY = (ServiceUnavailableError, DeadlineExceededError, StoreRecoveringError, ResourceBusyError)
NOT_FOUND = (TopicNotFoundError, QueueNotFoundError, RecordNotFoundError, OffsetOutOfRangeError)
# A process that adds it to its meters shows it.
REPLICA_READS = CounterFamily(
    "gateway_replica_reads", "Calls of queries and pulls to replicas that do not lead.", ("outcome",)
)
ANSWERED, FAILED = REPLICA_READS.of("answered"), REPLICA_READS.of("failed")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Source:
    """A replica of the shard; the leader has no name here, and no `facts`."""

    replica: str
    shard: Shard
    facts: ReplicaFacts | None = None


class ShardReading:
    """How one query reads one shard; thread-safe.

    Args:
        leader: the shard as it is without a choice: the leader, or the last one.
        replicas: those that may answer, the best first; at least one.
        choice: the caller's.
        is_led: whether there is a leader.
        old_end: records before it (bytes) are read from a replica.
        has_tokens: the query waits for freshness tokens, which says nothing about the end of the log.
        lists: the query only lists topics and queues: how far they are built is asked of whoever gives them.
        clock: that of the facts, seconds.
    """

    def __init__(
        self,
        leader: Shard,
        replicas: Sequence[Source],
        choice: Choice,
        *,
        is_led: bool,
        old_end: int,
        has_tokens: bool = False,
        lists: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_led = is_led
        self._has_tokens = has_tokens
        self._old_end = old_end
        self._arrived_at = clock()
        self._away: set[str] = set()
        self._used: dict[str, ReplicaFacts] = {}
        self._listed_offsets: list[int] = []
        self._leader = leader
        own = Source("", leader)
        self._broker_name = leader.broker_name
        self.lists = [own, *replicas] if is_led else list(replicas)
        self.near = self.lists
        first = replicas[0].facts
        if is_led and first is not None and is_near(first, choice, self._arrived_at):
            self.near = [replicas[0], own, *replicas[1:]]
        # Who waits for a token wants the newest, which the leader has first.
        is_near_first = choice.read_from is ReadFrom.REPLICA and not has_tokens and not lists
        self.derived = self.near if is_near_first else self.lists
        read = leader.with_link(Concern.REPLICAS, self.link)
        self.shard = with_facts(read)

    def link(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """The link of the query's calls; commands go to the leader."""

        def call(source: Source, until: Deadline) -> Any:
            answering = below if source.facts is None else source.shard.call
            if method is LIST_QUEUES and source.facts is not None:
                # The answer has no progress, so that it would hide what the replica lacks.
                built = answering(QUEUES_PROGRESS, queue_pb.GetStatusRequest(past_offset=0), until)
                self._listed_offsets.append(built.progress.next_offset)
            return answering(method, request, until)

        if method is GET_RECORD:
            return self.ask(self._sources([request.commit_log_offset]), call, deadline, is_exact=True)
        if method is GET_RECORDS:
            return self._records(request, call, deadline)
        if method in (LIST_TOPICS, LIST_QUEUES, STORE_FACTS):
            # A replica knows what was deleted as its leader does.
            return self.ask(self.lists, call, deadline, is_exact=method is STORE_FACTS)
        if method in (GET_UNITS, SEARCH_OFFSET, SEARCH_KEY):
            return self.ask(self.derived, call, deadline)
        if method in (QUEUES_PROGRESS, KEYS_PROGRESS):
            return self.ask(self.derived, call, deadline, request.wait_millis / 1000)
        if method is IS_WRITTEN_AT:
            return None  # the files of a leader that is stopped say nothing about the next one
        if method is LOG_END:
            offset = None if self.has_no_leader else below(method, request, deadline)
            if offset is None:
                raise self.unknown_end()
            return offset
        return below(method, request, deadline)

    def _records(
        self,
        request: log_pb.BatchGetMessagesRequest,
        call: Callable[[Source, Deadline], Sequence[StoredMessage | StoreError]],
        deadline: Deadline,
    ) -> Sequence[StoredMessage | StoreError]:
        sources = self._sources(request.commit_log_offsets)
        first = sources[0]

        def read(source: Source, until: Deadline) -> Sequence[StoredMessage | StoreError]:
            outcomes = call(source, until)
            failed = next((one for one in outcomes if isinstance(one, StoreError)), None)
            # A replica may lack what another one has: its retention is its own.
            if failed is not None and source is first and first.facts is not None and len(sources) > 1:
                raise failed
            return outcomes

        return self.ask(sources, read, deadline, is_exact=True)

    def _sources(self, commit_log_offsets: Sequence[int]) -> Sequence[Source]:
        return self.near if all(map(self.is_old, commit_log_offsets)) else self.derived

    @property
    def listed_offset(self) -> int:
        """Replicas had built the log up to here (bytes) when they gave a list of queues; 0: none did."""
        return min(self._listed_offsets, default=0)

    @property
    def replicas(self) -> Sequence[str]:
        """The replicas that answered instead of the leader, by name."""
        return sorted(self._used)

    @property
    def has_no_leader(self) -> bool:
        """Whether nobody led, or the leader did not answer."""
        return not self._is_led or "" in self._away

    @property
    def is_unproven(self) -> bool:
        """Whether a replica was searched and the leader's end of the log was not part of the answer."""
        return bool(self._used) and (self._has_tokens or self.has_no_leader)

    def staleness(self, built_offset: int) -> Staleness:
        """What the answer may lack that has everything before an offset (bytes)."""
        return staleness_of(list(self._used.values()), self._arrived_at, built_offset)

    def unknown_end(self) -> ServiceUnavailableError:
        """Why nobody can say that an answer has everything."""
        names = ", ".join(source.replica for source in self.near if source.facts is not None)
        return ServiceUnavailableError(
            f"No leader of shard {self._broker_name} answers: {names} may lack the newest messages. Ask again; reput status "
            "shows the replicas.",
            service="commitlog",
            brokerName=self._broker_name,
        )

    def is_old(self, commit_log_offset: int) -> bool:
        """Whether a record is not expected in the leader's memory."""
        return commit_log_offset < self._old_end

    def ask(
        self,
        sources: Sequence[Source],
        call: Callable[[Source, Deadline], Answer],
        deadline: Deadline,
        wait_seconds: float = 0.0,
        *,
        is_exact: bool = False,
    ) -> Answer:
        """The first answer of the sources; the error of the last one, or of a leader that has answered.

        Args:
            sources: in order.
            call: asks one.
            deadline: of all.
            wait_seconds: for which the call waits on purpose.
            is_exact: an answer is right whoever gives it, so that it makes nothing stale.
        """
        for number, source in enumerate(sources, 1):
            is_last = number == len(sources)
            if source.replica in self._away and not is_last:
                continue
            until = deadline
            if not is_last:
                now = deadline.clock()
                seconds = min((deadline.at_seconds - now) / 2, FIRST_SECONDS_MAX + wait_seconds)
                until = replace(deadline, at_seconds=now + seconds)
            try:
                answer = call(source, until)
            except StoreError as error:
                is_away = isinstance(error, AWAY)
                if is_away:
                    self._away.add(source.replica)
                if source.facts is not None:
                    FAILED.add()
                if is_last or (source.facts is None and not is_away):
                    raise
                continue
            if source.facts is not None:
                ANSWERED.add()
                if not is_exact:
                    self._used[source.replica] = source.facts
            return answer
        raise AssertionError("a shard without replicas is not read by choice")
