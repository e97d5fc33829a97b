"""Row 21: memory and start of the schedule service as more messages wait."""

import time
from collections.abc import Mapping

from benchmarks import processes, stores
from benchmarks.figures import OURS, Metric, RowResult, at_most, medians
from benchmarks.row import QUIET, Context, Row
from benchmarks.sides.our_side import BUILT_SECONDS_MAX, running_stack
from benchmarks.sizes import Sizes

FLAT = "memory with most / with fewest"
FLAT_MAX = 1.2
START_SECONDS_MAX = 3.0
SERVICE = "schedule_svc"


def memory_name(count: int) -> str:
    """The name of the metric of memory with so many that wait."""
    return f"RSS, {count:,} waiting"


def start_name(count: int) -> str:
    """The name of the metric of the start with so many that wait."""
    return f"start, {count:,} waiting"


class TimerGrowth(Row):
    """Row 21."""

    number = 21
    title = "The schedule service as more messages wait"
    what = (
        "All wait by the timer, for times of 30 days. RSS of the schedule service, with the pages of its files that it has "
        "mapped. Start: `reput serve` with all its processes after an orderly end, until the schedule service knows "
        "everything that waits. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        limit = at_most(START_SECONDS_MAX, "s")
        self.metrics = (
            Metric(FLAT, "x", lower_is_better=True, target=at_most(FLAT_MAX, "x"), sides=(OURS,)),
            *(
                Metric(start_name(count), "s", lower_is_better=True, target=limit, sides=(OURS,))
                for count in sizes.timer_counts
            ),
            *(Metric(memory_name(count), "MiB", lower_is_better=True, sides=(OURS,)) for count in sizes.timer_counts),
        )
        self._kept: dict[int, stores.KeptStore] = {}

    def prepare(self, context: Context) -> None:
        """Makes the stores."""
        for count in self.sizes.timer_counts:
            self._kept[count] = stores.timer_store(context.stores, self.sizes, count, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all counts."""
        values: dict[str, float] = {}
        for count, kept in self._kept.items():
            context.say(f"{count:,} waiting")
            with context.directory() as path:
                root = stores.copy_of(kept, path / "store")
                stores.warm(root)
                start = time.perf_counter()
                with running_stack(
                    root, QUIET | stores.timer_settings(self.sizes), single_process=self.sizes.single_process
                ) as stack:
                    stores.wait_until_timers_known(stack, kept.message_count, BUILT_SECONDS_MAX)
                    values[start_name(count)] = time.perf_counter() - start
                    time.sleep(self.sizes.settle_seconds)  # memory after the start's work, not in it
                    values[memory_name(count)] = processes.memory_mib([stack.children()[SERVICE]])
        return values

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares the most with the fewest."""
        few, most = (medians(result.rounds[memory_name(count)])[OURS] for count in (min(self._kept), max(self._kept)))
        result.rounds[FLAT] = {OURS: [most / few]}
