"""The sink: rows appended to topics through the client library's producer.

A task sends its rows and waits for the receipts; with flushMode=sync (the default) each row is on the disk by then. There
is no transaction over tasks: rows that a failed job or batch has sent stay. So the unique key of each row depends only on
query, batch, partition, option writeId and content (`unique_keys.py`), and the store keeps one message for each key
(docs/adr/0015). A task or micro-batch that runs again stores no row twice, as long as

  - the first try is within the newest 524,288 messages of the store's log, or, after a restart of the store, within its
    newest 65,536 messages and 64 MiB;
  - the rows are the same, in the same partitions: no `rand()`, no unsorted `limit`;
  - the row goes to the same shard: each gateway must have one shard. Of several gateways, a task takes the one that its
    partition's number selects;
  - writeId is the same.

`foreachBatch` may write several times, and Spark gives all its writes the same query, batch and partitions. A row that two
of them send to one topic is stored once unless each write has a writeId of its own.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.rocketmq.errors import NotDeliveredError, ShardConflictError
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.security import opened
from pipeline.rocketmq.sink_options import FLUSH_MODES, SinkOptions
from pipeline.rocketmq.sink_rows import check_sink_columns, rows_of
from pipeline.rocketmq.unique_keys import TaskKeys
from reput_client import Producer, ReputClientError, RetryPolicy, SendReceipt

# Local properties in which Spark gives its tasks the stream and batch that they belong to.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
NO_BATCH = -1
# Receipts awaited at once: it bounds a task's memory for rows in flight. What `TaskKeys` keeps grows with the partition.
UNCONFIRMED_COUNT_MAX = 8192
ATTEMPT_COUNT_MAX = 1_000_000  # in effect no limit: time ends the attempts


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The identity of a task; it is the same when the task runs again.

    Attributes:
        writer_id: the query, or the job.
        batch_id: the micro-batch; NO_BATCH outside streams.
        partition_id: the task's partition.
    """

    writer_id: str
    batch_id: int
    partition_id: int


@dataclass(frozen=True, slots=True)
class TaskReceipt(WriterCommitMessage):
    """The result of a task.

    Attributes:
        row_count: rows that are stored in their topics now.
        repeated_count: those of them that had been stored before.
    """

    row_count: int
    repeated_count: int


def task_identity(job_id: str) -> TaskIdentity:
    """The identity of the running task; outside a stream, `job_id` takes the place of the query id."""
    context = TaskContext.get()
    assert context is not None, "not called inside a task of Spark"
    query_id, batch_id = context.getLocalProperty(QUERY_ID_PROPERTY), context.getLocalProperty(BATCH_ID_PROPERTY)
    if query_id and batch_id:
        # Also a batch write inside foreachBatch: its micro-batch may run again, as a new job. Nothing that stays the same then
        # tells several writes of one call apart; for that, there is option writeId.
        return TaskIdentity(query_id, int(batch_id), context.partitionId())
    return TaskIdentity(job_id, NO_BATCH, context.partitionId())


def append_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions, task: TaskIdentity) -> TaskReceipt:
    """Appends the rows of a task; returns when all are stored.

    Raises:
        NotDeliveredError: a row was refused, or could not be delivered in time.
        RowError: a row has no body or no topic.
    """
    keys = TaskKeys(task.writer_id, task.batch_id, task.partition_id, options.write_id)
    endpoint = options.endpoints[task.partition_id % len(options.endpoints)]
    row_count = repeated_count = 0
    waiting: list[Future[SendReceipt]] = []
    producer = opened(
        endpoint,
        lambda security: Producer(
            endpoint,
            security=security,
            flush_mode=FLUSH_MODES[options.flush_mode],
            delivery_seconds_max=options.retry_seconds,
            block_seconds_max=options.retry_seconds,
            retry=RetryPolicy(attempt_count_max=ATTEMPT_COUNT_MAX),
        ),
        options.security,
    )

    def settle() -> int:
        producer.flush()
        count = sum(future.result().deduplicated for future in waiting)
        waiting.clear()
        return count

    try:
        for batch in batches:
            for row in rows_of(batch, options.topic):
                waiting.append(
                    producer.send(
                        row.topic,
                        row.body,
                        keys=row.keys,
                        tags=row.tags,
                        properties=row.properties,
                        queue_id=row.queue_id,
                        unique_key=row.unique_key or keys.key(row.fields()),
                        born_time=row.born_time,
                        flag=row.flag,
                    )
                )
                row_count += 1
                if len(waiting) >= UNCONFIRMED_COUNT_MAX:
                    repeated_count += settle()
        repeated_count += settle()
    except ReputClientError as error:
        raise NotDeliveredError(
            f"The gateway {endpoint} did not accept a row of partition {task.partition_id}: {error.message} Earlier rows "
            "may be stored already; a retry under the same query and batch does not store them again."
        ) from error
    finally:
        producer.close()
    return TaskReceipt(row_count, repeated_count)


class RocketMQBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame. A task that Spark repeats stores no row twice; a job that is started again stores its rows again.

    Args:
        options: the gateways and the topic.
        schema: the columns.

    Raises:
        ColumnError: the columns make no messages.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_columns(schema, options.topic)
        self._options = options
        self._job_id = str(uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        """Appends one partition."""
        return append_rows(iterator, self._options, task_identity(self._job_id))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Appends a stream, each micro-batch once.

    Args:
        options: the gateways and the topic.
        schema: the columns.

    Raises:
        ColumnError: the columns make no messages.
        ShardConflictError: a gateway has several shards, so a repeated batch could go to another shard.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_columns(schema, options.topic)
        self._options = options
        for endpoint in options.endpoints:
            with Gateway(endpoint, options.retry_seconds, options.security) as gateway:
                _require_one_shard(endpoint, gateway.broker_names())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        """Appends one partition of a micro-batch."""
        return append_rows(iterator, self._options, task_identity(""))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: the rows are stored already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: when the batch runs again, the store recognizes the rows that it has."""


def _require_one_shard(endpoint: str, broker_names: tuple[str, ...]) -> None:
    if len(broker_names) > 1:
        raise ShardConflictError(
            f"The gateway {endpoint} has {len(broker_names)} shards ({', '.join(broker_names)}), and each knows only its "
            "own messages: a repeated batch could be stored twice. Give one gateway for each shard, separated by commas.",
            broker_names,
        )
