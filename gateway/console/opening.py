"""Puts the console together from the gateway's settings: its port is opened here, the rest is loaded with the first browser."""

from collections.abc import Callable
from typing import Any

import structlog

from gateway.console.door import ConsoleDoor, WebServer
from gateway.settings import GatewaySettings
from services.server import ServiceServer, write_atomically
from services.settings import DEFAULT, Origins
from services.tls import TlsIdentity
from store.errors import InvalidSettingError

SERVICE_PREFIX = "/reput.gateway.v1.GatewayService/"
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")

_log = structlog.get_logger("reput.console")


def open_console(
    server: ServiceServer, settings: GatewaySettings, origins: Origins, servicer: object, sign_in: Any = None
) -> None:
    """Open the console's port, unless the settings say that there is none.

    The default port may be another gateway's on the same machine: then there is a warning and no console. An address
    that somebody chose must be had.

    Args:
        server: the gateway's; the console ends with it.
        settings: of the gateway.
        origins: where they came from.
        servicer: answers what pages ask.
        sign_in: finds the rights of callers (gateway/auth/sign_in.py); None: nobody needs to sign in.

    Raises:
        InvalidSettingError: the address is none, or cannot be bound; or the files of TLS cannot be used.
    """
    if settings.console == "off":
        return
    files = settings.server_tls_files
    identity = None if files is None else server.identity_of(files)
    host, _, port = settings.console_address.rpartition(":")
    host = host.strip("[]") or LOCAL_HOSTS[0]
    try:
        door = ConsoleDoor(host, int(port), _loader(server, settings, servicer, sign_in, identity), _failed)
    except (ValueError, OSError, OverflowError) as error:
        if origins["console_address"] == DEFAULT:
            _log.warning(
                "console.none",
                address=settings.console_address,
                error=str(error),
                hint="another gateway's console may have the port: set console_address, or console to off",
            )
            return
        raise InvalidSettingError(
            f"console_address is {settings.console_address!r}, which cannot be listened at ({error}): HOST:PORT is needed",
            name="console_address",
            source=origins["console_address"],
        ) from error
    if settings.console_address_file is not None:
        write_atomically(settings.console_address_file, door.address + "\n")
    server.on_stop(door.close)
    door.open()
    _log.info("console.listening", address=door.address)
    if settings.auth == "off" and host not in LOCAL_HOSTS:
        _log.warning("console.open", address=door.address, hint="whoever reaches it reads all messages: set auth to on")


def _loader(
    server: ServiceServer, settings: GatewaySettings, servicer: object, sign_in: Any, identity: TlsIdentity | None
) -> Callable[[], WebServer]:
    def load() -> WebServer:
        # Web server and templates: 5 MiB and 0.3 s for those who look.
        from gateway.console.app import ConsoleApp, ConsoleSource
        from gateway.console.guard import Guard
        from gateway.console.reports import Reports
        from gateway.console.session import Gate, OpenGate
        from gateway.console.web_server import ConsoleServer

        answers: object = servicer
        gate: Gate = OpenGate()
        if sign_in is not None:
            from gateway.console.signed_in import GuardedAnswers, SignInGate

            guard: Any = server.call_guard  # the gateway's, as there is a sign_in
            answers, gate = GuardedAnswers(servicer, guard, SERVICE_PREFIX), SignInGate(guard)
        source = ConsoleSource(answers, gate, Guard(settings.console_host_names), Reports(settings.console_reports))
        app = ConsoleApp(source)
        return ConsoleServer(app.application, app.close, identity)

    return load


def _failed(error: BaseException) -> None:
    _log.error("console.failed", error=f"{type(error).__name__}: {error}", exc_info=error)
