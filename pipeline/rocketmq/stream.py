"""A stream over queues: where a micro-batch ends, and its tasks.

    checkpoint              driver (one object, lives as long as the query)      executors
    initialOffset ────────▶ latestOffset(start, limit)   ends of the queues, cut by the limit
    offsets/N  ◀──────────  end
                            partitions(start, end) ────────────────────────────▶ read(range), a pickled Task

A restart needs only the checkpoint: the same start and end make the same ranges, so a batch that runs again has the same
rows. Spark's file sink keeps each batch once; together, each message is written exactly once.

With a consumer group, its positions follow the batches that are done, for `reput lag` and for alerts. The query itself goes by
its checkpoint alone.
"""

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.rocketmq.batch import RangeReader
from pipeline.rocketmq.bodies.formats import BodyFormat
from pipeline.rocketmq.gateway import Gateways, QueueRange
from pipeline.rocketmq.limits import limit_by_bytes, limit_by_count
from pipeline.rocketmq.options import ReadOptions
from pipeline.rocketmq.positions import Positions, QueueKey, from_checkpoint, to_checkpoint
from pipeline.rocketmq.ranges import MessageRange, choose_queues, held_part, report_loss
from reput_client.errors import QueueNotFoundError, TopicNotFoundError


class RocketMQStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as they grow.

    Args:
        options: what to read.
        schema: the columns.
        format_: of column `bodyValue`; None: there is none.
    """

    def __init__(self, options: ReadOptions, schema: StructType, format_: BodyFormat | None = None) -> None:
        super().__init__(options, schema, format_)
        self._gateways: Gateways | None = None
        self._target: Positions | None = None
        self._latest: Positions | None = None
        self._held: dict[QueueKey, QueueRange] = {}  # as last read
        self._told: Positions = {}  # what the consumer group was set to

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gateways": None, "_target": None, "_latest": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
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

    def _queues(self) -> dict[QueueKey, QueueRange]:
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

    def _reached(self, begin: Positions, held: dict[QueueKey, QueueRange]) -> Positions:
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

    def _shrunk_to(self, key: QueueKey, position: int, queue: QueueRange) -> int:
        """Where to go on with a queue that ends before the stream's position: at that position, unless the log was cut."""
        if queue.max_offset >= position:
            return position
        # Queues that are rebuilt after a crash are short for a while; this call waits until they are built.
        response = self._open()[queue.endpoint].messages_or_end(key, position, 1)
        if response.max_offset >= position:
            return position
        why = f"the queue ends at {response.max_offset}, so its log was cut or replaced"
        self._report_loss(key, response.max_offset, position, why)
        return int(response.max_offset)

    def _report_loss(self, key: QueueKey, begin: int, end: int, why: str) -> None:
        report_loss(key, begin, end, why, fail_on_data_loss=self._options.fail_on_data_loss)

    def _record_sizes(self, held: dict[QueueKey, QueueRange], key: QueueKey, position: int, count: int) -> list[int]:
        if key not in held:
            return []
        try:
            response = self._open()[held[key].endpoint].messages(key, position, count)
        except (TopicNotFoundError, QueueNotFoundError):
            return []  # removed since it was listed; the tasks report it
        return [message.store_size_bytes for message in response.messages]
