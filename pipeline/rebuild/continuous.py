"""`rebuild --continuous`: a structured-streaming query that keeps queues and indexes equal to a live log.

    commitlog service --Reput--> source --rows--> foreachBatch on the driver --> queues, indexes of OUT
                                                        |
                            checkpoints of the builders, then the manifest, then Spark's own commit

Exactly once: the builders are the online ones (the caller of the job passes them in), and each knows the commit-log offset
up to which its files are on the disk. A builder skips records that it has applied. When it is opened, it removes what a
killed run wrote after the checkpoint, slot heads included. So Spark may deliver any batch again. A batch is acknowledged to
Spark only after both builders have flushed.

A builder that is behind the stream (its files were damaged, so it starts from the log's first record) reads the missing
records from the log, in the driver.

The Reput stream as a Spark stream source: the fields of each record that builders need, without bodies.

One row is one batch of the Reput stream, its columns as on the wire; so neither Spark nor Python handles single records.
An offset of the stream is one number, the commit-log offset up to which the log is flushed. It is always the end of a
record, so that a batch that is read again holds the same records.

    offsets      {"v": 1, "phy": 4096}
    a row        begin_offset | next_offset | log_first_offset | log_end_offset | columns (ReputColumns)
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from pipeline.job import JobReport, Progress, silent
from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from services.calling.backoff import Backoff
from services.calling.commitlog import CommitLogClient, ReputBatch
from services.convert import confirm_offset
from services.following.following_builder import CHECKPOINT_INTERVAL_SECONDS, FollowingBuilder
from services.rpcs.commitlog import GET_STATUS
from store.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ResourceBusyError,
    StoreRecoveringError,
)
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_json_state, write_json_state
from store.files.locks import OwnerLock
from store.format.paths import consume_queue_dir, index_dir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

FORMAT = "reput-dispatch"
SCHEMA = "begin_offset bigint, next_offset bigint, log_first_offset bigint, log_end_offset bigint, columns binary"
OFFSET_VERSION = 1
BUSY_SECONDS_MAX = 30.0
REPUT_BATCH_BYTES = 4 << 20  # of log in one response: the service's default


class ReputPartition(InputPartition):
    """A range of the log, from the start of one record to the start of another (bytes)."""

    def __init__(self, begin_offset: int, end_offset: int) -> None:
        super().__init__((begin_offset, end_offset))
        self.begin_offset = begin_offset
        self.end_offset = end_offset


class ReputDataSource(DataSource):
    """`format("reput-dispatch")`; options `target`, `startingOffset` (bytes; -1 = the log's first record) and
    `maxBytesPerTrigger` (of log)."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.readStream.format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a row, see the top of this file."""
        return SCHEMA

    def streamReader(self, schema: "StructType") -> "ReputStreamReader":  # noqa: N802 - Spark's name
        """A reader with the options of this source."""
        return ReputStreamReader(
            self.options["target"], int(self.options["startingOffset"]), int(self.options["maxBytesPerTrigger"])
        )


class ReputStreamReader(DataSourceStreamReader):
    """Plans and reads micro-batches of the Reput stream.

    Args:
        target: address of the commitlog service.
        starting_offset: where a stream without a checkpoint begins (bytes; -1 = the log's first record).
        batch_bytes_max: approximate bytes of log in a micro-batch.
    """

    def __init__(self, target: str, starting_offset: int, batch_bytes_max: int) -> None:
        self._target = target
        self._starting_offset = starting_offset
        self._batch_bytes_max = batch_bytes_max

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names from here on
        """The offset at which a stream without a checkpoint begins."""
        first = log_range(self._target)[0]
        return _offset(max(self._starting_offset, first))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a micro-batch, in bytes of log."""
        return ReadMaxBytes(self._batch_bytes_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next micro-batch that begins at `start`, within the limit.

        Raises:
            OffsetOutOfRangeError: the log ends before `start`: it is not the log that the stream was started on.
        """
        begin = _position(start)
        first, end = log_range(self._target)
        if end < begin:
            raise OffsetOutOfRangeError(
                f"the log ends at {end}, before the stream's offset {begin}: it is another log; remove the stream's checkpoint",
                firstOffset=first,
                lastOffset=end,
            )
        if isinstance(limit, ReadAllAvailable):
            return _offset(end)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._batch_bytes_max
        if end - begin <= bytes_max:
            return _offset(end)
        for batch in _batches(self._target, max(begin, first), end, min(bytes_max, REPUT_BATCH_BYTES)):
            if batch.next_offset - begin >= bytes_max:
                return _offset(batch.next_offset)
        return _offset(end)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The ranges of a micro-batch that tasks read."""
        begin, stop = _position(start), _position(end)
        return [ReputPartition(begin, stop)] if begin < stop else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one partition."""
        from services.reput_columns import columns_to_proto

        assert isinstance(partition, ReputPartition), partition
        begin = partition.begin_offset
        for batch in _batches(self._target, begin, partition.end_offset):
            data = columns_to_proto(batch.columns).SerializeToString() if batch.columns is not None else b""
            yield begin, batch.next_offset, batch.log_first_offset, batch.log_end_offset, data
            begin = batch.next_offset


def log_range(target: str) -> tuple[int, int]:
    """The offset of the log's first record and the confirm offset, up to which records may be read (bytes)."""
    client = CommitLogClient(target)
    try:
        status = client.call(GET_STATUS, GetStatusRequest())
        return status.log_first_offset, confirm_offset(status)
    finally:
        client.close()


def reput_batches(
    client: CommitLogClient,
    start_offset: int,
    batch_bytes_max: int = REPUT_BATCH_BYTES,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Generator[ReputBatch, None, None]:
    """Batches of the Reput stream without end; close the generator to end the call.

    The service limits the number of streams, and frees the place of an ended stream a moment later. So a refused call is
    repeated.

    Raises:
        ResourceBusyError: the service accepted no stream for BUSY_SECONDS_MAX.
        StoreError: see ReputStream.
    """
    backoff, waited_seconds = Backoff(), 0.0
    while True:
        stream = client.reput(start_offset, batch_bytes_max)
        try:
            yield from stream
        except ResourceBusyError:
            if waited_seconds >= BUSY_SECONDS_MAX:
                raise
        finally:
            stream.cancel()
        seconds = backoff.next_seconds()
        wait(seconds)
        waited_seconds += seconds


def _batches(target: str, begin: int, end: int, batch_bytes_max: int = REPUT_BATCH_BYTES) -> Iterator[ReputBatch]:
    """Batches of the Reput stream with the records in `[begin, end)`; both are starts of records (bytes)."""
    client = CommitLogClient(target)
    try:
        while begin < end:
            limit = min(batch_bytes_max, end - begin)
            with closing(reput_batches(client, begin, limit)) as batches:
                for batch in batches:
                    yield batch
                    begin = batch.next_offset
                    if end - begin < limit:
                        break  # the next batch might reach past the end: request the rest by its length
    finally:
        client.close()


def _offset(position: int) -> dict[str, int]:
    return {"v": OFFSET_VERSION, "phy": position}


def _position(offset: dict[str, int]) -> int:
    assert offset["v"] == OFFSET_VERSION, offset
    return offset["phy"]


# Beside the services' own state in the output root; RocketMQ ignores it.
STATE_FOLDER = "reput/pipeline"
MANIFEST_NAME = "continuous.json"
# Bytes of log in a micro-batch: 0.3 s of work. With less, the fixed 0.5 s of each would dominate while catching up.
BATCH_BYTES_MAX = 256 << 20
TRIGGER_SECONDS = 0.5
LOOK_SECONDS = 0.1  # interval at which a stop or the end of the query is noticed
VERSION = 1


class SteppingClock:
    """A clock that the driver advances, so that a builder writes its checkpoint when the driver wants it; seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """The current time, seconds."""
        return self.seconds

    def pass_interval(self) -> None:
        """Advances the clock, so that the next `apply` of each builder writes its checkpoint."""
        self.seconds += 2 * CHECKPOINT_INTERVAL_SECONDS


class OpenBuilders(Protocol):
    """Opens and recovers the builders of a root: queues and indexes."""

    def __call__(
        self, root: Path, clock: Callable[[], float], log_first_offset: int, log_end_offset: int
    ) -> Sequence[FollowingBuilder]:
        """Returns builders whose `begin` was not called yet; the log's range is in bytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The last complete micro-batch: its number, and the commit-log offset up to which all files are flushed (bytes)."""

    batch_id: int
    end_offset: int


def read_manifest(fs: FileSystem, root: Path) -> Manifest | None:
    """The manifest of a root; None if there is none, or one of another version."""
    state = read_json_state(fs, root / STATE_FOLDER / MANIFEST_NAME)
    if state is None or state.get("version") != VERSION:
        return None
    return Manifest(int(state["batch_id"]), int(state["end_offset"]))


class ContinuousRebuild:
    """Applies micro-batches to the files of a root.

    Args:
        fs: the port to the disk.
        root: the output root.
        target: address of the commitlog service.
        open_builders: opens the builders.
    """

    def __init__(self, fs: FileSystem, root: Path, target: str, open_builders: OpenBuilders) -> None:
        self.record_count = 0
        self.batch_count = 0
        self._fs = fs
        self._root = root
        self._target = target
        self._clock = SteppingClock()
        self._lock = threading.Lock()  # a stopped query does not wait for its last foreachBatch call
        self._is_closed = False
        manifest = read_manifest(fs, root)
        first, end = log_range(target)
        self._builders = list(open_builders(root, self._clock, first, end))
        for builder in self._builders:
            builder.begin()
            self._compare(builder)
            if manifest is not None and builder.progress.next_offset < manifest.end_offset <= end:
                self._catch_up(builder, manifest.end_offset)  # Spark does not deliver acknowledged batches again

    @property
    def next_offset(self) -> int:
        """The commit-log offset up to which every builder has applied the log (bytes)."""
        return min(builder.progress.next_offset for builder in self._builders)

    def apply(self, frame: "DataFrame", batch_id: int) -> None:
        """Applies one micro-batch; the callback of `foreachBatch`.

        Raises:
            StoreRecoveringError: the rebuild has been stopped.
        """
        with self._lock:
            if self._is_closed:
                raise StoreRecoveringError("the rebuild has been stopped: this batch is applied at the next start")
            self._apply(frame, batch_id)

    def _apply(self, frame: "DataFrame", batch_id: int) -> None:
        from reput.commitlog.v1 import commitlog_service_pb2 as pb
        from services.reput_columns import columns_from_proto

        rows = frame.toArrow().sort_by("begin_offset").to_pylist()
        for number, row in enumerate(rows):
            columns = None
            if row["columns"]:
                columns = columns_from_proto(pb.ReputColumns.FromString(row["columns"]))
                # Spark delivers its last batch again if it was stopped before it wrote its own commit.
                self.record_count += int((columns.commit_log_offsets >= self.next_offset).sum())
            for builder in self._builders:
                # A builder without any record starts at the log's first record.
                if max(builder.progress.next_offset, row["log_first_offset"]) < row["begin_offset"]:
                    self._catch_up(builder, row["begin_offset"])
            if number == len(rows) - 1:
                self._clock.pass_interval()
            for builder in self._builders:
                place = (row["next_offset"], row["log_first_offset"], row["log_end_offset"])
                if not builder.apply(columns, *place):
                    self._catch_up(builder, row["next_offset"])
        if not rows:
            return
        state = {"version": VERSION, "batch_id": batch_id, "end_offset": self.next_offset}
        write_json_state(self._fs, self._root / STATE_FOLDER / MANIFEST_NAME, state)
        self.batch_count += 1

    def stop(self) -> None:
        """Flushes, writes clean checkpoints and closes everything."""
        with self._lock:
            self._is_closed = True
            for builder in self._builders:
                builder.stop()

    def abandon(self) -> None:
        """Closes everything without a flush or a checkpoint."""
        with self._lock:
            self._is_closed = True
            for builder in self._builders:
                builder.abandon()

    def _compare(self, builder: FollowingBuilder) -> None:
        """Applies the builder's last record again; the builder starts anew if the log has another record there."""
        if builder.progress.next_offset < 0:
            return
        client = CommitLogClient(self._target)
        try:
            with closing(reput_batches(client, builder.start_offset(), 1)) as batches:  # one record
                batch = next(batches)
                builder.apply(batch.columns, batch.next_offset, batch.log_first_offset, batch.log_end_offset)
        except (OffsetOutOfRangeError, RecordNotFoundError):
            builder.find_place(*log_range(self._target))
        finally:
            client.close()

    def _catch_up(self, builder: FollowingBuilder, until_offset: int) -> None:
        """Applies the log to a builder, from the builder's start offset to `until_offset` (bytes)."""
        client = CommitLogClient(self._target)
        try:
            while True:
                try:
                    with closing(reput_batches(client, builder.start_offset())) as batches:
                        for batch in batches:
                            if batch.next_offset >= until_offset:
                                self._clock.pass_interval()
                            place = (batch.next_offset, batch.log_first_offset, batch.log_end_offset)
                            if not builder.apply(batch.columns, *place):
                                break
                            if builder.progress.next_offset >= until_offset:
                                return
                except (OffsetOutOfRangeError, RecordNotFoundError):
                    builder.find_place(*log_range(self._target))
        finally:
            client.close()


def run(
    spark: "SparkSession",
    target: str,
    out: Path | str,
    open_builders: OpenBuilders,
    *,
    until_caught_up: bool = False,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    trigger_seconds: float = TRIGGER_SECONDS,
    stop_event: threading.Event | None = None,
    on_started: Callable[["StreamingQuery"], None] = lambda query: None,
    progress: Progress = silent,
) -> JobReport:
    """Follows a log until stopped.

    Args:
        spark: the session that runs the query.
        target: address of the commitlog service, `HOST:PORT` or `unix:/path`.
        out: the output root: empty, missing, or made by this job.
        open_builders: opens the builders of `out`.
        until_caught_up: end when the log is applied up to its end at the start.
        batch_bytes_max: approximate bytes of log in a micro-batch.
        trigger_seconds: interval between two micro-batches.
        stop_event: ends the run when set.
        on_started: called with the running query.
        progress: called with the offset reached, in bytes of log.

    Raises:
        InvalidArgumentError: `out` holds other data.
        StoreLockedError: another process writes to `out`.
    """
    report = JobReport.begin("rebuild --continuous")
    fs, root = RealFileSystem(), Path(out)
    state_folder = root / STATE_FOLDER
    if root.exists() and (not root.is_dir() or (any(root.iterdir()) and not state_folder.is_dir())):
        raise InvalidArgumentError(
            f"{root} holds other data: name a directory that is empty, does not exist, or was made by this job.",
            field="out",
            file=root,
        )
    for directory in (consume_queue_dir(str(root)), index_dir(str(root)), str(state_folder)):
        fs.mkdirs(directory)
    stopping = stop_event or threading.Event()
    lock = OwnerLock(state_folder / "lock")
    lock.acquire()
    try:
        rebuild = ContinuousRebuild(fs, root, target, open_builders)
        try:
            spark.dataSource.register(ReputDataSource)
            until = log_range(target)[1] if until_caught_up else None
            query = (
                spark.readStream.format(FORMAT)
                .option("target", target)
                .option("startingOffset", rebuild.next_offset)
                .option("maxBytesPerTrigger", batch_bytes_max)
                .load()
                .writeStream.foreachBatch(rebuild.apply)
                .option("checkpointLocation", str(state_folder / "spark"))
                .trigger(processingTime=f"{trigger_seconds} seconds")
                .start()
            )
            on_started(query)
            try:
                while not stopping.is_set() and (until is None or rebuild.next_offset < until):
                    # It raises the error that ended the query. PySpark accepts fractions; its annotation says int.
                    if query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type]
                        break
                    if progress is not silent:
                        progress("log", rebuild.next_offset, until or log_range(target)[1])
            finally:
                query.stop()
        except BaseException:
            rebuild.abandon()
            raise
        rebuild.stop()
    finally:
        lock.release()
    report.counts = {
        "log_end_offset": rebuild.next_offset,
        "record_count": rebuild.record_count,
        "batch_count": rebuild.batch_count,
    }
    report.outputs = {"consumequeue": consume_queue_dir(str(root)), "index": index_dir(str(root))}
    return report.end()
