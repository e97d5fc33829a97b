r"""Which service may call which RPC of an inner service, by the names in the certificate of the caller.

A certificate of the cluster's authority only proves that the caller is one of our services; a name in its SAN says which one.
services/methods.py states the roles that may call each RPC. So a stolen certificate of the gateway reads no Reput stream, and
one of a builder appends nothing. An RPC without a row there may not be called.

The names are read from the certificate itself. gRPC's own list of names is not used: it ends a name at a zero byte, so that
`spiffe://reput/gateway\0.evil` looks like the gateway, and it has e-mail and IP addresses among the URIs and DNS names.

Whether a certificate has expired is decided when a connection is made, by TLS. No call is refused for it later: gRPC's clients
stay on a connection whose calls are UNAUTHENTICATED, also when they have a new certificate. The connection ends instead:
`CERTIFIED_AGE_SECONDS` in server_options.py.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from services.methods import COMMITLOG_SERVICE, METHODS
from services.observing.telemetry import get_audit_logger
from services.serving.call_guard import checked
from store.errors import PermissionDeniedError

CERTIFICATE_FACT = "x509_pem_cert"
# Certificates that are kept parsed: one for each service or client that is connected. Parsing takes 0.1 ms.
CERTIFICATE_COUNT_MAX = 1_024
# Of the names in an error or a log line. A certificate may have thousands of them.
SHOWN_CHARACTERS_MAX = 256


def peer_identities(context: Any) -> frozenset[str]:
    """The URIs and DNS names in the SAN of the caller's certificate; empty without one.

    gRPC has checked the certificate when the connection was made.
    """
    found = context.auth_context().get(CERTIFICATE_FACT)
    return names_of(found[0]) if found else frozenset()


@lru_cache(CERTIFICATE_COUNT_MAX)
def names_of(pem: bytes) -> frozenset[str]:
    """Reads a certificate; one whose names cannot be read has none.

    A URI has a colon and a DNS name has none: a name of one kind never counts as one of the other.
    """
    from cryptography import x509  # takes 20 ms, only with TLS

    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return frozenset()
    uris = (name for name in names.get_values_for_type(x509.UniformResourceIdentifier) if ":" in name)
    dns_names = (name for name in names.get_values_for_type(x509.DNSName) if ":" not in name)
    return frozenset((*uris, *dns_names))


def shown(names: frozenset[str]) -> str:
    """The names for an error or a log line, cut to SHOWN_CHARACTERS_MAX."""
    return ", ".join(sorted(names))[:SHOWN_CHARACTERS_MAX] or "nobody"


# A report holds back retention and counts as progress, so each follower reports only under its own name.
OWN_NAME_METHOD = COMMITLOG_SERVICE + "ReportProgress"


class IdentityGuard:
    """A CallGuard for an inner service.

    Args:
        role_by_identity: as services/settings/certificates.py reads it.
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
