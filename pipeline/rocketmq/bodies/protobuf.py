"""Protobuf bodies as structs, by a descriptor set.

    message   struct           uint32   bigint          double, float, bool, string, other integers   the same
    repeated  array            uint64   decimal(20,0)   bytes   binary
    map       map              enum     string: its name, or its number where it has none

A field that knows whether it is set (a message, `optional`, one of a `oneof`) is null when it is not; others then have
protobuf's default. Extensions and unknown fields are left out.
"""

import base64
import binascii
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from console.bodies.schemas import BodyNotReadableError, DescriptorSet, read_message
from pipeline.rocketmq.bodies.arrays import array_of
from pipeline.scan.options import OptionError
from store.errors import InvalidArgumentError

# Of a descriptor set: it travels with each task. That of all protos of Reput has 0.4 MB, most of it comments.
DESCRIPTOR_BYTES_MAX = 8 << 20
_QUOTED_CHARACTERS_MAX = 80

_UINT64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_PLAIN: dict[int, DataType] = {
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
}
Convert = Callable[[Any], Any]


def descriptor_content(text: str) -> bytes:
    """The bytes of option bodyDescriptor: of the file of this path on this machine, or of this base64.

    Raises:
        OptionError: it is neither, or too large.
    """
    try:
        # Unlike a Path, this takes base64, whose parts may be longer than names of files.
        content = Path(text).read_bytes() if os.path.isfile(text) else base64.b64decode(text, validate=True)
    except (OSError, ValueError, binascii.Error) as error:
        shown = text if len(text) <= _QUOTED_CHARACTERS_MAX else text[:_QUOTED_CHARACTERS_MAX] + "..."
        raise OptionError(
            f"Option bodyDescriptor is {shown!r}: on the driver there is no such file that can be read, and it is no base64 "
            "of a descriptor set."
        ) from error
    if len(content) > DESCRIPTOR_BYTES_MAX:
        raise OptionError(
            f"Option bodyDescriptor has {len(content)} bytes, more than {DESCRIPTOR_BYTES_MAX}: leave source info out, or what "
            "the message does not need."
        )
    return content


class ProtobufBodies:
    """Decodes bodies.

    Args:
        content: the FileDescriptorSet.
        type_name: full name of the message.

    Attributes:
        schema: the columns.

    Raises:
        OptionError: there is no such message, or it has a field that no column can hold.
    """

    def __init__(self, content: bytes, type_name: str) -> None:
        try:
            files = DescriptorSet("Option bodyDescriptor", content)
        except InvalidArgumentError as error:
            raise OptionError(error.message) from error
        if type_name not in files.types:
            known = ", ".join(files.types[:20])
            raise OptionError(f"Option bodyMessage: the descriptor set has no message {type_name!r}. It has {known}.")
        self._files = files  # the classes need their pool
        descriptor = files.descriptor(type_name)
        self._class = message_factory.GetMessageClass(descriptor)
        self.schema, self._convert = _message(descriptor, "bodyValue", ())

    def decode(self, bodies: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
        """A struct for each body, as Arrow has the schema; null where it is no such message."""
        return array_of([self._value(body) for body in bodies], kind)

    def _value(self, body: bytes | None) -> Any:
        if body is None:
            return None
        try:
            return self._convert(read_message(self._class, body))
        except BodyNotReadableError:
            return None


def _message(descriptor: Any, path: str, inside: tuple[str, ...]) -> tuple[StructType, Convert]:
    """Spark's type of a message, and what makes one a row."""
    if descriptor.full_name in inside:
        raise OptionError(
            f"{path} holds its own type {descriptor.full_name} again, which no column can: leave the field out of the "
            "descriptor."
        )
    inside = (*inside, descriptor.full_name)
    made: list[StructField] = []
    reads: list[tuple[str, Convert]] = []
    for field in descriptor.fields:
        kind, read = _field(field, f"{path}.{field.name}", inside)
        made.append(StructField(field.name, kind, True))
        reads.append((field.name, read))
    return StructType(made), lambda message: {name: read(message) for name, read in reads}


def _field(field: Any, path: str, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
    """Spark's type of a field, and what takes its value from a message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, convert_key = _value(field.message_type.fields_by_name["key"], path, inside)
        value, convert_value = _value(field.message_type.fields_by_name["value"], f"{path}{{}}", inside)

        def pairs(message: Any) -> list[tuple[Any, Any]]:
            entries = getattr(message, name)
            return [(convert_key(each), convert_value(entries[each])) for each in sorted(entries)]

        return MapType(key, value, True), pairs
    if field.is_repeated:
        element, convert = _value(field, f"{path}[]", inside)
        return ArrayType(element, True), lambda message: [convert(each) for each in getattr(message, name)]
    kind, convert = _value(field, path, inside)
    if field.has_presence:
        return kind, lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return kind, lambda message: convert(getattr(message, name))


def _value(field: Any, path: str, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
    """The same for one value of a field."""
    if field.message_type is not None:
        return _message(field.message_type, path, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}  # the first one of an alias
        return StringType(), lambda number: names.get(number, str(number))
    if field.type in _UINT64:
        return DecimalType(20, 0), Decimal
    return _PLAIN[field.type], lambda value: value
