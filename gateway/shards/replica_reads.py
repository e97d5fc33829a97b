"""ReplicaReads: the shards as the caller of the thread chose to read them.

It lies below the limits of callers (auth/caller_shards.py), as the directory does. A handler says the choice (`reading`), and
`now` gives shards that follow it. Without a choice, or with READ_FROM_LEADER, the shards are those of the directory.

`ShardReading` is a shard with replicas as one query reads it: the leader and replicas behind one another.

    lists of queues and topics        the leader, then a replica
    units, keys, positions            as the caller chose
    records                           likewise; old ones a replica, then the leader
    end of the log                    the leader only

A record, a unit and a key have the same offsets on all replicas, and no replica shows anything behind the confirm offset. So
the answers of several may be mixed, and each says by its progress what it may lack. What a replica does not have or does not
answer is asked of the next one; the answer of the leader counts. A leader that does not answer is followed by replicas; then
the end is not known either, and the answer is PARTIAL.

ReplicaPulls: where one stream of pulls reads next, as RocketMQ's PullMessageProcessor suggests a broker id.

All replicas give the same batch: a position of a queue has the same message on each. Only the leader knows where
the queue ends. So a replica's batch is passed on, and where a replica has nothing, or fails, the leader is asked.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Delivering, Pulled, Then
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
from gateway.ports.shards import Shards, ShardsSource
from gateway.shards.replica_choice import Choice, ReadFrom, ReplicaFacts, Staleness, fit, is_near, old_end, staleness_of
from gateway.shards.store_facts import with_facts
from gateway.shards.targets import ShardTargets
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.observing.meters import CounterFamily
from services.status import to_status
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
        # A query with a token wants the newest, which the leader has first.
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
        """Whether there was no leader, or it did not answer."""
        return not self._is_led or "" in self._away

    @property
    def is_unproven(self) -> bool:
        """Whether a replica was searched and the leader's end of the log was not part of the answer."""
        return bool(self._used) and (self._has_tokens or self.has_no_leader)

    def staleness(self, built_offset: int) -> Staleness:
        """What the answer may lack that has everything before an offset (bytes)."""
        return staleness_of(list(self._used.values()), self._arrived_at, built_offset)

    def unknown_end(self) -> ServiceUnavailableError:
        """Why it is unknown whether an answer has everything."""
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
            is_exact: every replica gives the same answer, so that it makes nothing stale.
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


PASSED_ON = (gateway_pb.PULL_STATUS_FOUND, gateway_pb.PULL_STATUS_NO_MATCHED_MSG)


