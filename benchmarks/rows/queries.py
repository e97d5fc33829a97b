"""Rows 6, 6c and 6k: the four queries with a warm client."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import grpc

from benchmarks import stores
from benchmarks.figures import ECHO, OURS, THEIRS, Metric, RowResult, below_both, part_of_theirs, quantile, times_theirs
from benchmarks.row import QUIET, Context, Row, RowId
from benchmarks.sides import compiled_side, rocketmq_side
from benchmarks.sides.echo import MESSAGE_BYTES, running_echo, unary_latencies_millis
from benchmarks.sizes import Sizes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc

KINDS = {"key": "by key", "id": "by id", "unique_key": "by unique key", "offset": "by offset"}
CALLER_COUNTS = (1, 8, 64)
P50_FACTOR, P50_OF_ECHO = 2.0, 1.5  # of RocketMQ's, and of the bare echo's of the same client
CALL_SECONDS_MAX = 10.0
ECHO_NAME = "bare echo of 1 KiB"

Samples = list[list[str]]


class Queries(Row):
    """Row 6."""

    number: ClassVar[RowId] = 6
    p50_stretch: ClassVar[float] = 1  # of RocketMQ's
    sides_of_queries: ClassVar[tuple[str, ...]] = (OURS, THEIRS)
    title = "Queries with a warm client"
    cause = (
        "A query runs 240 (by id) to 450 calls of Python functions between two sockets; its largest part takes a third "
        "of the time (ADR 0162)."
    )
    what = (
        "The same store on both sides, one caller, one query after the other, messages chosen evenly over the store; "
        "ours through the gateway, theirs with the Java admin client (by offset: the pull consumer)."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        p50 = part_of_theirs(P50_FACTOR, self.p50_stretch)
        if ECHO in self.sides_of_queries:
            p50 = below_both(p50, P50_OF_ECHO)
        targets = {"p50": p50, "p99": part_of_theirs(1)}
        lines = [
            Metric(f"{kind}, {part}", "ms", lower_is_better=True, target=target, sides=self.sides_of_queries)
            for kind in KINDS.values()
            for part, target in targets.items()
        ]
        self.metrics = (*lines, *self._echo_metrics())
        self._kept: stores.KeptStore | None = None

    def _echo_metrics(self) -> tuple[Metric, ...]:
        parts = (f"{ECHO_NAME}, {part}" for part in ("p50", "p99"))
        return tuple(Metric(part, "ms", lower_is_better=True, sides=(ECHO,)) for part in parts)

    def prepare(self, context: Context) -> None:
        """Makes the store for the queries: the largest of the growing ones."""
        self._kept = stores.message_store(context.stores, self.sizes, max(self.sizes.growth_counts), context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        assert self._kept is not None
        if side == ECHO:
            with running_echo() as address:
                return self._echo(address)
        return self._ours(context, self._kept) if side == OURS else self._theirs(context, self._kept)

    def finish(self, context: Context, result: RowResult) -> None:
        """Notes how large the store was."""
        assert self._kept is not None
        result.notes.append(f"The store has {self._kept.message_count:,} messages.")

    def _ours(self, context: Context, kept: stores.KeptStore) -> Mapping[str, float]:
        from benchmarks.sides.our_side import running_stack

        with context.directory() as path:
            root = stores.copy_of(kept, path / "store")
            with running_stack(
                root, QUIET | stores.settings(self.sizes, kept.log_file_bytes), single_process=self.sizes.single_process
            ) as stack:
                stack.wait_until_built()
                return self._query(stack.addresses["gateway"], kept)

    def _query(self, address: str, kept: stores.KeptStore) -> Mapping[str, float]:
        return our_latencies(address, kept, self.sizes.query_count)

    def _echo(self, address: str) -> Mapping[str, float]:
        samples = unary_latencies_millis(address, self.sizes.query_count)
        return {f"{ECHO_NAME}, p50": quantile(samples, 0.5), f"{ECHO_NAME}, p99": quantile(samples, 0.99)}

    def _theirs(self, context: Context, kept: stores.KeptStore) -> Mapping[str, float]:
        with context.directory() as path:
            root = stores.copy_of(kept, path / "store")
            settings = stores.rocketmq_settings(self.sizes, kept.log_file_bytes)
            with rocketmq_side.running_rocketmq(root, path / "work", **settings) as rocketmq:
                rocketmq.wait_until_built()
                where = (rocketmq.namesrv, rocketmq.broker_port, rocketmq_side.CLUSTER, rocketmq_side.BROKER)
                return self._figures(
                    partial(rocketmq.driver, "QueryLoad", *where, stores.TOPIC, kept.samples), "RocketMQ"
                )

    def _figures(self, drive: Callable[..., Any], side: str) -> Mapping[str, float]:
        """What a driver measures, whose last arguments are given here."""
        return latencies(drive(self.sizes.query_count), side)


class CompiledQueries(Queries):
    """Row 6c."""

    number = "6c"
    title = "Queries with a warm client, Java on both sides"
    what = (
        "As row 6; ours with the blocking stub that protoc generates for Java. The echo: this client calls a bare server "
        "of grpcio, which gives 1 KiB back at once, as many times in the same order; a query's request and answer are smaller."
    )
    p50_stretch = 1.2
    sides_of_queries = (OURS, THEIRS, ECHO)

    def _echo_metrics(self) -> tuple[Metric, ...]:
        return ()

    def prepare(self, context: Context) -> None:
        """Makes the store, and the client if that is possible here."""
        super().prepare(context)
        compiled_side.prepare("java", context.say)

    def _query(self, address: str, kept: stores.KeptStore) -> Mapping[str, float]:
        drive = partial(compiled_side.run, "java", "GatewayQueries", address, stores.TOPIC, kept.samples)
        return self._figures(drive, "the gateway")

    def _echo(self, address: str) -> Mapping[str, float]:
        return self._figures(partial(compiled_side.run, "java", "BareEcho", address, MESSAGE_BYTES), "the echo")


class ConcurrentQueries(CompiledQueries):
    """Row 6k."""

    number = "6k"
    title = "Queries by 1, 8 and 64 callers at once, Java on both sides"
    cause = "The gateway's interpreter runs one query at a time; more gateways share the load (ADR 0162)."
    what = (
        "As row 6c, as many queries as each caller can ask one after the other on one connection of all; "
        "ours with the blocking stub that protoc generates for Java, theirs with the Java admin client. The echo as in row 6c: "
        "what a server of grpcio that does no work answers to as many callers."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = tuple(
            Metric(_rate_name(kind, callers), "queries/s", target=times_theirs(1), sides=self.sides_of_queries)
            for kind in KINDS.values()
            for callers in CALLER_COUNTS
        )

    def _figures(self, drive: Callable[..., Any], side: str) -> Mapping[str, float]:
        values = {}
        for callers in CALLER_COUNTS:
            answer = all_found(drive(callers, self.sizes.warm_seconds, self.sizes.measure_seconds), side)
            values |= {_rate_name(name, callers): answer[kind]["rate"] for kind, name in KINDS.items()}
        return values


def _rate_name(kind: str, callers: int) -> str:
    return f"{kind}, {callers} caller{'s' if callers > 1 else ''}"


def all_found(answer: Mapping[str, Mapping[str, float]], side: str) -> Mapping[str, Mapping[str, float]]:
    """The answer of a driver by kind of query; RuntimeError when it did not find all."""
    for kind, name in KINDS.items():
        if answer[kind]["found"] != answer[kind]["asked"]:
            raise RuntimeError(f"{side} found {answer[kind]['found']} of {answer[kind]['asked']} {name}")
    return answer


def latencies(answer: Mapping[str, Mapping[str, float]], side: str) -> dict[str, float]:
    """p50 and p99 of each kind of query that a driver measured; RuntimeError when it did not find all."""
    values = {}
    all_found(answer, side)
    for kind, name in KINDS.items():
        values |= {f"{name}, p50": answer[kind]["p50_millis"], f"{name}, p99": answer[kind]["p99_millis"]}
    return values


def our_latencies(
    address: str, kept: stores.KeptStore, count: int, kinds: tuple[str, ...] = tuple(KINDS)
) -> dict[str, float]:
    """p50 and p99 of our queries, each sent `count` times after half as many to warm up."""
    samples = [line.split("\t") for line in kept.samples.read_text().splitlines()]
    values = {}
    with grpc.insecure_channel(address) as channel:
        queries = _queries(pb_grpc.GatewayServiceStub(channel))
        for kind in kinds:
            millis = millis_of(queries[kind], samples, count)
            values |= {f"{KINDS[kind]}, p50": quantile(millis, 0.5), f"{KINDS[kind]}, p99": quantile(millis, 0.99)}
    return values


def _queries(stub: pb_grpc.GatewayServiceStub) -> dict[str, Callable[[list[str]], int]]:
    """By kind: a function that queries one sample and returns how many messages it found."""
    topic, seconds = stores.TOPIC, CALL_SECONDS_MAX

    def by_offset(sample: list[str]) -> int:
        request = pb.QueryMessageByOffsetRequest(
            topic=topic, queue_id=int(sample[3]), queue_offset=int(sample[4]), max_messages=1
        )
        return len(stub.QueryMessageByOffset(request, timeout=seconds).messages)

    def by_key(sample: list[str]) -> int:
        request = pb.QueryMessageByKeyRequest(topic=topic, key=sample[0])
        return len(stub.QueryMessageByKey(request, timeout=seconds).messages)

    def by_unique_key(sample: list[str]) -> int:
        request = pb.QueryMessageByUniqueKeyRequest(topic=topic, unique_key=sample[1])
        return len(stub.QueryMessageByUniqueKey(request, timeout=seconds).messages)

    def by_id(sample: list[str]) -> int:
        answer = stub.QueryMessageById(pb.QueryMessageByIdRequest(offset_msg_id=sample[5]), timeout=seconds)
        return int(answer.HasField("message"))

    return {"key": by_key, "id": by_id, "unique_key": by_unique_key, "offset": by_offset}


def millis_of(query: Callable[[list[str]], int], samples: Samples, count: int) -> list[float]:
    """The time of each of `count` queries in milliseconds, after half as many; each finds one message."""
    millis = []
    for i in range(-(count // 2), count):
        sample = samples[i % len(samples)]
        start = time.perf_counter()
        found = query(sample)
        if i >= 0:
            millis.append((time.perf_counter() - start) * 1000)
        if found != 1:
            raise RuntimeError(f"{found} messages instead of one for {sample}")
    return millis
