"""Row 12: appends, queries and start as the store grows."""

import time
from collections.abc import Mapping

from benchmarks import stores
from benchmarks.figures import OURS, Metric, RowResult, at_most, medians
from benchmarks.load import Load
from benchmarks.row import QUIET, Context, Row
from benchmarks.rows.queries import our_latencies
from benchmarks.sides.our_side import running_stack
from benchmarks.sizes import Sizes

APPEND, QUERY, START = "append rate", "query by key, p50", "start"
UNITS = {APPEND: "messages/s", QUERY: "ms", START: "s"}
CURVES = {APPEND: "growth_append_rate", QUERY: "growth_query_p50", START: "growth_start"}
SLOWER_MAX = 1.2


def at(what: str, count: int) -> str:
    """The name of the metric for a store's size."""
    return f"{what} at {count:,} messages"


def slower(what: str) -> str:
    """The name of the metric for how much slower the largest store is than the smallest."""
    return f"{what}: times slower at the largest"


class Growth(Row):
    """Row 12."""

    number = 12
    title = "Growth"
    what = (
        "Stores of 128 B messages: start after a clean stop, then queries by key with a warm client, then the load of "
        "row 1; ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        limit = at_most(SLOWER_MAX, "x")
        self.metrics = (
            *(Metric(slower(what), "x", lower_is_better=True, target=limit, sides=(OURS,)) for what in UNITS),
            *(
                Metric(at(what, count), unit, lower_is_better=what != APPEND, sides=(OURS,))
                for what, unit in UNITS.items()
                for count in sizes.growth_counts
            ),
        )
        self._kept: dict[int, stores.KeptStore] = {}

    def prepare(self, context: Context) -> None:
        """Makes the stores."""
        for count in self.sizes.growth_counts:
            self._kept[count] = stores.message_store(context.stores, self.sizes, count, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all sizes."""
        values: dict[str, float] = {}
        for count, kept in self._kept.items():
            context.say(f"{count:,} messages")
            for what, value in self._at(context, kept).items():
                values[at(what, count)] = value
        least, most = min(self._kept), max(self._kept)
        for what in UNITS:
            change = values[at(what, most)] / values[at(what, least)]
            values[slower(what)] = 1 / change if what == APPEND else change
        return values

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds the curves."""
        for what, curve in CURVES.items():
            result.curves[curve] = [
                (count, medians(result.rounds[at(what, count)])[OURS])
                for count in sorted(self._kept)
                if at(what, count) in result.rounds
            ]

    def _at(self, context: Context, kept: stores.KeptStore) -> Mapping[str, float]:
        sizes = self.sizes
        with context.directory() as path:
            root = stores.copy_of(kept, path / "store")
            start = time.perf_counter()
            with running_stack(
                root, QUIET | stores.settings(sizes, kept.log_file_bytes), single_process=sizes.single_process
            ) as stack:
                started = time.perf_counter() - start
                stack.wait_until_built()
                address = stack.addresses["gateway"]
                query = our_latencies(address, kept, sizes.query_count, ("key",))["by key, p50"]
                load = Load(address, "producer", warm_seconds=sizes.warm_seconds / 2, seconds=sizes.measure_seconds)
                return {APPEND: load.run()["rate"], QUERY: query, START: started}
