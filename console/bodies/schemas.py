"""Schemas by which bodies are shown with the names of their fields: of a directory of the operator, or uploaded by a reader.

    DIR/*.binpb, *.desc, *.protoset   a FileDescriptorSet: `buf build -o x.binpb`, `protoc --include_imports -o x.binpb`
    DIR/*.avsc                        an Avro schema
    DIR/topics.toml                   [topics]
                                      Orders = "shop.v1.Order"        a message type of a descriptor set
                                      Clicks = "click.avsc"           a file with an Avro schema
                                      "metrics-*" = "m.v1.Sample"     all topics with such names

The files are read again when they change. Uploaded schemas stay in memory, the newest UPLOADED_COUNT_MAX.
"""

import fnmatch
import hashlib
import threading
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from console.bodies.avro_schema import AvroFile
from console.bodies.protobuf_schema import DescriptorSet
from store.errors import InvalidArgumentError

FILE_COUNT_MAX = 64
SCHEMA_BYTES_MAX = 1 << 20
UPLOADED_COUNT_MAX = 16
TOPICS_FILE = "topics.toml"
DESCRIPTOR_SUFFIXES = (".binpb", ".desc", ".protoset", ".pb")
AVRO_SUFFIX = ".avsc"
DIGEST_CHARACTERS = 16


class BodySchema(Protocol):
    """What describes bodies: a descriptor set with message types, or an Avro schema."""

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
