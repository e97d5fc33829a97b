"""Who may call which RPC of an inner service: by the names in the certificate that a caller shows.

A certificate of the cluster's authority only says that the caller is one of us. Which one says a name in its SAN, and each RPC
has its callers: a stolen certificate of the gateway reads no Reput stream, one of a builder appends nothing. What is not in
`CALLERS` nobody may call, so that a new RPC is closed until somebody has thought about it (a test asks for the row).
"""

from collections.abc import Mapping
from typing import Any

from services.call_guard import HEALTH_PREFIX, checked, peer_identities
from services.identity_names import BUILDERS, GATEWAY, ROLES
from services.telemetry import get_audit_logger
from store.errors import PermissionDeniedError

COMMITLOG = "/reput.commitlog.v1.CommitLogService/"
CONSUMEQUEUE = "/reput.consumequeue.v1.ConsumeQueueService/"
INDEX = "/reput.index.v1.IndexService/"
REFLECTION_PREFIX = "/grpc.reflection."

CALLERS: dict[str, frozenset[str]] = {
    COMMITLOG + "AppendMessages": GATEWAY,
    COMMITLOG + "AppendMessageStream": GATEWAY,
    COMMITLOG + "GetMessage": GATEWAY | {"consumequeue"},
    COMMITLOG + "BatchGetMessages": GATEWAY | {"consumequeue"},  # store times, for SearchOffset
    COMMITLOG + "ListTopics": GATEWAY,
    COMMITLOG + "Reput": BUILDERS,
    COMMITLOG + "ReportProgress": BUILDERS,
    COMMITLOG + "GetStatus": ROLES,
    CONSUMEQUEUE + "ListQueues": GATEWAY,
    CONSUMEQUEUE + "GetQueueUnits": GATEWAY,
    CONSUMEQUEUE + "SearchOffset": GATEWAY,
    CONSUMEQUEUE + "GetStatus": GATEWAY,
    INDEX + "SearchKey": GATEWAY,
    INDEX + "GetFilterPages": GATEWAY,
    INDEX + "GetStatus": GATEWAY,
}
# Reports hold back retention and count as progress: nobody makes another's.
OWN_NAME_METHOD = COMMITLOG + "ReportProgress"


class IdentityGuard:
    """A CallGuard for an inner service.

    Args:
        role_by_identity: as services/identity_names.py reads it.
    """

    def __init__(self, role_by_identity: Mapping[str, str]) -> None:
        self._role_by_identity = role_by_identity

    def guard(self, method: str, handler: Any) -> Any:
        """See CallGuard. Health is told to whoever has a certificate, reflection to whoever has a role."""
        if method.startswith(HEALTH_PREFIX):
            return handler
        callers = ROLES if method.startswith(REFLECTION_PREFIX) else CALLERS.get(method, frozenset())

        def check(context: Any, request: Any) -> None:
            names = peer_identities(context)
            roles = {self._role_by_identity[name] for name in names if name in self._role_by_identity}
            if not roles & callers:
                raise _denied(method, names, roles)
            if method == OWN_NAME_METHOD and request.builder not in roles:
                raise _denied(method, names, roles, f" as {request.builder!r}")

        return checked(handler, check)


def _denied(method: str, names: frozenset[str], roles: set[str], how: str = "") -> PermissionDeniedError:
    identity = ", ".join(sorted(names)) or "nobody"
    get_audit_logger().warning("audit.denied", identity=identity[:256], roles=sorted(roles), method=method)
    return PermissionDeniedError(
        f"{identity} may not call {method}{how}: see allowed_identities, and docs/security.md for who calls what",
        method=method,
        identity=identity,
    )
