"""What is asked of how many shards, and what it took."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.simulation.measure import CallCost
from benchmarks.simulation.shards import KEY, TOPIC, Meters, SimulatedShard
from benchmarks.simulation.virtual_time import Moment, VirtualFanOut, VirtualTime
from gateway.ports.deadline import Deadline
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.page import PageTokens
from gateway.shards.guard import guarded
from store.errors import DeadlineExceededError
from store.format.host import Host, encode_host

THREAD_COUNT = 64  # the default of the setting `worker_count`
DEADLINE_SECONDS = 30.0
FALSE_POSITIVE_SHARE = 0.01  # shards whose filters hold a key's hash by chance: of more files, more
OFFSET_MSG_ID = (encode_host(Host.parse("127.0.0.1:10911")) + bytes(8)).hex().upper()
SEED = 20_261_122

Query = Callable[[Shards, Deadline], object]


@dataclass(frozen=True)
class Scenario:
    """A kind of query, and where its matches are.

    Args:
        name: for tables.
        ask: the query.
        holder_count: shards that hold matches; 0: all.
        matches_each: in each of those.
        body_bytes: of a match.
        skips: whether shards whose files cannot hold the key are known: an end of the window in the past.
    """

    name: str
    ask: Query
    holder_count: int
    matches_each: int
    body_bytes: int = 1024
    skips: bool = False


@dataclass(frozen=True)
class Figures:
    """What the queries of one scenario took, with one at a time.

    Args:
        p50_millis, p99_millis: latency.
        call_count: calls to shards, a query.
        cpu_millis: of the gateway, a query.
        loaded_bytes_max: of records that one query held at the same time.
        partial_count: answers that named a shard.
        query_count: queries.
    """

    p50_millis: float
    p99_millis: float
    call_count: float
    cpu_millis: float
    loaded_bytes_max: int
    partial_count: int
    query_count: int


def by_key(page_size: int) -> Query:
    """A page of a business key."""
    tokens = PageTokens("simulation")
    return lambda shards, deadline: query_by_key(
        shards, tokens, TOPIC, KEY, TimeWindow(), page_size_asked=page_size, page_token="", deadline=deadline
    )


def by_unique_key(shards: Shards, deadline: Deadline) -> object:
    """Every copy of a message."""
    tokens = PageTokens("simulation")
    return query_by_unique_key(shards, tokens, TOPIC, KEY, page_size_asked=64, page_token="", deadline=deadline)


def by_id(shards: Shards, deadline: Deadline) -> object:
    """The message of an id."""
    return query_by_offset_msg_id(shards, OFFSET_MSG_ID, "", "", deadline)


def by_offset(shards: Shards, deadline: Deadline) -> object:
    """A message of a queue; the shard is named."""
    return query_by_queue_offset(
        shards, TOPIC, 0, 0, broker_name=next(iter(shards)).broker_name, page_size_asked=1, deadline=deadline
    )


SCENARIOS = (
    Scenario("unique key", by_unique_key, 1, 1),
    Scenario("key, 8 messages", by_key(64), 8, 1),
    Scenario("key, everywhere, page 64", by_key(64), 0, 64),
    Scenario("id", by_id, 1, 1),
    Scenario("queue offset", by_offset, 1, 1),
)
SKIPPING = tuple(replace(scenario, name=f"{scenario.name}, past window", skips=True) for scenario in SCENARIOS[1:2])


class World:
    """Shards, and a gateway's threads, in virtual time.

    Args:
        costs: of calls: measure.py.
        shard_count: shards.
        thread_count: of the gateway's FanOut.
        counts_cpu: as VirtualTime.
        is_guarded: whether shards that hang are kept from taking all threads.
    """

    def __init__(
        self,
        costs: Mapping[str, CallCost],
        shard_count: int,
        thread_count: int = THREAD_COUNT,
        *,
        counts_cpu: bool = True,
        is_guarded: bool = True,
    ) -> None:
        self.virtual = VirtualTime(counts_cpu=counts_cpu)
        self.meters = Meters()
        self.fan_out = VirtualFanOut(self.virtual, thread_count)
        self.chance = random.Random(SEED + shard_count)
        self._front = costs["front"]
        self.shards = [
            SimulatedShard(f"broker-{n}", self.virtual, costs, self.chance, self.meters, n, shard_count)
            for n in range(shard_count)
        ]
        asked = [shard.shard() for shard in self.shards]
        if is_guarded and shard_count > 1:
            asked = [guarded(shard, thread_count, self.virtual.clock) for shard in asked]
        self._asked = Shards(asked, self.fan_out)

    def place(self, scenario: Scenario) -> None:
        """Put a query's matches where they are this time."""
        count = scenario.holder_count or len(self.shards)
        holders = set(self.chance.sample(range(len(self.shards)), min(count, len(self.shards))))
        for number, shard in enumerate(self.shards):
            is_holder = number in holders
            shard.match_count = scenario.matches_each if is_holder else 0
            shard.body_bytes = scenario.body_bytes
            may_hold = is_holder or self.chance.random() < FALSE_POSITIVE_SHARE
            shard.is_skipped = scenario.skips and not may_hold
        if scenario.ask is by_offset:
            self.shards[0].match_count = scenario.matches_each

    def ask(self, scenario: Scenario, seconds: float = DEADLINE_SECONDS) -> bool:
        """One query, front and all; whether its answer was whole."""
        front_seconds = self._front.cpu_millis / 1000
        self.virtual.use_cpu(front_seconds)
        deadline = Deadline.after(seconds, self.virtual.clock)
        try:
            answer = scenario.ask(self._asked, deadline)
        except DeadlineExceededError:
            return False
        outcomes = getattr(answer, "outcomes", ())
        return all(outcome.complete for outcome in outcomes)


