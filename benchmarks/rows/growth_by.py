"""Row G: appends and queries as topics, keys of a message, and connections grow in number."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import grpc

from benchmarks import processes
from benchmarks.figures import OURS, Metric, RowResult, at_most, medians, quantile
from benchmarks.load import Load, topic_of
from benchmarks.row import QUIET, Context, Row
from benchmarks.rows.queries import CALL_SECONDS_MAX, millis_of
from benchmarks.sides.our_side import OurStack, running_stack
from benchmarks.sizes import Sizes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput_client import NewMessage, Producer
from store.files.open_files import raise_open_file_limit
from tests.support.raw_http2 import RawClient

TOPICS, KEYS, CONNECTIONS = "topics", "keys of a message", "connections"
KEY_COUNTS = (1, 4, 16, 64)
APPEND, QUERY, MEMORY = "append rate", "query by key, p50", "gateway, RSS"
SERVICES, START = "all services, PSS", "start"
SLOWER_MAX, SLOWER_MAX_MOST_TOPICS = 1.2, 1.3
SAMPLE_COUNT = 200
# Files of queues are allocated whole: a store of 100,000 topics needs small ones, here of 64 positions.
MANY_TOPICS = {"REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "1280"}
BUILT_SECONDS_MAX = 600.0
CONNECTIONS_OF_A_CLIENT = 100
SERVICES_MIB_MAX, START_SECONDS_MAX = 600, 5
CURVES = (
    (APPEND, TOPICS),
    (QUERY, TOPICS),
    (SERVICES, TOPICS),
    (START, TOPICS),
    (APPEND, KEYS),
    (APPEND, CONNECTIONS),
    (MEMORY, CONNECTIONS),
)
# A key is an entry of the index and a part of the record: more of them are more work, and no rate stays the same.
FLAT = ((APPEND, TOPICS), (QUERY, TOPICS), (APPEND, CONNECTIONS))


def at(what: str, of: str, count: int) -> str:
    """The name of the metric for so many of something."""
    return f"{what}, {of}: {count:,}"


def slower(what: str, of: str, count: int | None = None) -> str:
    """The name of the metric for how much slower it is with most of them, or with a count, than with fewest."""
    return f"{what}: times slower with {'most' if count is None else f'{count:,}'} {of}"


class GrowthBy(Row):
    """Row G."""

    number = "G"
    title = "Growth by topics, keys and connections"
    cause = (
        "Each new queue is a directory and a file, and each one that is written to is flushed at the next "
        "checkpoint (ADR 0163)."
    )
    what = (
        "The load of row 1 spread over topics, each of which has a message before; with more keys; and beside connections that "
        "do nothing. Queries by key with a warm client, one after the other. Memory behind the load; a start after a clean "
        "stop, until the services answer and have followed the log to its end. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self._counts: Mapping[str, Sequence[int]] = {
            TOPICS: sizes.topic_counts,
            KEYS: KEY_COUNTS,
            CONNECTIONS: sizes.connection_counts,
        }
        self._many_topics = sorted(sizes.topic_counts)[-2]
        limit = at_most(SLOWER_MAX, "x")
        units = {APPEND: "messages/s", QUERY: "ms", MEMORY: "MiB", SERVICES: "MiB", START: "s"}
        most = at_most(SERVICES_MIB_MAX, "MiB"), at_most(START_SECONDS_MAX, "s")
        targets = {
            at(what, TOPICS, max(sizes.topic_counts)): target
            for what, target in zip((SERVICES, START), most, strict=True)
        }
        self.metrics = (
            Metric(slower(APPEND, TOPICS, self._many_topics), "x", lower_is_better=True, target=limit, sides=(OURS,)),
            *(
                Metric(
                    slower(what, of),
                    "x",
                    lower_is_better=True,
                    target=at_most(SLOWER_MAX_MOST_TOPICS, "x") if (what, of) == (APPEND, TOPICS) else limit,
                    sides=(OURS,),
                )
                for what, of in FLAT
            ),
            *(
                Metric(
                    at(what, of, count),
                    units[what],
                    lower_is_better=what != APPEND,
                    target=targets.get(at(what, of, count)),
                    sides=(OURS,),
                )
                for what, of in CURVES
                for count in self._counts[of]
            ),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all counts."""
        values: dict[str, float] = {}
        for count in self._counts[TOPICS]:
            context.say(f"{count:,} topics")
            with context.directory() as path:
                for what, value in self._with_topics(path / "store", count).items():
                    values[at(what, TOPICS, count)] = value
        for count in self._counts[KEYS]:
            context.say(f"{count} keys")
            with context.ours() as stack:
                values[at(APPEND, KEYS, count)] = self._rate(stack, key_count=count)
        raise_open_file_limit()
        with context.ours() as stack, _connections(stack.addresses["gateway"], self.sizes.settle_seconds) as connect:
            for count in self._counts[CONNECTIONS]:
                context.say(f"{count:,} connections")
                connect(count)
                values[at(APPEND, CONNECTIONS, count)] = self._rate(stack)
                values[at(MEMORY, CONNECTIONS, count)] = processes.memory_mib([stack.children()["gateway"]])
        return values

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares the largest counts with the smallest, and adds the curves."""
        for what, of in CURVES:
            middle = [
                (count, medians(result.rounds[at(what, of, count)])[OURS])
                for count in self._counts[of]
                if at(what, of, count) in result.rounds
            ]
            if not middle:
                continue
            name = f"growth_{of}_{what}".translate(str.maketrans(" ", "_", ","))
            result.curves[name] = [(float(count), value) for count, value in middle]
            if (what, of) in FLAT:
                few, many = middle[0][1], middle[-1][1]
                result.rounds[slower(what, of)] = {OURS: [few / many if what == APPEND else many / few]}
            if (what, of) == (APPEND, TOPICS) and self._many_topics in dict(middle):
                rate = dict(middle)[self._many_topics]
                result.rounds[slower(what, of, self._many_topics)] = {OURS: [middle[0][1] / rate]}

    def _with_topics(self, store: pathlib.Path, count: int) -> Mapping[str, float]:
        settings = QUIET | MANY_TOPICS
        with running_stack(store, settings, single_process=self.sizes.single_process) as stack:
            _make_topics(stack, count)
            stack.wait_until_built(BUILT_SECONDS_MAX)
            query = _query_millis(stack, count, self.sizes.query_count)
            rate = self._rate(stack, topic_count=count)
            stack.wait_until_built(BUILT_SECONDS_MAX)
            memory = processes.memory_mib(stack.pids(), "Pss")
        begin = time.perf_counter()
        with running_stack(store, settings, single_process=self.sizes.single_process) as stack:
            stack.wait_until_built(BUILT_SECONDS_MAX)
            return {APPEND: rate, QUERY: query, SERVICES: memory, START: time.perf_counter() - begin}

    def _rate(self, stack: OurStack, *, topic_count: int = 1, key_count: int = 1) -> float:
        load = Load(
            stack.addresses["gateway"],
            topic_count=topic_count,
            key_count=key_count,
            warm_seconds=self.sizes.warm_seconds / 2,
            seconds=self.sizes.measure_seconds,
        )
        return load.run()["rate"]


def _make_topics(stack: OurStack, count: int) -> None:
    """One message in each topic, in its first queue, with the topic's name as its key."""
    body = bytes(128)
    with Producer(stack.addresses["gateway"]) as producer:
        sent = [
            producer.send_batch(
                [
                    NewMessage(topic_of(number), body, (topic_of(number),), queue_id=0)
                    for number in range(begin, min(begin + 500, count))
                ]
            )
            for begin in range(0, count, 500)
        ]
        for one in sent:
            one.result()


def _query_millis(stack: OurStack, topic_count: int, query_count: int) -> float:
    """The median time of a query for the message of a topic, topics chosen evenly."""
    step = max(1, topic_count // SAMPLE_COUNT)
    samples = [[topic_of(number)] for number in range(0, topic_count, step)]
    with grpc.insecure_channel(stack.addresses["gateway"]) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)

        def found(sample: list[str]) -> int:
            request = pb.QueryMessageByKeyRequest(topic=sample[0], key=sample[0])
            return len(stub.QueryMessageByKey(request, timeout=CALL_SECONDS_MAX).messages)

        return quantile(millis_of(found, samples, query_count), 0.5)


@contextlib.contextmanager
def _connections(address: str, settle_seconds: float) -> Iterator[Callable[[int], None]]:
    """A function that brings the number of connections that do nothing to a count."""
    opened = 0
    with RawClient(address) as client:

        def connect(count: int) -> None:
            nonlocal opened
            while opened < count:
                # Many clients, so that none has more connections than one may.
                client.connect(source=f"127.0.{1 + opened // CONNECTIONS_OF_A_CLIENT}.1")
                opened += 1
            time.sleep(settle_seconds)  # what the gateway does for new connections is not measured

        yield connect
