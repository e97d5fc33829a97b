"""The tables `lag` and `consume_delays`, as DataFrames.

    state topic ── changes ──▶ one task for each group ──▶ events: positions, and ranges that are consumed
    log ── ends of queues by bucket ──┐
        events ── positions ──────────┴──▶ lag
    log ⋈ events ── ranges ──────────────▶ consume_delays

Only topics that groups consume are read. A store of a broker has no state records: then `config/consumerOffset.json` says where
its groups are, at one time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.analytics.groups import replay, state_records
from pipeline.analytics.tables import ReadLog, percentiles
from store.derive.queue_placement import NO_UNIT_BIT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE = ("consumer_group", "topic", "queue_id")
EVENT_SCHEMA = (
    "consumer_group string, topic string, queue_id int, commit_log_offset long, time_millis long, first long, last long, "
    "consumer_offset long"
)
_CHANGE_SCHEMA = (
    "consumer_group string, commit_log_offset long, number int, time_millis long, is_full boolean, data binary"
)
Position = tuple[str, str, int, int]  # group, topic, queue id, consumer offset


@dataclass(frozen=True)
class Span:
    """The times of a log.

    Attributes:
        first_millis: store time of its first message.
        last_millis: store time of its last one.
        bucket_seconds: length of the buckets.
    """

    first_millis: int
    last_millis: int
    bucket_seconds: int


def events(read_state: ReadLog) -> "DataFrame":
    """What the groups did, from the records of the state topic; see `replay.py`."""

    def take_apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return state_records.changes_of(batches)

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay.events_of(batches)

    changes = read_state(state_records.COLUMNS).mapInArrow(take_apart, _CHANGE_SCHEMA)
    ordered = changes.repartition("consumer_group")
    ordered = ordered.sortWithinPartitions("consumer_group", "commit_log_offset", "number")
    return ordered.mapInArrow(apply, EVENT_SCHEMA)


def events_of_positions(spark: "SparkSession", positions: Sequence[Position], span: Span) -> "DataFrame":
    """The positions that a file states, as events at the end of the log."""
    rows = [
        (group, topic, queue_id, 0, span.last_millis, None, None, offset)
        for group, topic, queue_id, offset in positions
    ]
    return spark.createDataFrame(rows, EVENT_SCHEMA)


def lag(read_log: ReadLog, done: "DataFrame", span: Span) -> "DataFrame":
    """Where each group was in each queue at the end of each bucket, and how far behind.

    Args:
        read_log: reads the topics that groups consume.
        done: the events.
        span: the times of the log.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    step = span.bucket_seconds
    first = span.first_millis // 1000 // step * step
    last = span.last_millis // 1000 // step * step
    begins = f.explode(f.sequence(f.lit(first).cast("long"), f.lit(last).cast("long"), f.lit(step).cast("long")))
    log = _queued(read_log(["topic", "queueId", "queueOffset", "sysFlag", "storeTimestamp"]))
    seconds = f.unix_seconds("storeTimestamp")
    ends = log.groupBy("topic", "queue_id", (seconds - f.pmod(seconds, f.lit(step))).alias("begin_seconds")).agg(
        (f.max("queueOffset") + 1).alias("end")
    )
    done_seconds = f.floor(f.col("time_millis") / 1000)
    positions = done.groupBy(*PLACE, (done_seconds - f.pmod(done_seconds, f.lit(step))).alias("begin_seconds")).agg(
        f.max_by("consumer_offset", "commit_log_offset").alias("position")
    )
    grid = done.select(*PLACE).distinct().withColumn("begin_seconds", begins)
    joined = grid.join(positions, [*PLACE, "begin_seconds"], "left")
    joined = joined.join(ends, ["topic", "queue_id", "begin_seconds"], "left")
    until = Window.partitionBy(*PLACE).orderBy("begin_seconds").rowsBetween(Window.unboundedPreceding, 0)
    known = joined.select(
        *PLACE,
        "begin_seconds",
        f.last("position", ignorenulls=True).over(until).alias("consumer_offset"),
        f.last("end", ignorenulls=True).over(until).alias("end_queue_offset"),
    ).where(f"consumer_offset > {replay.FORGOTTEN} and end_queue_offset is not null")
    known = known.withColumn("lag_count", f.greatest(f.col("end_queue_offset") - f.col("consumer_offset"), f.lit(0)))
    oldest = log.select("topic", "queue_id", f.col("queueOffset").alias("consumer_offset"), "storeTimestamp")
    wanted = known.where("lag_count > 0").select("topic", "queue_id", "consumer_offset").distinct()
    oldest = oldest.join(f.broadcast(wanted), ["topic", "queue_id", "consumer_offset"], "left_semi")
    oldest = oldest.groupBy("topic", "queue_id", "consumer_offset").agg(
        f.min(f.unix_millis("storeTimestamp")).alias("oldest_millis")
    )
    known = known.join(oldest, ["topic", "queue_id", "consumer_offset"], "left")
    end_millis = f.least((f.col("begin_seconds") + step) * 1000 - 1, f.lit(span.last_millis))
    late = f.when(f.col("lag_count") == 0, 0).otherwise(f.greatest(end_millis - f.col("oldest_millis"), f.lit(0)))
    return known.select(
        *PLACE,
        f.timestamp_seconds("begin_seconds").alias("begin"),
        "consumer_offset",
        "end_queue_offset",
        "lag_count",
        late.cast("long").alias("lag_millis"),
    )


def consume_delays(read_log: ReadLog, done: "DataFrame") -> "DataFrame":
    """How long messages waited for each group: from birth and from storing until they were consumed."""
    from pyspark.sql import functions as f

    log = _queued(read_log(["topic", "queueId", "queueOffset", "sysFlag", "bornTimestamp", "storeTimestamp"]))
    log = log.select(
        "topic",
        "queue_id",
        f.col("queueOffset").alias("queue_offset"),
        f.unix_millis("bornTimestamp").alias("born"),
        f.unix_millis("storeTimestamp").alias("stored"),
    )
    # A committed position may be any number; only offsets that the log has are counted one by one.
    bounds = log.groupBy("topic", "queue_id").agg(
        f.min("queue_offset").alias("low"), f.max("queue_offset").alias("high")
    )
    ranges = done.where("first is not null").join(f.broadcast(bounds), ["topic", "queue_id"])
    ranges = ranges.withColumn("first", f.greatest("first", "low")).withColumn("last", f.least("last", "high"))
    consumed = ranges.where("first <= last").select(
        "consumer_group",
        "topic",
        "queue_id",
        "time_millis",
        f.explode(f.sequence("first", "last")).alias("queue_offset"),
    )
    joined = consumed.join(log, ["topic", "queue_id", "queue_offset"]).select(
        "consumer_group",
        "topic",
        (f.col("time_millis") - f.col("stored")).alias("waited"),
        (f.col("time_millis") - f.col("born")).alias("total"),
    )
    return joined.groupBy("consumer_group", "topic").agg(
        f.count("*").alias("consumed_count"),
        *percentiles("waited", "stored_to_consumed_{}_millis", (50, 95, 99)),
        f.max("waited").alias("stored_to_consumed_max_millis"),
        *percentiles("total", "born_to_consumed_{}_millis", (50, 95, 99)),
        f.max("total").alias("born_to_consumed_max_millis"),
    )


def _queued(log: "DataFrame") -> "DataFrame":
    """The records that have a place in a queue."""
    from pyspark.sql import functions as f

    is_queued: Column = f.col("sysFlag").bitwiseAND(NO_UNIT_BIT) == 0
    return log.where(is_queued).withColumnRenamed("queueId", "queue_id")
