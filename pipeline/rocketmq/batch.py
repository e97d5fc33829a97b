"""A batch read over queues: the driver resolves positions once and cuts the ranges into tasks."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.rocketmq.bodies.formats import BodyFormat
from pipeline.rocketmq.gateway import Gateways, QueueRange
from pipeline.rocketmq.options import ReadOptions
from pipeline.rocketmq.positions import Bound, Positions, QueueKey
from pipeline.rocketmq.ranges import (
    MessageRange,
    choose_queues,
    cut_into_tasks,
    held_part,
    report_loss,
    resolve,
)
from pipeline.rocketmq.reading import Task, filter_of
from pipeline.scan.options import OptionError
from reput_client.errors import IllegalFilterError, QueueNotFoundError, TopicNotFoundError


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
        self, gateways: Gateways, held: Mapping[QueueKey, QueueRange], bound: Bound, option: str
    ) -> Positions:
        """The position of each queue at a bound; a bound by time is a call to the queue's gateway."""

        def search(key: QueueKey, time_millis: int) -> int:
            return gateways[held[key].endpoint].search_offset(key, time_millis)

        return resolve(bound, held, search, option)

    def _check_filter(self, gateways: Gateways, held: Mapping[QueueKey, QueueRange]) -> None:
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
