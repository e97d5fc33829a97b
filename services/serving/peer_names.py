"""The names in the certificate of a caller, and until when it counts.

They are read from the certificate itself. gRPC's own list of names is not used: it ends a name at a zero byte, so that
`spiffe://reput/gateway\\0.evil` looks like the gateway, and it has e-mail and IP addresses among the URIs and DNS names.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from store.errors import UnauthenticatedError

CERTIFICATE_FACT = "x509_pem_cert"
# Certificates that are kept parsed: one for each service or client that is connected. Parsing takes 0.1 ms.
CERTIFICATE_COUNT_MAX = 1_024
# Of the names in an error or a log line. A certificate may have thousands of them.
SHOWN_CHARACTERS_MAX = 256


class PeerCertificate(NamedTuple):
    """What counts of a certificate.

    Attributes:
        names: its URIs and DNS names.
        end_seconds: since the epoch; it does not count after that.
    """

    names: frozenset[str]
    end_seconds: float


def peer_identities(context: Any, clock: Callable[[], float] = time.time) -> frozenset[str]:
    """The URIs and DNS names in the SAN of the caller's certificate; empty without one.

    gRPC has checked the certificate when the connection was made. The connection may be older than the certificate's end.

    Args:
        context: gRPC's context of the call.
        clock: seconds since the epoch.

    Raises:
        UnauthenticatedError: the certificate has expired since.
    """
    found = context.auth_context().get(CERTIFICATE_FACT)
    if not found:
        return frozenset()
    certificate = read_certificate(found[0])
    if clock() > certificate.end_seconds:
        raise UnauthenticatedError(
            f"the certificate of {shown(certificate.names)} has expired since this connection was made: renew it and connect "
            "again"
        )
    return certificate.names


@lru_cache(CERTIFICATE_COUNT_MAX)
def read_certificate(pem: bytes) -> PeerCertificate:
    """Reads a certificate; one whose names cannot be read has none.

    A URI has a colon and a DNS name has none: a name of one kind never counts as one of the other.
    """
    from cryptography import x509  # takes 20 ms, only with TLS

    certificate = x509.load_pem_x509_certificate(pem)
    end_seconds = certificate.not_valid_after_utc.timestamp()
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return PeerCertificate(frozenset(), end_seconds)
    uris = (name for name in names.get_values_for_type(x509.UniformResourceIdentifier) if ":" in name)
    dns_names = (name for name in names.get_values_for_type(x509.DNSName) if ":" not in name)
    return PeerCertificate(frozenset((*uris, *dns_names)), end_seconds)


def shown(names: frozenset[str]) -> str:
    """The names for an error or a log line, cut to SHOWN_CHARACTERS_MAX."""
    return ", ".join(sorted(names))[:SHOWN_CHARACTERS_MAX] or "nobody"
