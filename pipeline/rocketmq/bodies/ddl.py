"""Spark DDL as the schema of JSON bodies. Read without Spark: where Spark asks a source for its columns, there is no Java.

    id long, `order id` bigint NOT NULL COMMENT 'of the shop', inner struct<x: int, y: array<string>>, counts map<string, long>

All fields are nullable, as with `from_json`: NOT NULL is read and has no effect.
"""

import re

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
