"""The gateway's messages as Arrow batches: the native view, and the view of Spark's Kafka source.

Columns are filled one after the other from the generated message classes, whose fields are cheap to read. Only the columns
that are asked for are made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.rocketmq.bodies.compression import decompressed, decompressed_or_none
from pipeline.rocketmq.bodies.formats import BodyFormat
from pipeline.rocketmq.bodies.json_bodies import is_nullable
from pipeline.rocketmq.options import KAFKA, ReadOptions
from pipeline.scan.schema import (
    TIMESTAMP_TYPE_LOG_APPEND,
    ColumnError,
    check_columns,
    choose_columns,
    kafka_schema,
    native_schema,
)
from reput.message.v1 import message_pb2
from store.format.derived.queue_unit import tags_code
from store.format.message_type import priority_of
from store.format.properties import KEYS, LITE_TOPIC, TAGS
from store.format.sys_flag import COMPRESSED
from store.format.topic import SCHEDULE_TOPIC

BROKER = StructField("brokerName", StringType(), False, {"comment": "the shard that holds the message"})
# Bytes of bodies in one Arrow batch that has several, as its columns have them: a body from DownloadBody can have several MiB,
# and one that is stored compressed a thousand times of what is stored.
BATCH_BYTES_MAX = 16 << 20

StoredMessage = message_pb2.StoredMessage
Column = Callable[[Sequence[StoredMessage]], list[Any] | pa.Array]


BODY_VALUE = "bodyValue"
_OF_BODIES = ("body", "value", "bodyvalue")


def body_value(format_: BodyFormat) -> StructField:
    """The column of decoded bodies."""
    return StructField(
        BODY_VALUE,
        format_.schema,
        True,
        {"comment": f"the body as {format_.name}; null where it is none of the schema"},
    )


def wants_body_value(options: ReadOptions) -> bool:
    """Whether the options ask for decoded bodies."""
    return bool(options.bodies.format) and (
        options.columns is None or any(name.strip().lower() == BODY_VALUE.lower() for name in options.columns)
    )


def source_schema(options: ReadOptions, format_: BodyFormat | None = None) -> StructType:
    """The columns that the options ask for; ColumnError for an unknown or repeated one."""
    if options.view == KAFKA:
        return choose_columns(kafka_schema(with_headers=options.include_headers), options.columns)
    full = native_schema()
    if options.include_broker:
        full = StructType([*full.fields, BROKER])
    if format_ is not None:
        full = StructType([*full.fields, body_value(format_)])
    return choose_columns(full, options.columns, include_body=options.include_body)


def checked_schema(options: ReadOptions, asked: StructType, format_: BodyFormat | None = None) -> StructType:
    """The columns of `.schema(...)`, or those of the options, checked; ColumnError for a wrong one.

    Any column of the view is accepted, also one that is otherwise added by an option.
    """
    if options.view == KAFKA:
        return check_columns(kafka_schema(with_headers=True), asked)
    decoded = [] if format_ is None else [body_value(format_)]
    for field in asked:
        if field.name.lower() == BODY_VALUE.lower() and not is_nullable(field.dataType):
            raise ColumnError(f"What is inside of column {field.name!r} may be null; ask for it without NOT NULL.")
    return check_columns(StructType([*native_schema().fields, BROKER, *decoded]), asked)


class RowBatches:
    """Makes batches of one schema.

    Args:
        schema: the columns; upper and lower case of names are equal.
        view: `native` or `kafka`.
        decompress: bodies as their producers sent them.
        format_: of column `bodyValue`, if the schema has it.
    """

    def __init__(self, schema: StructType, view: str, *, decompress: bool, format_: BodyFormat | None = None) -> None:
        self._arrow_schema = to_arrow_schema(schema, timezone="UTC")
        columns = dict(_columns(view, stored_body if not decompress else plain_body))
        if format_ is not None and BODY_VALUE.lower() in (name.lower() for name in schema.names):
            columns[BODY_VALUE] = _decoded(format_, self._arrow_schema, schema)
        by_lower = {name.lower(): column for name, column in columns.items()}
        self._columns = [by_lower[name.lower()] for name in schema.names]
        lower = [name.lower() for name in schema.names]
        self.needs_bodies = any(name in _OF_BODIES for name in lower)
        self._inflates = self.needs_bodies and (decompress or BODY_VALUE.lower() in lower)

    def inflates(self, message: StoredMessage) -> bool:
        """Whether a column has the body of this message decompressed."""
        return self._inflates and bool(message.sys_flag & COMPRESSED)

    def batch(self, messages: Sequence[StoredMessage]) -> pa.RecordBatch:
        """One row for each message."""
        arrays = [
            _array(column(messages), field.type)
            for column, field in zip(self._columns, self._arrow_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)


def _array(values: list[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


def _decoded(format_: BodyFormat, arrow_schema: pa.Schema, schema: StructType) -> Column:
    """The column of decoded bodies."""
    place = [name.lower() for name in schema.names].index(BODY_VALUE.lower())
    decode = format_.decoder(arrow_schema.field(place).type)
    return lambda messages: decode([decompressed_or_none(each.body, each.sys_flag) for each in messages])


def stored_body(message: StoredMessage) -> bytes:
    """The body as it is stored."""
    body: bytes = message.body
    return body


def plain_body(message: StoredMessage) -> bytes:
    """The body as its producer sent it; BodyCompressionError names the message."""
    return decompressed(message.body, message.sys_flag, message.offset_msg_id)


def _columns(view: str, body: Callable[[StoredMessage], bytes]) -> Mapping[str, Column]:
    if view == KAFKA:
        return {
            "key": lambda messages: [each.keys[0].encode() if each.keys else None for each in messages],
            "value": lambda messages: [body(each) for each in messages],
            "topic": lambda messages: [each.topic for each in messages],
            "partition": lambda messages: [each.queue_id for each in messages],
            "offset": lambda messages: [each.queue_offset for each in messages],
            "timestamp": lambda messages: [_micros(each.store_time) for each in messages],
            "timestampType": lambda messages: [TIMESTAMP_TYPE_LOG_APPEND] * len(messages),
            "headers": lambda messages: [_headers(each) for each in messages],
        }
    return {
        "topic": lambda messages: [each.topic for each in messages],
        "queueId": lambda messages: [each.queue_id for each in messages],
        "queueOffset": lambda messages: [each.queue_offset for each in messages],
        "physicalOffset": lambda messages: [each.commit_log_offset for each in messages],
        "storeSize": lambda messages: [each.store_size_bytes for each in messages],
        "flag": lambda messages: [each.flag for each in messages],
        "sysFlag": lambda messages: [each.sys_flag for each in messages],
        "bornTimestamp": lambda messages: [_micros(each.born_time) for each in messages],
        "bornHost": lambda messages: [each.born_host for each in messages],
        "storeTimestamp": lambda messages: [_micros(each.store_time) for each in messages],
        "storeHost": lambda messages: [each.store_host for each in messages],
        "reconsumeTimes": lambda messages: [each.reconsume_times for each in messages],
        "preparedTransactionOffset": lambda messages: [each.prepared_transaction_offset for each in messages],
        "bodyCRC": lambda messages: [each.body_crc for each in messages],
        # The parser of properties drops empty values, so an empty tag is absent.
        "tags": lambda messages: [each.tags or None for each in messages],
        "tagsCode": lambda messages: [_tags_code(each) for each in messages],
        "keys": lambda messages: [
            list(each.keys) if each.keys or KEYS in each.properties else None for each in messages
        ],
        "uniqKey": lambda messages: [each.unique_key or None for each in messages],
        "properties": lambda messages: [_pairs(each) for each in messages],
        "priority": lambda messages: [priority_of(each.properties) for each in messages],
        "lite_topic": lambda messages: [each.properties.get(LITE_TOPIC) for each in messages],
        "body": lambda messages: [body(each) for each in messages],
        "brokerName": lambda messages: [each.broker_name for each in messages],
    }


def _micros(time: Timestamp) -> int:
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1000


def _tags_code(message: StoredMessage) -> int:
    topic = message.topic
    if topic == SCHEDULE_TOPIC:
        return tags_code(topic, message.properties, _micros(message.store_time) // 1000)
    return tags_code(topic, {TAGS: message.tags}, 0)  # the rest is slow to read, and not needed


def _pairs(message: StoredMessage) -> list[tuple[str, str]]:
    """The properties by name. `items` of protobuf's map takes twice as long."""
    properties = message.properties
    return [(name, properties[name]) for name in sorted(properties)]


def _headers(message: StoredMessage) -> list[dict[str, Any]]:
    return [{"key": name, "value": value.encode()} for name, value in _pairs(message)]
