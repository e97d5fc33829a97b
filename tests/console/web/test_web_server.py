"""The web server against browsers that take nothing, take little, or pretend."""

import contextlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import uvicorn
from uvicorn.server import ServerState

from console.opening import LazyServer
from console.web.web_server import TAKING_BYTES_MIN, BoundedProtocol, ConsoleServer
from services.serving.tls import TlsIdentity
from services.settings.certificates import TlsFiles
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
def served(application: Any, files: TlsFiles | None = None) -> Iterator[tuple[str, int]]:
    failures: list[BaseException] = []
    identity = None if files is None else TlsIdentity(files)
    door = LazyServer("127.0.0.1", 0, lambda: ConsoleServer(application, lambda: None, identity), failures.append)
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
    monkeypatch.setattr("console.web.web_server.TAKING_SECONDS", 0.3)
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
        monkeypatch.setattr("console.web.web_server.HEAD_SECONDS_MAX", 1.0)
        monkeypatch.setattr("console.web.web_server.TAKING_SECONDS", 2.0)
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


def greet(address: tuple[str, int], pem: Pem) -> ssl.SSLSocket:
    """A browser's connection that trusts the authority."""
    context = ssl.create_default_context(cafile=str(pem.ca))
    return context.wrap_socket(socket.create_connection(address, timeout=20), server_hostname="localhost")


def shown_to(connection: ssl.SSLSocket) -> str:
    """The serial number of the certificate that it was shown."""
    return connection.getpeercert()["serialNumber"]


def ask(connection: socket.socket) -> bytes:
    connection.sendall(REQUEST)
    answer = b""
    while part := connection.recv(65_536):
        answer += part
    return answer.partition(b"\r\n\r\n")[2]


def test_a_renewed_certificate_is_shown_to_who_connects_and_cuts_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("console", *LOOPBACK)
    with served(who, TlsFiles(pem.certificate, pem.key)) as address, greet(address, pem) as before:
        renewed = authority.issue("renewed", *LOOPBACK, under="console")
        with greet(address, renewed) as after:
            assert shown_to(before) != shown_to(after)
            assert ask(after) == ask(before) == b'["127.0.0.1", "https"]'


def test_a_certificate_that_does_not_fit_its_key_is_refused_and_the_former_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem, other = authority.issue("console", *LOOPBACK), authority.issue("other", *LOOPBACK)
    with served(who, TlsFiles(pem.certificate, pem.key)) as address, structlog.testing.capture_logs() as said:
        with greet(address, pem) as connection:
            former = shown_to(connection)
        os.replace(other.key, pem.key)  # half of a change
        for _ in range(2):
            with greet(address, pem) as connection:
                assert shown_to(connection) == former
                assert ask(connection)
        half_written = other.certificate.read_bytes()
        pem.certificate.write_bytes(half_written[: len(half_written) // 2])
        with greet(address, pem) as connection:
            assert shown_to(connection) == former
        os.replace(other.certificate, pem.certificate)
        with greet(address, pem) as connection:
            assert shown_to(connection) != former

    assert [line["event"] for line in said] == ["tls.reload_failed", "tls.reload_failed", "tls.reloaded"]
    assert str(pem.certificate) in said[0]["certificate"]
    assert said[0]["error"]


def test_an_authority_for_clients_that_is_exchanged_counts_for_who_connects(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("console", *LOOPBACK)
    others = Authority(tmp_path / "others").issue("browser", *LOOPBACK)
    clients = tmp_path / "clients.crt"
    clients.write_bytes(pem.ca.read_bytes())

    def asked_with(shown: Pem) -> bytes:
        context = ssl.create_default_context(cafile=str(pem.ca))
        context.load_cert_chain(shown.certificate, shown.key)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            plain = socket.create_connection(address, timeout=20)
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                return ask(connection)
        return b""

    with served(who, TlsFiles(pem.certificate, pem.key, clients)) as address:
        assert (asked_with(others), asked_with(pem)) == (b"", b'["127.0.0.1", "https"]')
        clients.write_bytes(others.ca.read_bytes() + b"\n")
        assert (asked_with(others), asked_with(pem)) == (b'["127.0.0.1", "https"]', b"")


def half_a_hello() -> bytes:
    """The begin of what a browser says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    browser = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        browser.do_handshake()
    return outgoing.read()[:100]


def test_who_does_not_finish_the_handshake_goes_and_leaves_its_place(pem: Pem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.web.web_server.HANDSHAKE_SECONDS_MAX", 0.5)
    monkeypatch.setattr("console.web.web_server.CONNECTION_COUNT_MAX", 2)
    with served(who, TlsFiles(pem.certificate, pem.key)) as address, contextlib.ExitStack() as open_until_the_end:
        silent, halfway, third = (
            open_until_the_end.enter_context(socket.create_connection(address, timeout=20)) for _ in range(3)
        )
        halfway.sendall(half_a_hello())
        assert third.recv(1) == b""  # at once: the two have the places
        for connection in (silent, halfway):
            assert connection.recv(1) == b""
        monkeypatch.setattr("console.web.web_server.HANDSHAKE_SECONDS_MAX", 20.0)
        with greet(address, pem) as connection:
            assert ask(connection) == b'["127.0.0.1", "https"]'


def test_who_says_nothing_after_the_handshake_goes_without_a_farewell(
    pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.web_server.HEAD_SECONDS_MAX", 0.3)
    with served(who, TlsFiles(pem.certificate, pem.key)) as address, greet(address, pem) as connection:
        below = connection.detach()  # whoever is there answers no more
        with socket.socket(fileno=below) as plain:
            plain.settimeout(20)
            while plain.recv(65_536):
                pass


def test_a_handshake_under_way_does_not_hold_up_the_end(pem: Pem) -> None:
    with contextlib.ExitStack() as open_until_the_end:
        with served(who, TlsFiles(pem.certificate, pem.key)) as address:
            silent = open_until_the_end.enter_context(socket.create_connection(address, timeout=20))
            with greet(address, pem) as connection:  # behind it in the port's backlog: it is taken in
                assert ask(connection)
        silent.settimeout(0)
        assert silent.recv(1) == b""


def test_a_browser_that_had_its_answer_and_said_no_farewell_kept_its_place_for_half_a_minute(
    pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.web_server.FAREWELL_SECONDS_MAX", 0.3)
    with served(who, TlsFiles(pem.certificate, pem.key)) as address, greet(address, pem) as connection:
        connection.sendall(REQUEST)
        with socket.socket(fileno=connection.detach()) as plain:  # takes everything and answers nothing
            plain.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                while plain.recv(65_536):
                    pass
