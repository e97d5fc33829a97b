"""Our statement of RocketMQ's contract beside the descriptors inside the official Python package."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from tests.support.waiting import WAIT_SECONDS_MAX

# In a process of its own: both claim the same names in protobuf's pool.
DUMP = """
import sys
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from rocketmq.grpc_protocol import admin_pb2, definition_pb2, service_pb2
files = FileDescriptorSet()
for module in (definition_pb2, service_pb2, admin_pb2):
    module.DESCRIPTOR.CopyToProto(files.file.add())
sys.stdout.buffer.write(files.SerializeToString())
"""
# apache/rocketmq-apis has them since July 2026; the package 5.1.2 is older.
NEWER_THAN_PACKAGE = {
    "Admin.QueryMessage",
    "Admin.QueryTimeSpan",
    "ListMessageRequest",
    "ListMessageResponse",
    "QueryTimeSpanRequest",
    "QueryTimeSpanResponse",
}


@pytest.fixture(scope="module")
def official() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", DUMP], capture_output=True, check=True, timeout=WAIT_SECONDS_MAX)
    return {name: part for file in FileDescriptorSet.FromString(done.stdout).file for name, part in parts(file)}


def parts(file: FileDescriptorProto) -> Iterator[tuple[str, object]]:
    """Everything that has a name on the wire or in code, by that name below the package."""
    assert file.package == "apache.rocketmq.v2"
    for message in file.message_type:
        yield from message_parts(message, message.name)
    for enum in file.enum_type:
        yield from enum_parts(enum)
    for service in file.service:
        for method in service.method:
            kind = (method.input_type, method.output_type, method.client_streaming, method.server_streaming)
            yield f"{service.name}.{method.name}", kind


def message_parts(message: DescriptorProto, path: str) -> Iterator[tuple[str, object]]:
    for field in message.field:
        oneof = ""
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneof = message.oneof_decl[field.oneof_index].name
        yield (
            f"{path}.{field.name}",
            (field.number, field.type, field.label, field.type_name, oneof, is_optional(field)),
        )
    for nested in message.nested_type:
        yield from message_parts(nested, f"{path}.{nested.name}")


def is_optional(field: FieldDescriptorProto) -> bool:
    return field.proto3_optional


def enum_parts(enum: EnumDescriptorProto) -> Iterator[tuple[str, object]]:
    for value in enum.value:
        yield f"{enum.name}.{value.name}", value.number


def test_what_we_state_of_the_contract_is_what_the_official_package_says(official: dict[str, object]) -> None:
    file = FileDescriptorProto()
    v2.DESCRIPTOR.CopyToProto(file)
    ours = dict(parts(file))
    known = {
        name: part
        for name, part in ours.items()
        if name not in NEWER_THAN_PACKAGE and name.split(".")[0] not in NEWER_THAN_PACKAGE
    }
    assert len(known) > 150
    assert known == {name: official.get(name) for name in known}


def test_what_is_newer_than_the_package_is_not_in_it(official: dict[str, object]) -> None:
    """Once it is, the list above has to go."""
    assert not [name for name in official if name in NEWER_THAN_PACKAGE or name.split(".")[0] in NEWER_THAN_PACKAGE]
