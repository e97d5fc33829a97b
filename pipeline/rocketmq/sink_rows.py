"""Rows of a DataFrame as messages to append.

Columns; upper and lower case of names are equal. All except `body` may be missing; all except `topic` and `body` may be null:

    topic string   body binary|string   keys array<string>|string   tags string   queueId int
    properties map<string,string>       uniqKey string              flag int      bornTimestamp timestamp
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
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

from pipeline.scan.schema import ColumnError

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
