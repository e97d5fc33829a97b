"""The sink: rows appended to topics through the client library's producer.

A task sends its rows and waits for the receipts; with flushMode=sync (the default) each row is on the disk by then. There
is no transaction over tasks: rows that a failed job or batch has sent stay. So the unique key of each row depends only on
query, batch, partition, option writeId and content (`TaskKeys`), and the store keeps one message for each key
(docs/adr/0015). A task or micro-batch that runs again stores no row twice, as long as

  - the first try is within the newest 524,288 messages of the store's log, or, after a restart of the store, within its
    newest 65,536 messages and 64 MiB;
  - the rows are the same, in the same partitions: no `rand()`, no unsorted `limit`;
  - the row goes to the same shard: each gateway must have one shard. Of several gateways, a task takes the one that its
    partition's number selects;
  - writeId is the same.

`foreachBatch` may write several times, and Spark gives all its writes the same query, batch and partitions. A row that two
of them send to one topic is stored once unless each write has a writeId of its own.

Options of the sink: where rows go, and when they count as stored.

Rows of a DataFrame as messages to append.

Columns; upper and lower case of names are equal. All except `body` may be missing; all except `topic` and `body` may be null:

    topic string   body binary|string   keys array<string>|string   tags string   queueId int
    properties map<string,string>       uniqKey string              flag int      bornTimestamp timestamp

Unique keys of a sink's rows: the same row of the same task gets the same key each time the task runs.

    16 B  BLAKE2b of the row, keyed by query, batch, partition and the write's id
     6 B  how many equal rows came before it in the task
     4 B  0                                                              56 upper-case hex digits
     2 B  0

The store keeps one message for each unique key (docs/adr/0015), so a task that runs again adds no message. The key depends
on the content of the row, not on its number: Spark promises that a repeated task has the same rows, but after a shuffle
perhaps in another order. With numbers, a row that changed places could get the key of another row, and be lost.

So that equal rows get keys of their own, a task keeps the digest of each row until its end: about 100 bytes for each different
row. Only all of them give exact counts: a row that is counted wrong would be lost or stored twice.

The layout is that of RocketMQ's ids with an IPv6 address: the last 6 bytes are a time (4 B, milliseconds of the month) and a
counter. RocketMQ's tools search from that time on: 0 is the begin of the current month.
"""

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.rocketmq.errors import NotDeliveredError, ShardConflictError
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.options import (
    NO_SECURITY,
    RETRY_SECONDS_DEFAULT,
    SECURITY_OPTIONS,
    SecurityOptions,
    endpoints_of,
    given_options,
    opened,
    seconds,
    security_options,
)
from pipeline.scan.options import OptionError
from pipeline.scan.schema import ColumnError
from reput_client import FlushMode, Producer, ReputClientError, RetryPolicy, SendReceipt

