"""Whether there is a console, and where."""

import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from console.opening import open_console
from gateway.auth.access_file import WatchedFile, parse_clients
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignIn
from gateway.settings import GatewaySettings
from reput.gateway.v1.gateway_service_pb2_grpc import GatewayServiceServicer
from services.serving.server import ServiceServer
from services.settings.certificates import TlsFiles
from services.settings.service_settings import DEFAULT, Origins
from store.errors import InvalidSettingError
from tests.gateway.auth.conftest import access_text
from tests.support.certificates import LOOPBACK, Authority

ROOT = Path(__file__).resolve().parents[3]
ENVIRON = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"}


@pytest.fixture
def server():
    server = ServiceServer("gateway", GatewaySettings(address="127.0.0.1:0"))
    yield server
    server.stop()
    assert server.serve_until_stopped() == 0


def open_with(
    server: ServiceServer, origin: str = "environment", guard: GatewayGuard | None = None, **values: object
) -> None:
    settings = GatewaySettings.model_validate(values)
    open_console(server, settings, Origins({"console_address": origin}), GatewayServiceServicer(), guard)


def test_its_bound_address_is_in_the_file_before_anything_is_served(server: ServiceServer, tmp_path: Path) -> None:
    path = tmp_path / "address"
    open_with(server, console_address="127.0.0.1:0", console_address_file=path)

    with urllib.request.urlopen(f"http://{path.read_text().strip()}/static/icon.svg", timeout=20) as answer:
        assert answer.status == 200


def test_a_gateway_at_which_nobody_looks_has_loaded_no_web_server() -> None:
    code = "import sys, gateway.__main__; print({'starlette', 'uvicorn', 'jinja2'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT, env=ENVIRON
    )
    assert found.stdout.strip() == "set()"


def test_off_is_no_port(server: ServiceServer, tmp_path: Path) -> None:
    open_with(server, console="off", console_address="127.0.0.1:0", console_address_file=tmp_path / "address")
    assert not (tmp_path / "address").exists()


def test_a_taken_port_that_was_chosen_is_an_error_and_a_default_one_is_not(
    server: ServiceServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {
            "console_address": f"127.0.0.1:{taken.getsockname()[1]}",
            "console_address_file": tmp_path / "address",
        }
        open_with(server, DEFAULT, **values)
        assert not (tmp_path / "address").exists()
        with pytest.raises(InvalidSettingError) as refused:
            open_with(server, "flag --console-address", **values)
    assert refused.value.metadata["source"] == "flag --console-address"


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999", "203.0.113.1:0"])
def test_what_is_no_address_of_this_machine_is_refused(server: ServiceServer, address: str) -> None:
    with pytest.raises(InvalidSettingError):
        open_with(server, console_address=address)


def test_with_sign_in_its_refusals_stand_in_the_gateways_audit_log(server: ServiceServer, tmp_path: Path) -> None:
    access, address = tmp_path / "access.toml", tmp_path / "address"
    access.write_text(access_text({"reader": {"read": ["*"]}}))
    sign_in = SignIn(WatchedFile("access_file", access, parse_clients, lambda: 0.0), None, asks_certificates=False)
    lines: list[str] = []
    guard = GatewayGuard(sign_in, Audit(lambda event, **_fields: lines.append(event), lambda: 0.0))
    open_with(server, guard=guard, console_address="127.0.0.1:0", console_address_file=address)
    url = f"http://{address.read_text().strip()}/reports/analytics/page?format=json"

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer reput_bogus"}), timeout=20)

    refused.value.close()
    assert refused.value.code == 401
    assert lines == ["audit.denied"]


def test_the_authority_for_clients_is_the_consoles_too(server: ServiceServer, tmp_path: Path) -> None:
    pem, address = Authority(tmp_path).issue("gateway", *LOOPBACK), tmp_path / "address"
    open_with(
        server,
        console_address="127.0.0.1:0",
        console_address_file=address,
        public_tls_certificate=pem.certificate,
        public_tls_key=pem.key,
        client_ca=pem.ca,
    )
    url, context = f"https://{address.read_text().strip()}/static/icon.svg", ssl.create_default_context(cafile=pem.ca)

    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        urllib.request.urlopen(url, timeout=20, context=context)
    context.load_cert_chain(pem.certificate, pem.key)
    with urllib.request.urlopen(url, timeout=20, context=context) as answer:
        assert answer.status == 200


def test_files_that_do_not_fit_when_the_first_browser_comes_shut_nobody_out(
    server: ServiceServer, tmp_path: Path
) -> None:
    """The web server is loaded then, perhaps in the middle of a renewal."""
    authority, address = Authority(tmp_path), tmp_path / "address"
    pem, other = authority.issue("gateway", *LOOPBACK), authority.issue("other", *LOOPBACK)
    open_with(
        server,
        console_address="127.0.0.1:0",
        console_address_file=address,
        public_tls_certificate=pem.certificate,
        public_tls_key=pem.key,
    )
    os.replace(other.key, pem.key)
    url, context = f"https://{address.read_text().strip()}/static/icon.svg", ssl.create_default_context(cafile=pem.ca)

    with urllib.request.urlopen(url, timeout=20, context=context) as answer:
        assert answer.status == 200


def test_the_console_and_the_port_of_grpc_look_at_the_same_files_once(server: ServiceServer, tmp_path: Path) -> None:
    pem = Authority(tmp_path).issue("gateway", *LOOPBACK)
    files = TlsFiles(pem.certificate, pem.key)

    assert server.identity_of(files) is server.identity_of(TlsFiles(pem.certificate, pem.key))
    assert server.identity_of(files) is not server.identity_of(TlsFiles(pem.certificate, pem.key, pem.ca))
