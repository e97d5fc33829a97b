"""Rows 1c and 2c: batches from compiled clients."""

from collections.abc import Mapping
from typing import ClassVar

from benchmarks import processes
from benchmarks.figures import OURS, Metric, RowResult, times_theirs
from benchmarks.load import TOPIC
from benchmarks.row import Context, Row, SkippedError
from benchmarks.rows.batched_append import java_producer
from benchmarks.sides import compiled_side
from benchmarks.sides.our_side import OurStack
from benchmarks.sizes import Sizes

STREAM_COUNT, WINDOW = 4, 8
PROGRAMS = {"java": "AppendStreams", "go": "append_streams"}
NAMES = {"java": "Java client", "go": "Go client"}
SERVICES = {  # by what the table calls them: their processes
    "gateway": ("gateway",),
    "commitlog service": ("commitlog_svc",),
    "builders": ("consumequeue_svc", "index_svc"),
}


def metrics_of(language: str, factor: float, stretch: float | None = None) -> tuple[Metric, ...]:
    """The figures of one client, its rate first.

    Args:
        language: of `PROGRAMS`.
        factor: how many times RocketMQ's rate is to be reached.
        stretch: the same for a further goal.
    """
    name = NAMES[language]
    parts = (f"{name}: CPU of the {part}" for part in (*SERVICES, "client"))
    return (
        Metric(name, "messages/s", target=times_theirs(factor, stretch)),
        Metric(f"{name}: CPU of the services", "us a message", lower_is_better=True),
        *(Metric(part, "us a message", lower_is_better=True, sides=(OURS,)) for part in parts),
    )


class CompiledAppend(Row):
    """Appends in batches, a compiled client on both sides."""

    body_bytes: ClassVar[int]
    batch_count: ClassVar[int]
    factor: ClassVar[float]
    stretch: ClassVar[float | None] = None

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = tuple(
            metric for language in PROGRAMS for metric in metrics_of(language, self.factor, self.stretch)
        )
        self._left_out: dict[str, str] = {}

    def prepare(self, context: Context) -> None:
        """Builds the clients."""
        reasons = {language: compiled_side.prepare(language, context.say) for language in PROGRAMS}
        self._left_out = {language: reason for language, reason in reasons.items() if reason}

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round; RocketMQ's figures are repeated for each of our clients."""
        if side == OURS:
            if len(self._left_out) == len(PROGRAMS):
                raise SkippedError("; ".join(self._left_out.values()))
            values: dict[str, float] = {}
            for language in PROGRAMS:
                if language not in self._left_out:
                    values |= self._ours(language, context)
            return values
        rate, cpu_micros = java_producer(context, self.body_bytes, self.batch_count)
        names = NAMES.values()
        return dict.fromkeys(names, rate) | {f"{name}: CPU of the services": cpu_micros for name in names}

    def finish(self, context: Context, result: RowResult) -> None:
        """Says which client is missing, and why."""
        result.notes += [f"The {NAMES[language]} is left out: {reason}." for language, reason in self._left_out.items()]

    def _ours(self, language: str, context: Context) -> Mapping[str, float]:
        name, sizes = NAMES[language], self.sizes
        load = (STREAM_COUNT, WINDOW, self.body_bytes, self.batch_count, sizes.warm_seconds, sizes.measure_seconds)
        with context.ours() as stack:
            before = _cpu_seconds(stack)
            said = compiled_side.run(language, PROGRAMS[language], stack.addresses["gateway"], TOPIC, *load)
            stack.wait_until_built()
            after = _cpu_seconds(stack)
        cpu_micros = {part: (after[part] - before[part]) * 1e6 / said["count"] for part in after}
        cpu_micros["client"] = said["cpu_micros"]
        return {name: said["rate"]} | {f"{name}: CPU of the {part}": value for part, value in cpu_micros.items()}


def _cpu_seconds(stack: OurStack) -> dict[str, float]:
    """CPU time so far, of all services and by those of `SERVICES`."""
    pids = stack.children()
    seconds = {"services": processes.cpu_seconds(stack.pids())}
    for part, modules in SERVICES.items():
        family = {pid for module in modules for pid in processes.family(pids[module])}  # services may share a process
        seconds[part] = processes.cpu_seconds(list(family))
    return seconds


class CompiledOneKib(CompiledAppend):
    """Row 1c."""

    number = "1c"
    title = "Batched append, 1 KiB x 32, compiled clients"
    cause = (
        "Half of the commit log's CPU is the kernel's sockets and switches of threads; three times RocketMQ "
        "leaves 8.7 us a message for services and client (ADR 0097)."
    )
    what = (
        f"{STREAM_COUNT} append streams on one connection, {WINDOW} requests under way on each, flush asynchronous, through "
        "the gateway: a Java client with generated stubs, and a Go client that sends bytes encoded before, with new keys in "
        "them. Theirs: the Java producer of row 1. Unique key and a business key are indexed on both sides."
    )
    body_bytes, batch_count, factor, stretch = 1024, 32, 2.0, 3.0


class CompiledSmall(CompiledAppend):
    """Row 2c."""

    number = "2c"
    title = "Batched append, 128 B x 128, compiled clients"
    cause = CompiledOneKib.cause
    what = "As row 1c."
    body_bytes, batch_count, factor = 128, 128, 2.5
