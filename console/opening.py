"""Opens the console's port. The web server and the pages are loaded at the first connection.

A gateway whose console is never opened has one idle thread for it. The web server is imported when the first browser
connects; the connection waits in the port's backlog for about 0.3 s.

    opened ── first connection ──▶ loaded, serving ── close ──▶ closed
"""

import select
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from console.gateway_port import GatewayPort
from services.serving.server import ServiceServer, write_atomically
from services.serving.tls import TlsIdentity
from services.settings.certificates import TlsFiles
from services.settings.service_settings import DEFAULT, Origins
from store.errors import InvalidSettingError

if TYPE_CHECKING:
    from console.web.sign_in import AccessGuard
    from services.serving.calls.blocked_caller import Offer

# A browser opens six connections. The web server refuses those beyond its own limit, with an answer.
BACKLOG_COUNT = 128
CLOSE_SECONDS_MAX = 3.0


class WebServer(Protocol):
    """The web server."""

    def run(self, listener: socket.socket) -> None:
        """Serve until `stop`."""

    def stop(self) -> None:
        """Make `run` return soon; from any thread."""


class LazyServer:
    """An open port and the thread that serves it.

    Args:
        host: where to listen.
        port: 0 takes a free one.
        load: makes the server; called once, in that thread.
        failed: called with the error of `load` or the server; the port is closed then.

    Attributes:
        address: the bound `HOST:PORT`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self, host: str, port: int, load: Callable[[], WebServer], failed: Callable[[BaseException], object]
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG_COUNT)
        bound = self._listener.getsockname()[1]
        self.address = f"[{host}]:{bound}" if family == socket.AF_INET6 else f"{host}:{bound}"
        self._load = load
        self._failed = failed
        self._server: WebServer | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    def open(self) -> None:
        """Wait for the first browser."""
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the server has closed its connections, at most CLOSE_SECONDS_MAX later."""
        with self._lock:
            self._is_closed = True
            server = self._server
        self._wake_writer.close()
        if server is not None:
            server.stop()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS_MAX)
        self._listener.close()
        self._wake_reader.close()

    def _run(self) -> None:
        try:
            poll = select.poll()  # `select.select` fails with descriptors above 1023
            poll.register(self._listener, select.POLLIN)
            poll.register(self._wake_reader, select.POLLIN)
            poll.poll()
            if self._is_closed:
                return
            server = self._load()
            with self._lock:
                if self._is_closed:
                    return
                self._server = server
            server.run(self._listener)
        except Exception as error:
            self._failed(error)
        finally:
            # Later connections are refused at once.
            self._listener.close()


SERVICE_PREFIX = "/reput.gateway.v1.GatewayService/"
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")

_log = structlog.get_logger("reput.console")


class ConsoleSettings(Protocol):
    """The gateway's settings that the console uses (services/settings/setting_names.py explains them)."""

    @property
    def console(self) -> str:
        """`on` or `off`."""

    @property
    def console_address(self) -> str:
        """HOST:PORT."""

    @property
    def console_address_file(self) -> Path | None:
        """Where the address is written once the port is open."""

    @property
    def console_host_names(self) -> str:
        """Host names that browsers may use besides the machine's own, separated by commas."""

    @property
    def console_reports(self) -> Path | None:
        """The directory of the pipeline's reports."""

    @property
    def console_actions(self) -> str:
        """`on` or `off`."""

    @property
    def console_schemas(self) -> Path | None:
        """The directory of the schemas of bodies."""

    @property
    def console_trace_url(self) -> str:
        """Where a tracing tool shows a trace; empty: nowhere."""

    @property
    def server_tls_files(self) -> TlsFiles | None:
        """Certificate and key; None: no TLS."""

    @property
    def auth(self) -> str:
        """`on` or `off`."""


def open_console(
    server: ServiceServer,
    settings: ConsoleSettings,
    origins: Origins,
    gateway: GatewayPort,
    offers: "Mapping[str, Offer]",
    guard: "AccessGuard | None" = None,
) -> None:
    """Open the console's port, unless the setting `console` is off.

    Another gateway on this machine may use the default port. Then this one logs a warning and has no console. An
    address from the settings must be free.

    Args:
        server: the gateway's server; the console stops with it.
        settings: the gateway's.
        origins: where each setting comes from.
        gateway: answers the requests of pages.
        offers: the methods of the gateway that answer later, by name (ConsoleGateway).
        guard: checks callers; None: no sign-in is needed.

    Raises:
        InvalidSettingError: the address is not valid or cannot be bound, or a TLS file cannot be used.
    """
    if settings.console == "off":
        return
    files = settings.server_tls_files
    identity = None if files is None else server.identity_of(files)
    host, _, port = settings.console_address.rpartition(":")
    host = host.strip("[]") or LOCAL_HOSTS[0]
    try:
        lazy_server = LazyServer(host, int(port), _loader(settings, gateway, offers, guard, identity), _failed)
    except (ValueError, OSError, OverflowError) as error:
        if origins["console_address"] == DEFAULT:
            _log.warning(
                "console.none",
                address=settings.console_address,
                error=str(error),
                hint="another gateway's console may use the port: set REPUT_GATEWAY_CONSOLE_ADDRESS, or "
                "REPUT_GATEWAY_CONSOLE=off",
            )
            return
        raise InvalidSettingError(
            f"console_address is {settings.console_address!r}, which cannot be bound ({error}): give a free HOST:PORT",
            name="console_address",
            source=origins["console_address"],
        ) from error
    if settings.console_address_file is not None:
        write_atomically(settings.console_address_file, lazy_server.address + "\n")
    server.on_stop(lazy_server.close)
    lazy_server.open()
    _log.info("console.listening", address=lazy_server.address)
    if settings.auth == "off" and host not in LOCAL_HOSTS:
        _log.warning(
            "console.open",
            address=lazy_server.address,
            hint="every browser that reaches it reads all messages and may act: set auth to on",
        )


def _loader(
    settings: ConsoleSettings,
    gateway: GatewayPort,
    offers: "Mapping[str, Offer]",
    guard: "AccessGuard | None",
    identity: TlsIdentity | None,
) -> Callable[[], WebServer]:
    def load() -> WebServer:
        # Web server and templates take 5 MiB and 0.3 s.
        from console.bodies.schemas import Schemas
        from console.pages.reports import Reports
        from console.web.app import ConsoleApp, ConsoleSource
        from console.web.request_guard import RequestGuard
        from console.web.sign_in import ConsoleGateway, GuardedSignIn, NoSignIn, SignIn
        from console.web.web_server import ConsoleServer
        from console.web.write_state import WriteState

        answering = ConsoleGateway(gateway, offers, guard, SERVICE_PREFIX)
        sign_in: SignIn = NoSignIn() if guard is None else GuardedSignIn(guard, SERVICE_PREFIX)
        acts = WriteState(gateway.GetStatus).takes_writes if settings.console_actions == "on" else lambda: False
        browsers = RequestGuard(settings.console_host_names)
        schemas = Schemas(settings.console_schemas)
        reports, trace_url = Reports(settings.console_reports), settings.console_trace_url
        source = ConsoleSource(answering, sign_in, browsers, reports, schemas, trace_url, acts=acts)
        app = ConsoleApp(source)
        return ConsoleServer(app.application, app.close, identity)

    return load


def _failed(error: BaseException) -> None:
    _log.error("console.failed", error=f"{type(error).__name__}: {error}", exc_info=error)
