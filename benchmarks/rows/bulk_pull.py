"""Row 15: a stream processor reads a whole topic."""

import sys
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, times_theirs
from benchmarks.load import TOPIC, Load, environment
from benchmarks.log_records import read_records
from benchmarks.row import Context, Row
from benchmarks.rows.consuming import fill_seconds
from benchmarks.sides import rocketmq_side
from benchmarks.sizes import Sizes
from tests.clients.servers import ReputServer

QUEUE_COUNT = 8
BATCH = 256
COMPILED, PYTHON = "compiled client", "Python client"
PULL_SECONDS_MAX = 300.0


class BulkPull(Row):
    """Row 15."""

    number = 15
    title = "Bulk pull of a topic, 1 KiB"
    what = (
        f"{QUEUE_COUNT} queues at once, batches of {BATCH}. Ours: PullMessages through the gateway, a stream for each queue; "
        "the compiled client is a Java program on gRPC. Theirs: DefaultLitePullConsumer with 4 threads, without a proxy."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(COMPILED, "messages/s", target=times_theirs(1.0)),
            Metric(PYTHON, "messages/s", sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        seconds = fill_seconds(self.sizes)
        if side == OURS:
            with context.ours() as stack, context.directory() as work:
                server = ReputServer(stack)
                server.create_topic(TOPIC, QUEUE_COUNT, "NORMAL")
                load = Load(server.endpoint, warm_seconds=0, seconds=seconds)
                sent_count = load.run()["count"]
                stack.wait_until_built()
                compiled = rocketmq_side.run_driver(work, "BulkPull", server.endpoint, TOPIC, QUEUE_COUNT, BATCH)
                command = [sys.executable, "-m", "benchmarks.bulk_pull", server.endpoint, TOPIC]
                command += [str(QUEUE_COUNT), str(BATCH)]
                out = processes.run(command, PULL_SECONDS_MAX, env=environment())
                python = rocketmq_side.json_line(out)
            if not compiled["count"] == python["count"] == sent_count:
                raise RuntimeError(f"{sent_count} were sent; {compiled['count']} and {python['count']} were read")
            return {COMPILED: compiled["rate"], PYTHON: python["rate"]}
        with context.theirs(waitTimeMillsInSendQueue=10_000) as rocketmq:
            rocketmq.create_topic(TOPIC, QUEUE_COUNT)
            rocketmq.driver("AppendLoad", rocketmq.namesrv, TOPIC, 2, 1024, 32, 0, seconds)
            rocketmq.wait_until_built()
            # Its driver counts a send that is on its way at the end, whatever becomes of it.
            stored_count = sum(record.topic == TOPIC for record in read_records(rocketmq.store))
            pulled = rocketmq.driver("LitePull", rocketmq.namesrv, TOPIC, stored_count, BATCH)
        return {COMPILED: pulled["rate"]}
