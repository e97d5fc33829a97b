"""Row L: appends, memory, checkpoints and starts as lite topics grow in number."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping

from benchmarks import processes
from benchmarks.figures import OURS, THEIRS, Metric, RowResult, Target, at_most, medians
from benchmarks.load import LITE, TOPIC, Load, lite_message
from benchmarks.row import ASYNC_FLUSH, QUIET, Context, Row
from benchmarks.sides import remoting_side, rocketmq_side
from benchmarks.sides.our_side import BUILT_SECONDS_MAX, OurStack, running_stack
from benchmarks.sizes import Sizes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import Producer

RATE, CPU, FIRST_CPU = "append rate", "CPU of a message", "CPU of a first message"
START, START_KILLED = "start", "start after kill -9"
START_CPU, START_KILLED_CPU = "CPU of a start", "CPU of a start after kill -9"
MEMORY, DISK = "PSS", "disk"
CHANGE_CPU, CHANGE_WRITTEN = "CPU until 1,000 messages are in checkpoints", "written by 1,000 messages and checkpoints"
UNITS = {
    RATE: "messages/s",
    CPU: "us",
    FIRST_CPU: "us",
    START: "s",
    START_KILLED: "s",
    START_CPU: "s",
    START_KILLED_CPU: "s",
    MEMORY: "MiB",
    DISK: "MiB",
    CHANGE_CPU: "s",
    CHANGE_WRITTEN: "MiB",
}
# Theirs, beside files: queues in RocksDB.
ROCKSDB = ", RocksDB"
ROCKSDB_SETTINGS = {"storeType": "defaultRocksDB"}
THEIR_METRICS = (RATE, CPU, FIRST_CPU, START, START_CPU, MEMORY, DISK)
# By the number of lite topics, how many times slower appends may be than with the fewest.
SLOWER_MAX = {10_000: 1.1, 100_000: 1.3, 1_000_000: 1.5}
MEMORY_MAX_MIB, START_SECONDS_MAX = 1024, 10.0
BODY_BYTES, BATCH, FIRST_BATCH = 128, 32, 500
CHANGED_COUNT = 1_000
CALL_SECONDS_MAX = 60.0
QUEUE_COUNT = 8
THREADS, WARM_UP_COUNT = 16, 2_000
LIGHT_BROKER = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "maxLmqConsumeQueueNum": 2_000_000,
    **remoting_side.PATIENT,
}


def at(what: str, count: int) -> str:
    """The name of the metric for so many lite topics."""
    return f"{what}, {count:,} lite topics"


def slower(what: str, count: int) -> str:
    """The name of the metric for how much slower appends are than with the fewest lite topics."""
    return f"{what}: times slower with {count:,} lite topics"


class LiteGrowth(Row):
    """Row L."""

    number = "L"
    title = "Growth by lite topics"
    cause = (
        "Tables of a million names leave the CPU's caches, and a start reads the newest log file for recent keys "
        "(ADR 0161)."
    )
    what = (
        f"Messages of {BODY_BYTES} B, the first of each lite topic in batches of {FIRST_BATCH}, then of all topics in turn "
        f"in calls of {BATCH}, which share requests; CPU is that of all our services, or of the broker, until queues and index "
        "have the messages. "
        "RocketMQ: single sends with INNER_MULTI_DISPATCH from its Java client (a broker gives batches no positions), with "
        "queues in files and in RocksDB. PSS after the load, disk as allocated. Start: `reput serve` until a message is "
        "appended to a lite topic and its queue has it; the broker until it is registered and its queues have all messages."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        fewest, *more = sizes.lite_counts
        limits = {MEMORY: MEMORY_MAX_MIB, START: START_SECONDS_MAX, START_KILLED: START_SECONDS_MAX}
        counted = [
            (what, unit, count)
            for what, unit in UNITS.items()
            for count in (more if what == FIRST_CPU else sizes.lite_counts)  # of a few, it is that of a few calls
        ]
        self.metrics = (
            *(
                Metric(slower(what, count), "x", lower_is_better=True, target=_limit(SLOWER_MAX.get(count), "x"))
                for what in (CPU, RATE)
                for count in more
            ),
            *(
                Metric(
                    at(what, count),
                    unit,
                    lower_is_better=what != RATE,
                    target=_limit(limits.get(what) if count != fewest else None, unit),
                    sides=(OURS, THEIRS) if what in THEIR_METRICS else (OURS,),
                )
                for what, unit, count in counted
            ),
            *(
                Metric(at(what + ROCKSDB, count), unit, lower_is_better=what != RATE, sides=(THEIRS,))
                for what, unit, count in counted
                if what in THEIR_METRICS
            ),
        )
        self._failures: list[str] = []

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all counts."""
        values: dict[str, float] = {}
        for count in self.sizes.lite_counts:
            if side == OURS:
                context.say(f"{count:,} lite topics")
                values |= {at(what, count): value for what, value in self._ours(context, count).items()}
                continue
            for kind, settings in (("", {}), (ROCKSDB, ROCKSDB_SETTINGS)):
                context.say(f"{count:,} lite topics{kind}")
                try:
                    found = self._theirs(context, count, settings)
                except (RuntimeError, OSError) as error:
                    # No answer in time, too: the next count is measured in any case.
                    self._failures.append(
                        f"RocketMQ{kind} did not get through {count:,}: {str(error).splitlines()[0][:160]}"
                    )
                else:
                    values |= {at(what + kind, count): value for what, value in found.items()}
        return values

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares all counts with the fewest, and says what failed."""
        fewest, *more = self.sizes.lite_counts
        for what in (CPU, RATE):
            for count in more:
                few, many = (medians(result.rounds.get(at(what, one), {})) for one in (fewest, count))
                times = {side: few[side] / many[side] for side in few.keys() & many.keys()}
                result.rounds[slower(what, count)] = {
                    side: [value if what == RATE else 1 / value] for side, value in times.items()
                }
        result.notes += dict.fromkeys(self._failures)

    def _ours(self, context: Context, count: int) -> Mapping[str, float]:
        """By metric, without the number of lite topics."""
        sizes = self.sizes
        found: dict[str, float] = {}
        with context.directory() as path:
            root = path / "store"
            with _started(root, sizes) as stack:
                stack.gateway.CreateTopic(
                    pb.CreateTopicRequest(
                        topic=LITE, queue_count=QUEUE_COUNT, message_type=message_pb2.MESSAGE_TYPE_LITE
                    ),
                    timeout=CALL_SECONDS_MAX,
                )
                # What the first messages of a process cost is not counted.
                _send(stack, WARM_UP_COUNT, sizes.lite_counts[0])
                stack.wait_until_built(BUILT_SECONDS_MAX)
                found[FIRST_CPU] = 1e6 / count * _cpu_of(stack, lambda: _send(stack, count, count))
                load = Load(
                    stack.addresses["gateway"],
                    body_bytes=BODY_BYTES,
                    batch_count=BATCH,
                    lite_count=count,
                    warm_seconds=sizes.warm_seconds / 2,
                    seconds=sizes.measure_seconds,
                )
                measured: dict[str, float] = {}
                cpu_seconds = _cpu_of(stack, lambda: measured.update(load.run()))
                found |= {RATE: measured["rate"], CPU: 1e6 * cpu_seconds / measured["count"]}
                time.sleep(sizes.checkpoint_seconds)
                found[MEMORY] = processes.memory_mib(stack.pids(), "Pss")
                found |= self._checkpoints(stack, count)
                found[DISK] = _allocated_mib(root)
            begin = time.perf_counter()
            with _started(root, sizes) as stack:
                found[START] = _first_message_seconds(stack, begin)
                found[START_CPU] = processes.cpu_seconds(stack.pids())
                _send_changes(stack, count)
                stack.kill()
            begin = time.perf_counter()
            with _started(root, sizes) as stack:
                found[START_KILLED] = _first_message_seconds(stack, begin)
                found[START_KILLED_CPU] = processes.cpu_seconds(stack.pids())
        return found

    def _checkpoints(self, stack: OurStack, count: int) -> Mapping[str, float]:
        """The cost of a few messages, with what is written for them later, less the cost of idle services."""
        seconds = self.sizes.checkpoint_seconds

        def cost(act: Callable[[], object]) -> tuple[float, float]:
            pids = stack.pids()
            cpu, written = processes.cpu_seconds(pids), processes.written_mib(pids)
            act()
            time.sleep(seconds)
            return processes.cpu_seconds(pids) - cpu, processes.written_mib(pids) - written

        idle = cost(lambda: None)
        changed = cost(lambda: _send_changes(stack, count))
        return {CHANGE_CPU: max(0.0, changed[0] - idle[0]), CHANGE_WRITTEN: max(0.0, changed[1] - idle[1])}

    def _theirs(self, context: Context, count: int, settings: Mapping[str, str]) -> Mapping[str, float]:
        """Likewise of a broker."""
        sizes = self.sizes
        with context.directory() as path:
            root, work = path / "store", path / "work"
            options = {**ASYNC_FLUSH, **LIGHT_BROKER, **settings}
            with rocketmq_side.running_rocketmq(root, work, **options) as rocketmq:
                rocketmq.create_topic(TOPIC, QUEUE_COUNT)

                def drive(warm_seconds: float, seconds: float, first_count: int) -> tuple[Mapping[str, float], float]:
                    before = processes.cpu_seconds(rocketmq.pids())
                    said = rocketmq.driver(
                        "AppendLoad",
                        rocketmq.namesrv,
                        TOPIC,
                        THREADS,
                        BODY_BYTES,
                        1,
                        warm_seconds,
                        seconds,
                        count,
                        first_count,
                    )
                    if said["errors"]:
                        raise RuntimeError(f"{said['errors']} sends failed")
                    rocketmq.wait_until_built(BUILT_SECONDS_MAX)
                    return said, processes.cpu_seconds(rocketmq.pids()) - before

                first_cpu = drive(0, 0, count)[1]
                said, cpu = drive(sizes.warm_seconds, sizes.measure_seconds, 0)
                found = {
                    FIRST_CPU: 1e6 * first_cpu / count,
                    RATE: said["rate"],
                    CPU: 1e6 * cpu / said["count"],
                    MEMORY: processes.memory_mib(rocketmq.pids(), "Pss"),
                    DISK: _allocated_mib(root),
                }
            begin = time.perf_counter()
            with rocketmq_side.running_rocketmq(root, work, **options) as rocketmq:
                rocketmq.wait_until_built(BUILT_SECONDS_MAX)
                found[START] = time.perf_counter() - begin
                found[START_CPU] = processes.cpu_seconds(rocketmq.pids())
        return found


def _limit(limit: float | None, unit: str) -> Target | None:
    return None if limit is None else at_most(limit, unit)


@contextlib.contextmanager
def _started(root: pathlib.Path, sizes: Sizes) -> Iterator[OurStack]:
    with running_stack(root, QUIET, single_process=sizes.single_process) as stack:
        yield stack


def _send(stack: OurStack, count: int, lite_count: int, step: int = 1) -> None:
    """Sends messages to every `step`th lite topic in turn; returns when all are acknowledged."""
    body = bytes(BODY_BYTES)
    with Producer(stack.addresses["gateway"]) as producer:
        sent = [
            producer.send_batch(
                [
                    lite_message(number, number * step % lite_count, body)
                    for number in range(begin, min(begin + FIRST_BATCH, count))
                ]
            )
            for begin in range(0, count, FIRST_BATCH)
        ]
        for one in sent:
            one.result()


def _send_changes(stack: OurStack, lite_count: int) -> None:
    """Sends messages to lite topics that are spread evenly."""
    _send(stack, CHANGED_COUNT, lite_count, max(1, lite_count // CHANGED_COUNT))


def _cpu_of(stack: OurStack, act: Callable[[], object]) -> float:
    """The CPU time (s) of all services for what is done, until it is built."""
    before = processes.cpu_seconds(stack.pids())
    act()
    stack.wait_until_built(BUILT_SECONDS_MAX)
    return processes.cpu_seconds(stack.pids()) - before


def _first_message_seconds(stack: OurStack, begin: float) -> float:
    _send(stack, 1, 1)
    stack.wait_until_built(BUILT_SECONDS_MAX)
    return time.perf_counter() - begin


def _allocated_mib(root: pathlib.Path) -> float:
    return sum(path.lstat().st_blocks for path in (root, *root.rglob("*"))) * 512 / (1 << 20)
