"""What the gateway gives back at its end."""

from pathlib import Path

import pytest

from gateway.__main__ import SERVICE_NAME, serve
from gateway.reput.servicer import GatewayServicer
from gateway.settings import GatewaySettings
from services.serving.server import ServiceServer
from services.settings.service_settings import load_settings


def test_the_threads_of_searches_end_with_the_server(tmp_path: Path) -> None:
    targets = {f"REPUT_{name}_TARGET": f"unix:{tmp_path / name}" for name in ("COMMITLOG", "CONSUMEQUEUE", "INDEX")}
    environ = {**targets, "REPUT_GATEWAY_ADDRESS": "127.0.0.1:0", "REPUT_STORE": str(tmp_path)}
    settings, origins = load_settings("gateway", GatewaySettings, environ=environ)
    server = ServiceServer("gateway", settings)
    serve(server, settings, origins)
    (servicer,) = (served for name, served in server._servicers if name == SERVICE_NAME)
    assert isinstance(servicer, GatewayServicer)
    threads = servicer._searches.threads
    assert threads.start(lambda: "answer").result(60) == "answer"

    server.start()
    server.stop()

    assert server.serve_until_stopped() == 0
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.start(lambda: "answer")
