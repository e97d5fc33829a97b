"""JSON bodies: the schema given as Spark DDL or inferred from a sample, and the bodies as structs of it.

Spark DDL as the schema of JSON bodies. Read without Spark: where Spark asks a source for its columns, there is no Java.

    id long, `order id` bigint NOT NULL COMMENT 'of the shop', inner struct<x: int, y: array<string>>, counts map<string, long>

All fields are nullable, as with `from_json`: NOT NULL is read and has no effect.

A batch whose bodies are all good is parsed by pyarrow at once. Otherwise each body is parsed by itself, so that a bad one
costs only itself. Both give what Spark's `from_json` gives (4.3, PERMISSIVE), but for a body that is no object:

    the body is no JSON object         null; `from_json`: a struct of nulls
    a field is missing, or no such value   the field is null; in a struct inside, that struct's field
    an element of an array, a value of a map is no such value   the array, the map is null
    a string is asked for, and there is something else   its JSON text, numbers as Java writes them
    text behind the object             ignored
    bytes that are not UTF-8           U+FFFD

Unlike `from_json`, single quotes are no quotes, and a number outside of a tinyint is null, too.

The schema of JSON bodies from a sample, as Spark infers it (4.3, `spark.read.json`).

    integers                  long         true, false      boolean
    other numbers, or both    double       only null        string
    texts, also dates         string       anything else that goes together   string

Fields are sorted by name; objects without fields are left out. Unlike Spark, an integer of more than 64 bits makes a double and
no decimal, a body that is an array is left out, and of names that differ in case alone the first stays.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from pipeline.rocketmq.bodies.arrays import array_of
from pipeline.scan.options import OptionError

_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "byte": ByteType(),
    "tinyint": ByteType(),
    "short": ShortType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "bigint": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
}
_KINDS = tuple({type(kind) for kind in _SIMPLE.values()})
_TOKEN = re.compile(r"""\s*(`(?:[^`]|``)+`|\w+|[<>,:]|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")""")
# Nested types; Spark's own columns have a few levels.
DEPTH_MAX = 32


def struct_of(text: str, option: str = "bodySchema") -> StructType:
    """The columns that a DDL text names.

    Raises:
        OptionError: it is no DDL, names a field twice, or has a type that JSON bodies are not read as.
    """
    return _Parser(text, option).whole()


def check_json_type(kind: DataType, path: str) -> None:
    """OptionError for a type that JSON bodies are not read as, or a field named twice; `path` is where it stands."""
    if isinstance(kind, StructType):
        if not kind.fields:
            raise OptionError(f"{path} has no fields: name at least one.")
        seen: set[str] = set()
        for field in kind.fields:
            if field.name.lower() in seen:
                raise OptionError(
                    f"{path} has field {field.name!r} twice (upper and lower case are equal): name it once."
                )
            seen.add(field.name.lower())
            check_json_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        check_json_type(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise OptionError(
                f"{path} has keys of type {kind.keyType.simpleString()}: keys of JSON objects are strings."
            )
        check_json_type(kind.valueType, f"{path}{{}}")
    elif not isinstance(kind, _KINDS):
        raise _not_read(path, kind.simpleString())


def is_nullable(kind: DataType) -> bool:
    """Whether everything inside of a type may be null."""
    if isinstance(kind, StructType):
        return all(field.nullable and is_nullable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return kind.containsNull and is_nullable(kind.elementType)
    return not isinstance(kind, MapType) or (kind.valueContainsNull and is_nullable(kind.valueType))


def _not_read(path: str, word: str) -> OptionError:
    known = ", ".join(sorted({kind.simpleString() for kind in _SIMPLE.values()}))
    return OptionError(
        f"{path} has type {word}, which JSON bodies are not read as: use {known}, struct, array or map, and cast a string in "
        "the query."
    )


class _Parser:
    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._at = 0

    def whole(self) -> StructType:
        """All of the text."""
        begin = self._at
        if self._take().lower() == "struct" and self._peek() == "<":
            self._take()
            made = StructType(self._fields("bodyValue", 1))
            self._expect(">")
        else:
            self._at = begin
            made = StructType(self._fields("bodyValue", 1))
        if self._text[self._at :].strip():
            raise self._wrong("a comma or the end")
        check_json_type(made, "bodyValue")
        return made

    def _fields(self, path: str, depth: int) -> list[StructField]:
        fields: list[StructField] = []
        while True:
            name = self._name()
            if self._peek() == ":":
                self._take()
            fields.append(StructField(name, self._type(f"{path}.{name}", depth), True))
            if self._peek().lower() == "not":
                self._take()
                self._expect("null")
            if self._peek().lower() == "comment":
                self._take()
                if self._take()[:1] not in ("'", '"'):
                    raise self._wrong("a text in quotation marks before here")
            if self._peek() != ",":
                return fields
            self._take()

    def _type(self, path: str, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise OptionError(f"Option {self._option}: {path} is nested deeper than {DEPTH_MAX}: read it as a string.")
        word = self._take().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "struct":
            self._expect("<")
            made: DataType = StructType(self._fields(path, depth + 1))
        elif word == "array":
            self._expect("<")
            made = ArrayType(self._type(f"{path}[]", depth + 1), True)
        elif word == "map":
            self._expect("<")
            key = self._type(path, depth + 1)
            self._expect(",")
            made = MapType(key, self._type(f"{path}{{}}", depth + 1), True)
        elif word.isidentifier():
            raise _not_read(f"Option {self._option}: {path}", word)
        else:
            raise self._wrong("a type before here")
        self._expect(">")
        return made

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._wrong("the name of a field before here")
        return token

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._wrong(repr(token))
        self._take()

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[1] if found else ""

    def _take(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._wrong("a name or a type")
        self._at = found.end()
        return found[1]

    def _wrong(self, wanted: str) -> OptionError:
        rest = self._text[self._at :].strip()
        where = f"at {rest[:40]!r}" if rest else "at its end"
        return OptionError(
            f"Option {self._option} is not Spark DDL, {where}: {wanted} is missing. Write, for example, id long, name string."
        )


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
        self._convert_whole = converter(schema, is_whole=True)
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

    def are_whole(self, bodies: Sequence[bytes | None]) -> list[bool]:
        """Whether a body's struct has all that the body has under names of the schema, and the body is nothing else."""
        if self.decoded_at_once(bodies) is not None:
            return [True] * len(bodies)
        return [body is not None and self._is_whole(body) for body in bodies]

    def _is_whole(self, body: bytes) -> bool:
        try:
            text = body.decode().strip(_BLANKS)
            value, end = _decode(text)
            self._convert_whole(value)
        except (ValueError, RecursionError):
            return False
        return end == len(text)

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


def converter(kind: DataType, *, is_whole: bool = False) -> Convert:
    """A function that converts a JSON value that is not null to a type.

    Of a struct, a field whose value is of another type becomes null; with `is_whole` the value is refused.
    """
    if isinstance(kind, StructType):
        return _struct_converter(kind, is_whole=is_whole)
    if isinstance(kind, ArrayType):
        element = _nullable(converter(kind.elementType, is_whole=is_whole))
        return lambda value: [element(each) for each in _of(list, value)]
    if isinstance(kind, MapType):
        inner = _nullable(converter(kind.valueType, is_whole=is_whole))
        return lambda value: [(_plain(name), inner(each)) for name, each in _of(dict, value).items()]
    if isinstance(kind, StringType):
        return lambda value: _plain(value) if isinstance(value, str) else _plain(json_text(value))
    if isinstance(kind, BooleanType):
        return lambda value: _of(bool, value)
    bits = _INTEGER_BITS.get(type(kind))
    if bits is None:
        return _float
    return lambda value: _in_range(_of(int, value), 1 << (bits - 1))


def _struct_converter(kind: StructType, *, is_whole: bool) -> Convert:
    fields = [(field.name, converter(field.dataType, is_whole=is_whole)) for field in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        given = _of(dict, value)
        row: dict[str, Any] = {}
        for name, of in fields:
            inner = given.get(name)
            if inner is not None:
                try:
                    row[name] = of(inner)
                except _OtherTypeError:
                    if is_whole:
                        raise
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


# More are no columns but data used as names, which a map in `bodySchema` reads.
FIELD_COUNT_MAX = 2_000

_LONG_END = 1 << 63
_NULL = "null"
_TYPES: dict[str, DataType] = {
    _NULL: StringType(),
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}
# A name of _TYPES, the one kind of the elements of an array, or the kinds of an object's fields.
JsonType = str | list[Any] | dict[str, Any]


def inferred(bodies: Iterable[bytes | None]) -> StructType | None:
    """The schema of all objects among the bodies; None when none has a field.

    Raises:
        OptionError: they have more than FIELD_COUNT_MAX fields.
    """
    whole: JsonType = {}
    for body in bodies:
        value = object_of(body)
        if value is not None:
            whole = _merged(whole, _json_type_of(value, 1))
            if _field_count(whole) > FIELD_COUNT_MAX:
                raise OptionError(
                    f"The sampled JSON bodies have more than {FIELD_COUNT_MAX} fields: give option bodySchema, with a map "
                    "where names are data."
                )
    made = _type_of(whole)
    return made if isinstance(made, StructType) else None


def _json_type_of(value: Any, depth: int) -> JsonType:
    if isinstance(value, dict | list) and depth > DEPTH_MAX:
        return "string"
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        seen: set[str] = set()
        for name, each in value.items():
            if name and name.lower() not in seen:
                seen.add(name.lower())
                fields[name] = _json_type_of(each, depth + 1)
        return fields
    if isinstance(value, list):
        element: JsonType = _NULL
        for each in value:
            element = _merged(element, _json_type_of(each, depth + 1))
        return [element]
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -_LONG_END <= value < _LONG_END else "double"
    return "double" if isinstance(value, float) else "string"


def _merged(one: JsonType, other: JsonType) -> JsonType:
    if other in (one, _NULL):
        return one
    if one == _NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        fields = dict(one)
        names = {name.lower(): name for name in one}
        for name, kind in other.items():
            known = names.get(name.lower())
            fields[known or name] = _merged(fields[known], kind) if known else kind
        return fields
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    return "double" if (one, other) in (("long", "double"), ("double", "long")) else "string"


def _type_of(kind: JsonType) -> DataType | None:
    """Spark's type; None for one without fields."""
    if isinstance(kind, str):
        return _TYPES[kind]
    if isinstance(kind, list):
        element = _type_of(kind[0])
        return None if element is None else ArrayType(element, True)
    fields = [(name, _type_of(each)) for name, each in sorted(kind.items())]
    made = [StructField(name, each, True) for name, each in fields if each is not None]
    return StructType(made) if made else None


def _field_count(kind: JsonType) -> int:
    if isinstance(kind, dict):
        return sum(1 + _field_count(each) for each in kind.values())
    return _field_count(kind[0]) if isinstance(kind, list) else 0
