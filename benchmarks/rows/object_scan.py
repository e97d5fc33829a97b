"""Row T12: the scan of a log in an object store."""

import contextlib
import os
from collections.abc import Mapping

from benchmarks.figures import OURS, Metric, RowResult, at_least
from benchmarks.row import Context, Row
from benchmarks.rows.pipeline_scans import QUEUE_COLUMNS
from benchmarks.sides.spark_side import SparkSide
from benchmarks.sizes import GIB, MIB, TINY, Sizes
from tests.support.archives import message, write_log
from tests.support.object_store import CREDENTIALS, running_object_store

RATIO, PYARROW, SCAN, RATE = "as fast as pyarrow", "pyarrow alone, s", "scan of queue columns, s", "scan, MiB/s"
LATENCY_MILLIS = 50
# A job of Spark takes half a second whatever it reads.
LOG_BYTES, FILE_BYTES = GIB, 128 * MIB
LOG_BYTES_TINY, FILE_BYTES_TINY = 2 * MIB, MIB
BODY_BYTES = 1024
MILLIS_BETWEEN = 10


class ObjectScan(Row):
    """Row T12."""

    number = "T12"
    title = "Spark scan of a log in an object store"
    what = (
        f"moto's S3 answers each request {LATENCY_MILLIS} ms late. The scan reads the queue columns on local[2] into noop. "
        "pyarrow alone reads the same bytes and drops them: two processes, in each 8 ranges of 8 MiB at once. "
        "The server needs the same two cores. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(RATIO, "times", target=at_least(0.7, "times"), sides=(OURS,)),
            Metric(PYARROW, "s", lower_is_better=True, sides=(OURS,)),
            Metric(SCAN, "s", lower_is_better=True, sides=(OURS,)),
            Metric(RATE, "MiB/s", sides=(OURS,)),
        )
        self._kept = contextlib.ExitStack()
        self._side: SparkSide | None = None

    def prepare(self, context: Context) -> None:
        """The object store and the log in it, in files that are full."""
        log_bytes, file_bytes = (LOG_BYTES, FILE_BYTES)
        if self.sizes.name == TINY.name:
            log_bytes, file_bytes = (LOG_BYTES_TINY, FILE_BYTES_TINY)
        os.environ.update(CREDENTIALS)
        self._server = self._kept.enter_context(running_object_store())
        directory = self._kept.enter_context(context.directory())
        messages = (message(n, keys=f"key{n}", body=b"x" * BODY_BYTES) for n in range(log_bytes // BODY_BYTES))
        store = write_log(directory / "store", messages, file_bytes=file_bytes, millis_between=MILLIS_BETWEEN)
        max((store / "commitlog").iterdir()).unlink()  # not full
        self._server.fs.create_dir("logs")
        self._uri = self._server.upload(store, "logs/store")
        self._server.tell("delay", LATENCY_MILLIS)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if self._side is None:
            self._side = SparkSide(context.scratch / f"spark-{self.number}")
            self._scan(self._side)
            self._side.ask("read_objects", store=self._uri)
        pyarrow = self._side.ask("read_objects", store=self._uri)
        self._read_bytes = int(pyarrow["bytes"])
        scan = self._scan(self._side)
        seconds = float(pyarrow["seconds"])
        return {RATIO: seconds / scan, PYARROW: seconds, SCAN: scan, RATE: self._read_bytes / MIB / scan}

    def finish(self, context: Context, result: RowResult) -> None:
        """Ends the session and the server, and notes the size of the log."""
        result.notes.append(f"The log has {self._read_bytes:,} bytes.")
        if self._side is not None:
            self._side.end()
            self._side = None
        self._kept.close()

    def _scan(self, side: SparkSide) -> float:
        options = {"boundaryCache": "off"}
        return float(side.ask("scan", store=self._uri, columns=QUEUE_COLUMNS, options=options)["seconds"])
