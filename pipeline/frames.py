"""Typed helpers for DataFrames of messages, for notebooks and scripts.

    from pipeline import frames

    log = frames.read_log(spark, "run/store", columns=("topic", "bornTimestamp", "storeTimestamp"), topics=("Orders",))
    frames.with_delay(log).groupBy("topic").agg(*frames.percentiles("delay_millis")).show()

Each takes and returns DataFrames, so they go together with `DataFrame.transform`.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pipeline.analytics import groups, tables


def read_log(
    spark: SparkSession,
    store: str | Path,
    *,
    columns: Sequence[str] = (),
    topics: Sequence[str] = (),
    begin: datetime | None = None,
    end: datetime | None = None,
    **options: str,
) -> DataFrame:
    """The log of a store, `format("commitlog")`.

    Args:
        spark: the session.
        store: the store root.
        columns: the columns; all of them if none is named.
        topics: only these; all of them if none is named.
        begin: stored at this time or later; with a time zone.
        end: stored before this time; with a time zone.
        options: further options of the format, such as `verify="crc"`.
    """
    given = dict(options)
    if columns:
        given["columns"] = ",".join(columns)
    if topics:
        given["topics"] = ",".join(topics)
    if begin is not None:
        given["startingTimestamp"] = _millis(begin)
    if end is not None:
        given["endingTimestamp"] = _millis(end)
    return spark.read.format("commitlog").options(**given).load(str(store))


def read_topic(spark: SparkSession, endpoint: str, topic: str, **options: str) -> DataFrame:
    """A topic over a gateway, `format("rocketmq")`, up to its end now.

    Args:
        spark: the session.
        endpoint: `HOST:PORT` of the gateway.
        topic: its name.
        options: further options of the format, such as `tags="TagA || TagB"`.
    """
    return spark.read.format("rocketmq").options(endpoint=endpoint, subscribe=topic, **options).load()


def with_key(log: DataFrame, key: str) -> DataFrame:
    """The messages with a business key; needs `keys`. The key is compared whole."""
    return log.where(f.array_contains("keys", key))


def with_delay(log: DataFrame, name: str = "delay_millis") -> DataFrame:
    """A column more: from birth to storing, in milliseconds; needs `bornTimestamp` and `storeTimestamp`."""
    return log.withColumn(name, f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp"))


def percentiles(column: str, percents: Sequence[int] = (50, 99)) -> list[Column]:
    """Aggregates named `p50` and so on: the least value that the given percent of rows do not exceed."""
    return tables.percentiles(column, "{}", percents)


def retries(spark: SparkSession, store: str | Path) -> DataFrame:
    """Retries and dead letters of a store by group, source topic, kind and cause; the table `retries` of the analytics."""
    names = read_log(spark, store, columns=("topic",)).distinct().collect()
    topics = [row["topic"] for row in names if groups.is_moved(row["topic"])]

    def read(columns: Sequence[str]) -> DataFrame:
        log = read_log(spark, store, columns=columns, topics=topics)
        return log if topics else log.where(f.lit(False))

    return groups.retries(read)


def json_bodies(log: DataFrame, schema: str | StructType, name: str = "value") -> DataFrame:
    """A column more: the body as JSON of a schema, by Spark's `from_json`; fields are null where it is none.

    Needs `body`, not compressed. Option `bodyFormat` of `format("rocketmq")` decodes where bodies are read (docs/pipeline.md).

    Args:
        log: the messages. Option `decompress` of `format("rocketmq")` gives plain bodies.
        schema: such as `"id long, amount double"`.
        name: of the new column.
    """
    return log.withColumn(name, f.from_json(f.col("body").cast("string"), schema))


def _millis(time: datetime) -> str:
    """Milliseconds since 1970; ValueError for a time without a time zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: write datetime(..., tzinfo=UTC)")
    return str(round(time.timestamp() * 1000))
