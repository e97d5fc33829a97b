"""Avro bodies as structs: one datum in binary encoding, as `schemaless_writer` writes it.

The five bytes that schema registries put before a datum are not looked for: with them, a body may be another datum by chance.

    record, error   struct          null with one other type   that type, may be null
    array, map      array, map      enum, string, uuid         string
    bytes, fixed    binary          date, timestamp-millis, timestamp-micros, decimal   date, timestamp, decimal

Other logical types are read as the type below them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from console.bodies.schemas import AvroFile, BodyNotReadableError
from pipeline.rocketmq.bodies.arrays import array_of
from pipeline.scan.options import OptionError
from store.errors import InvalidArgumentError

_PLAIN: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}
_DECIMAL = "decimal"
_DECIMAL_DIGITS_MAX = 38  # of Spark
_RECORDS = ("record", "error")

Convert = Callable[[Any], Any]


class AvroBodies:
    """Decodes bodies.

    Args:
        text: the schema, as JSON.

    Attributes:
        schema: the columns.

    Raises:
        OptionError: it is no schema of a record, has a type that no column can hold, or fastavro is not installed.
    """

    def __init__(self, text: str) -> None:
        try:
            self._file = AvroFile("Option bodySchema", json.dumps(_known_logical_types(json.loads(text))).encode())
        except ValueError as error:
            raise OptionError(f"Option bodySchema is not an Avro schema: {error}.") from error
        except InvalidArgumentError as error:
            raise OptionError(error.message) from error
        parsed = self._file.parsed
        if not isinstance(parsed, dict) or parsed.get("type") not in _RECORDS:
            raise OptionError("Option bodySchema is an Avro schema, but of no record: bodies must be records.")
        kind, self._convert = _Mapper().mapped(parsed, "bodyValue", ())
        assert isinstance(kind, StructType)
        self.schema = kind

    def decode(self, bodies: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
        """A struct for each body, as Arrow has the schema; null where it is none of the schema."""
        return array_of([self._value(body) for body in bodies], kind)

    def _value(self, body: bytes | None) -> Any:
        if body is None:
            return None
        try:
            return self._convert(self._file.datum(body))
        except BodyNotReadableError:
            return None


class _Mapper:
    """Maps a schema with full names, in its order."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def mapped(self, schema: Any, path: str, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
        """Spark's type of a schema, and what makes fastavro's value, not null, one for Arrow."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise OptionError(
                    f"{path} is a union of {len(others)} types besides null, which no column holds: one is possible."
                )
            return self.mapped(others[0], path, inside)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], _same
            if schema not in self._named:
                raise OptionError(f"{path} has type {schema}, which no column holds: take it out of the schema.")
            return self.mapped(self._named[schema], path, inside)
        kind = schema["type"]
        if schema.get("name"):
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical == _DECIMAL:
            precision = schema["precision"]
            if precision > _DECIMAL_DIGITS_MAX:
                raise OptionError(
                    f"{path} is a decimal of {precision} digits: Spark has {_DECIMAL_DIGITS_MAX} at most."
                )
            return DecimalType(precision, schema.get("scale", 0)), _same
        if logical in _LOGICAL:
            return _LOGICAL[logical], str if logical == "uuid" else _same
        if kind in _RECORDS:
            return self._record(schema, path, inside)
        if kind == "array":
            element, convert = self.mapped(schema["items"], f"{path}[]", inside)
            return ArrayType(element, True), _listed(convert)
        if kind == "map":
            value, convert = self.mapped(schema["values"], f"{path}{{}}", inside)
            return MapType(StringType(), value, True), _paired(convert)
        if kind == "enum":
            return StringType(), _same
        if kind == "fixed":
            return BinaryType(), _same
        return self.mapped(kind, path, inside)

    def _record(self, schema: Any, path: str, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
        name = schema["name"]
        if name in inside:
            raise OptionError(
                f"{path} holds its own type {name} again, which no column can: take it out of the schema."
            )
        fields = [
            (field["name"], *self.mapped(field["type"], f"{path}.{field['name']}", (*inside, name)))
            for field in schema["fields"]
        ]
        made = StructType([StructField(field, kind, True) for field, kind, _ in fields])
        return made, lambda row: {
            field: None if row[field] is None else convert(row[field]) for field, _, convert in fields
        }


def _same(value: Any) -> Any:
    return value


def _listed(convert: Convert) -> Convert:
    return lambda values: [None if each is None else convert(each) for each in values]


def _paired(convert: Convert) -> Convert:
    return lambda values: [(name, None if each is None else convert(each)) for name, each in values.items()]


def _known_logical_types(schema: Any) -> Any:
    """The schema without the logical types that are read as the type below them."""
    if isinstance(schema, list):
        return [_known_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if kept.get("logicalType") not in (_DECIMAL, *_LOGICAL):
        kept.pop("logicalType", None)
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _known_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_known_logical_types(field) for field in kept["fields"]]
    return kept
