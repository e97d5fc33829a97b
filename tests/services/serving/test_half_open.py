"""Connections that greet slowly or never: ended soon, while other callers are served; and what they leave in the log."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from services.calling.channel import open_channel
from services.serving import server_options
from services.serving.server import ServiceServer
from services.serving.tls import TlsIdentity
from services.settings.certificates import TlsFiles
from services.settings.service_settings import ServiceSettings
from tests.services.loopback import SERVICE_NAME, ScriptedCommitLog
from tests.support.certificates import LOOPBACK, Authority, Pem
from tests.support.waiting import WAIT_SECONDS_MAX

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BEGIN_OF_HELLO = b"\x16\x03\x01\x02"
HANDSHAKE_FAILS = """
import services.light_imports
import pathlib, socket, sys
import grpc
from concurrent import futures
from tests.support.certificates import LOOPBACK, Authority

pem = Authority(pathlib.Path(sys.argv[1])).issue("node", *LOOPBACK)
server = grpc.server(futures.ThreadPoolExecutor(1))
credentials = grpc.ssl_server_credentials([(pem.key.read_bytes(), pem.certificate.read_bytes())])
port = server.add_secure_port("127.0.0.1:0", credentials)
server.start()
with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
    plain.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    while plain.recv(100):
        pass
"""


@pytest.fixture
def pem(tmp_path) -> Pem:
    return Authority(tmp_path).issue("node", *LOOPBACK, "spiffe://reput/gateway")


@contextmanager
def served(pem: Pem | None) -> Iterator[ServiceServer]:
    settings = ServiceSettings(address="127.0.0.1:0", health_address="127.0.0.1:0")
    if pem is not None:
        files = {"tls_certificate": pem.certificate, "tls_key": pem.key, "tls_ca": pem.ca}
        settings = settings.model_copy(update=files)
    server = ServiceServer("commitlog", settings)
    commit_log = ScriptedCommitLog(get_message=lambda *_: pb.GetMessageResponse())
    server.add(SERVICE_NAME, pb_grpc.add_CommitLogServiceServicer_to_server, commit_log)
    server.start()
    server.set_serving(True)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        yield server
    finally:
        server.stop()
        ended.join()


def connect(address: str, begin: bytes) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_SECONDS_MAX)
    connection.sendall(begin)
    return connection


def read_to_the_end(connection: socket.socket) -> None:
    """Returns when the other side has closed; TimeoutError when it does not."""
    with connection:
        while connection.recv(4096):
            pass


@pytest.mark.parametrize("has_tls", [True, False])
def test_connections_that_never_greet_are_closed_and_others_are_served(monkeypatch, pem, has_tls):
    """Slowloris: 40 of each kind, at the service's port and at the port of health."""
    monkeypatch.setattr(server_options, "GREETING_MILLIS_MAX", 700)
    with served(pem if has_tls else None) as server:
        begins = [b"", BEGIN_OF_HELLO] if has_tls else [b"", PREFACE[:5], PREFACE]
        silent = [connect(server.address, begin) for begin in begins for _ in range(40)]
        silent += [connect(server.health_address, begin) for begin in (b"", PREFACE[:5]) for _ in range(40)]
        tls = TlsIdentity(TlsFiles(pem.certificate, pem.key, pem.ca)) if has_tls else None

        with open_channel(server.address, tls) as channel:
            # On a loaded machine its own greeting may take longer than the limit: then it connects again.
            stub = pb_grpc.CommitLogServiceStub(channel)
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX, wait_for_ready=True)
        for connection in silent:
            read_to_the_end(connection)


def test_an_idle_connection_of_the_health_port_is_closed_and_a_probe_is_answered(monkeypatch):
    monkeypatch.setattr(server_options, "HEALTH_IDLE_MILLIS", 200)
    with served(None) as server, connect(server.health_address, PREFACE + b"\0\0\0\4\0\0\0\0\0") as idle:
        read_to_the_end(idle)
        with grpc.insecure_channel(server.health_address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX
            )

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_watches_do_not_take_the_places_of_probes_at_the_health_port():
    with served(None) as server, grpc.insecure_channel(server.health_address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
        with pytest.raises(grpc.RpcError) as refused:
            next(watch)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_failed_handshake_writes_no_line_into_the_log(tmp_path):
    command = [sys.executable, "-c", HANDSHAKE_FAILS, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert finished.stderr == ""
