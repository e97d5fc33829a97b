"""The names in the certificate of a caller.

They are read from the certificate itself. gRPC's own list of names is not used: it ends a name at a zero byte, so that
`spiffe://reput/gateway\\0.evil` looks like the gateway, and it has e-mail and IP addresses among the URIs and DNS names.

Whether a certificate has expired is decided when a connection is made, by TLS. No call is refused for it later: gRPC's clients
stay on a connection whose calls are UNAUTHENTICATED, also when they have a new certificate. The connection ends instead:
`CERTIFIED_AGE_SECONDS` in server_options.py.
"""

from functools import lru_cache
from typing import Any

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
