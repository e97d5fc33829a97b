"""What consumer groups did, from the log alone: positions, lag, delays, retries and dead letters (ADR 0073).

The tables `lag` and `consume_delays`, as DataFrames.

    state topic ── changes ──▶ one task for each group ──▶ events: positions, and ranges that are consumed
    log ── ends of queues by bucket ──┐
        events ── positions ──────────┴──▶ lag
    log ⋈ events ── ranges ──────────────▶ consume_delays

Only topics that groups consume are read. A store of a broker has no state records: then `config/consumerOffset.json` says where
its groups are, at one time.

The table `retries`: messages that came again or were given up, by group, topic and cause.

They are the records of the retry and dead-letter topics:

    %RETRY%<group>_<topic>, %RETRY%<group>+<topic>    popped, and not acknowledged in time
    %RETRY%<group>                                    pulled, and sent back
    %DLQ%<group>                                      dead letters; popped or pulled before

A copy names its source in properties, of RocketMQ's names: RETRY_TOPIC, DLQ_ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, and
1ST_POP_TIME if it was popped. Groups and topics have `_` in their names, so only the last one tells `%RETRY%a_b` of group
`a_b` from that of group `a`, topic `b`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pipeline.analytics import replay
from pipeline.analytics.replay import STATE_TOPIC
from pipeline.analytics.tables import ReadLog, percentiles
from store.derive.queue_placement import NO_UNIT_BIT
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.format.delivery.consumer_files import decode_offsets, joined_offsets
from store.format.properties import DLQ_ORIGIN_TOPIC, FIRST_POP_TIME, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQ_KEY
from store.format.topic import DLQ_PREFIX, RETRY_PREFIX

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
    """The events of the groups, from the records of the state topic; see `replay.py`."""

    def take_apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay.changes_of(batches)

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay.events_of(batches)

    changes = read_state(replay.COLUMNS).mapInArrow(take_apart, _CHANGE_SCHEMA)
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


RETRY, DEAD_LETTER = "retry", "dead letter"
NOT_ACKNOWLEDGED, SENT_BACK = "not acknowledged", "sent back"


def is_moved(topic: str) -> bool:
    """Whether a topic holds retries or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def retries(read_log: ReadLog) -> "DataFrame":
    """A row for each group, source topic, kind and cause.

    Args:
        read_log: reads the retry and dead-letter topics.
    """
    from pyspark.sql import functions as f

    log = read_log(["topic", "reconsumeTimes", "storeSize", "storeTimestamp", "physicalOffset", "properties"])

    def one(name: str) -> "Column":
        return f.try_element_at("properties", f.lit(name))

    is_dead = f.col("topic").startswith(DLQ_PREFIX)
    source = f.coalesce(f.when(is_dead, one(DLQ_ORIGIN_TOPIC)), one(RETRY_TOPIC))
    is_popped = one(FIRST_POP_TIME).isNotNull()
    rows = log.select(
        f.when(is_dead, f.lit(DEAD_LETTER)).otherwise(f.lit(RETRY)).alias("kind"),
        f.when(is_popped, f.lit(NOT_ACKNOWLEDGED)).otherwise(f.lit(SENT_BACK)).alias("cause"),
        f.coalesce(source, f.lit("")).alias("source_topic"),
        f.when(is_dead, f.substring("topic", len(DLQ_PREFIX) + 1, 255))
        .otherwise(f.substring("topic", len(RETRY_PREFIX) + 1, 255))
        .alias("name"),
        (is_popped & ~is_dead).alias("has_suffix"),
        "reconsumeTimes",
        "storeSize",
        "storeTimestamp",
        f.coalesce(one(ORIGIN_MESSAGE_ID), one(UNIQ_KEY), f.col("physicalOffset").cast("string")).alias("message"),
    )
    suffix_length = f.length("source_topic") + 1
    base = f.expr("substring(name, 1, length(name) - length(source_topic) - 1)")
    is_composed = f.col("has_suffix") & (
        f.endswith("name", f.concat(f.lit("_"), "source_topic"))
        | f.endswith("name", f.concat(f.lit("+"), "source_topic"))
    )
    rows = rows.withColumn(
        "consumer_group", f.when(is_composed & (f.length("name") > suffix_length), base).otherwise(f.col("name"))
    )
    return rows.groupBy("consumer_group", "source_topic", "kind", "cause").agg(
        f.count("*").alias("copy_count"),
        f.count_distinct("message").alias("message_count"),
        f.max("reconsumeTimes").alias("attempts_max"),
        f.sum("storeSize").alias("store_size_bytes"),
        f.min("storeTimestamp").alias("first_store_time"),
        f.max("storeTimestamp").alias("last_store_time"),
    )


