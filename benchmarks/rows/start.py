"""Row 11: from an empty store to serving."""

import time
from collections.abc import Mapping

from benchmarks.figures import OURS, Metric, at_most
from benchmarks.row import Context, Row
from benchmarks.sizes import Sizes

START, BROKER = "all processes", "theirs without the proxy"


class Start(Row):
    """Row 11."""

    number = 11
    title = "Start to serving on an empty store"
    what = (
        "Ours: `reput serve` until its port file comes. Theirs: name server, broker until registered, then the proxy."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(START, "s", lower_is_better=True, target=at_most(3, "s")),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        start = time.perf_counter()
        with context.ours(in_processes=True) if side == OURS else context.theirs(proxy=True):
            return {START: time.perf_counter() - start}
