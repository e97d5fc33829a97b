"""Schemas by which bodies are shown with the names of their fields: of a directory of the operator, or uploaded by a reader.

    DIR/*.binpb, *.desc, *.protoset   a FileDescriptorSet: `buf build -o x.binpb`, `protoc --include_imports -o x.binpb`
    DIR/*.avsc                        an Avro schema
    DIR/topics.toml                   [topics]
                                      Orders = "shop.v1.Order"        a message type of a descriptor set
                                      Clicks = "click.avsc"           a file with an Avro schema
                                      "metrics-*" = "m.v1.Sample"     all topics with such names

The files are read again when they change. Uploaded schemas stay in memory, the newest UPLOADED_COUNT_MAX.

Protobuf bodies are shown as protobuf's JSON with the field names of the schema, Avro bodies as JSON; these need the optional
library fastavro (`pip install 'reput[avro]'`).

An Avro body is one datum in Avro's binary encoding, plain or after the five bytes that schema registries put before it (a zero
and the id of the schema).
"""

import fnmatch
import hashlib
import io
import json
import threading
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from store.errors import InvalidArgumentError


class BodyNotReadableError(Exception):
    """The body is not of the type; the text gives the reason."""


FILE_COUNT_MAX = 64
SCHEMA_BYTES_MAX = 1 << 20
UPLOADED_COUNT_MAX = 16
TOPICS_FILE = "topics.toml"
DESCRIPTOR_SUFFIXES = (".binpb", ".desc", ".protoset", ".pb")
AVRO_SUFFIX = ".avsc"
DIGEST_CHARACTERS = 16


class BodySchema(Protocol):
    """A schema of bodies: a descriptor set with message types, or an Avro schema."""

    @property
    def types(self) -> Sequence[str]:
        """The types that a body may have, by name."""

    def to_json(self, type_name: str, content: bytes) -> str:
        """The body as indented JSON; BodyNotReadableError when it is not of this type."""


