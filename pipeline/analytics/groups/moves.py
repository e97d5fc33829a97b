"""The table `retries`: messages that came again or were given up, by group, topic and cause.

They are the records of the retry and dead-letter topics:

    %RETRY%<group>_<topic>, %RETRY%<group>+<topic>    popped, and not acknowledged in time
    %RETRY%<group>                                    pulled, and sent back
    %DLQ%<group>                                      dead letters; popped or pulled before

A copy names its source in properties, of RocketMQ's names: RETRY_TOPIC, DLQ_ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, and
1ST_POP_TIME if it was popped. Groups and topics have `_` in their names, so only the last one tells `%RETRY%a_b` of group
`a_b` from that of group `a`, topic `b`.
"""

from typing import TYPE_CHECKING

from pipeline.analytics.tables import ReadLog
from store.format.properties import DLQ_ORIGIN_TOPIC, FIRST_POP_TIME, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQ_KEY
from store.format.topic import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