def measure(
    costs: Mapping[str, CallCost],
    scenario: Scenario,
    shard_count: int,
    query_count: int,
    *,
    thread_count: int = THREAD_COUNT,
    prepare: Callable[[World], None] = lambda world: None,
    seconds: float = DEADLINE_SECONDS,
) -> Figures:
    """Queries one after the other."""
    world = World(costs, shard_count, thread_count)
    prepare(world)
    latencies: list[float] = []
    loaded: list[int] = []
    partial_count = 0

    def run() -> None:
        nonlocal partial_count
        for _ in range(query_count):
            world.place(scenario)
            world.meters.loaded_bytes = 0
            begin = world.virtual.now
            is_whole = world.ask(scenario, seconds)
            partial_count += not is_whole
            latencies.append((world.virtual.now - begin) * 1000)
            loaded.append(world.meters.loaded_bytes)

    world.virtual.run(run)
    return Figures(
        statistics.median(latencies),
        quantile(latencies, 0.99),
        world.meters.call_count / query_count,
        world.virtual.cpu_seconds * 1000 / query_count,
        max(loaded),
        partial_count,
        query_count,
    )


@dataclass(frozen=True)
class LoadFigures:
    """What queries that come at their own pace took.

    Args:
        rate: queries a second that came.
        p50_millis, p99_millis: latency.
        partial_share: of the answers.
        waiting_count_max: calls that waited for a thread of the gateway.
    """

    rate: float
    p50_millis: float
    p99_millis: float
    partial_share: float
    waiting_count_max: int


def under_load(
    costs: Mapping[str, CallCost],
    scenario: Scenario,
    shard_count: int,
    rate: float,
    query_count: int,
    *,
    prepare: Callable[[World], None] = lambda world: None,
    seconds: float = DEADLINE_SECONDS,
    is_guarded: bool = True,
) -> LoadFigures:
    """Queries that come by chance, so many a second, whether or not the ones before have been answered."""
    world = World(costs, shard_count, is_guarded=is_guarded)
    world.place(scenario)
    prepare(world)
    latencies: list[float] = []
    partial_count = 0

    def one(end: Moment) -> None:
        nonlocal partial_count
        begin = world.virtual.now
        is_whole = world.ask(scenario, seconds)
        partial_count += not is_whole
        latencies.append((world.virtual.now - begin) * 1000)
        end.happen()

    def run() -> None:
        ends = []
        for _ in range(query_count):
            world.virtual.sleep(world.chance.expovariate(rate))
            end = Moment(world.virtual)
            ends.append(end)
            world.virtual.start(partial(one, end))
        for end in ends:
            end.wait()

    world.virtual.run(run)
    return LoadFigures(
        rate,
        statistics.median(latencies),
        quantile(latencies, 0.99),
        partial_count / query_count,
        world.fan_out.waiting_count_max,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many are at or below."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
