"""Row T13: a topic into Parquet on Spark, through a gateway."""

from collections.abc import Mapping

from benchmarks.figures import OURS, Metric, RowResult, at_least
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row
from benchmarks.rows.bulk_pull import QUEUE_COUNT
from benchmarks.rows.consuming import fill_seconds
from benchmarks.sides.spark_side import SparkSide
from benchmarks.sizes import Sizes
from tests.clients.servers import ReputServer

KAFKA, NATIVE = "view=kafka", "all native columns"
OPTIONS: Mapping[str, Mapping[str, str]] = {KAFKA: {"view": "kafka"}, NATIVE: {}}


class BulkParquet(Row):
    """Row T13."""

    number = "T13"
    title = "A topic into Parquet on Spark, 1 KiB"
    what = (
        f"{QUEUE_COUNT} queues, read by format(rocketmq) through the gateway on local[2] and written as Parquet, "
        "without compression; services and Spark share two cores. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = at_least(100_000, "messages/s")
        self.metrics = tuple(Metric(name, "messages/s", target=target, sides=(OURS,)) for name in OPTIONS)
        self._side: SparkSide | None = None

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if self._side is None:
            self._side = SparkSide(context.scratch / f"spark-{self.number}")
        with context.ours() as stack, context.directory() as work:
            server = ReputServer(stack)
            server.create_topic(TOPIC, QUEUE_COUNT, "NORMAL")
            sent_count = Load(server.endpoint, warm_seconds=0, seconds=fill_seconds(self.sizes)).run()["count"]
            stack.wait_until_built()
            rates: dict[str, float] = {}
            for name, options in OPTIONS.items():
                out = work / name.replace(" ", "-")
                answer = self._side.ask(
                    "copy_topic", endpoint=server.endpoint, topic=TOPIC, out=out, options=dict(options)
                )
                if answer["count"] != sent_count:
                    raise RuntimeError(f"{sent_count} were sent; {answer['count']} were written")
                rates[name] = sent_count / float(answer["seconds"])
        return rates

    def finish(self, context: Context, result: RowResult) -> None:
        """Ends the session."""
        if self._side is not None:
            self._side.end()
            self._side = None