class Puller(Protocol):
    """What a stream of pulls needs of a consumer service."""

    @property
    def broker_name(self) -> str:
        """The shard's name."""

    def pull(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See Delivering."""


class ReplicaPulls:
    """A Puller for one stream, which has one pull at a time.

    Args:
        leader: of the shard.
        replicas: those that may be read, by name, the best first; at least one.
        is_led: whether the shard has a leader.
        old_end: records before it (bytes) are not expected in the leader's memory.
        prefers_replica: whether replicas are asked first for everything.
    """

    def __init__(
        self,
        leader: Puller,
        replicas: Sequence[tuple[str, Puller]],
        *,
        is_led: bool,
        old_end: int,
        prefers_replica: bool,
    ) -> None:
        self._leader = leader
        self._replicas = list(replicas)
        self._is_led = is_led
        self._old_end = old_end
        self._prefers_replica = prefers_replica
        self._is_old = False

    @property
    def broker_name(self) -> str:
        """See Puller."""
        return self._leader.broker_name

    def pull(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See Puller; ServiceUnavailableError where only a leader could answer and there is none."""
        if not self._is_led:
            self._pull_without_leader(question, seconds, then, 0)
        elif self._replicas and (self._prefers_replica or self._is_old):
            self._pull_from_replica(question, seconds, then)
        else:
            self._pull_from_leader(question, seconds, then)

    def _pull_from_leader(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError):
                self._note(outcome)
            elif isinstance(outcome, AWAY) and self._replicas:
                self._is_led = False
                self._pull_without_leader(question, seconds, then, 0)
                return
            then(outcome)

        # Half of the time, so that a replica can answer instead of a leader that hangs.
        self._leader.pull(question, seconds / 2 if self._replicas else seconds, done)

    def _pull_from_replica(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError) and outcome.answer.status in PASSED_ON:
                ANSWERED.add()
                self._note(outcome)
                then(outcome)
                return
            if isinstance(outcome, StoreError):
                FAILED.add()
                self._replicas = self._replicas[1:] if isinstance(outcome, AWAY) else self._replicas
            self._pull_from_leader(question, seconds, then)

        self._replicas[0][1].pull(question, min(seconds, FIRST_SECONDS_MAX), done)

    def _pull_without_leader(
        self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled], number: int
    ) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError) and outcome.answer.status in PASSED_ON:
                ANSWERED.add()
                then(outcome)
                return
            if isinstance(outcome, StoreError) and not isinstance(outcome, (*AWAY, TopicNotFoundError)):
                then(outcome)
                return
            FAILED.add()
            self._pull_without_leader(question, seconds, then, number + 1)

        if number < len(self._replicas):
            self._replicas[number][1].pull(question, min(seconds, FIRST_SECONDS_MAX), done)
            return
        names = ", ".join(name for name, _ in self._replicas)
        then(
            ServiceUnavailableError(
                f"No leader of shard {self.broker_name} answers, and {names} has nothing at position {question.queue_offset} "
                f"of queue {question.queue_id} of {question.topic!r}: whether it ends there is not known. Ask again.",
                service="consumer",
                brokerName=self.broker_name,
            )
        )

    def _note(self, batch: Pulled) -> None:
        """Where the stream is: behind what the leader has in memory, or in it."""
        if batch.messages:
            self._is_old = getattr(batch.messages[-1], "commit_log_offset", self._old_end) < self._old_end


class Reading:
    """The choice of one call, and the shards that it reads by it.

    Args:
        choice: the caller's.
        has_tokens: whether the query waits for freshness tokens.
        lists: whether it only lists topics and queues; neither kind asks where the log ends.
    """

    def __init__(self, choice: Choice, has_tokens: bool = False, lists: bool = False) -> None:
        self.choice = choice
        self.has_tokens = has_tokens
        self.lists = lists
        self.shards: dict[str, ShardReading] = {}

    def judged(self, error: StoreError) -> StoreError:
        """The error of the query: what a replica does not have may exist all the same."""
        if not isinstance(error, NOT_FOUND):
            return error
        unsure = next((shard for shard in self.shards.values() if shard.has_no_leader), None)
        if unsure is None:
            return error
        why = unsure.unknown_end()
        return ServiceUnavailableError(f"{error.message} {why.message}", **why.metadata)

    def tell(self, response: Any, partial: int) -> None:
        """Say in the rows of an answer which replicas took part, and what it may lack because of them.

        Args:
            response: of a query; one without rows stays as it is.
            partial: the number of PARTIAL.
        """
        for row in getattr(response, "shards", ()):
            shard = self.shards.get(row.broker_name)
            if shard is None or not shard.replicas:
                continue
            row.replicas.extend(shard.replicas)
            if shard.is_unproven and (self.has_tokens or self.lists) and not row.HasField("error"):
                row.error.CopyFrom(to_status(shard.unknown_end()))
                response.completeness = partial
            if not row.HasField("error"):
                continue
            staleness = shard.staleness(shard.listed_offset if self.lists else row.indexed_up_to_offset)
            row.known_lag_bytes = staleness.known_lag_bytes
            if staleness.seconds is not None:
                row.staleness.FromNanoseconds(int(staleness.seconds * 1e9) + 1)


_reading: ContextVar[Reading | None] = ContextVar("reput_reading", default=None)


