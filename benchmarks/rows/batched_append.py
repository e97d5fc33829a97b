"""Rows 1 and 2: batches from one client process."""

from collections.abc import Mapping
from typing import ClassVar

from benchmarks import processes
from benchmarks.figures import ECHO, OURS, THEIRS, Metric, Target, times_theirs
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row
from benchmarks.sides.echo import running_echo
from benchmarks.sizes import Sizes

JAVA_THREADS = 8  # of one producer; more threads gave no higher rate on 2 cores
THROUGH_GATEWAY, DIRECT, CPU = "through the gateway", "direct to the commitlog service", "CPU of the services"
ONE_BY_ONE = "the same, a call and a future for each message"


def java_producer(context: Context, body_bytes: int, batch_count: int) -> tuple[float, float]:
    """RocketMQ's own producer on an empty store: messages/s, and its services' CPU for a message in microseconds."""
    sizes = context.sizes
    with context.theirs() as rocketmq:
        rocketmq.create_topic(TOPIC)
        arguments = (JAVA_THREADS, body_bytes, batch_count, sizes.warm_seconds, sizes.measure_seconds)
        before = processes.cpu_seconds(rocketmq.pids())
        outcome = rocketmq.driver("AppendLoad", rocketmq.namesrv, TOPIC, *arguments)
        rocketmq.wait_until_built()
        used = processes.cpu_seconds(rocketmq.pids()) - before
    return outcome["rate"], used * 1e6 / outcome["count"]


class BatchedAppend(Row):
    """Appends in batches."""

    body_bytes: ClassVar[int]
    batch_count: ClassVar[int]
    target: ClassVar[Target]
    direct_target: ClassVar[Target | None] = None

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        every = (OURS, THEIRS, ECHO)
        direct = Metric(DIRECT, "messages/s", target=self.direct_target, sides=every)
        self.metrics = (
            Metric(THROUGH_GATEWAY, "messages/s", target=self.target, sides=every),
            *((direct,) if self.direct_target else ()),
            Metric(CPU, "us a message", lower_is_better=True),
            Metric(ONE_BY_ONE, "messages/s", sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round; RocketMQ's and the echo's figures are repeated for both of our metrics."""
        if side == OURS:
            return self._ours(context)
        if side == THEIRS:
            return self._theirs(context)
        with running_echo() as address:
            rate = self._load(address, "echo").run()["rate"]
        return {THROUGH_GATEWAY: rate, DIRECT: rate}

    def _load(self, target: str, client: str, service: str = "gateway") -> Load:
        return Load(
            target=target,
            client=client,
            service=service,
            body_bytes=self.body_bytes,
            batch_count=self.batch_count,
            warm_seconds=self.sizes.warm_seconds,
            seconds=self.sizes.measure_seconds,
        )

    def _ours(self, context: Context) -> Mapping[str, float]:
        with context.ours() as stack:
            before = processes.cpu_seconds(stack.pids())
            outcome = self._load(stack.addresses["gateway"], "producer").run()
            stack.wait_until_built()
            used = processes.cpu_seconds(stack.pids()) - before
        values = {THROUGH_GATEWAY: outcome["rate"], CPU: used * 1e6 / outcome["count"]}
        with context.ours() as stack:
            values[ONE_BY_ONE] = self._load(stack.addresses["gateway"], "one by one").run()["rate"]
        if self.direct_target is None:
            return values
        with context.ours() as stack:
            direct = self._load(stack.addresses["commitlog"], "stream", "commitlog").run()
        return values | {DIRECT: direct["rate"]}

    def _theirs(self, context: Context) -> Mapping[str, float]:
        rate, cpu_micros = java_producer(context, self.body_bytes, self.batch_count)
        return {THROUGH_GATEWAY: rate, DIRECT: rate, CPU: cpu_micros}


class OneKib(BatchedAppend):
    """Row 1."""

    number = 1
    title = "Batched append, 1 KiB x 32"
    cause = (
        "The Python client is the wall: it encodes and hands over messages on one of the two cores (ADR 0097, 0176)."
    )
    what = (
        "One client process (reput_client.Producer.send_batch; a Java producer with 8 threads, both with a list of messages "
        "a call), flush asynchronous, unique key and a business key indexed on both sides. Lists that wait while eight "
        "requests of reput_client are under way share the next one. Direct: an append stream by hand."
    )
    body_bytes, batch_count = 1024, 32
    target = times_theirs(1, stretch=1.5)
    direct_target = times_theirs(1.2, stretch=1.8)


class Small(BatchedAppend):
    """Row 2."""

    number = 2
    title = "Batched append, 128 B x 128"
    cause = OneKib.cause
    what = "As row 1."
    body_bytes, batch_count = 128, 128
    target = times_theirs(1)
