"""The tables of the analytics, as DataFrames: each from one scan of the log with only the columns that it needs.

Names of tables and columns are part of the job's contract. Times are UTC, sizes are in bytes. Delays are milliseconds from
birth to store; they are negative if the producer's clock was ahead.

Queue offsets as runs: a queue without gaps is one row.

    log order     A0 A1 B0 A2 B1 A4
    runs          A 0..2, B 0..1, A 4..4      A lacks 3

A task reads records in log order. There, the offsets of each queue are consecutive, so that a task returns one row for
each queue and one more for each gap, for any count of records. An offset in no run is missing; an offset in two runs is
repeated.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store.derive.queue_placement import NO_UNIT_BIT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RUN_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
    ]
)
EMITTED_RUN_COUNT = 65_536  # runs in a batch of rows; it limits the memory that a hostile log can make a task use

# The namespace in the name of a topic, also of a retry or dead-letter topic.
NAMESPACE = "^(?:%RETRY%)?(?:%DLQ%)?([^%]+)%"

Int64s = npt.NDArray[np.int64]


def runs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: makes rows of RUN_SCHEMA from the columns topic, queueId, queueOffset and sysFlag.

    A run never has an offset twice. Runs of one queue may come in any order and may overlap.
    """
    open_runs: dict[tuple[str, int], tuple[int, int]] = {}
    closed: list[tuple[str, int, int, int]] = []
    for batch in batches:
        for topic, queue_id, first, last in batch_runs(batch):
            before = open_runs.get((topic, queue_id))
            if before is not None and first == before[1] + 1:
                open_runs[topic, queue_id] = (before[0], last)
                continue
            if before is not None:
                closed.append((topic, queue_id, *before))
            open_runs[topic, queue_id] = (first, last)
        if len(closed) >= EMITTED_RUN_COUNT:
            yield _rows(closed)
            closed = []
    closed += [(topic, queue_id, *run) for (topic, queue_id), run in open_runs.items()]
    if closed:
        yield _rows(closed)


def batch_runs(batch: pa.RecordBatch) -> list[tuple[str, int, int, int]]:
    """Topic, queue id, first and last queue offset of each run within one batch, by queue and offset."""
    in_queue = batch.column("sysFlag").to_numpy() & NO_UNIT_BIT == 0
    if not in_queue.all():
        batch = batch.filter(pa.array(in_queue))
    if not batch.num_rows:
        return []
    topics = pc.dictionary_encode(batch.column("topic"))
    topic_numbers = topics.indices.to_numpy()
    queue_ids = batch.column("queueId").to_numpy()
    offsets = batch.column("queueOffset").to_numpy()
    order = np.lexsort((offsets, queue_ids, topic_numbers))
    topic_numbers, queue_ids, offsets = topic_numbers[order], queue_ids[order], offsets[order]
    breaks = (
        (topic_numbers[1:] != topic_numbers[:-1])
        | (queue_ids[1:] != queue_ids[:-1])
        | (offsets[1:] != offsets[:-1] + 1)
    )
    begins = np.flatnonzero(np.concatenate(([True], breaks)))
    ends = np.append(begins[1:], len(offsets)) - 1
    names = topics.dictionary.to_pylist()
    return [
        (names[number], queue_id, first, last)
        for number, queue_id, first, last in zip(
            topic_numbers[begins].tolist(),
            queue_ids[begins].tolist(),
            offsets[begins].tolist(),
            offsets[ends].tolist(),
            strict=True,
        )
    ]


def _rows(runs: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*runs, strict=True))
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, RUN_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA)


HOUR_SECONDS = 3600
HOT_KEY_COUNT = 20  # of each topic
# Accuracy of percentile_approx: its rank is off by at most 1 in this many rows, and exact for fewer rows.
PERCENTILE_ACCURACY = 10_000
# The order of the rows of a table in its files; `-` means descending.
ORDERS = {
    "topics": ("-message_count", "topic"),
    "namespaces": ("namespace",),
    "hours": ("topic", "queue_id", "hour"),
    "timeline": ("begin", "topic"),
    "queues": ("topic", "queue_id"),
    "gaps": ("topic", "queue_id", "first_missing_queue_offset"),
    "keys": ("-key_use_count", "topic"),
    "hot_keys": ("topic", "rank"),
    "duplicates": ("topic", "first_commit_log_offset", "unique_key"),
    "lag": ("consumer_group", "topic", "queue_id", "begin"),
    "consume_delays": ("consumer_group", "topic"),
    "retries": ("consumer_group", "source_topic", "kind", "cause"),
}
ReadLog = Callable[[Sequence[str]], "DataFrame"]


@dataclass(frozen=True)
class Traffic:
    """The results of one scan at two levels.

    Attributes:
        hours: a row for each topic, queue and hour.
        topics: a row for each topic.
        kept: the persisted source of both; the caller unpersists it.
    """

    hours: "DataFrame"
    topics: "DataFrame"
    kept: "DataFrame"


