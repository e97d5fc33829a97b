"""Rows T1 to T4, T7 and T8: reading the log into Spark."""

from collections.abc import Mapping
from typing import ClassVar

from benchmarks import stores
from benchmarks.figures import OURS, Metric, RowResult, Target, at_least
from benchmarks.row import Context, Row
from benchmarks.sides.spark_side import SparkSide
from benchmarks.sizes import Sizes

QUEUE_COLUMNS = "topic,queueId,queueOffset,physicalOffset,storeSize,tagsCode"
FILTER = f"topic = '{stores.TOPIC}' and queueId = 3"
# Names of the metrics, one for each way to read.
FULL, QUEUE, TUPLES, FILTERED = "all columns, s", "queue columns, s", "all columns as tuples, s", "topic and queue, s"
PLAIN, NO_SPARK = "plain Python, one process, s", "queue columns without Spark, two processes, s"
BARE_QUEUE, BARE_FULL = "queue columns that nobody reads, s", "all columns that nobody reads, s"
TASKS: dict[str, tuple[str, dict[str, object]]] = {
    FULL: ("scan", {}),
    QUEUE: ("scan", {"columns": QUEUE_COLUMNS}),
    TUPLES: ("scan", {"form": "commitlog-tuples"}),
    FILTERED: ("scan", {"where": FILTER, "options": {"pushdown": "true"}}),
    PLAIN: ("plain", {}),
    BARE_QUEUE: ("scan", {"columns": QUEUE_COLUMNS, "form": "commitlog-bare"}),
    BARE_FULL: ("scan", {"form": "commitlog-bare"}),
    NO_SPARK: ("without_spark", {"columns": QUEUE_COLUMNS}),
}


class SparkRow(Row):
    """A row with a session that stays warm from the first round to the last."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self._kept: stores.KeptStore | None = None
        self._side: SparkSide | None = None

    @property
    def kept(self) -> stores.KeptStore:
        """The log; it exists after `prepare`."""
        assert self._kept is not None
        return self._kept

    def prepare(self, context: Context) -> None:
        """The log."""
        self._kept = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)
        stores.warm(self._kept.root)

    def side(self, context: Context) -> SparkSide:
        """The session; it starts with the first round."""
        if self._side is None:
            self._side = SparkSide(context.scratch / f"spark-{self.number}")
            self.warm_up(self._side)
        return self._side

    def warm_up(self, side: SparkSide) -> None:
        """Work before the measurement: Java compiles, Python's workers load their kernels."""

    def finish(self, context: Context, result: RowResult) -> None:
        """Ends the session, and notes the size of the log."""
        result.notes.append(f"The log has {self.kept.log_end_offset:,} bytes, {self.kept.message_count:,} messages.")
        if self._side is not None:
            self._side.end()
            self._side = None


class Comparison(SparkRow):
    """Compares two ways to read, both in each round, the slower one first.

    Attributes:
        slow: the metric of the way that is expected to take longer.
        fast: the metric of the other way.
        bar: how many times as fast the fast way has to be; None for a figure without a target.
        stretch: a further goal.
        wall: the metric of the fast way without reading: a source that repeats its first batch.
    """

    slow: ClassVar[str]
    fast: ClassVar[str]
    bar: ClassVar[float | None] = None
    stretch: ClassVar[float | None] = None
    wall: ClassVar[str | None] = None

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target: Target | None = None if self.bar is None else at_least(self.bar, "times", self.stretch)
        self.metrics = (
            Metric("as fast", "times", target=target, sides=(OURS,)),
            Metric(self.slow, "s", lower_is_better=True, sides=(OURS,)),
            Metric(self.fast, "s", lower_is_better=True, sides=(OURS,)),
            *((Metric(self.wall, "s", lower_is_better=True, sides=(OURS,)),) if self.wall else ()),
        )

    def warm_up(self, side: SparkSide) -> None:
        """Runs each way once, except plain Python, which needs no warm-up, and tuples, which warm up while they run."""
        walls = (self.wall,) if self.wall else ()
        for name in (self.fast, *walls, *(() if self.slow in {PLAIN, TUPLES} else (self.slow,))):
            self._seconds(side, name)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        spark = self.side(context)
        slow, fast = self._seconds(spark, self.slow), self._seconds(spark, self.fast)
        values = {"as fast": slow / fast, self.slow: slow, self.fast: fast}
        return values | ({self.wall: self._seconds(spark, self.wall)} if self.wall else {})

    def _seconds(self, side: SparkSide, name: str) -> float:
        task, arguments = TASKS[name]
        return float(side.ask(task, store=str(self.kept.root), **arguments)["seconds"])


class QueueScan(Comparison):
    """Row T1."""

    number = "T1"
    title = "Spark scan, columns of the queue units"
    what = (
        "format('commitlog') on local[2] into noop, against a whole decode in plain Python; session warm, log in the page "
        "cache."
    )
    slow, fast, bar = PLAIN, QUEUE, 3.0


class FullScan(Comparison):
    """Row T2."""

    number = "T2"
    title = "Spark scan, all columns and bodies"
    cause = "Spark alone takes four fifths of the time to turn Arrow columns into its rows (ADR 0079)."
    what = "As T1."
    slow, fast, bar, stretch = PLAIN, FULL, 1.5, 2.0
    wall = BARE_FULL


class ArrowScan(Comparison):
    """Row T3."""

    number = "T3"
    title = "Arrow batches instead of tuples"
    what = "The same rows of all columns from the same reader, handed to Spark as batches and as tuples."
    slow, fast, bar = TUPLES, FULL, 3.0


class SparkCost(Comparison):
    """Row T4."""

    number = "T4"
    title = "What Spark itself costs"
    what = (
        "The queue columns through Spark, against the same reader in two processes without Spark: below 1 is what rows "
        "cost on their way through the JVM. Reported, not judged."
    )
    slow, fast = NO_SPARK, QUEUE
    wall = BARE_QUEUE


class Pushdown(Comparison):
    """Row T7."""

    number = "T7"
    title = "Filter by topic and queue, pushed down"
    what = "All columns; the log has one topic of eight queues, so that an eighth of the rows is left."
    slow, fast, bar = FULL, FILTERED, 2.3


class Pruning(Comparison):
    """Row T8."""

    number = "T8"
    title = "Six columns instead of all"
    what = "Option `columns`, against all columns with bodies."
    slow, fast, bar = FULL, QUEUE, 2.0