# Spark adds these options when a stream is started.
OF_SPARK = ("checkpointLocation", "queryName", "path")
SINK_OPTIONS = ("endpoint", "topic", "flushMode", "retrySeconds", "writeId", *SECURITY_OPTIONS)
FLUSH_MODES = {"sync": FlushMode.SYNC, "async": FlushMode.ASYNC, "default": FlushMode.SERVER_DEFAULT}
# A name given by hand is shorter; it stands in plans.
WRITE_ID_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a sink.

    Attributes:
        endpoints: the gateways, each with one shard; a partition always uses the same one.
        topic: the topic of all rows; empty: column topic of each row.
        flush_mode: when a row counts as stored: a key of FLUSH_MODES.
        retry_seconds: how long a row is tried, in seconds.
        security: TLS and credentials.
        write_id: tells several writes of one micro-batch apart; empty: there is one.
    """

    endpoints: tuple[str, ...]
    topic: str
    flush_mode: str
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY
    write_id: str = ""


def sink_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """The options of a sink, checked.

    Args:
        options: as the user gave them.
        overwrite: the mode is not append.

    Raises:
        OptionError: names the wrong option.
    """
    if overwrite:
        raise OptionError("A topic cannot be overwritten, only appended to: use mode append.")
    given = given_options(
        {name: value for name, value in options.items() if name.lower() not in {other.lower() for other in OF_SPARK}},
        SINK_OPTIONS,
    )
    flush_mode = given.get("flushMode", "sync").strip().lower()
    if flush_mode not in FLUSH_MODES:
        raise OptionError(f"Option flushMode is {given['flushMode']!r}: give one of {', '.join(FLUSH_MODES)}.")
    write_id = given.get("writeId", "").strip()
    if len(write_id) > WRITE_ID_LENGTH_MAX:
        raise OptionError(
            f"Option writeId has {len(write_id)} characters: give at most {WRITE_ID_LENGTH_MAX}, such as the name of the write."
        )
    return SinkOptions(
        endpoints=endpoints_of(given),
        topic=given.get("topic", "").strip(),
        flush_mode=flush_mode,
        retry_seconds=seconds(given, "retrySeconds", RETRY_SECONDS_DEFAULT),
        security=security_options(given),
        write_id=write_id,
    )


COLUMN_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "body": (BinaryType(), StringType()),
    "keys": (ArrayType(StringType()), StringType()),
    "tags": (StringType(),),
    "queueId": (IntegerType(), LongType(), ShortType()),
    "properties": (MapType(StringType(), StringType()),),
    "uniqKey": (StringType(),),
    "flag": (IntegerType(),),
    "bornTimestamp": (TimestampType(),),
}


class RowError(ValueError):
    """A row has no body or no topic."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A message to append.

    Attributes:
        topic: its topic.
        body: its body.
        keys: its business keys.
        tags: its tag; empty: none.
        queue_id: its queue; None: the store uses its queues in turn.
        properties: properties of the application.
        unique_key: its unique key; None: the sink makes one.
        flag: 32 bits of the application.
        born_time: when it was made; None: the time of the append.
    """

    topic: str
    body: bytes
    keys: tuple[str, ...]
    tags: str
    queue_id: int | None
    properties: dict[str, str]
    unique_key: str | None
    flag: int
    born_time: datetime | None

    def fields(self) -> list[bytes]:
        """All values of the row as bytes, for its unique key; equal rows have equal fields."""
        born = "" if self.born_time is None else self.born_time.isoformat()
        texts = [self.topic, self.tags, str(self.queue_id), str(self.flag), born, str(len(self.keys)), *self.keys]
        texts += [text for pair in sorted(self.properties.items()) for text in pair]
        return [self.body, *(text.encode() for text in texts)]


def check_sink_columns(schema: StructType, topic: str) -> None:
    """Raises ColumnError when rows of this schema cannot be messages.

    Args:
        schema: the DataFrame's columns.
        topic: the option; empty: the rows must have a column topic.
    """
    by_lower = {name.lower(): name for name in COLUMN_TYPES}
    seen = set()
    for field in schema:
        name = by_lower.get(field.name.lower())
        if name is None:
            near = difflib.get_close_matches(field.name.lower(), by_lower, n=1, cutoff=0.0)
            raise ColumnError(
                f"A sink has no column {field.name!r}: did you mean {by_lower[near[0]]}? Select only columns of "
                f"{', '.join(COLUMN_TYPES)}."
            )
        kinds = [kind.simpleString() for kind in COLUMN_TYPES[name]]
        if field.dataType.simpleString() not in kinds:
            raise ColumnError(
                f"Column {field.name!r} is {field.dataType.simpleString()}: cast it to {' or '.join(kinds)}."
            )
        seen.add(name)
    if "body" not in seen:
        raise ColumnError("There is no column 'body': add it, since a message needs a body.")
    if "topic" not in seen and not topic:
        raise ColumnError("The topic is not given: give option topic or a column 'topic'.")


def rows_of(batch: pa.RecordBatch, topic: str) -> Iterator[NewRow]:
    """The rows of a batch, in order.

    Args:
        batch: columns as `check_sink_columns` allows.
        topic: topic of all rows, overrides their column; empty: the column is used.

    Raises:
        RowError: a row has no body, or no topic.
    """
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}

    def values(name: str, convert: Callable[[Any], Any], missing: Any) -> list[Any]:
        column = columns.get(name.lower())
        if column is None:
            return [missing] * batch.num_rows
        return [missing if value is None else convert(value) for value in column.to_pylist()]

    for row in zip(
        [topic] * batch.num_rows if topic else values("topic", str, ""),
        values("body", _body, None),
        values("keys", _keys, ()),
        values("tags", str, ""),
        values("queueId", int, None),
        values("properties", dict, {}),
        values("uniqKey", str, None),
        values("flag", int, 0),
        values("bornTimestamp", _aware, None),
        strict=True,
    ):
        if row[1] is None:
            raise RowError(f"A row for topic {row[0]!r} has no body: fill it, or leave the row out.")
        if not row[0]:
            raise RowError("A row has no topic: fill the column, or give option topic.")
        yield NewRow(*row)


def _body(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _keys(value: str | list[str]) -> tuple[str, ...]:
    """Keys from a list, or from a text with spaces between them, as in RocketMQ's property KEYS."""
    return tuple(value.split()) if isinstance(value, str) else tuple(value)


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


DIGEST_BYTES = 16
REPEAT_BYTES = 6
_TIME_AND_COUNTER = "000000000000"


class TaskKeys:
    """Makes the keys of one task's rows.

    Args:
        writer_id: the query or the job.
        batch_id: the micro-batch; -1 outside streams.
        partition_id: the task's partition.
        write_id: tells several writes of one micro-batch apart; empty: there is one.
    """

    def __init__(self, writer_id: str, batch_id: int, partition_id: int, write_id: str = "") -> None:
        identity = f"{writer_id}\n{batch_id}\n{partition_id}"
        if write_id:  # without it the keys of earlier versions, which a stored micro-batch may have
            identity += f"\n{write_id}"
        self._key = hashlib.blake2b(identity.encode(), digest_size=32).digest()
        self._seen: dict[bytes, int] = {}

    def key(self, fields: Sequence[bytes]) -> str:
        """The key of the next row, which has these fields."""
        digest = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for field in fields:
            # With the length first, ("a", "bc") and ("ab", "c") have different keys.
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
        name = digest.digest()
        repeat = self._seen.get(name, 0)
        self._seen[name] = repeat + 1
        return (name + repeat.to_bytes(REPEAT_BYTES, "big")).hex().upper() + _TIME_AND_COUNTER


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