def begin_of(time: "str | Column", bucket_seconds: int) -> "Column":
    """The begin of the bucket that holds a time; counted from 1970 UTC in any time zone of the session."""
    from pyspark.sql import functions as f

    seconds = f.unix_seconds(f.col(time) if isinstance(time, str) else time)
    return f.timestamp_seconds(seconds - f.pmod(seconds, f.lit(bucket_seconds)))


def in_order(name: str, rows: "DataFrame") -> "DataFrame":
    """The rows of a table in one partition, sorted, so that Spark writes one part file."""
    from pyspark.sql import functions as f

    order = [f.desc(column[1:]) if column.startswith("-") else f.asc(column) for column in ORDERS[name]]
    return rows.repartition(1).sortWithinPartitions(*order)


def traffic(read_log: ReadLog) -> Traffic:
    """Counts, rates, sizes and delays by topic, queue and hour, and by topic."""
    from pyspark.sql import functions as f

    log = read_log(["topic", "queueId", "physicalOffset", "storeSize", "bornTimestamp", "storeTimestamp"])
    rows = log.select(
        "topic",
        f.col("queueId").alias("queue_id"),
        begin_of("storeTimestamp", HOUR_SECONDS).alias("hour"),
        "physicalOffset",
        "storeSize",
        "storeTimestamp",
        _delay().alias("delay"),
    )
    levels = rows.groupingSets([["topic", "queue_id", "hour"], ["topic"]], "topic", "queue_id", "hour")
    grouped = levels.agg(f.grouping_id().alias("level"), *_measures()).persist()
    measures = [name for name in grouped.columns if name not in {"topic", "queue_id", "hour", "level"}]
    span_seconds = (f.unix_millis("last_store_time") - f.unix_millis("first_store_time")) / 1000
    topics = (
        grouped.where("level != 0")
        .select("topic", *measures)
        .withColumn("messages_per_second", f.when(span_seconds > 0, f.col("message_count") / span_seconds))
    )
    hours = (
        grouped.where("level = 0")
        .select("topic", "queue_id", "hour", *measures)
        .withColumn("messages_per_second", f.col("message_count") / HOUR_SECONDS)
        .withColumn("bytes_per_second", f.col("store_size_bytes") / HOUR_SECONDS)
    )
    return Traffic(hours, topics, grouped)


def namespaces(topics: "DataFrame") -> "DataFrame":
    """Counts and sizes by namespace (`store.format.topic.namespace_of`), of rows of `topics`; other topics are left out."""
    from pyspark.sql import functions as f

    return (
        topics.withColumn("namespace", f.regexp_extract("topic", NAMESPACE, 1))
        .where("namespace != ''")
        .groupBy("namespace")
        .agg(
            f.count("*").alias("topic_count"),
            f.sum("message_count").alias("message_count"),
            f.sum("store_size_bytes").alias("store_size_bytes"),
        )
    )


def timeline(read_log: ReadLog, bucket_seconds: int) -> "DataFrame":
    """Traffic and delays by topic and bucket, for plots; rows with `topic` null are for all topics together."""
    from pyspark.sql import functions as f

    log = read_log(["topic", "storeSize", "bornTimestamp", "storeTimestamp"])
    rows = log.select(
        "topic", begin_of("storeTimestamp", bucket_seconds).alias("begin"), "storeSize", _delay().alias("delay")
    )
    return rows.groupingSets([["topic", "begin"], ["begin"]], "topic", "begin").agg(
        f.count("*").alias("message_count"),
        f.sum("storeSize").alias("store_size_bytes"),
        *percentiles("delay", "delay_{}_millis", (50, 99)),
    )


def runs(read_log: ReadLog) -> "DataFrame":
    """Runs of queue offsets; see `runs_of`."""

    def map_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return runs_of(batches)

    log = read_log(["topic", "queueId", "queueOffset", "sysFlag"])
    schema = ", ".join(f"{field.name} {_SQL_TYPES[field.type]}" for field in RUN_SCHEMA)
    return log.mapInArrow(map_task, schema)


