"""The columns of the formats: those of a stored message, and those of Spark's Kafka source; and the choice among them.

Spark does not tell a source written in Python which columns a query needs. So the schema is the list: `.schema("topic string,
queueId int")`, option `columns`, or option `includeBody`.
"""

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_STRINGS = ArrayType(StringType(), containsNull=False)
_STRING_MAP = MapType(StringType(), StringType(), valueContainsNull=False)


def _column(name: str, kind: DataType, comment: str, *, nullable: bool = False) -> StructField:
    return StructField(name, kind, nullable, {"comment": comment})


NATIVE_SCHEMA = StructType(
    [
        _column("topic", StringType(), "as stored"),
        _column("queueId", IntegerType(), "the queue within the topic"),
        _column("queueOffset", LongType(), "position in the queue, messages"),
        _column("physicalOffset", LongType(), "commit-log offset of the record's first byte, bytes"),
        _column("storeSize", IntegerType(), "the whole record, bytes"),
        _column("flag", IntegerType(), "the producer's"),
        _column("sysFlag", IntegerType(), "compression, transaction, address families"),
        _column("bornTimestamp", TimestampType(), "when the producer made it, exact to the millisecond"),
        _column("bornHost", StringType(), "the producer, ip:port or [ipv6]:port"),
        _column("storeTimestamp", TimestampType(), "when the store took it, exact to the millisecond"),
        _column("storeHost", StringType(), "the store's name for itself, ip:port or [ipv6]:port"),
        _column("reconsumeTimes", IntegerType(), "how often it was consumed in vain"),
        _column("preparedTransactionOffset", LongType(), "commit-log offset of the prepared record, or 0"),
        _column("bodyCRC", IntegerType(), "CRC-32 of the stored body, top bit cleared"),
        _column("tags", StringType(), "TAGS", nullable=True),
        _column("tagsCode", LongType(), "what the queue unit carries: hash of the tags, or time of delivery"),
        _column("keys", _STRINGS, "KEYS, split", nullable=True),
        _column("uniqKey", StringType(), "UNIQ_KEY", nullable=True),
        _column("properties", _STRING_MAP, "every stored property, those above included"),
        _column("body", BinaryType(), "as stored: a compressed one stays compressed", nullable=True),
    ]
)
PRIORITY_COLUMN = _column(
    "priority", IntegerType(), "what a message of the type PRIORITY asks for; null: it has none", nullable=True
)
LITE_TOPIC_COLUMN = _column(
    "lite_topic", StringType(), "the lite topic of a message of the type LITE; null: it has none", nullable=True
)
RAW = _column("raw", BinaryType(), "the whole record as it stands in the log")
DAMAGE = _column("damage", StringType(), "what is wrong with these bytes of the log; null for a record", nullable=True)
BODY = "body"
# Columns read out of a record's properties; they take longer than all others except the body.
FROM_PROPERTIES = frozenset(("tags", "tagsCode", "keys", "uniqKey", "properties", "priority", "lite_topic"))

KAFKA_SCHEMA = StructType(
    [
        _column("key", BinaryType(), "the first of the keys", nullable=True),
        _column("value", BinaryType(), "the body", nullable=True),
        _column("topic", StringType(), "as stored"),
        _column("partition", IntegerType(), "the queue id"),
        _column("offset", LongType(), "the queue offset, messages"),
        _column("timestamp", TimestampType(), "the store time"),
        _column("timestampType", IntegerType(), "1: the time is the log's"),
    ]
)
_HEADER = StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)])
HEADERS = _column("headers", ArrayType(_HEADER, containsNull=True), "the properties", nullable=True)
TIMESTAMP_TYPE_LOG_APPEND = 1


class ColumnError(ValueError):
    """A column asked for does not exist, is named twice, or has another type."""


def kafka_schema(*, with_headers: bool = False) -> StructType:
    """The columns of Spark's own Kafka source."""
    return StructType([*KAFKA_SCHEMA.fields, HEADERS]) if with_headers else StructType(list(KAFKA_SCHEMA.fields))


def native_schema(*, with_raw: bool = False, with_damage: bool = False) -> StructType:
    """All native columns, with those that an option adds. An archive has neither `priority` nor `lite_topic`: its
    properties say them."""
    more = [PRIORITY_COLUMN, LITE_TOPIC_COLUMN, *([RAW] if with_raw else []), *([DAMAGE] if with_damage else [])]
    return StructType([*NATIVE_SCHEMA.fields, *more])


def own_names(schema: StructType) -> list[str]:
    """The names of native columns in the spelling of this file."""
    own = {field.name.lower(): field.name for field in native_schema(with_raw=True, with_damage=True)}
    return [own[name.lower()] for name in schema.fieldNames()]


def choose_columns(full: StructType, names: Sequence[str] | None, *, include_body: bool = True) -> StructType:
    """The columns of these names, in this order. Upper and lower case are equal.

    Args:
        full: all columns.
        names: the names; None: all columns.
        include_body: False leaves `body` out, unless it is among `names`.

    Raises:
        ColumnError: a name is unknown or named twice, or there are no names.
    """
    if names is None:
        return StructType([field for field in full if include_body or field.name != BODY])
    by_name = {field.name.lower(): field for field in full}
    chosen: list[StructField] = []
    for name in names:
        field = by_name.pop(name.strip().lower(), None)
        if field is None:
            known = name.strip().lower() in (other.name.lower() for other in full)
            raise ColumnError(
                f"Column {name.strip()!r} is named twice: name it once."
                if known
                else f"There is no column {name.strip()!r}: use some of {', '.join(full.fieldNames())}."
            )
        chosen.append(field)
    if not chosen:
        raise ColumnError(f"No column is asked for: use some of {', '.join(full.fieldNames())}.")
    return StructType(chosen)


def check_columns(full: StructType, asked: StructType) -> StructType:
    """The schema that a user gave, checked: existing columns with their own types; upper and lower case are equal.

    Raises:
        ColumnError: a column is unknown, named twice, or has another type.
    """
    for field, ours in zip(asked, choose_columns(full, asked.fieldNames()), strict=True):
        if not _is_same_type(field.dataType, ours.dataType):
            raise ColumnError(
                f"Column {field.name!r} is asked for as {field.dataType.simpleString()}; it is "
                f"{ours.dataType.simpleString()}. Cast it in the query."
            )
        if ours.nullable and not field.nullable:
            raise ColumnError(f"Column {field.name!r} may be null; ask for it without NOT NULL.")
    return asked


def _is_same_type(one: DataType, other: DataType) -> bool:
    """Whether two types are equal apart from the nullability of their elements."""
    return one.simpleString() == other.simpleString()
