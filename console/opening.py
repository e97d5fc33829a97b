"""Opens the console's port. The web server and the pages are loaded at the first connection."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from console.gateway_port import GatewayPort
from console.web.lazy_server import LazyServer, WebServer
from services.serving.server import ServiceServer, write_atomically
from services.serving.tls import TlsIdentity
from services.settings.certificates import TlsFiles
from services.settings.service_settings import DEFAULT, Origins
from store.errors import InvalidSettingError

if TYPE_CHECKING:
    from console.web.signed_in import AccessGuard

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
    def console_schemas(self) -> Path | None:
        """The directory of the schemas of bodies."""

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
        lazy_server = LazyServer(host, int(port), _loader(settings, gateway, guard, identity), _failed)
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
            hint="every browser that reaches it reads all messages: set auth to on",
        )


def _loader(
    settings: ConsoleSettings, gateway: GatewayPort, guard: "AccessGuard | None", identity: TlsIdentity | None
) -> Callable[[], WebServer]:
    def load() -> WebServer:
        # Web server and templates take 5 MiB and 0.3 s.
        from console.bodies.schemas import Schemas
        from console.parts.reports import Reports
        from console.web.app import ConsoleApp, ConsoleSource
        from console.web.request_guard import RequestGuard
        from console.web.session import NoSignIn, SignIn
        from console.web.web_server import ConsoleServer

        answering: GatewayPort = gateway
        sign_in: SignIn = NoSignIn()
        if guard is not None:
            from console.web.signed_in import GuardedGateway, GuardedSignIn

            answering, sign_in = GuardedGateway(gateway, guard, SERVICE_PREFIX), GuardedSignIn(guard)
        browsers = RequestGuard(settings.console_host_names)
        schemas = Schemas(settings.console_schemas)
        source = ConsoleSource(answering, sign_in, browsers, Reports(settings.console_reports), schemas)
        app = ConsoleApp(source)
        return ConsoleServer(app.application, app.close, identity)

    return load


def _failed(error: BaseException) -> None:
    _log.error("console.failed", error=f"{type(error).__name__}: {error}", exc_info=error)
