"""A grpcio whose private parts moved or changed: it is noticed, services start, and every kind of call is answered."""

import subprocess
import sys

import pytest

from services.serving.calls import grpc_private

# Serves a plain unary call, one that is answered later, a stream and health, in a process whose import of a module fails.
SCRIPT = """
import importlib, sys

def import_module(name, package=None, whole=importlib.import_module):
    if name == sys.argv[1]:
        raise ImportError(f"no module named {name!r}")
    return whole(name, package)

importlib.import_module = import_module

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from services.serving.calls import grpc_private
from services.serving.process import leave
from services.serving.server import ServiceServer
from services.serving.calls.unary_call import AnsweredLater
from services.settings.service_settings import ServiceSettings

SERVICE = "reput.gateway.v1.GatewayService"
handlers = {
    "GetStatus": grpc.unary_unary_rpc_method_handler(lambda request, context: b"plain " + request),
    "AppendMessages": grpc.unary_unary_rpc_method_handler(
        AnsweredLater(lambda request, call: call.answer(b"later " + request))
    ),
    "AppendMessageStream": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests),
}
server = ServiceServer("gateway", ServiceSettings(worker_count=4))
server.add(SERVICE, lambda _, grpc_server: grpc_server.add_registered_method_handlers(SERVICE, handlers), None)
server.start()
server.set_serving(True)
with grpc.insecure_channel(server.address) as channel:
    print("told", grpc_private.is_usable)
    print("told", channel.unary_unary(f"/{SERVICE}/GetStatus")(b"a", timeout=30))
    print("told", channel.unary_unary(f"/{SERVICE}/AppendMessages")(b"b", timeout=30))
    print("told", list(channel.stream_stream(f"/{SERVICE}/AppendMessageStream")(iter([b"c", b"d"]), timeout=30)))
    print("told", health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30).status)
sys.stdout.flush()
server.stop()
leave(server.serve_until_stopped())
"""


@pytest.mark.parametrize(
    ("absent", "is_usable"), [("none is absent", "True"), ("grpc._server", "False"), ("grpc._cython.cygrpc", "False")]
)
def test_a_service_starts_and_answers_without_the_private_modules(absent, is_usable):
    served = subprocess.run([sys.executable, "-c", SCRIPT, absent], capture_output=True, text=True, timeout=60)

    assert served.returncode == 0, served.stderr
    told = [line.removeprefix("told ") for line in served.stdout.splitlines() if line.startswith("told ")]
    assert told == [is_usable, "b'plain a'", "b'later b'", "[b'c', b'd']", "1"]


def test_a_grpc_that_is_different_inside_is_noticed(monkeypatch):
    assert grpc_private.looks_as_expected()
    monkeypatch.setattr(grpc_private.server, "_status", lambda rpc_event, state: None)
    assert not grpc_private.looks_as_expected()
    monkeypatch.setattr(grpc_private.server, "_status", 5)
    assert not grpc_private.looks_as_expected()
    monkeypatch.delattr(grpc_private.server, "_status")
    assert not grpc_private.looks_as_expected()
