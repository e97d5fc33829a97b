"""Row T15: the same job on one worker of a cluster and on two."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

from benchmarks import processes, stores
from benchmarks.figures import OURS, Metric, RowResult, at_least
from benchmarks.row import Context, Row
from benchmarks.sides.spark_side import SparkSide, running_spark
from benchmarks.sizes import MIB, TINY, Sizes
from tests.pipeline.spark_home import INSTALLED, SHORT_LIFE
from tests.pipeline.standalone import Cluster, running_cluster

SCAN, SCAN_WALL = "scan: CPU time of one / of the busier of two", "scan: wall time of one / of two"
REBUILD, REBUILD_WALL = "rebuild: CPU time of one / of the busier of two", "rebuild: wall time of one / of two"
ONE_WORKER = "scan on one worker"
RATIO_MIN = 1.6
# As a user has it, not as tests start it.
AS_INSTALLED = {"SPARK_HOME": str(INSTALLED), "SPARK_SUBMIT_OPTS": SHORT_LIFE}
# Enough splits that two workers can share them evenly.
SPLIT_BYTES, SPLIT_BYTES_TINY = 64 * MIB, MIB // 4


class TwoWorkers(Row):
    """Row T15."""

    number = "T15"
    title = "Two workers against one on the same job"
    cause = "Driver, master and both workers share two cores, so the tasks are not of equal length."
    what = (
        "A standalone cluster on this machine, each worker with one core and one executor. The scan reads the queue columns "
        "into noop, the rebuild writes queues and an index into a directory; each job runs three times before, so that each "
        "worker's JVM is warm. Two workers need two cores for themselves, which this machine shares with the driver and the "
        "master: so the target is on CPU time, that of "
        "the executor on one worker by that of the busier executor of two. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(SCAN, "times", target=at_least(RATIO_MIN, "times"), sides=(OURS,)),
            Metric(SCAN_WALL, "times", sides=(OURS,)),
            Metric(REBUILD, "times", sides=(OURS,)),
            Metric(REBUILD_WALL, "times", sides=(OURS,)),
            Metric(ONE_WORKER, "s", lower_is_better=True, sides=(OURS,)),
        )
        self._kept: stores.KeptStore | None = None

    def prepare(self, context: Context) -> None:
        """The log."""
        self._kept = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round: a cluster of one worker, then one of two."""
        one, two = self._run(context, 1), self._run(context, 2)
        return {
            SCAN: one["scan"][0] / two["scan"][0],
            SCAN_WALL: one["scan"][1] / two["scan"][1],
            REBUILD: one["rebuild"][0] / two["rebuild"][0],
            REBUILD_WALL: one["rebuild"][1] / two["rebuild"][1],
            ONE_WORKER: one["scan"][1],
        }

    def finish(self, context: Context, result: RowResult) -> None:
        """Notes what limits the figures."""
        result.notes.append(
            "A rebuild has one task for each index file: with one index file, that part has no second worker."
        )

    def _run(self, context: Context, worker_count: int) -> dict[str, tuple[float, float]]:
        """By job: CPU time of the busiest executor, and wall time, in seconds."""
        assert self._kept is not None
        with context.directory() as work:
            root = stores.log_only_root(self._kept, work / "store", is_ours=True)
            stores.warm(root)
            with _cluster_session(work, worker_count) as (cluster, spark):
                figures: dict[str, tuple[float, float]] = {}
                for attempt in ("first", "second", "third", "measured"):
                    before = _executor_seconds(cluster)
                    split_bytes = SPLIT_BYTES_TINY if self.sizes.name == TINY.name else SPLIT_BYTES
                    options = {"splitBytes": str(split_bytes), "boundaryCache": str(work / "boundaries")}
                    scan = spark.ask("scan", store=root, columns="topic,queueId,queueOffset", options=options)
                    between = _executor_seconds(cluster)
                    rebuild = spark.ask(
                        "rebuild", store=root, out=work / attempt, slot_count=self.sizes.index_slot_count,
                        entry_count=self.sizes.index_entry_count, split_bytes=split_bytes,
                    )  # fmt: skip
                    after = _executor_seconds(cluster)
                    figures["scan"] = _busiest(before, between), scan["seconds"]
                    figures["rebuild"] = _busiest(between, after), rebuild["seconds"]
                if len(after) != worker_count:
                    raise RuntimeError(f"{len(after)} executors ran on {worker_count} workers")
        return figures


@contextlib.contextmanager
def _cluster_session(work: pathlib.Path, worker_count: int) -> Iterator[tuple[Cluster, SparkSide]]:
    """A session on a cluster that has all its executors."""
    with (
        running_cluster(work / "cluster", worker_count, further=AS_INSTALLED) as cluster,
        running_spark(work / "spark", cluster.url) as spark,
    ):
        spark.ask("wait_for_executors", count=worker_count)
        yield cluster, spark


def _executor_seconds(cluster: Cluster) -> list[float]:
    """CPU time so far of each executor, with its Python workers."""
    return [
        processes.cpu_seconds([pid for executor in executors for pid in processes.family(executor)])
        for executors in cluster.executors()
        if executors
    ]


def _busiest(before: list[float], after: list[float]) -> float:
    return max(end - begin for begin, end in zip(before, after, strict=True))
