"""`format("rocketmq")`: topics over the gateway, as batch, stream and sink.

    spark.read.format("rocketmq").option("endpoint", "127.0.0.1:8081").option("subscribe", "Orders").load()
    spark.readStream.format("rocketmq")...            the same, as messages arrive
    df.write.format("rocketmq").option("endpoint", ...).option("topic", "Orders").mode("append").save()

A queue is a partition, as in Spark's Kafka source, and has a gateway; several shards are more queues. The source reads
through the gateway and not from a commitlog's Reput stream: the gateway is the only address that users have, its answers are
bounded and checked, a subscription reads only its own queues instead of the whole log, and tasks read queues in parallel.
To read the whole log at the speed of the disk, use `format("commitlog")`.

The schema of JSON bodies without option `bodySchema` comes from the newest messages of the queues, read by the driver.

A batch read over queues: the driver resolves positions once and cuts the ranges into tasks.

A stream over queues: where a micro-batch ends, and its tasks.

    checkpoint              driver (one object, lives as long as the query)      executors
    initialOffset ────────▶ latestOffset(start, limit)   ends of the queues, cut by the limit
    offsets/N  ◀──────────  end
                            partitions(start, end) ────────────────────────────▶ read(range), a pickled Task

A restart needs only the checkpoint: the same start and end make the same ranges, so a batch that runs again has the same
rows. Spark's file sink keeps each batch once; together, each message is written exactly once.

With a consumer group, its positions follow the batches that are done, for `reput lag` and for alerts. The query itself goes by
its checkpoint alone.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.refusals import refusals_first
from pipeline.rocketmq.bodies.compression import decompressed_or_none
from pipeline.rocketmq.bodies.formats import JSON, BodyFormat, format_of, json_format
from pipeline.rocketmq.bodies.json_bodies import inferred
from pipeline.rocketmq.gateway import Gateways, HeldRange
from pipeline.rocketmq.options import BATCH, STREAM, ReadOptions, read_options
from pipeline.rocketmq.positions import Bound, Positions, QueueKey, from_checkpoint, to_checkpoint
from pipeline.rocketmq.ranges import (
    MessageRange,
    choose_queues,
    cut_into_tasks,
    held_part,
    limit_by_bytes,
    limit_by_count,
    report_loss,
    resolve,
)
from pipeline.rocketmq.reading import Task, filter_of
from pipeline.rocketmq.rows import BODY_VALUE, checked_schema, source_schema, wants_body_value
from pipeline.rocketmq.sink import RocketMQBatchWriter, RocketMQStreamWriter, sink_options
from pipeline.scan.options import OptionError
from reput_client.errors import IllegalFilterError, QueueNotFoundError, TopicNotFoundError

# Of all queues together. Each queue is asked once, and gives what fits a page; so a schema costs some seconds at most.
SAMPLE_COUNT_MAX = 1_000
# Of their decompressed bodies: what is read behind it would change a schema no more.
SAMPLE_BYTES_MAX = 64 << 20


def sampled_schema(options: ReadOptions) -> StructType:
    """The schema of the newest messages of the queues; of those with the tags that are asked for. Option `sql` is not applied.

    Raises:
        OptionError: none of them is a JSON object with a field.
        TopicNotFoundError, QueueNotFoundError: there are no such queues.
    """
    bodies: list[bytes | None] = []
    left_bytes = SAMPLE_BYTES_MAX
    with contextlib.closing(_newest_bodies(options)) as newest:
        for body in newest:
            bodies.append(body)
            left_bytes -= len(body or b"")
            if left_bytes <= 0:
                break
    found = inferred(bodies)
    if found is None:
        raise OptionError(
            f"None of the {len(bodies)} newest messages is a JSON object with a field: give their schema, such as "
            'bodySchema="id long, name string".'
        )
    return found


def _newest_bodies(options: ReadOptions) -> Generator[bytes | None, None, None]:
    """Bodies of the newest messages of the queues, as their producers sent them; None for one that cannot be decompressed."""
    with Gateways(options.endpoints, options.retry_seconds, options.security) as gateways:
        held = choose_queues(gateways.queue_ranges(), options.subscription)
        filled = {key: queue for key, queue in held.items() if queue.max_offset > queue.min_offset}
        left = SAMPLE_COUNT_MAX
        # The shorter queues first: what they have not is left for the others.
        by_length = sorted(filled.items(), key=lambda each: each[1].max_offset - each[1].min_offset)
        for place, (key, queue) in enumerate(by_length):
            count = min(left // (len(by_length) - place), queue.max_offset - queue.min_offset)
            if count == 0:
                continue
            left -= count
            try:
                page = gateways[queue.endpoint].messages(key, queue.max_offset - count, count)
            except (TopicNotFoundError, QueueNotFoundError):
                continue  # removed since it was listed
            for message in page.messages:
                if not message.body_omitted and (not options.tags or message.tags in options.tags):
                    yield decompressed_or_none(message.body, message.sys_flag)


class RangePartition(InputPartition):
    """A task's range.

    Args:
        value: the range.
    """

    def __init__(self, value: MessageRange) -> None:
        super().__init__(value)


class RangeReader:
    """The common part of batch and stream readers: from bounds to positions, from ranges to tasks, from tasks to rows.

    Args:
        options: what to read.
        schema: the columns.
        format_: of column `bodyValue`; None: there is none.
    """

    def __init__(self, options: ReadOptions, schema: StructType, format_: BodyFormat | None = None) -> None:
        self._options = options
        self._task = Task(
            schema,
            options.view,
            options.decompress,
            options.tags,
            options.fail_on_data_loss,
            options.retry_seconds,
            options.security,
            options.read_from,
            options.sql,
            format_,
        )
        self._is_filter_checked = not options.sql

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        # For no partitions, Spark makes one partition with the value None.
        return iter(()) if partition.value is None else self._task.read(partition.value)

    def _positions(
        self, gateways: Gateways, held: Mapping[QueueKey, HeldRange], bound: Bound, option: str
    ) -> Positions:
        """The position of each queue at a bound; a bound by time is a call to the queue's gateway."""

        def search(key: QueueKey, time_millis: int) -> int:
            return gateways[held[key].endpoint].search_offset(key, time_millis)

        return resolve(bound, held, search, option)

    def _check_filter(self, gateways: Gateways, held: Mapping[QueueKey, HeldRange]) -> None:
        """OptionError for SQL that the gateways refuse, before a task begins; each gateway is asked once."""
        wanted = filter_of(self._options.tags, self._options.sql)
        if self._is_filter_checked or wanted is None:
            return
        by_endpoint = {queue.endpoint: (key, queue.max_offset) for key, queue in held.items()}
        for endpoint, (key, end) in by_endpoint.items():
            try:
                gateways[endpoint].check_filter(key, end, wanted)
            except IllegalFilterError as error:
                raise OptionError(f"Option sql: {error.message}") from error
            except (TopicNotFoundError, QueueNotFoundError):
                continue  # removed since it was listed; the tasks report it
        self._is_filter_checked = bool(held)

    def _tasks(self, ranges: Sequence[MessageRange]) -> list[InputPartition]:
        """One partition for each task."""
        return [RangePartition(each) for each in cut_into_tasks(ranges, self._options.min_partitions)]