def gaps_and_queues(runs_of_log: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """Missing and repeated offsets: a row for each gap, and a row for each queue.

    Offsets before a queue's first one do not count as a gap: retention may have removed their log files.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    queue = Window.partitionBy("topic", "queue_id").orderBy("first", "last")
    reached = f.max("last").over(queue.rowsBetween(Window.unboundedPreceding, -1))
    laid = runs_of_log.withColumn("reached", reached)
    missing = f.greatest(f.col("first") - f.col("reached") - 1, f.lit(0))
    repeated = f.greatest(f.least("last", "reached") - f.col("first") + 1, f.lit(0))
    laid = laid.withColumn("missing", f.coalesce(f.when(f.col("reached").isNotNull(), missing), f.lit(0)))
    laid = laid.withColumn("repeated", f.coalesce(f.when(f.col("reached").isNotNull(), repeated), f.lit(0)))
    gaps = laid.where("missing > 0").select(
        "topic",
        "queue_id",
        (f.col("reached") + 1).alias("first_missing_queue_offset"),
        f.col("missing").alias("missing_count"),
    )
    queues = laid.groupBy("topic", "queue_id").agg(
        f.sum(f.col("last") - f.col("first") + 1).alias("message_count"),
        f.min("first").alias("first_queue_offset"),
        f.max("last").alias("last_queue_offset"),
        f.count_if(f.col("missing") > 0).alias("gap_count"),
        f.sum("missing").alias("missing_count"),
        f.sum("repeated").alias("repeated_count"),
    )
    return gaps, queues


def key_uses(read_log: ReadLog) -> "DataFrame":
    """How often each key is used by topic, queue and hour."""
    from pyspark.sql import functions as f

    log = read_log(["topic", "queueId", "storeTimestamp", "keys"])
    hour = begin_of("storeTimestamp", HOUR_SECONDS).alias("hour")
    rows = log.select("topic", f.col("queueId").alias("queue_id"), hour, f.explode("keys").alias("key"))
    return rows.groupBy("topic", "queue_id", "hour", "key").agg(f.count("*").alias("use_count"))


def keys_by_hour(uses: "DataFrame") -> "DataFrame":
    """Cardinality and skew of keys by topic, queue and hour, to be joined to `hours`."""
    return uses.groupBy("topic", "queue_id", "hour").agg(*_key_measures())


def keys(uses: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """Cardinality and skew of the keys of each topic, and its most used keys."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_topic = uses.groupBy("topic", "key").agg(f.sum("use_count").alias("use_count"))
    cardinality = of_topic.groupBy("topic").agg(
        *_key_measures(),
        f.count_if(f.col("use_count") == 1).alias("used_once_count"),
        *percentiles("use_count", "uses_per_key_{}", (50, 99)),
    )
    ranked = of_topic.withColumn(
        "rank", f.row_number().over(Window.partitionBy("topic").orderBy(f.desc("use_count"), "key"))
    )
    hot = ranked.where(f.col("rank") <= HOT_KEY_COUNT).join(cardinality.select("topic", "key_use_count"), "topic")
    hot = hot.select("topic", "rank", "key", "use_count", (f.col("use_count") / f.col("key_use_count")).alias("share"))
    return cardinality, hot


def duplicates(read_log: ReadLog) -> "DataFrame":
    """Unique keys that several messages of one topic have: a producer sent a message again that was already stored."""
    from pyspark.sql import functions as f

    log = read_log(["topic", "uniqKey", "physicalOffset", "storeTimestamp"])
    return (
        log.where("uniqKey is not null")
        .groupBy("topic", f.col("uniqKey").alias("unique_key"))
        .agg(
            f.count("*").alias("copy_count"),
            f.min("physicalOffset").alias("first_commit_log_offset"),
            f.max("physicalOffset").alias("last_commit_log_offset"),
            f.min("storeTimestamp").alias("first_store_time"),
            f.max("storeTimestamp").alias("last_store_time"),
        )
        .where("copy_count > 1")
    )


_SQL_TYPES = {pa.string(): "string", pa.int32(): "int", pa.int64(): "long"}


def _delay() -> "Column":
    from pyspark.sql import functions as f

    return f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")


def _measures() -> "list[Column]":
    from pyspark.sql import functions as f

    return [
        f.count("*").alias("message_count"),
        f.sum("storeSize").alias("store_size_bytes"),
        f.min("storeTimestamp").alias("first_store_time"),
        f.max("storeTimestamp").alias("last_store_time"),
        *percentiles("storeSize", "size_{}_bytes", (50, 95)),
        f.max("storeSize").alias("size_max_bytes"),
        *percentiles("delay", "delay_{}_millis", (50, 95, 99)),
        f.max("delay").alias("delay_max_millis"),
        f.count_if(f.col("delay") < 0).alias("born_after_store_count"),
        f.min("physicalOffset").alias("first_commit_log_offset"),
        f.max(f.col("physicalOffset") + f.col("storeSize")).alias("end_commit_log_offset"),
    ]


def _key_measures() -> "list[Column]":
    from pyspark.sql import functions as f

    return [
        f.sum("use_count").alias("key_use_count"),
        f.count("*").alias("distinct_key_count"),
        f.max("use_count").alias("top_key_use_count"),
        (f.max("use_count") / f.sum("use_count")).alias("top_key_share"),
    ]


def percentiles(column: str, name: str, percents: Sequence[int]) -> "list[Column]":
    """Percentiles of a column: the least value that the given percent of rows do not exceed; `{}` in `name` becomes p50 etc."""
    from pyspark.sql import functions as f

    return [
        f.percentile_approx(column, percent / 100, PERCENTILE_ACCURACY).alias(name.format(f"p{percent}"))
        for percent in percents
    ]
