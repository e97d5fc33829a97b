"""The Reput stream as a Spark stream source: the fields of each record that builders need, without bodies.

One row is one batch of the Reput stream, its columns as on the wire; so neither Spark nor Python handles single records.
An offset of the stream is one number, the commit-log offset up to which the log is flushed. It is always the end of a
record, so that a batch that is read again holds the same records.

    offsets      {"v": 1, "phy": 4096}
    a row        begin_offset | next_offset | log_first_offset | log_end_offset | columns (ReputColumns)
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from services.calling.backoff import Backoff
from services.calling.commitlog import CommitLogClient, ReputBatch
from services.convert import confirm_offset
from services.rpcs.commitlog import GET_STATUS
from store.errors import OffsetOutOfRangeError, ResourceBusyError

if TYPE_CHECKING:
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
