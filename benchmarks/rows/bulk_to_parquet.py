"""Row T13: Spark consumes a topic through a gateway into Parquet files."""

from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_least
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row
from benchmarks.rows.bulk_pull import QUEUE_COUNT
from benchmarks.rows.consuming import fill_seconds
from benchmarks.sides.our_side import OurStack
from benchmarks.sides.spark_side import SparkSide, running_spark
from benchmarks.sizes import Sizes
from tests.clients.servers import ReputServer
from tests.pipeline.rocketmq.gateways import append

RATE = "into Parquet"
CPU = "CPU of {}"
PARTS = {  # what stands between the log and the files: its processes
    "the gateway": ("gateway",),
    "the log, the queues and the groups": ("commitlog_svc", "consumequeue_svc", "consumer_svc"),
}
SPARK = "Spark"
ALONE = "Spark alone, from ready rows"
CPU_ALONE = f"CPU of {ALONE}"
RATE_MIN = 100_000
WARM_TOPIC, WARM_COUNT = "Warm", 2_000
FEW = f"a topic of {WARM_COUNT:,} messages"
# A query takes seconds whatever it reads: the topic is filled for longer than those of the other rows of consumers.
FILL_TIMES = 4


class BulkToParquet(Row):
    """Row T13."""

    number = "T13"
    title = "Spark consumes a topic into Parquet, 1 KiB"
    cause = "Spark alone takes 22 of 27 us of CPU a message, and as many with ready rows (ADR 0079, 0097)."
    what = (
        f'format("rocketmq") with trigger availableNow and consumerGroup reads {QUEUE_COUNT} queues through the gateway on '
        "local[2] in a warm session; the file sink writes all columns as Parquet. Services and Spark have the same two cores: "
        "the CPU time of each for a message says where the wall is. The same query on a topic of few messages says what a "
        "stream's start and end take. Then Spark alone writes about as many rows whose Arrow batches are ready in its workers: "
        "what is left of the row's rate without any reading. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(RATE, "messages/s", target=at_least(RATE_MIN, "messages/s"), sides=(OURS,)),
            *(
                Metric(CPU.format(part), "us a message", lower_is_better=True, sides=(OURS,))
                for part in (*PARTS, SPARK)
            ),
            Metric(FEW, "s", lower_is_better=True, sides=(OURS,)),
            Metric(ALONE, "messages/s", sides=(OURS,)),
            Metric(CPU_ALONE, "us a message", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round, on a store of its own; queries on another topic warm the session."""
        with context.ours() as stack, context.directory() as work, running_spark(work / "spark") as spark:
            server = ReputServer(stack)
            server.create_topic(TOPIC, QUEUE_COUNT, "NORMAL")
            seconds = FILL_TIMES * fill_seconds(self.sizes)
            sent_count = Load(server.endpoint, warm_seconds=0, seconds=seconds).run()["count"]
            stack.wait_until_built()
            endpoint = stack.addresses["gateway"]
            append(endpoint, WARM_TOPIC, [bytes(1024)] * WARM_COUNT)
            stack.wait_until_built()
            for out in ("first", "few"):
                few = spark.ask("consume_to_parquet", endpoint=endpoint, topic=WARM_TOPIC, out=work / out)
            before = _cpu_seconds(stack, spark)
            answer = spark.ask("consume_to_parquet", endpoint=endpoint, topic=TOPIC, out=work / "out")
            after = _cpu_seconds(stack, spark)
            alone = spark.ask("ready_rows_to_parquet", store=stack.store, out=work / "ready")
            alone_micros = (_cpu_seconds(stack, spark)[SPARK] - after[SPARK]) * 1e6 / alone["count"]
        if answer["count"] != sent_count:
            raise RuntimeError(f"{sent_count} were sent; {answer['count']} are in the files")
        micros = {CPU.format(part): (after[part] - before[part]) * 1e6 / sent_count for part in after}
        return (
            {RATE: sent_count / answer["seconds"], FEW: few["seconds"]}
            | micros
            | {ALONE: alone["count"] / alone["seconds"], CPU_ALONE: alone_micros}
        )


def _cpu_seconds(stack: OurStack, spark: SparkSide) -> dict[str, float]:
    """CPU time so far, by part."""
    pids = stack.children()
    seconds = {
        part: processes.cpu_seconds(list({pid for module in modules for pid in processes.family(pids[module])}))
        for part, modules in PARTS.items()
    }
    return seconds | {SPARK: processes.cpu_seconds(processes.family(spark.process.pid))}
