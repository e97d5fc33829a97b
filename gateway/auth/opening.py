"""Puts a gateway's sign-in together from its settings."""

import threading
import time

import structlog

from gateway.auth.access_file import WatchedFile, parse_clients
from gateway.auth.audit import WINDOW_SECONDS, Audit
from gateway.auth.caller_shards import CallerShards
from gateway.auth.guard import GatewayGuard
from gateway.auth.jwt_tokens import JwtTokens
from gateway.auth.sign_in import SignIn
from gateway.settings import GatewaySettings
from gateway.shards import ShardsSource
from services.server import ServiceServer
from services.telemetry import get_audit_logger

_log = structlog.get_logger("reput.gateway")
# Addresses that nobody from another machine reaches.
LOCAL_PREFIXES = ("127.", "[::1]", "localhost", "unix:")


def require_sign_in(
    server: ServiceServer, settings: GatewaySettings, source: ShardsSource
) -> tuple[SignIn, CallerShards]:
    """Have callers sign in, and their calls guarded and noted: what finds their rights, and the shards as they may see them.

    Raises:
        InvalidSettingError: a file cannot be used.
    """
    sign_in = _open_sign_in(settings)
    audit = Audit(get_audit_logger().info, time.monotonic)
    server.guard_calls(GatewayGuard(sign_in, audit))
    server.on_stop(audit.close)

    def flush() -> None:
        while not server.stopping.wait(WINDOW_SECONDS):
            audit.flush()

    threading.Thread(target=flush, name="gateway-audit", daemon=True).start()
    if settings.server_tls_files is None and not settings.address.startswith(LOCAL_PREFIXES):
        _log.warning("auth.in_the_clear", address=settings.address, hint="API keys and JWTs travel without TLS")
    return sign_in, CallerShards(source)


def _open_sign_in(settings: GatewaySettings) -> SignIn:
    assert settings.access_file is not None, "checked with the settings"
    tokens = None
    if settings.jwt_keys_file is not None:
        tokens = JwtTokens(
            settings.jwt_keys_file,
            settings.jwt_issuer,
            settings.jwt_audience,
            clock=time.monotonic,
            wall_clock=time.time,
        )
    clients = WatchedFile("access_file", settings.access_file, parse_clients, time.monotonic)
    return SignIn(clients, tokens, asks_certificates=settings.client_ca is not None)
