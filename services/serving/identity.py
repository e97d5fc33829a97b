"""Which service may call which RPC of an inner service, by the names in the certificate of the caller.

A certificate of the cluster's authority only proves that the caller is one of our services; a name in its SAN says which one.
services/methods.py states the roles that may call each RPC. So a stolen certificate of the gateway reads no Reput stream, and
one of a builder appends nothing. An RPC without a row there may not be called.
"""

from collections.abc import Mapping
from typing import Any

from services.methods import COMMITLOG_SERVICE, METHODS
from services.observing.telemetry import get_audit_logger
from services.serving.call_guard import checked
from services.serving.peer_names import peer_identities, shown
from store.errors import PermissionDeniedError

# A report holds back retention and counts as progress, so each follower reports only under its own name.
OWN_NAME_METHOD = COMMITLOG_SERVICE + "ReportProgress"


class IdentityGuard:
    """A CallGuard for an inner service.

    Args:
        role_by_identity: as services/settings/identity_names.py reads it.
    """

    def __init__(self, role_by_identity: Mapping[str, str]) -> None:
        self._role_by_identity = role_by_identity

    def client_of(self, method: str, context: Any) -> str:
        """See CallGuard: a connection of a service is a client, with or without a role."""
        return ""

    def guard(self, method: str, handler: Any) -> Any:
        """See CallGuard."""
        row = METHODS.get(method)
        callers = frozenset() if row is None else row.roles
        if callers is None:
            return handler

        def check(context: Any, request: Any) -> None:
            names = peer_identities(context)
            roles = {self._role_by_identity[name] for name in names if name in self._role_by_identity}
            if not roles & callers:
                raise _denied(method, names, roles)
            if method == OWN_NAME_METHOD and request.builder not in roles:
                raise _denied(method, names, roles, f" as {request.builder!r}")

        return checked(handler, check)


def _denied(method: str, names: frozenset[str], roles: set[str], how: str = "") -> PermissionDeniedError:
    identity = shown(names)
    get_audit_logger().warning("audit.denied", identity=identity, roles=sorted(roles), method=method)
    return PermissionDeniedError(
        f"{identity} may not call {method}{how}: see the setting allowed_identities, and docs/security.md for the callers of "
        "each RPC",
        method=method,
        identity=identity,
    )
