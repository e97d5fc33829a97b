"""Which of the tables of groups a log has something for, and where their positions come from."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.analytics.groups import moves, tables
from pipeline.analytics.groups.state_records import STATE_TOPIC
from pipeline.analytics.groups.tables import Position, Span
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.format.delivery.consumer_files import decode_offsets, joined_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    moved = [topic for topic in topic_names if moves.is_moved(topic)]
    if moved:
        made["retries"] = moves.retries(lambda columns: read_log(columns, moved))
    done = None
    if STATE_TOPIC in topic_names:
        done = tables.events(lambda columns: read_log(columns, [STATE_TOPIC]))
    elif topic_names and positions:
        done = tables.events_of_positions(spark, positions, span)
        notes.append(FROM_BROKER)
    done = None if done is None else done.persist()
    try:
        if done is not None:
            used = {row["topic"] for row in done.select("topic").distinct().collect()}
            topics = sorted(used.intersection(topic_names))
            if topics:
                made["lag"] = tables.lag(lambda columns: read_log(columns, topics), done, span)
            if topics and STATE_TOPIC in topic_names:
                made["consume_delays"] = tables.consume_delays(lambda columns: read_log(columns, topics), done)
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
