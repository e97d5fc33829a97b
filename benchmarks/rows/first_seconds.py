"""Row C: appends in the first seconds after a start, and the idle memory that this takes."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, RowResult, at_least, at_most
from benchmarks.first_seconds import BIN_SECONDS
from benchmarks.load import environment
from benchmarks.row import Context, Row
from benchmarks.sizes import Sizes

BATCH, BODY_BYTES = 32, 1024
SOON_SECONDS = 0.5
PART = f"rate from {SOON_SECONDS:g} s on, for {SOON_SECONDS:g} s / steady rate"
FIRST, SOON, STEADY = f"rate in the first {SOON_SECONDS:g} s", f"rate from {SOON_SECONDS:g} s on", "steady rate"
HALF_REACHED = "until half of the steady rate"
ADDED = "idle, RSS, more than without kernels"


class FirstSeconds(Row):
    """Row C."""

    number = "C"
    title = "The first seconds after a start, 1 KiB x 32"
    what = (
        "A client that made its requests before sends on one stream through the gateway as soon as the port file of "
        "`reput serve` is there; seconds count from then. Idle memory: all processes with and without "
        "REPUT_KERNELS=off. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        ours = (OURS,)
        self.metrics = (
            Metric(PART, "times", target=at_least(0.5, "times"), sides=ours),
            Metric(ADDED, "MiB", lower_is_better=True, target=at_most(60, "MiB"), sides=ours),
            Metric(FIRST, "messages/s", sides=ours),
            Metric(SOON, "messages/s", sides=ours),
            Metric(STEADY, "messages/s", sides=ours),
            Metric(HALF_REACHED, "s", lower_is_better=True, sides=ours),
        )
        self._curve: list[tuple[float, float]] = []

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        rates = self._rates(context)
        soon = round(SOON_SECONDS / BIN_SECONDS)
        first, steady = _mean(rates[:soon]), _mean(rates[-self._steady_bins() :])
        next_rate = _mean(rates[soon : 2 * soon])
        half = next((place for place, rate in enumerate(rates) if rate >= steady / 2), len(rates))
        self._curve = [(round((place + 1) * BIN_SECONDS, 1), rate) for place, rate in enumerate(rates)]
        return {
            PART: next_rate / steady,
            FIRST: first,
            SOON: next_rate,
            STEADY: steady,
            HALF_REACHED: (half + 1) * BIN_SECONDS,
            ADDED: self._idle_mib(context, "auto") - self._idle_mib(context, "off"),
        }

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds the curve of the last round."""
        result.curves["first_seconds"] = self._curve

    def _rates(self, context: Context) -> list[float]:
        """Messages a second in each bin after SERVING."""
        seconds = max(2 * SOON_SECONDS, self.sizes.warm_seconds) + self.sizes.measure_seconds
        command = [sys.executable, "-m", "benchmarks.first_seconds", *map(str, (BATCH, BODY_BYTES, seconds))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with processes.ended(subprocess.Popen(command, env=environment(), **pipes)) as client:
            assert client.stdout is not None
            if client.stdout.readline() != b"ready\n":
                raise RuntimeError("the client did not start")
            with context.ours() as stack:
                out, _ = client.communicate(f"{stack.addresses['gateway']} {stack.serving_time}\n".encode())
        if client.returncode:
            raise RuntimeError(f"the client ended with {client.returncode}")
        return [count / BIN_SECONDS for count in json.loads(out)]

    def _steady_bins(self) -> int:
        return round(self.sizes.measure_seconds / BIN_SECONDS)

    def _idle_mib(self, context: Context, kernels: str) -> float:
        with context.ours({"REPUT_KERNELS": kernels}) as stack:
            time.sleep(self.sizes.idle_seconds)  # idle is measured
            return processes.memory_mib(stack.pids())


def _mean(rates: list[float]) -> float:
    return sum(rates) / len(rates)
