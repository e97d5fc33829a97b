"""Protobuf bodies by a descriptor set, as protobuf's JSON with the field names of the schema."""

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from console.bodies.schema_errors import BodyNotReadableError
from store.errors import InvalidArgumentError


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
    done: set[str] = set()
    for first in files:
        waiting = [first.name]
        while waiting:
            name = waiting[-1]
            lacking = [each for each in by_name[name].dependency if each in by_name and each not in done]
            if name in done or not lacking or len(waiting) > len(by_name):
                waiting.pop()
                if name not in done:
                    done.add(name)
                    yield by_name[name]
            else:
                waiting.append(lacking[0])


def _names(prefix: str, messages: Sequence[Any]) -> Iterator[str]:
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        if not message.options.map_entry:
            yield name
            yield from _names(name, message.nested_type)
