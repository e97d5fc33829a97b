"""Row R: memory and start of the six services."""

import time
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_most
from benchmarks.row import Context, Row
from benchmarks.sizes import SAMPLE, Sizes

IDLE, IDLE_PSS, START = "idle, RSS", "idle, PSS", "to SERVING"


class SixServices(Row):
    """Row R."""

    number = "R"
    title = "Six services on an empty store"
    what = (
        f"The supervisor and the six services: until the port file of `reput serve` is there; memory {SAMPLE.idle_seconds:g} s "
        "later, when what a start loads is loaded. RSS counts what processes share once for each of them, PSS once. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        ours = (OURS,)
        self.metrics = (
            Metric(IDLE, "MiB", lower_is_better=True, target=at_most(400, "MiB"), sides=ours),
            Metric(START, "s", lower_is_better=True, target=at_most(2, "s"), sides=ours),
            Metric(IDLE_PSS, "MiB", lower_is_better=True, sides=ours),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        begin = time.perf_counter()
        with context.ours(in_processes=True) as stack:
            started = time.perf_counter() - begin
            time.sleep(self.sizes.idle_seconds)  # idle is measured
            pids = stack.pids()
            return {START: started, IDLE: processes.memory_mib(pids), IDLE_PSS: processes.memory_mib(pids, "Pss")}
