"""The web server against browsers that take nothing, take little, or pretend."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.console.door import ConsoleDoor
from gateway.console.web_server import TAKING_BYTES_MIN, BoundedProtocol, ConsoleServer
from services.tls_files import TlsFiles
from tests.support.certificates import LOOPBACK, Authority, Pem

HUGE_BYTES = 32 << 20
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def huge(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", str(HUGE_BYTES).encode())]  # not in chunks: the last of them would wait by itself
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(HUGE_BYTES)})


async def who(scope: Any, receive: Any, send: Any) -> None:
    told = json.dumps([scope["client"][0], scope["scheme"]]).encode()
    headers = [(b"content-length", str(len(told)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


@pytest.fixture
def pem(tmp_path: Path) -> Pem:
    return Authority(tmp_path).issue("console", *LOOPBACK)


@contextlib.contextmanager
def served(application: Any, tls: TlsFiles | None = None) -> Iterator[tuple[str, int]]:
    failures: list[BaseException] = []
    door = ConsoleDoor("127.0.0.1", 0, lambda: ConsoleServer(application, lambda: None, tls), failures.append)
    door.open()
    try:
        yield "127.0.0.1", int(door.address.rpartition(":")[2])
    finally:
        door.close()
    assert failures == []


def narrow(address: tuple[str, int]) -> socket.socket:
    """A connection that the kernel takes little for."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(20)
    connection.connect(address)
    return connection


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server has let go of a connection; its kernel goes on offering what it has, so no browser sees that."""
    lost = threading.Event()
    connection_lost = BoundedProtocol.connection_lost

    def note(protocol: BoundedProtocol, exc: Exception | None) -> None:
        connection_lost(protocol, exc)
        lost.set()

    monkeypatch.setattr(BoundedProtocol, "connection_lost", note)
    monkeypatch.setattr("gateway.console.web_server.TAKING_SECONDS", 0.3)
    return lost


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_browser_that_takes_nothing_of_a_huge_answer_is_cut(has_tls: bool, pem: Pem, lost: threading.Event) -> None:
    with served(huge, TlsFiles(pem.certificate, pem.key) if has_tls else None) as address:
        connection = narrow(address)
        if has_tls:
            context = ssl.create_default_context(cafile=str(pem.ca))
            connection = context.wrap_socket(connection, server_hostname="localhost")
        with connection:
            connection.sendall(REQUEST)
            assert lost.wait(20)


def test_a_connection_that_was_closed_with_its_answer_untaken_is_cut(lost: threading.Event) -> None:
    with served(huge) as address, narrow(address) as connection:
        connection.sendall(REQUEST.replace(b"Host", b"Connection: close\r\nHost"))
        assert lost.wait(20)


class Transport:
    """As much of asyncio's as the protocol asks of it while nothing comes."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self.is_aborted = False

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def write(self, data: bytes) -> None:
        self.waiting_bytes += len(data)

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        pass


class Loop:
    """A loop whose timers are run by hand."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None], Loop.Handle]] = []

    class Handle:
        is_cancelled = False

        def cancel(self) -> None:
            self.is_cancelled = True

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "Loop.Handle":
        handle = self.Handle()
        self.timers.append((seconds, callback, handle))
        return handle


class Watched:
    """A connection whose looks are made by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.console.web_server.HEAD_SECONDS_MAX", 1.0)
        monkeypatch.setattr("gateway.console.web_server.TAKING_SECONDS", 2.0)
        config = uvicorn.Config(who, log_config=None)
        config.load()
        self.loop, self.transport = Loop(), Transport()
        self.protocol = BoundedProtocol(config, ServerState(), {}, self.loop)  # type: ignore[arg-type]
        self.protocol.connection_made(self.transport)

    def look(self) -> bool:
        """Whether the connection is cut by the next look."""
        callback = next(callback for seconds, callback, _ in reversed(self.loop.timers) if seconds == 2.0)
        callback()
        return self.transport.is_aborted


def test_a_browser_that_takes_slowly_keeps_its_connection_and_one_that_drips_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)
    watched.protocol.transport.write(bytes(10 * TAKING_BYTES_MIN))
    for _ in range(5):
        assert not watched.look()
        watched.transport.waiting_bytes -= TAKING_BYTES_MIN
    assert not watched.look()
    watched.transport.waiting_bytes -= TAKING_BYTES_MIN - 1
    assert watched.look()


def test_a_tail_that_is_taken_as_it_grows_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is as much at each look: another part of it."""
    watched = Watched(monkeypatch)
    watched.protocol.transport.write(bytes(1_000))
    for _ in range(5):
        assert not watched.look()
        watched.protocol.transport.write(bytes(TAKING_BYTES_MIN))
        watched.transport.waiting_bytes -= TAKING_BYTES_MIN


def test_an_idle_connection_is_not_cut_and_a_lost_one_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    assert not any(watched.look() for _ in range(5))

    watched.protocol.connection_lost(None)

    assert watched.loop.timers[-1][2].is_cancelled


def test_a_header_cannot_forge_who_has_connected() -> None:
    with served(who) as address, socket.create_connection(address, timeout=20) as connection:
        head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\n\r\n"
        connection.sendall(head)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == ["127.0.0.1", "http"]


def test_with_an_authority_for_clients_a_browser_without_a_certificate_is_refused(pem: Pem) -> None:
    def ask(context: ssl.SSLContext, address: tuple[str, int]) -> bytes:
        answer = b""
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            socket.create_connection(address, timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(REQUEST)
            while part := connection.recv(65_536):
                answer += part
        return answer

    with served(who, TlsFiles(pem.certificate, pem.key, pem.ca)) as address:
        context = ssl.create_default_context(cafile=str(pem.ca))
        assert ask(context, address) == b""
        context.load_cert_chain(pem.certificate, pem.key)
        assert ask(context, address).endswith(b'["127.0.0.1", "https"]')
