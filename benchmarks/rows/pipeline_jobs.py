"""Rows T5, T6, T9 to T11: times and memory of the pipeline's jobs, beside RocketMQ where it does the same."""

from collections.abc import Mapping

from benchmarks import stores
from benchmarks.figures import (
    OURS,
    THEIRS,
    Metric,
    RowResult,
    at_least,
    at_most,
    faster_than_theirs,
    medians,
    times_theirs,
)
from benchmarks.row import Context, Row
from benchmarks.rows.pipeline_scans import SparkRow
from benchmarks.rows.rebuild import difference, digests
from benchmarks.sides import rocketmq_side
from benchmarks.sides.spark_side import SparkSide, running_spark
from benchmarks.sizes import GIB, MIB, Sizes

REBUILD = "log to queues and index"
FILL = "keys into one index file"
LOG_GROUP, ARCHIVE_GROUP, GROUP_RATIO = "from the log, s", "from the archive, s", "as fast"
SCAN_MEMORY, REBUILD_MEMORY = "scan of all columns, greatest worker", "rebuild, greatest worker"
MEMORY_MIB_MAX = 1536.0
DEVIATION_MAX = 1.2


class SparkRebuild(Row):
    """Row T5."""

    number = "T5"
    title = "Rebuild on Spark"
    what = (
        "`pipeline.rebuild.rebuild` on local[2] in a warm session against DefaultMessageStore's own recovery of the same log, "
        "every CRC checked on both sides; without the start of Spark and of the JVM."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(REBUILD, "s", lower_is_better=True, target=faster_than_theirs(2, stretch=3)),)
        self._kept: stores.KeptStore | None = None
        self._made: dict[str, dict[str, str]] = {}

    def prepare(self, context: Context) -> None:
        """The log."""
        self._kept = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round; our session ends before RocketMQ's turn."""
        assert self._kept is not None
        kept, index = self._kept, (self.sizes.index_slot_count, self.sizes.index_entry_count)
        with context.directory() as path:
            root = stores.log_only_root(kept, path / "store", is_ours=side == OURS)
            stores.warm(root)
            if side == OURS:
                with running_spark(path / "spark") as spark:
                    spark.ask("rebuild", store=root, out=path / "warm", slot_count=index[0], entry_count=index[1])
                    spark.ask("remove", path=path / "warm")
                    answer = spark.ask(
                        "rebuild", store=root, out=path / "out", slot_count=index[0], entry_count=index[1]
                    )
                self._made[side] = digests(path / "out")
            else:
                answer = rocketmq_side.run_driver(path / "work", "StoreRebuild", root, kept.log_file_bytes, *index)
                if answer["log_end_offset"] != kept.log_end_offset:
                    raise RuntimeError(f"RocketMQ recovered {answer['log_end_offset']} of {kept.log_end_offset} bytes")
                self._made[side] = digests(root)
        return {REBUILD: answer["seconds"]}

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares the files that the two sides have made."""
        if {OURS, THEIRS} <= self._made.keys():
            result.notes.append(difference(self._made[OURS], self._made[THEIRS]))


class IndexFill(Row):
    """Row T6."""

    number = "T6"
    title = "Keys into one IndexFile"
    what = "From key strings to the whole file in the page cache, hashing included; RocketMQ: IndexFile.putKey, one thread."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(FILL, "keys/s", target=times_theirs(1.2)),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        sizes = self.sizes
        count = min(sizes.index_entry_count // 2, 5_000_000)
        with context.directory() as path:
            if side == OURS:
                from benchmarks.index_fill import fill

                seconds = fill(path / "index", sizes.index_slot_count, sizes.index_entry_count, count)
            else:
                arguments = (path, sizes.index_slot_count, sizes.index_entry_count, count, stores.TOPIC)
                seconds = rocketmq_side.run_driver(path / "work", "IndexFill", *arguments)["seconds"]
        return {FILL: count / seconds}


class ArchiveGroup(SparkRow):
    """Row T9."""

    number = "T9"
    title = "Messages by queue, from the archive instead of the log"
    what = "groupBy(topic, queueId).count() over the sealed files of the log and over their archive, two columns read on both."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(GROUP_RATIO, "times", target=at_least(1.8, "times"), sides=(OURS,)),
            Metric(LOG_GROUP, "s", lower_is_better=True, sides=(OURS,)),
            Metric(ARCHIVE_GROUP, "s", lower_is_better=True, sides=(OURS,)),
        )

    def prepare(self, context: Context) -> None:
        """Makes the log; its archive is made with the session."""
        super().prepare(context)
        self._sealed = context.scratch / "sealed"
        self._archive = context.scratch / "archive"

    def warm_up(self, side: SparkSide) -> None:
        """Makes the archive, and counts once from both; the counts must be equal."""
        sealed = self.kept.log_end_offset // self.kept.log_file_bytes * self.kept.log_file_bytes
        side.ask("archive", store=self.kept.root, out=self._archive)
        log = side.ask("count_by_queue", store=self.kept.root, end=sealed)
        archive = side.ask("count_by_queue_in_archive", archive=self._archive)
        if log["counts"] != archive["counts"]:
            raise RuntimeError(f"the log counts {log['counts']}, the archive {archive['counts']}")
        self._end = sealed

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        spark = self.side(context)
        log = float(spark.ask("count_by_queue", store=self.kept.root, end=self._end)["seconds"])
        archive = float(spark.ask("count_by_queue_in_archive", archive=self._archive)["seconds"])
        return {GROUP_RATIO: log / archive, LOG_GROUP: log, ARCHIVE_GROUP: archive}


class WorkerMemory(SparkRow):
    """Row T10."""

    number = "T10"
    title = "Memory of a Python worker"
    what = "RSS of the largest worker while it works, sampled each 50 ms; what it has mapped of the log counts."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        limit = at_most(MEMORY_MIB_MAX, "MiB")
        self.metrics = tuple(
            Metric(name, "MiB", lower_is_better=True, target=limit, sides=(OURS,))
            for name in (SCAN_MEMORY, REBUILD_MEMORY)
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        sizes, spark = self.sizes, self.side(context)
        scan = spark.ask("scan", store=self.kept.root)
        with context.directory() as path:
            layout = {"slot_count": sizes.index_slot_count, "entry_count": sizes.index_entry_count}
            rebuild = spark.ask("rebuild", store=self.kept.root, out=path / "out", **layout)
        return {SCAN_MEMORY: scan["worker_mib"], REBUILD_MEMORY: rebuild["worker_mib"]}


def at(log_bytes: int) -> str:
    """The name of the metric for a log's size."""
    return f"log of {log_bytes / GIB:g} GiB" if log_bytes >= GIB // 4 else f"log of {log_bytes / MIB:g} MiB"


