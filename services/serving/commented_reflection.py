"""The answers of reflection: the servicer of grpcio-reflection, with three additions that release 1.85 lacks.

- The v1 service. Its messages are the same on the wire as v1alpha's.
- The symbol of a method: `package.Service.Method` resolves to its file.
- Comments. Generated Python code drops them; `reput/descriptors.binpb`, made together with that code, keeps them.
"""

import functools
import importlib.resources
from collections.abc import Iterator

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from services.methods import REFLECTION_SERVICES

SERVICE_NAME_V1 = REFLECTION_SERVICES[0].strip("/")
DESCRIPTORS_FILE = "descriptors.binpb"


@functools.cache
def commented_files() -> dict[str, bytes]:
    """File name -> serialized FileDescriptorProto with comments, for the files in the descriptor set."""
    path = importlib.resources.files("reput").joinpath(DESCRIPTORS_FILE)
    file_set = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    return {file.name: file.SerializeToString() for file in file_set.file}


class CommentedReflection(reflection.ReflectionServicer):  # type: ignore[misc]  # grpcio-reflection has no types
    """See the top of this file."""

    def answers(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A serialized answer to each serialized request."""
        parsed = map(reflection_pb2.ServerReflectionRequest.FromString, requests)
        for answer in self.ServerReflectionInfo(parsed, context):
            yield answer.SerializeToString()

    def _file_by_filename(
        self, request: reflection_pb2.ServerReflectionRequest, filename: str
    ) -> reflection_pb2.ServerReflectionResponse:
        return _with_comments(super()._file_by_filename(request, filename))

    def _file_containing_symbol(
        self, request: reflection_pb2.ServerReflectionRequest, fully_qualified_name: str
    ) -> reflection_pb2.ServerReflectionResponse:
        if fully_qualified_name == SERVICE_NAME_V1:
            return _v1_response(request)
        response = super()._file_containing_symbol(request, fully_qualified_name)
        if response.HasField("error_response") and "." in fully_qualified_name:
            parent = super()._file_containing_symbol(request, fully_qualified_name.rpartition(".")[0])
            if not parent.HasField("error_response") and _has_method(fully_qualified_name):
                response = parent
        return _with_comments(response)


def _has_method(symbol: str) -> bool:
    service_name, _, method_name = symbol.rpartition(".")
    try:
        service = descriptor_pool.Default().FindServiceByName(service_name)
    except KeyError:
        return False
    return method_name in service.methods_by_name


def _with_comments(
    response: reflection_pb2.ServerReflectionResponse,
) -> reflection_pb2.ServerReflectionResponse:
    files = response.file_descriptor_response.file_descriptor_proto
    for index, serialized in enumerate(files):
        name = descriptor_pb2.FileDescriptorProto.FromString(serialized).name
        files[index] = commented_files().get(name, serialized)
    return response


def _v1_response(request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
    """The v1 file: v1alpha's, under its own package and name."""
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    text = file.SerializeToString()
    file = descriptor_pb2.FileDescriptorProto.FromString(text)
    file.name = file.name.replace("v1alpha", "v1")
    file.package = file.package.replace("v1alpha", "v1")
    for message in file.message_type:
        for field in message.field:
            field.type_name = field.type_name.replace(".v1alpha.", ".v1.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(".v1alpha.", ".v1.")
            method.output_type = method.output_type.replace(".v1alpha.", ".v1.")
    return reflection_pb2.ServerReflectionResponse(
        original_request=request,
        file_descriptor_response=reflection_pb2.FileDescriptorResponse(
            file_descriptor_proto=[file.SerializeToString()]
        ),
    )
