"""Which format bodies have: what options name it, the type of column `bodyValue`, and what decodes it on executors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.rocketmq.bodies.avro import AvroBodies
from pipeline.rocketmq.bodies.json_bodies import JsonBodies, check_json_type, struct_of
from pipeline.rocketmq.bodies.protobuf import ProtobufBodies, descriptor_content
from pipeline.scan.options import OptionError

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
BODY_OPTIONS = ("bodyFormat", "bodySchema", "bodyDescriptor", "bodyMessage")
# The options of each format, and whether they must be given.
_NEEDED = {
    JSON: {"bodySchema": False},
    AVRO: {"bodySchema": True},
    PROTOBUF: {"bodyDescriptor": True, "bodyMessage": True},
}
Decode = Callable[[Sequence[bytes | None]], pa.Array]


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """The options, as they were given; empty: not given.

    Attributes:
        format: json, avro or protobuf.
        schema: Spark DDL, or an Avro schema as JSON.
        descriptor: path or base64 of a FileDescriptorSet.
        message: full name of its message.
    """

    format: str = ""
    schema: str = ""
    descriptor: str = ""
    message: str = ""


NO_BODIES = BodyOptions()


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format with all that decoding needs; made by the driver, pickled to executors.

    Attributes:
        schema: the type of the column.
        name: json, avro or protobuf.
        text: the Avro schema.
        descriptors: the FileDescriptorSet.
        message: full name of its message.
    """

    schema: StructType
    name: str
    text: str = ""
    descriptors: bytes = b""
    message: str = ""

    def decoder(self, kind: pa.DataType) -> Decode:
        """A decoder of bodies into an Arrow array of the schema; null where a body does not have the format."""
        if self.name == JSON:
            return JsonBodies(self.schema, kind).decode
        bodies = AvroBodies(self.text) if self.name == AVRO else ProtobufBodies(self.descriptors, self.message)
        return lambda contents: bodies.decode(contents, kind)


def body_options(given: Mapping[str, str]) -> BodyOptions:
    """The options under their canonical spelling, checked; OptionError names the wrong one."""
    name = given.get("bodyFormat", "").strip().lower()
    if "bodyFormat" in given and name not in _NEEDED:
        raise OptionError(f"Option bodyFormat is {given['bodyFormat']!r}: give {', '.join(_NEEDED)}.")
    of_format = _NEEDED.get(name, {})
    for option in BODY_OPTIONS[1:]:
        if option in given and option not in of_format:
            owners = " or ".join(each for each, its in _NEEDED.items() if option in its)
            raise OptionError(f"Option {option} belongs to bodyFormat {owners}: leave it out, or give that bodyFormat.")
        if option in given and not given[option].strip():
            raise OptionError(f"Option {option} is empty: give a value, or leave it out.")
        if of_format.get(option) and option not in given:
            raise OptionError(f"Option {option} is missing: bodyFormat {name} needs it.")
    return BodyOptions(name, *(given.get(option, "").strip() for option in BODY_OPTIONS[1:]))


def format_of(options: BodyOptions, inferred: Callable[[], StructType]) -> BodyFormat:
    """The format that options name.

    Args:
        options: with a format.
        inferred: gives the schema of JSON bodies without `bodySchema`.

    Raises:
        OptionError: schema or descriptors cannot be used.
    """
    if options.format == JSON:
        return BodyFormat(struct_of(options.schema) if options.schema else inferred(), JSON)
    if options.format == AVRO:
        return BodyFormat(AvroBodies(options.schema).schema, AVRO, text=options.schema)
    content = descriptor_content(options.descriptor)
    schema = ProtobufBodies(content, options.message).schema
    return BodyFormat(schema, PROTOBUF, descriptors=content, message=options.message)


def json_format(asked: StructType) -> BodyFormat:
    """JSON bodies of the type that a query asks for; OptionError for one that they are not read as."""
    check_json_type(asked, "bodyValue")
    return BodyFormat(asked, JSON)