class ScanGrowth(Row):
    """Row T11."""

    number = "T11"
    title = "Scan and rebuild as the log grows"
    what = (
        "Rebuild of logs of rising size in one warm session. How much the seconds per GiB of the largest exceed those of "
        "the second smallest says whether it grows in line; the smallest shows the fixed cost of a job."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric("slower per GiB at the largest", "x", True, at_most(DEVIATION_MAX, "x"), (OURS,)),
            *(Metric(at(size), "s", lower_is_better=True, sides=(OURS,)) for size in sizes.pipeline_log_bytes),
        )
        self._kept: dict[int, stores.KeptStore] = {}
        self._side: SparkSide | None = None

    def prepare(self, context: Context) -> None:
        """Makes the logs."""
        for size in self.sizes.pipeline_log_bytes:
            self._kept[size] = stores.log_store(context.stores, self.sizes, size, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all sizes."""
        if self._side is None:
            self._side = SparkSide(context.scratch / f"spark-{self.number}")
            self._seconds(context, self._side, min(self._kept))
        values = {}
        for size in self._kept:
            context.say(at(size))
            stores.warm(self._kept[size].root)
            values[at(size)] = self._seconds(context, self._side, size)
        sizes = sorted(self._kept)
        largest, base = sizes[-1], sizes[1] if len(sizes) > 2 else sizes[0]
        slower = values[at(largest)] / largest / (values[at(base)] / base)
        return {"slower per GiB at the largest": slower, **values}

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds the curve."""
        if self._side is not None:
            self._side.end()
            self._side = None
        result.curves["pipeline_growth"] = [
            (size / GIB, medians(result.rounds[at(size)])[OURS])
            for size in sorted(self._kept)
            if at(size) in result.rounds
        ]

    def _seconds(self, context: Context, side: SparkSide, size: int) -> float:
        layout = {"slot_count": self.sizes.index_slot_count, "entry_count": self.sizes.index_entry_count}
        with context.directory() as path:
            root = stores.log_only_root(self._kept[size], path / "store", is_ours=True)
            return float(side.ask("rebuild", store=root, out=path / "out", **layout)["seconds"])
