"""Reflection on both paths: services listed, methods resolved, comments kept."""

import os
import shutil
import subprocess

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

from services.methods import REFLECTION_SERVICES
from tests.services.loopback import SERVICE_NAME, commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX

GRPCURL = os.environ.get("GRPCURL") or shutil.which("grpcurl")
SERVICE_NAME_V1, SERVICE_NAME_V1ALPHA = (path.strip("/") for path in REFLECTION_SERVICES)
BOTH_PATHS = pytest.mark.parametrize("path", [SERVICE_NAME_V1, SERVICE_NAME_V1ALPHA])


def ask(address: str, path: str, **question: str) -> reflection_pb2.ServerReflectionResponse:
    call = grpc.insecure_channel(address).stream_stream(
        f"/{path}/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    return next(call(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=WAIT_SECONDS_MAX))


@BOTH_PATHS
def test_all_services_of_a_server_are_listed(path):
    with commit_log_server() as server:
        services = ask(server.address, path, list_services="*").list_services_response.service

    names = {service.name for service in services}
    assert names == {SERVICE_NAME, "grpc.health.v1.Health", SERVICE_NAME_V1, SERVICE_NAME_V1ALPHA}


@BOTH_PATHS
@pytest.mark.parametrize("symbol", [SERVICE_NAME, f"{SERVICE_NAME}.GetMessage", "reput.commitlog.v1.GetMessageRequest"])
def test_a_symbol_resolves_to_its_file_with_comments(path, symbol):
    with commit_log_server() as server:
        response = ask(server.address, path, file_containing_symbol=symbol)

    files = [
        descriptor_pb2.FileDescriptorProto.FromString(serialized)
        for serialized in response.file_descriptor_response.file_descriptor_proto
    ]
    own = next(file for file in files if file.name == "reput/commitlog/v1/commitlog_service.proto")
    comments = [location.leading_comments for location in own.source_code_info.location]
    assert any("Reads the record that starts at an offset" in comment for comment in comments)
    assert {"google/protobuf/timestamp.proto", "reput/message/v1/message.proto"} <= {file.name for file in files}


@pytest.mark.parametrize("symbol", [f"{SERVICE_NAME}.Nope", "reput.Nope", "", "reput.commitlog.v1.GetMessageRequest.x"])
def test_a_symbol_that_does_not_exist_is_not_found(symbol):
    with commit_log_server() as server:
        response = ask(server.address, SERVICE_NAME_V1, file_containing_symbol=symbol)

    assert response.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.grpcurl
@pytest.mark.skipif(not GRPCURL, reason="grpcurl is a Go module that is not installed here (PATH or GRPCURL)")
@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        (f"{SERVICE_NAME}.GetMessage", "// Reads the record that starts at an offset."),
        ("reput.commitlog.v1.GetMessageRequest", "// Position of the record's first byte, in bytes."),
        (SERVICE_NAME_V1, "rpc ServerReflectionInfo"),
        (SERVICE_NAME_V1ALPHA, "rpc ServerReflectionInfo"),
        ("grpc.health.v1.Health", "rpc Check"),
    ],
)
def test_grpcurl_describes_methods_and_messages_with_their_comments(symbol, expected):
    with commit_log_server() as server:
        described = subprocess.run(
            [GRPCURL, "-plaintext", server.address, "describe", symbol],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
        )

    assert described.returncode == 0, described.stderr
    assert expected in described.stdout
