"""Row T16: a topic into an Iceberg table, and how far the table is behind while messages come."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from pyiceberg.exceptions import NoSuchTableError

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_least, at_most
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row
from benchmarks.rows.bulk_pull import QUEUE_COUNT
from benchmarks.rows.bulk_to_parquet import FILL_TIMES
from benchmarks.rows.consuming import fill_seconds
from benchmarks.sides.spark_side import running_spark
from benchmarks.sizes import Sizes
from tests.clients.servers import ReputServer
from tests.pipeline.table.lakes import TABLE, catalog_flags, lake

RATE = "into the table"
AS_FAST = "as fast as row T13 on the same topic"
CPU = "CPU of the job"
LAG = "behind the topic's end, most"
AS_FAST_MIN, LAG_SECONDS_MAX = 0.8, 60.0
LIVE_RATE, LIVE_TIMES = 5_000, 6
JOB_SECONDS_MAX, END_SECONDS_MAX = 600.0, 60.0
POLL_SECONDS = 0.5


class IcebergTable(Row):
    """Row T16."""

    number = "T16"
    title = "A topic as an Iceberg table, 1 KiB"
    what = (
        f"`reput pipeline table --until-caught-up` reads {QUEUE_COUNT} queues through the gateway into a table of a SQL "
        "catalog (SQLite) on the local disk, from the start of its process to its end. Row T13's query on the same topic, in "
        f"a warm Spark session, is what it is compared with. Then the job follows the topic while {LIVE_RATE:,} messages a "
        "second are sent: by how many seconds of them the table is behind, at its greatest, seen twice a second. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(RATE, "messages/s", sides=(OURS,)),
            Metric(AS_FAST, "times", target=at_least(AS_FAST_MIN, "times"), sides=(OURS,)),
            Metric(CPU, "us a message", lower_is_better=True, sides=(OURS,)),
            Metric(LAG, "s", lower_is_better=True, target=at_most(LAG_SECONDS_MAX, "s"), sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round, on a store of its own."""
        with context.ours() as stack, context.directory() as work:
            server = ReputServer(stack)
            server.create_topic(TOPIC, QUEUE_COUNT, "NORMAL")
            fill = Load(server.endpoint, warm_seconds=0, seconds=FILL_TIMES * fill_seconds(self.sizes))
            sent_count = fill.run()["count"]
            stack.wait_until_built()
            endpoint = stack.addresses["gateway"]
            with running_spark(work / "spark") as spark:
                for out in ("first", "out"):  # the first one warms the session
                    beside = spark.ask("consume_to_parquet", endpoint=endpoint, topic=TOPIC, out=work / out)
            began, cpu_before = time.monotonic(), os.times()
            processes.run(_job(endpoint, work, "--until-caught-up"), JOB_SECONDS_MAX)
            seconds, cpu = time.monotonic() - began, os.times()
            if (count := _rows(work)) != sent_count:
                raise RuntimeError(f"{sent_count} were sent; {count} are in the table")
            live = Load(server.endpoint, warm_seconds=0, seconds=LIVE_TIMES * fill.seconds, rate=LIVE_RATE)
            with _following(endpoint, work), subprocess.Popen(live.command(), stdout=subprocess.DEVNULL) as sending:
                began_sending, lag = time.monotonic(), 0.0
                while sending.poll() is None:
                    time.sleep(POLL_SECONDS)
                    sent_seconds = min(time.monotonic() - began_sending, live.seconds)
                    lag = max(lag, sent_seconds - (_rows(work) - sent_count) / LIVE_RATE)
        job_seconds = cpu.children_user + cpu.children_system - cpu_before.children_user - cpu_before.children_system
        return {
            RATE: sent_count / seconds,
            AS_FAST: beside["seconds"] / seconds,
            CPU: job_seconds * 1e6 / sent_count,
            LAG: lag,
        }


def _job(endpoint: str, work: pathlib.Path, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "cli.main", "pipeline", "table", "--topic", TOPIC, "--table", TABLE]
    return [*command, "--address", endpoint, *catalog_flags(work / "lake"), *flags]


@contextlib.contextmanager
def _following(endpoint: str, work: pathlib.Path) -> Iterator[None]:
    """The job during the block."""
    with open(work / "job.log", "wb") as log, subprocess.Popen(_job(endpoint, work), stdout=log, stderr=log) as job:
        try:
            yield
            if job.poll() is not None:
                raise RuntimeError(f"the job ended: {(work / 'job.log').read_text()[-2000:]}")
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(END_SECONDS_MAX)


def _rows(work: pathlib.Path) -> int:
    """Rows of the table now."""
    try:
        snapshot = lake(work / "lake").load_table(TABLE).current_snapshot()
    except NoSuchTableError:
        return 0
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)