BROKER_FILES = (Path("config") / "consumerOffset.json", Path("config") / "lmqConsumerOffset.json")
FROM_BROKER = (
    "The log has no state records of consumer groups. Their positions come from config/consumerOffset.json: `lag` has the "
    "end of the log only, and `consume_delays` is empty."
)
# The tables without rows: no scan is needed to make them.
EMPTY = {
    "lag": "consumer_group string, topic string, queue_id int, begin timestamp, consumer_offset long, end_queue_offset long, "
    "lag_count long, lag_millis long",
    "consume_delays": "consumer_group string, topic string, consumed_count long, "
    + "".join(
        f"{kind}_to_consumed_{name}_millis long, "
        for kind in ("stored", "born")
        for name in ("p50", "p95", "p99", "max")
    ).removesuffix(", "),
    "retries": "consumer_group string, source_topic string, kind string, cause string, copy_count long, message_count long, "
    "attempts_max int, store_size_bytes long, first_store_time timestamp, last_store_time timestamp",
}


class ReadTopics(Protocol):
    """Reads columns of a log, of some topics."""

    def __call__(self, columns: Sequence[str], topics: Sequence[str] = ()) -> "DataFrame":
        """The columns; of all topics if none is named."""


def write_group_tables(
    spark: "SparkSession",
    read_log: ReadTopics,
    write: Callable[[str, "DataFrame"], None],
    topic_names: Sequence[str],
    span: Span,
    positions: Sequence[Position],
) -> list[str]:
    """Writes `lag`, `consume_delays` and `retries`; returns notes for the report.

    Args:
        spark: the session.
        read_log: reads the log.
        write: writes a table by its name.
        topic_names: the topics of the log.
        span: the times of the log.
        positions: where groups are by the broker's file, for a log without state records.
    """
    notes = []
    made: dict[str, DataFrame] = {}
    moved = [topic for topic in topic_names if is_moved(topic)]
    if moved:
        made["retries"] = retries(lambda columns: read_log(columns, moved))
    done = None
    if STATE_TOPIC in topic_names:
        done = events(lambda columns: read_log(columns, [STATE_TOPIC]))
    elif topic_names and positions:
        done = events_of_positions(spark, positions, span)
        notes.append(FROM_BROKER)
    done = None if done is None else done.persist()
    try:
        if done is not None:
            used = {row["topic"] for row in done.select("topic").distinct().collect()}
            topics = sorted(used.intersection(topic_names))
            if topics:
                made["lag"] = lag(lambda columns: read_log(columns, topics), done, span)
            if topics and STATE_TOPIC in topic_names:
                made["consume_delays"] = consume_delays(lambda columns: read_log(columns, topics), done)
        for name, schema in EMPTY.items():
            write(name, made[name] if name in made else spark.createDataFrame([], schema))
    finally:
        if done is not None:
            done.unpersist()
    return notes


def positions_of_broker(fs: FileSystem, store: Path) -> list[Position]:
    """The positions in `config/consumerOffset.json` and `lmqConsumerOffset.json` of a store root; none without these files.

    Raises:
        StoreCorruptedError: one is no JSON.
    """
    tables = []
    for file in BROKER_FILES:
        data = read_bytes(fs, store / file)
        if data is None:
            continue
        try:
            tables.append(decode_offsets(data))
        except StoreCorruptedError as error:
            raise StoreCorruptedError(f"{store / file}: {error.message}", file=store / file) from error
    table = joined_offsets(tables)
    return [
        (group, topic, queue_id, offset)
        for (group, topic), queues in sorted(table.items())
        for queue_id, offset in sorted(queues.items())
    ]
