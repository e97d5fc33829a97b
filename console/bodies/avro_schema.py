"""Avro bodies by a schema, as JSON; with the optional library fastavro (`pip install 'reput[avro]'`).

A body is one datum in Avro's binary encoding, plain or after the five bytes that schema registries put before it (a zero and
the id of the schema).
"""

import io
import json
from collections.abc import Sequence
from typing import Any

from console.bodies.schema_errors import BodyNotReadableError
from store.errors import InvalidArgumentError

REGISTRY_HEAD_BYTES = 5
_EMPTY = ("null",)


class AvroFile:
    """An Avro schema.

    Args:
        name: of its file, for errors.
        content: its JSON.

    Attributes:
        types: its name alone.
        parsed: the schema with full names, as fastavro has it.

    Raises:
        InvalidArgumentError: it is not a schema, the library is not installed, or it has arrays of items without bytes.
    """

    def __init__(self, name: str, content: bytes) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise InvalidArgumentError(
                "Avro needs the library fastavro where bodies are read: pip install 'reput[avro]'.", field="schema"
            ) from error
        try:
            read = json.loads(content)
            self.parsed: Any = fastavro.parse_schema(read)
        except Exception as error:  # its errors have no base class
            raise InvalidArgumentError(f"{name} is not an Avro schema: {error}", field="schema") from error
        if _has_empty_items(read, {}):
            # A body of ten bytes could announce 2^60 of them.
            raise InvalidArgumentError(
                f"{name} has an array of items without bytes, which is not read.", field="schema"
            )
        named = read.get("name", "") if isinstance(read, dict) else ""
        self.types: Sequence[str] = [str(named) or name]
        self._read = fastavro.schemaless_reader

    def to_json(self, type_name: str, content: bytes) -> str:
        """See BodySchema."""
        heads = (0, REGISTRY_HEAD_BYTES) if content[:1] == b"\x00" else (0,)
        problem = ""
        for head in heads:
            try:
                return json.dumps(self.datum(content[head:]), ensure_ascii=False, indent=2, default=_plain)
            except BodyNotReadableError as error:
                problem = str(error)
        raise BodyNotReadableError(f"not a {type_name}: {problem}")

    def datum(self, content: bytes) -> Any:
        """The value that the bytes are, with fastavro's types; BodyNotReadableError when they are none of the schema."""
        stream = io.BytesIO(content)
        try:
            datum = self._read(stream, self.parsed)
        except Exception as error:  # whatever bytes of a stranger make it raise
            raise BodyNotReadableError(f"{type(error).__name__}: {error}") from error
        if stream.tell() < len(content):
            raise BodyNotReadableError("bytes are left after the datum")
        return datum


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def _has_empty_items(schema: Any, named: dict[str, Any]) -> bool:
    """Whether an array somewhere has items that may take no bytes."""
    if isinstance(schema, list):
        return any(_has_empty_items(each, named) for each in schema)
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind == "array":
        return _may_be_empty(schema.get("items"), named, ()) or _has_empty_items(schema.get("items"), named)
    if kind == "map":
        return _has_empty_items(schema.get("values"), named)
    if kind in ("record", "error"):
        named[str(schema.get("name"))] = schema
        return any(_has_empty_items(field.get("type"), named) for field in schema.get("fields", ()))
    if kind == "fixed":
        named[str(schema.get("name"))] = schema
        return False
    return isinstance(kind, dict | list) and _has_empty_items(kind, named)


def _may_be_empty(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> bool:
    """Whether a value takes no bytes; a union takes one for its branch."""
    if isinstance(schema, str):
        found = named.get(schema)
        return schema in _EMPTY or (found is not None and schema not in inside and _may_be_empty(found, named, inside))
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind in ("record", "error"):
        within = (*inside, str(schema.get("name")))
        return all(_may_be_empty(field.get("type"), named, within) for field in schema.get("fields", ()))
    if kind == "fixed":
        return not schema.get("size")
    return kind in _EMPTY or (isinstance(kind, dict) and _may_be_empty(kind, named, inside))
