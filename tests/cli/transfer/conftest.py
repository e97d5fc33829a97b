"""A gateway of a test's own, on a real gRPC server, at the address that the command uses by default."""

from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc

Serve = Callable[[gateway_grpc.GatewayServiceServicer], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    server = grpc.server(futures.ThreadPoolExecutor(1))

    def start(servicer: gateway_grpc.GatewayServiceServicer) -> None:
        gateway_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        monkeypatch.setenv("REPUT_ADDRESS", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()

    yield start
    server.stop(0).wait()
