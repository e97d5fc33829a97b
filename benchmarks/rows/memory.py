"""Row 10: memory of the processes."""

import subprocess
import time
from collections.abc import Callable, Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, RowResult, at_most
from benchmarks.load import TOPIC, Load, environment
from benchmarks.row import Context, Row
from benchmarks.rows.batched_append import JAVA_THREADS
from benchmarks.sides import rocketmq_side
from benchmarks.sizes import Sizes

IDLE, IDLE_PSS, LOADED, FLAT = "idle, RSS", "idle, PSS", "under load 1, RSS, greatest", "the load's end / its middle"
SAMPLE_SECONDS = 0.25
LOAD_SECONDS_EXTRA = 120.0


class Memory(Row):
    """Row 10."""

    number = 10
    title = "Memory of all processes together"
    what = (
        "Ours: the supervisor and the six services; theirs: name server, broker (heap 2 GiB) and gRPC proxy (1 GiB). "
        "RSS counts what processes share once for each of them, PSS once."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(IDLE, "MiB", lower_is_better=True, target=at_most(350, "MiB")),
            Metric(IDLE_PSS, "MiB", lower_is_better=True),
            Metric(LOADED, "MiB", lower_is_better=True, target=at_most(800, "MiB")),
            Metric(FLAT, "x", lower_is_better=True, target=at_most(1.1, "x"), sides=(OURS,)),
        )
        self._curve: list[tuple[float, float]] = []

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        sizes = self.sizes
        if side == OURS:
            with context.ours(in_processes=True) as stack:
                load = Load(stack.addresses["gateway"], "producer", warm_seconds=0, seconds=sizes.load_seconds)
                time.sleep(sizes.settle_seconds)
                values, self._curve = _watch(stack.pids, load.command())
            return values
        with context.theirs(proxy=True) as rocketmq:
            rocketmq.create_topic(TOPIC)
            command = rocketmq_side.driver_command(
                rocketmq.work, "AppendLoad", rocketmq.namesrv, TOPIC, JAVA_THREADS, 1024, 32, 0, sizes.load_seconds
            )
            time.sleep(sizes.settle_seconds)
            values, _ = _watch(rocketmq.pids, command)
        return {name: value for name, value in values.items() if name != FLAT}

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds the curve of the last round."""
        result.curves["memory"] = self._curve


def _watch(pids: Callable[[], list[int]], load: list[str]) -> tuple[dict[str, float], list[tuple[float, float]]]:
    idle, idle_pss = processes.memory_mib(pids()), processes.memory_mib(pids(), "Pss")
    start = time.monotonic()
    curve: list[tuple[float, float]] = []
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with processes.ended(subprocess.Popen(load, env=environment(), **quiet)) as process:
        while process.poll() is None:
            curve.append((round(time.monotonic() - start, 1), processes.memory_mib(pids())))
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise RuntimeError(f"the load ended with {process.returncode}")
    middle, last = curve[len(curve) // 2][1], curve[-1][1]
    greatest = max(mib for _, mib in curve)
    return {IDLE: idle, IDLE_PSS: idle_pss, LOADED: greatest, FLAT: last / middle}, curve