class RocketMQBatchReader(RangeReader, DataSourceReader):
    """Reads from one bound to the other."""

    def partitions(self) -> list[InputPartition]:
        """The ranges, at least one for each queue with messages.

        Raises:
            DataLostError: a bound lies outside what the queue holds, and failOnDataLoss is true.
        """
        options = self._options
        with Gateways(options.endpoints, options.retry_seconds, options.security) as gateways:
            held = choose_queues(gateways.queue_ranges(), options.subscription)
            self._check_filter(gateways, held)
            start = self._positions(gateways, held, options.start, "startingOffsets")
            end = self._positions(gateways, held, options.end, "endingOffsets")
        ranges = []
        for key, queue in held.items():
            asked_end = max(start[key], end[key])
            if asked_end > queue.max_offset:
                why = f"the queue ends at {queue.max_offset}"
                report_loss(key, queue.max_offset, asked_end, why, fail_on_data_loss=options.fail_on_data_loss)
            last = min(end[key], queue.max_offset)
            part = held_part(key, start[key], last, queue, fail_on_data_loss=options.fail_on_data_loss)
            ranges.append(MessageRange(queue.endpoint, key, part.start, part.stop))
        return self._tasks(ranges)


class RocketMQStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as they grow.

    Args:
        options: what to read.
        schema: the columns.
        format_: of column `bodyValue`; None: there is none.

    Attributes:
        resumes_at: where the stream goes on in a queue that ends before the stream's position, given the queue and its end;
            called only where `failOnDataLoss` is false. By default at the end: a stream does not know what it has written.
    """

    def __init__(self, options: ReadOptions, schema: StructType, format_: BodyFormat | None = None) -> None:
        super().__init__(options, schema, format_)
        self.resumes_at: Callable[[QueueKey, int], int] = lambda key, end: end
        self._gateways: Gateways | None = None
        self._target: Positions | None = None
        self._latest: Positions | None = None
        self._held: dict[QueueKey, HeldRange] = {}  # as last read
        self._told: Positions = {}  # what the consumer group was set to

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gateways": None, "_target": None, "_latest": None, "resumes_at": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The positions at which a query without a checkpoint begins."""
        held = self._queues()
        self._check_filter(self._open(), held)
        start = self._positions(self._open(), held, self._options.start, "startingOffsets")
        for key, position in start.items():
            if position > held[key].max_offset:
                why = f"the queue ends at {held[key].max_offset}"
                self._report_loss(key, held[key].max_offset, position, why)
                start[key] = held[key].max_offset
        if self._options.consumer_group:
            for endpoint, positions in self._by_endpoint(start).items():
                self._open()[endpoint].commit_offsets(self._options.consumer_group, positions, begins=True)
        return to_checkpoint(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a micro-batch that the options give."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Records the current ends of the queues: the query ends there."""
        self._target = {key: queue.max_offset for key, queue in self._queues().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch."""
        begin = from_checkpoint(start)
        held = self._queues()
        # Spark asks for the next batch when the one before is done. Without this, the last batch of a query that ends would
        # not be told: it calls `commit` only together with the next one.
        self._tell_group(begin)
        end = self._reached(begin, held)
        self._latest = dict(end)
        # A queue that is new since the checkpoint is read from its beginning.
        begin = {**{key: held[key].min_offset for key in end if key not in begin}, **begin}
        if isinstance(limit, ReadMaxRows):
            end = limit_by_count(begin, end, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            end = limit_by_bytes(begin, end, limit.max_bytes, lambda *sample: self._record_sizes(held, *sample))
        return to_checkpoint(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues when they were last read, for the query's progress; None before that."""
        return None if self._latest is None else to_checkpoint(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch.

        Raises:
            DataLostError: retention has removed messages of the batch, and failOnDataLoss is true.
        """
        begin, ends = from_checkpoint(start), from_checkpoint(end)
        held = self._open().queue_ranges()
        self._check_filter(self._open(), {key: held[key] for key in ends if key in held})
        ranges = []
        for key, last in ends.items():
            queue = held.get(key)
            first = begin.get(key, queue.min_offset if queue is not None else last)
            part = held_part(key, first, last, queue, fail_on_data_loss=self._options.fail_on_data_loss)
            if queue is not None:
                ranges.append(MessageRange(queue.endpoint, key, part.start, part.stop))
        return self._tasks(ranges)

    def first_after(self, key: QueueKey, time_millis: int) -> int:
        """The queue offset of the first message that was stored after a time; without one, the queue's end."""
        return self._open()[self._held[key].endpoint].search_offset(key, time_millis + 1)

    def commit(self, end: dict[str, Any]) -> None:
        """Sets the consumer group's positions, if the options name one."""
        self._tell_group(from_checkpoint(end))

    def stop(self) -> None:
        """Closes the connections."""
        if self._gateways is not None:
            self._gateways.close()
            self._gateways = None

    def _open(self) -> Gateways:
        if self._gateways is None:
            self._gateways = Gateways(self._options.endpoints, self._options.retry_seconds, self._options.security)
        return self._gateways

    def _queues(self) -> dict[QueueKey, HeldRange]:
        self._held = choose_queues(self._open().queue_ranges(), self._options.subscription)
        return self._held

    def _tell_group(self, done: Positions) -> None:
        """Sets the group's positions to what the query has done; queues that are gone or have not moved are left out."""
        group = self._options.consumer_group
        moved = {key: position for key, position in done.items() if group and self._told.get(key) != position}
        if moved and not self._held:
            self._queues()
        for endpoint, positions in self._by_endpoint(moved).items():
            self._open()[endpoint].commit_offsets(group, positions)
            self._told |= positions

    def _by_endpoint(self, positions: Positions) -> dict[str, Positions]:
        """The positions of queues that are there, by their gateway."""
        by_endpoint: dict[str, Positions] = {}
        for key, position in positions.items():
            if key in self._held:
                by_endpoint.setdefault(self._held[key].endpoint, {})[key] = position
        return by_endpoint

    def _reached(self, begin: Positions, held: dict[QueueKey, HeldRange]) -> Positions:
        """The end of each queue, at or after the stream's position; a queue that is gone keeps its position."""
        end = dict(begin)
        for key, queue in held.items():
            reached = queue.max_offset
            if self._target is not None:
                # The query does not read messages that came after it began.
                reached = min(reached, self._target.get(key, begin.get(key, queue.min_offset)))
            if key in begin and reached < begin[key]:
                reached = self._shrunk_to(key, begin[key], queue)
            end[key] = reached
        return end

    def _shrunk_to(self, key: QueueKey, position: int, queue: HeldRange) -> int:
        """The next position in a queue that ends before the stream's position: that position, unless the queue is another."""
        if queue.max_offset >= position:
            return position
        # Queues that are rebuilt after a crash are short for a while; this call waits until they are built.
        response = self._open()[queue.endpoint].messages_or_end(key, position, 1)
        if response.max_offset >= position:
            return position
        end = int(response.max_offset)
        why = f"the queue ends at {end}, so its log was cut or replaced, or its topic was deleted at a broker and made again"
        self._report_loss(key, end, position, why)
        return min(self.resumes_at(key, end), end)

    def _report_loss(self, key: QueueKey, begin: int, end: int, why: str) -> None:
        report_loss(key, begin, end, why, fail_on_data_loss=self._options.fail_on_data_loss)

    def _record_sizes(self, held: dict[QueueKey, HeldRange], key: QueueKey, position: int, count: int) -> list[int]:
        if key not in held:
            return []
        try:
            response = self._open()[held[key].endpoint].messages(key, position, count)
        except (TopicNotFoundError, QueueNotFoundError):
            return []  # removed since it was listed; the tasks report it
        return [message.store_size_bytes for message in response.messages]


class RocketMQDataSource(DataSource):
    """The format; its options are in `options.py` and `sink.py`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq"

    @refusals_first
    def schema(self) -> StructType:
        """The columns that the options ask for."""
        options = read_options(self.options)
        return source_schema(options, _format(options) if wants_body_value(options) else None)

    @refusals_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one batch."""
        options = read_options(self.options, BATCH)
        format_ = _format(options, schema)
        return RocketMQBatchReader(options, checked_schema(options, schema, format_), format_)

    # Not `refusals_first`: Spark's runner of streams fails once more behind a refusal, and only the traceback has both.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of a stream."""
        options = read_options(self.options, STREAM)
        format_ = _format(options, schema)
        return RocketMQStreamReader(options, checked_schema(options, schema, format_), format_)

    @refusals_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of a DataFrame."""
        return RocketMQBatchWriter(sink_options(self.options, overwrite=overwrite), schema)

    @refusals_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of a stream."""
        return RocketMQStreamWriter(sink_options(self.options, overwrite=overwrite), schema)


def _format(options: ReadOptions, asked: StructType | None = None) -> BodyFormat | None:
    """The format of column `bodyValue`; None without it.

    Args:
        options: of the query.
        asked: its columns, if they are known: then JSON bodies have the type that stands there, inferred before or the user's.
    """
    if asked is not None:
        kind = next((field.dataType for field in asked if field.name.lower() == BODY_VALUE.lower()), None)
        if kind is None:
            return None
        if options.bodies.format == JSON and isinstance(kind, StructType):
            return json_format(kind)
    if not options.bodies.format:
        return None
    return format_of(options.bodies, lambda: sampled_schema(options))