class ReplicaReads:
    """A ShardsSource; thread-safe.

    Args:
        source: the shards, each as its leader.
        replicas: whether a shard has a leader, and its replicas, the leader first; none for a shard without replicas.
        facts: what a replica said of itself; None: it does not answer.
        open_shard: opens a replica; must not block. The answer has `shard`, `delivering` and `close`.
        guard: wraps each shard.
        retire: gets the `close` of replicas that are gone.
        clock: that of the facts, seconds.
    """

    def __init__(
        self,
        source: ShardsSource,
        replicas: Callable[[str], tuple[bool, Sequence[ShardTargets]]],
        facts: Callable[[ShardTargets], ReplicaFacts | None],
        open_shard: Callable[[ShardTargets], Any],
        guard: Callable[[Shard], Shard] = lambda shard: shard,
        retire: Callable[[Callable[[], None]], object] = lambda close: close(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._replicas = replicas
        self._facts = facts
        self._open_shard = open_shard
        self._guard = guard
        self._retire = retire
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[ShardTargets, tuple[Any, Shard]] = {}

    @contextlib.contextmanager
    def reading(self, choice: Choice, *, has_tokens: bool = False, lists: bool = False) -> Iterator[Reading]:
        """Inside the block, `now` follows the choice in this thread; arguments as Reading."""
        reading: Reading = Reading(choice, has_tokens, lists)
        token = _reading.set(reading)
        try:
            yield reading
        finally:
            _reading.reset(token)

    def now(self) -> Shards:
        """See ShardsSource."""
        shards, reading = self._source.now(), _reading.get()
        if reading is None or reading.choice.read_from is ReadFrom.LEADER:
            return shards
        return Shards([self._read(shard, reading) for shard in shards], shards.fan_out)

    def pulls(self, leader: Delivering, choice: Choice) -> Puller:
        """The consumer service of a shard, or of its replicas, as one stream of pulls is to ask them."""
        if choice.read_from is ReadFrom.LEADER:
            return leader
        is_led, sources, old_end = self._sources(leader.broker_name, choice)
        known = [
            (name, opened.delivering, facts) for name, opened, _, facts in sources if opened.delivering is not None
        ]
        if not known:
            return leader
        may_be_first = is_near(known[0][2], choice, self._clock())
        return ReplicaPulls(
            leader,
            [(name, delivering) for name, delivering, _ in known],
            is_led=is_led,
            old_end=old_end if may_be_first else 0,
            prefers_replica=may_be_first and choice.read_from is ReadFrom.REPLICA,
        )

    def close(self) -> None:
        """End all calls to replicas."""
        with self._lock:
            opened, self._open = list(self._open.values()), {}
        for one, _ in opened:
            one.close()

    def _read(self, shard: Shard, reading: Reading) -> Shard:
        name = shard.broker_name
        known = reading.shards.get(name)
        if known is not None:
            return known.shard
        is_led, sources, old_end = self._sources(name, reading.choice)
        if not sources:
            return shard
        reading.shards[name] = ShardReading(
            shard,
            [Source(replica, guarded, facts) for replica, _, guarded, facts in sources],
            reading.choice,
            is_led=is_led,
            old_end=old_end,
            has_tokens=reading.has_tokens,
            lists=reading.lists,
            clock=self._clock,
        )
        return reading.shards[name].shard

    def _sources(
        self, broker_name: str, choice: Choice
    ) -> tuple[bool, Sequence[tuple[str, Any, Shard, ReplicaFacts]], int]:
        """Whether the shard is led, the replicas that may answer, and the end of what is old."""
        is_led, replicas = self._replicas(broker_name)
        if not replicas:
            return is_led, (), 0
        leader, *others = replicas
        by_name = {one.replica: one for one in (others if is_led else replicas)}
        facts = {name: self._facts(one) for name, one in by_name.items()}
        sources = []
        for name in fit(facts, choice, self._clock()):
            known = facts[name]
            assert known is not None, "what is not known is not fit"
            sources.append((name, *self._opened(by_name[name], replicas), known))
        return is_led, sources, old_end(self._facts(leader)) if is_led else 0

    def _opened(self, targets: ShardTargets, replicas: Sequence[ShardTargets]) -> tuple[Any, Shard]:
        with self._lock:
            gone = [one for one in self._open if one.broker_name == targets.broker_name and one not in replicas]
            left = [self._open.pop(one)[0] for one in gone]
            found = self._open.get(targets)
            if found is None:
                opened = self._open_shard(targets)
                found = self._open[targets] = (opened, self._guard(opened.shard))
        for one in left:
            self._retire(one.close)
        return found
