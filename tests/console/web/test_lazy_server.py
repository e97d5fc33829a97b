"""The door: open from the start, served from the first knock on, shut with the gateway."""

import contextlib
import fcntl
import resource
import socket
import threading
import urllib.request

import pytest

from console.web.app import ConsoleApp
from console.web.lazy_server import LazyServer
from console.web.web_server import ConsoleServer
from tests.console.asking import console_over
from tests.gateway.test_servicer import ProtoShard


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
    app = console_over([ProtoShard(records)], fan_out)
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
    monkeypatch.setattr("console.web.lazy_server.socket.socketpair", pair)
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
    monkeypatch.setattr("console.web.bounded.TAIL_SECONDS_MAX", 0.5)
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
