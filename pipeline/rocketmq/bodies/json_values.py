"""JSON bodies as structs of a schema.

A batch whose bodies are all good is parsed by pyarrow at once. Otherwise each body is parsed by itself, so that a bad one
costs only itself. Both give what Spark's `from_json` gives (4.3, PERMISSIVE), but for a body that is no object:

    the body is no JSON object         null; `from_json`: a struct of nulls
    a field is missing, or no such value   the field is null; in a struct inside, that struct's field
    an element of an array, a value of a map is no such value   the array, the map is null
    a string is asked for, and there is something else   its JSON text, numbers as Java writes them
    text behind the object             ignored
    bytes that are not UTF-8           U+FFFD

Unlike `from_json`, single quotes are no quotes, and a number outside of a tinyint is null, too.
"""

import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from pipeline.rocketmq.bodies.arrays import array_of

# Bytes of one parse by pyarrow, which takes some times as much memory; a batch of more is parsed body by body.
FAST_BYTES_MAX = 64 << 20
_BLANKS = " \t\r\n"
_NOT_FINITE = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
# Literals that Java and pyarrow take in different spellings.
_ODD_LITERALS = (b"Inf", b"NaN")
_INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}

Convert = Callable[[Any], Any]
_decode = json.JSONDecoder().raw_decode


class _OtherTypeError(ValueError):
    """A value is not of the type of its field."""


class JsonBodies:
    """Decodes bodies.

    Args:
        schema: of the objects; see `ddl.check_json_type`.
        kind: the same as Arrow's type.
    """

    def __init__(self, schema: StructType, kind: pa.DataType) -> None:
        self._kind = kind
        self._convert = converter(schema)
        self._explicit = None if _has_map(schema) else pa.schema([("v", kind)])

    def decode(self, bodies: Sequence[bytes | None]) -> pa.Array:
        """A struct for each body; null where it is no JSON object."""
        fast = self.decoded_at_once(bodies)
        return self.decoded_one_by_one(bodies) if fast is None else fast

    def decoded_at_once(self, bodies: Sequence[bytes | None]) -> pa.Array | None:
        """The same, if pyarrow takes all of them; None otherwise.

        Each body is the value of an object of its own. That one begins a row or is an error, whatever stands before it: a
        string ends before a line does, and no comma comes between. So as many rows as bodies are one row for each.
        """
        given = [body for body in bodies if body is not None]
        if self._explicit is None or not given or len(given) < len(bodies):
            return None
        data = b"\n".join([b'{"v":%b}' % body for body in given])
        if len(data) > FAST_BYTES_MAX or any(literal in data for literal in _ODD_LITERALS):
            return None
        try:
            data.decode()  # pyarrow does not check it
            table = pa_json.read_json(
                pa.BufferReader(data),
                pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                pa_json.ParseOptions(explicit_schema=self._explicit, unexpected_field_behavior="ignore"),
            )
        except (UnicodeDecodeError, pa.ArrowException):
            return None
        if len(table) != len(bodies):
            return None
        return pa.concat_arrays(table["v"].chunks).cast(self._kind)

    def decoded_one_by_one(self, bodies: Sequence[bytes | None]) -> pa.Array:
        """The same, each by itself."""
        return array_of([self._value(body) for body in bodies], self._kind)

    def _value(self, body: bytes | None) -> Any:
        value = object_of(body)
        return None if value is None else self._convert(value)


def object_of(body: bytes | None) -> dict[str, Any] | None:
    """The JSON object that a body begins with; None when it does not."""
    if body is None:
        return None
    try:
        value, _ = _decode(body.decode(errors="replace").lstrip(_BLANKS))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def converter(kind: DataType) -> Convert:
    """What makes a JSON value, not null, one of a type."""
    if isinstance(kind, StructType):
        return _struct_converter(kind)
    if isinstance(kind, ArrayType):
        element = _nullable(converter(kind.elementType))
        return lambda value: [element(each) for each in _of(list, value)]
    if isinstance(kind, MapType):
        inner = _nullable(converter(kind.valueType))
        return lambda value: [(_plain(name), inner(each)) for name, each in _of(dict, value).items()]
    if isinstance(kind, StringType):
        return lambda value: _plain(value) if isinstance(value, str) else _plain(json_text(value))
    if isinstance(kind, BooleanType):
        return lambda value: _of(bool, value)
    bits = _INTEGER_BITS.get(type(kind))
    if bits is None:
        return _float
    return lambda value: _in_range(_of(int, value), 1 << (bits - 1))


def _struct_converter(kind: StructType) -> Convert:
    fields = [(field.name, converter(field.dataType)) for field in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        given = _of(dict, value)
        row: dict[str, Any] = {}
        for name, of in fields:
            inner = given.get(name)
            if inner is not None:
                try:
                    row[name] = of(inner)
                except _OtherTypeError:
                    row[name] = None
        return row

    return convert


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # a bool is an int otherwise
        raise _OtherTypeError
    return value


def _in_range(value: int, end: int) -> int:
    if not -end <= value < end:
        raise _OtherTypeError
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    try:
        return float(_of(int, value))
    except OverflowError:
        return math.copysign(math.inf, value)


def _plain(text: str) -> str:
    """The text as Java writes it in UTF-8: half of a surrogate pair becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def json_text(value: Any) -> str:
    """A JSON value as text, without blanks."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return java_double(value) if type(value) is float else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def java_double(value: float) -> str:
    """As `Double.toString` writes it (Java 19 and later)."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    point = len(text) + int(exponent)  # digits before the decimal point
    text = text.rstrip("0")
    if 1e-3 <= abs(value) < 1e7:
        whole, fraction = (text[:point].ljust(point, "0"), text[point:]) if point > 0 else ("0", "0" * -point + text)
        return f"{minus}{whole}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _has_map(kind: DataType) -> bool:
    """Whether a map is somewhere inside; pyarrow reads no object as one."""
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))
