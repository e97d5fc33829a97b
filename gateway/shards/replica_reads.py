"""ReplicaReads: the shards as the caller of the thread chose to read them.

It lies below the limits of callers (auth/caller_shards.py), as the directory does. A handler says the choice (`reading`), and
`now` gives shards that follow it. Without a choice, or with READ_FROM_LEADER, the shards are those of the directory.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from gateway.ports.delivery import Delivering
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards, ShardsSource
from gateway.shards.reading import NOT_FOUND, ShardReading, Source
from gateway.shards.replica_choice import Choice, ReadFrom, ReplicaFacts, fit, is_near, old_end
from gateway.shards.replica_pulls import Puller, ReplicaPulls
from gateway.shards.targets import ShardTargets
from services.status import to_status
from store.errors import ServiceUnavailableError, StoreError


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
