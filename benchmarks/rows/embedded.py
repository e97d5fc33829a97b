"""Row E: a store inside a program."""

import json
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.figures import ECHO, OURS, Metric, Target, at_most, quantile
from benchmarks.load import environment
from benchmarks.row import Context, Row
from benchmarks.rows.queries import KINDS
from benchmarks.sides.echo import running_echo, unary_latencies_millis
from benchmarks.sizes import Sizes

IMPORT_CPU, IMPORT, OPEN, MEMORY, DISK, APPEND = (
    "import, CPU",
    "import",
    "open of an empty store",
    "memory after it",
    "disk after 1,000 messages",
    "append of 1 KiB, p50",
)
QUERY_FACTOR = 1.2


def part_of_the_echo(factor: float) -> Target:
    """A time of at most `factor` times that of the bare echo."""
    return Target(f"<= {factor:g} x bare echo", lambda middle: factor * middle[ECHO])


class Embedded(Row):
    """Row E."""

    number = "E"
    title = "A store inside a program"
    what = (
        "A new process imports `reput_embedded`, opens an empty store and calls it from its main thread, one call after the "
        "other. The echo: a bare server of grpcio in another process gives 1 KiB back. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        sides = (OURS, ECHO)
        self.metrics = (
            Metric(IMPORT_CPU, "s", lower_is_better=True, target=at_most(0.8, "s"), sides=(OURS,)),
            Metric(IMPORT, "s", lower_is_better=True, sides=(OURS,)),
            Metric(OPEN, "s", lower_is_better=True, target=at_most(0.5, "s"), sides=(OURS,)),
            Metric(MEMORY, "MiB", lower_is_better=True, target=at_most(150, "MiB"), sides=(OURS,)),
            Metric(DISK, "MiB", lower_is_better=True, target=at_most(64, "MiB"), sides=(OURS,)),
            *(
                Metric(f"{name}, p50", "ms", lower_is_better=True, target=part_of_the_echo(QUERY_FACTOR), sides=sides)
                for name in KINDS.values()
            ),
            Metric(APPEND, "ms", lower_is_better=True, target=part_of_the_echo(QUERY_FACTOR), sides=sides),
        )

    def prepare(self, context: Context) -> None:
        """Has Python keep its compiled files, as an installation does."""
        subprocess.run([sys.executable, "-c", "import reput_embedded"], env=_environment(), check=True)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if side == ECHO:
            with running_echo() as address:
                middle = quantile(unary_latencies_millis(address, self.sizes.query_count), 0.5)
            return {metric.name: middle for metric in self.metrics if ECHO in metric.sides}
        with context.directory() as path:
            command = [sys.executable, "-m", "benchmarks.embedded", str(path / "store"), str(self.sizes.query_count)]
            done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the program ended with {done.returncode}: {done.stderr[-2000:]}")
        values = json.loads(done.stdout)
        return {
            IMPORT_CPU: values["import_cpu_seconds"],
            IMPORT: values["import_seconds"],
            OPEN: values["open_seconds"],
            MEMORY: values["memory_mib"],
            DISK: values["disk_mib"],
            **{f"{name}, p50": values[kind] for kind, name in KINDS.items()},
            APPEND: values["append"],
        }


def _environment() -> dict[str, str]:
    return {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
