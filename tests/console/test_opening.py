"""Whether there is a console, and where.

The door: open from the start, served from the first knock on, shut with the gateway.
"""

import contextlib
import fcntl
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from console.opening import LazyServer, open_console
from console.web.app import ConsoleApp
from console.web.web_server import ConsoleServer
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from gateway.settings import GatewaySettings
from reput.gateway.v1.gateway_service_pb2_grpc import GatewayServiceServicer
from services.serving.server import ServiceServer
from services.settings.certificates import TlsFiles
from services.settings.service_settings import DEFAULT, Origins
from store.errors import InvalidSettingError
from tests.console.asking import NO_OFFERS, console_over
from tests.gateway.auth.conftest import access_text
from tests.gateway.memory_shard import MemoryShard
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
    open_console(server, settings, Origins({"console_address": origin}), GatewayServiceServicer(), NO_OFFERS, guard)


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
    sign_in = SignIn(
        WatchedFile("access_file", access, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
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


class Loading:
    """Loads a console's server and counts."""

    def __init__(self, app: ConsoleApp) -> None:
        self.count = 0
        self._app = app

    def __call__(self) -> ConsoleServer:
        self.count += 1
        return ConsoleServer(self._app.application, self._app.close)


@pytest.fixture
def app(records, fan_out):
    app = console_over([MemoryShard(records)], fan_out)
    yield app
    app.close()


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def loading(app) -> Loading:
    return Loading(app)


@pytest.fixture
def door(loading, failures):
    door = LazyServer("127.0.0.1", 0, loading, failures.append)
    door.open()
    yield door
    door.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    received = b""
    while part := connection.recv(65_536):
        received += part
    return received


def test_nothing_is_loaded_before_the_first_connection(door: LazyServer, loading: Loading) -> None:
    assert loading.count == 0
    for _ in range(2):
        with urllib.request.urlopen(f"http://{door.address}/topics", timeout=20) as answer:
            assert answer.status == 200
            assert answer.headers.get_all("content-security-policy") is not None
    assert loading.count == 1


def test_a_door_that_nobody_knocked_at_shuts_at_once(loading: Loading, failures: list[BaseException]) -> None:
    door = LazyServer("127.0.0.1", 0, loading, failures.append)
    door.open()
    door.close()

    assert loading.count == 0
    with pytest.raises(OSError, match="refused"):
        connect(door.address)


def test_a_server_that_cannot_be_loaded_is_told_and_the_port_is_shut(failures: list[BaseException]) -> None:
    told = threading.Event()

    def fail(error: BaseException) -> None:
        failures.append(error)
        told.set()

    def load() -> ConsoleServer:
        raise ImportError("no jinja2")

    door = LazyServer("127.0.0.1", 0, load, fail)
    door.open()
    with contextlib.suppress(ConnectionError), connect(door.address):
        assert told.wait(20)
    assert told.wait(20)
    door.close()
    assert isinstance(failures[0], ImportError)


def test_a_door_whose_descriptors_are_above_1023_opens(
    app: ConsoleApp, monkeypatch: pytest.MonkeyPatch, failures: list[BaseException]
) -> None:
    """`select` cannot wait for those."""
    limit, limit_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, 2_048), max(limit_max, 2_048)))

    def pair() -> tuple[socket.socket, socket.socket]:
        low = socket_pair()
        numbers = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 1_100) for one in low]
        for one in low:
            one.close()
        return socket.socket(fileno=numbers[0]), socket.socket(fileno=numbers[1])

    socket_pair = socket.socketpair
    monkeypatch.setattr("console.opening.socket.socketpair", pair)
    door = LazyServer("127.0.0.1", 0, Loading(app), failures.append)
    monkeypatch.undo()  # the web server's loop has a pair, too
    door.open()
    try:
        with urllib.request.urlopen(f"http://{door.address}/static/icon.svg", timeout=20) as answer:
            assert answer.status == 200
    finally:
        door.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit_max))
    assert failures == []


def test_a_taken_port_is_an_error(door: LazyServer, loading: Loading) -> None:
    host, _, port = door.address.rpartition(":")
    with pytest.raises(OSError, match="in use"):
        LazyServer(host, int(port), loading, lambda _: None)


def test_an_open_tail_ends_with_the_gateway_and_says_so(loading: Loading, failures: list[BaseException]) -> None:
    door = LazyServer("127.0.0.1", 0, loading, failures.append)
    door.open()
    with connect(door.address) as connection:
        connection.sendall(b"GET /topics/b_log/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = connection.recv(65_536)
        assert b"text/event-stream" in head
        closing = threading.Thread(target=door.close)
        closing.start()
        rest = read_all(connection)
        closing.join()
    assert b"event: end" in head + rest
    assert failures == []


def test_who_does_not_say_what_it_wants_is_let_go(door: LazyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.web.web_server.HEAD_SECONDS_MAX", 0.3)
    with connect(door.address) as silent, connect(door.address) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def test_the_second_request_of_a_connection_has_the_same_time(
    door: LazyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.web_server.HEAD_SECONDS_MAX", 0.3)
    with connect(door.address) as connection:
        connection.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert b"HTTP/1.1" not in read_all(connection)


def test_who_does_not_take_its_answer_loses_its_connection(door: LazyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.web.app.TAIL_SECONDS_MAX", 0.5)
    with connect(door.address) as connection:
        connection.sendall(b"GET /topics/b_log/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"event-stream" in read_all(connection)


def test_connections_beyond_the_limit_are_closed(door: LazyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.web.web_server.CONNECTION_COUNT_MAX", 2)
    opened = [connect(door.address) for _ in range(2)]
    for connection in opened:  # so that both are accepted
        connection.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    with connect(door.address) as further:
        try:
            further.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_all(further) == b""
        except ConnectionError:
            pass
    for connection in opened:
        connection.close()


def test_a_head_without_end_is_refused(door: LazyServer) -> None:
    with connect(door.address) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
            answer = read_all(connection)
        except ConnectionError:
            return
    assert not answer or answer.split()[1] in (b"400", b"431")
