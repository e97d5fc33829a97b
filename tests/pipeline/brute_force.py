"""What format("commitlog") must show, made record by record with the store's plain codec; and reading without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from pipeline.scan.commitlog import CommitLogDataSource, CommitLogReader
from store.format.derived.queue_unit import tags_code
from store.format.properties import KEYS, TAGS, UNIQ_KEY, split_keys
from store.format.record import decode_record
from tests.support.fixture_stores import walk_frames

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def row_of(frame: bytes) -> Row:
    """The row of one record."""
    record = decode_record(frame, check_body_crc=False, check_properties_crc=False)
    properties = record.properties
    keys = properties.get(KEYS)
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.commit_log_offset,
        "storeSize": record.store_size_bytes,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": EPOCH + timedelta(milliseconds=record.born_time_millis),
        "bornHost": str(record.born_host),
        "storeTimestamp": EPOCH + timedelta(milliseconds=record.store_time_millis),
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "tags": properties.get(TAGS),
        "tagsCode": tags_code(record.topic, properties, record.store_time_millis),
        "keys": None if keys is None else list(split_keys(keys)),
        "uniqKey": properties.get(UNIQ_KEY),
        "properties": dict(properties),
        "priority": int(properties["_SYS_MSG_PRIORITY_"]) if "_SYS_MSG_PRIORITY_" in properties else None,
        "lite_topic": properties.get("__LITE_TOPIC"),
        "body": record.body,
        "raw": frame,
    }


def rows_of_store(root: Path, *, without: Sequence[str] = ("raw",)) -> list[Row]:
    """A row for each record of a clean log, in log order."""
    rows = [row_of(frame) for _, frame in walk_frames(root)]
    for row in rows:
        for name in without:
            del row[name]
    return rows


def make_reader(path: Path | str, schema: StructType | None = None, **options: Any) -> CommitLogReader:
    """A reader as Spark makes it; nothing is kept of walks unless told to."""
    given = {"path": str(path), "boundaryCache": "off", **{name: str(value) for name, value in options.items()}}
    source = CommitLogDataSource({name.lower(): value for name, value in given.items()})
    return source.reader(schema or source.schema())


def read_reader(reader: CommitLogReader) -> Iterator[Row]:
    """All rows of a reader, in the order of its splits."""
    for split in reader.partitions():
        for batch in reader.read(split):
            batch.validate(full=True)
            for row in batch.to_pylist():
                yield as_plain(row)


def read(path: Path | str, schema: StructType | None = None, **options: Any) -> list[Row]:
    """All rows of a scan."""
    return list(read_reader(make_reader(path, schema, **options)))


def as_plain(row: Mapping[str, Any]) -> Row:
    """A row of Arrow in the terms of `row_of`."""
    plain = dict(row)
    if plain.get("properties") is not None:
        assert len(dict(plain["properties"])) == len(plain["properties"]), "a map with a key twice"
        plain["properties"] = dict(plain["properties"])
    return plain