class Schemas:
    """The schemas of one console; thread-safe.

    Args:
        root: the directory; None: there is none.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._uploaded: OrderedDict[str, BodySchema] = OrderedDict()
        self._read: dict[Path, tuple[tuple[int, int], BodySchema]] = {}
        self._lock = threading.Lock()

    def upload(self, name: str, content: bytes) -> str:
        """Keeps a schema; returns its digest, by which `uploaded` finds it.

        Raises:
            InvalidArgumentError: it is too large or not a schema.
        """
        schema = parse_schema(name, content)
        digest = hashlib.sha256(content).hexdigest()[:DIGEST_CHARACTERS]
        with self._lock:
            self._uploaded[digest] = schema
            self._uploaded.move_to_end(digest)
            while len(self._uploaded) > UPLOADED_COUNT_MAX:
                self._uploaded.popitem(last=False)
        return digest

    def uploaded(self, digest: str) -> BodySchema:
        """The schema with this digest; InvalidArgumentError when it is not kept any more."""
        with self._lock:
            schema = self._uploaded.get(digest)
        if schema is None:
            raise InvalidArgumentError(
                "The console does not keep this schema any more: upload it again.", field="schema"
            )
        return schema

    def of_topic(self, topic: str) -> tuple[BodySchema, str] | None:
        """The configured schema of a topic and its type; None when there is none.

        Raises:
            InvalidArgumentError: topics.toml or the file that it names cannot be used.
        """
        if self._root is None:
            return None
        wanted = _wanted(_topics(self._root / TOPICS_FILE), topic)
        if wanted is None:
            return None
        if wanted.endswith(AVRO_SUFFIX):
            schema = self._schema(self._root / Path(wanted).name)
            return schema, schema.types[0]
        try:
            paths = sorted(path for path in self._root.iterdir() if path.suffix in DESCRIPTOR_SUFFIXES)[:FILE_COUNT_MAX]
        except OSError as error:
            raise InvalidArgumentError(f"{self._root} cannot be read: {error.strerror}.", field="schema") from error
        for path in paths:
            schema = self._schema(path)
            if wanted in schema.types:
                return schema, wanted
        raise InvalidArgumentError(f"No descriptor set of {self._root} has the type {wanted!r}.", field="schema")

    def _schema(self, path: Path) -> BodySchema:
        try:
            stat = path.stat()
            version = stat.st_mtime_ns, stat.st_size
            with self._lock:
                kept = self._read.get(path)
            if kept is not None and kept[0] == version:
                return kept[1]
            if stat.st_size > SCHEMA_BYTES_MAX:
                raise InvalidArgumentError(f"{path} is larger than {SCHEMA_BYTES_MAX} bytes.", field="schema")
            schema = parse_schema(path.name, path.read_bytes())
        except OSError as error:
            raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.", field="schema") from error
        with self._lock:
            self._read[path] = version, schema
        return schema


def parse_schema(name: str, content: bytes) -> BodySchema:
    """A schema by the name of its file; InvalidArgumentError when it is too large or not one."""
    if len(content) > SCHEMA_BYTES_MAX:
        raise InvalidArgumentError(f"{name} is larger than {SCHEMA_BYTES_MAX} bytes.", field="schema")
    make: Callable[[str, bytes], BodySchema] = AvroFile if name.endswith(AVRO_SUFFIX) else DescriptorSet
    return make(name, content)


def _topics(path: Path) -> Mapping[str, object]:
    try:
        topics = tomllib.loads(path.read_text(encoding="utf-8")).get("topics", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}.", field="schema") from error
    return topics if isinstance(topics, dict) else {}


def _wanted(topics: Mapping[str, object], topic: str) -> str | None:
    """The type or file of a topic: by its whole name, otherwise the first pattern."""
    if topic in topics:
        return str(topics[topic])
    return next((str(value) for pattern, value in topics.items() if fnmatch.fnmatchcase(topic, pattern)), None)


class DescriptorSet:
    """A FileDescriptorSet.

    Args:
        name: of its file, for errors.
        content: its bytes.

    Attributes:
        types: full names of its messages, sorted.

    Raises:
        InvalidArgumentError: the bytes are not a descriptor set, or it lacks a file that another one imports.
    """

    def __init__(self, name: str, content: bytes) -> None:
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(content)
        except DecodeError as error:
            raise InvalidArgumentError(f"{name} is not a descriptor set: {error}", field="schema") from error
        self._pool = descriptor_pool.DescriptorPool()
        types: list[str] = []
        for file in _in_order(files.file):
            try:
                self._pool.Add(file)
            except TypeError as error:
                raise InvalidArgumentError(
                    f"{name} lacks what {file.name} imports (make it with --include_imports): {error}", field="schema"
                ) from error
            types += _names(file.package, file.message_type)
        if not types:
            raise InvalidArgumentError(f"{name} has no message type.", field="schema")
        self.types: Sequence[str] = sorted(types)

    def to_json(self, type_name: str, content: bytes) -> str:
        """See BodySchema."""
        if type_name not in self.types:
            raise BodyNotReadableError(f"the schema has no type {type_name}")
        message = read_message(message_factory.GetMessageClass(self.descriptor(type_name)), content)
        try:
            return json_format.MessageToJson(
                message, preserving_proto_field_name=True, ensure_ascii=False, descriptor_pool=self._pool
            )
        except (DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise BodyNotReadableError(f"not a {type_name}: {error}") from error

    def descriptor(self, type_name: str) -> Any:
        """The descriptor of one of `types`."""
        return self._pool.FindMessageTypeByName(type_name)


def read_message(of_type: Any, content: bytes) -> Any:
    """A message of a generated class; BodyNotReadableError when the bytes are none, or hold fields but none of its own."""
    message = of_type()
    try:
        message.ParseFromString(content)
    except (DecodeError, ValueError, RecursionError) as error:
        raise BodyNotReadableError(f"not a {of_type.DESCRIPTOR.full_name}: {error}") from error
    if len(UnknownFieldSet(message)) and not message.ListFields():
        raise BodyNotReadableError(f"not a {of_type.DESCRIPTOR.full_name}: none of its fields is in the body")
    return message


def _in_order(files: Sequence[Any]) -> Iterator[Any]:
    """The files, each after those that it imports."""
    by_name = {file.name: file for file in files}
    begun: set[str] = set()
    for file in files:
        waiting: list[tuple[Any, Iterator[str]]] = []
        following: str | None = None if file.name in begun else file.name
        while following is not None or waiting:
            if following is None:
                done, _ = waiting.pop()
                yield done
            else:
                begun.add(following)
                waiting.append((by_name[following], iter(by_name[following].dependency)))
            # Each import is looked at once: a set of a megabyte may have ten thousand files that import one another.
            imports = waiting[-1][1] if waiting else iter(())
            following = next((each for each in imports if each in by_name and each not in begun), None)


def _names(prefix: str, messages: Sequence[Any]) -> Iterator[str]:
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        if not message.options.map_entry:
            yield name
            yield from _names(name, message.nested_type)


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
            has_empty_items, recurses = _has_empty_items(self.parsed, {}), _recurses(self.parsed, ())
        except Exception as error:  # its errors have no base class
            raise InvalidArgumentError(f"{name} is not an Avro schema: {error}", field="schema") from error
        if has_empty_items:
            # A body of ten bytes could announce 2^60 of them.
            raise InvalidArgumentError(
                f"{name} has an array of items without bytes, which is not read.", field="schema"
            )
        named = read.get("name", "") if isinstance(read, dict) else ""
        self.types: Sequence[str] = [str(named) or name]
        self._read = fastavro.schemaless_reader
        if recurses:
            # A body nests such a schema as deep as it likes. fastavro's compiled reader has no limit and ends the process at
            # some thousand; its plain one ends with Python's own error.
            from fastavro._read_py import schemaless_reader

            self._read = schemaless_reader

    def to_json(self, type_name: str, content: bytes) -> str:
        """See BodySchema."""
        heads = (0, REGISTRY_HEAD_BYTES) if content[:1] == b"\x00" else (0,)
        problem = ""
        for head in heads:
            try:
                return json.dumps(self.datum(content[head:]), ensure_ascii=False, indent=2, default=_plain)
            except BodyNotReadableError as error:
                problem = str(error)
            except RecursionError:
                problem = "it nests too deep"
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


def _recurses(schema: Any, inside: tuple[str, ...]) -> bool:
    """Whether a schema with full names has a type that holds itself."""
    if isinstance(schema, list):
        return any(_recurses(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return schema in inside
    kind = schema.get("type")
    if kind in ("record", "error"):
        within = (*inside, str(schema.get("name")))
        return any(_recurses(field.get("type"), within) for field in schema.get("fields", ()))
    return _recurses(schema.get({"array": "items", "map": "values"}.get(str(kind), "type")), inside)


def _has_empty_items(schema: Any, named: dict[str, Any]) -> bool:
    """Whether an array somewhere has items that may take no bytes; of a schema with full names."""
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
