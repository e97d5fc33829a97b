"""The paths of TLS files, the names in certificates that stand for the roles of services, and the context of connections
that are not gRPC's; without gRPC, for settings.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

GATEWAY = frozenset({"gateway"})
BUILDERS = frozenset({"consumequeue", "index"})
MOVERS = frozenset({"consumer", "schedule"})  # services that move messages: they follow the log and append to it
REPLICAS = frozenset({"commitlog"})  # replicas of one shard copy its log from one another
OPERATOR = frozenset({"operator"})  # has no identity by default
ROLES = GATEWAY | BUILDERS | MOVERS | REPLICAS | OPERATOR


def parse_identities(text: str) -> dict[str, str]:
    """Role by identity, from `role=identity,...;role=...`.

    Raises:
        ValueError: the text has another form.
    """
    roles: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        role, equals, names = part.partition("=")
        identities = [name.strip() for name in names.split(",") if name.strip()]
        if not equals or not identities or role.strip() not in ROLES:
            raise ValueError(f"{part!r} is not role=identity,... with a role of {', '.join(sorted(ROLES))}")
        for identity in identities:
            if roles.setdefault(identity, role.strip()) != role.strip():
                raise ValueError(f"{identity!r} has two roles: a certificate is of one service")
    return roles


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths.

    Attributes:
        certificate: PEM chain, the own certificate first.
        key: PEM, its private key.
        ca: PEM, the authorities whose certificates are accepted from the other side; None: none is asked for.
    """

    certificate: Path
    key: Path
    ca: Path | None = None


def client_context(
    ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> "ssl.SSLContext":
    """What a connection that is not gRPC's is opened with; OSError when the files, as they are now, cannot be used.

    Args:
        ca: PEM, of the server's authority; None: those that this machine trusts.
        certificate, key: PEM, shown to a server that asks; None: nothing is.
    """
    import ssl

    context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
