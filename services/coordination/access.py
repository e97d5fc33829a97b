"""How a coordinator is reached: where it is, and with which credentials."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from store.errors import InvalidSettingError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ETCD_PORT = 2379
_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CoordinatorAccess:
    """Files and names; every file is read again when it is used, so that what is renewed there counts.

    Attributes:
        ca: PEM, the authorities of the coordinator's certificate. None: the system's; in Kubernetes those of the pod.
        certificate, key: PEM, this process's own, for a coordinator that asks for one.
        user: of etcd; empty: none.
        password_file: the user's password, a final line break is cut off.
        token_file: a bearer token for Kubernetes; None: the service account's.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """`etcd://HOST:PORT[,HOST:PORT]/PREFIX`, with TLS `etcds://`."""

    endpoints: tuple[tuple[str, int], ...]
    prefix: str
    with_tls: bool

    def key(self, shard: str) -> str:
        """The key of a shard's record."""
        return f"{self.prefix}/{shard}"


@dataclass(frozen=True, slots=True)
class KubernetesAddress:
    """`kubernetes://NAMESPACE/LEASE_PREFIX`; the API server is the pod's own, or `kubernetes://NAMESPACE/PREFIX?server=URL`."""

    namespace: str
    lease_prefix: str
    server: str = ""

    def lease_name(self, shard: str) -> str:
        """The name of a shard's Lease.

        Raises:
            InvalidSettingError: Kubernetes does not allow it.
        """
        name = f"{self.lease_prefix}-{shard}"
        if not _LEASE_NAME.fullmatch(name):
            raise _invalid(
                name, "a Lease's name has small letters, digits, - and . only: choose another broker name or prefix"
            )
        return name


def parse_address(address: str) -> EtcdAddress | KubernetesAddress:
    """A coordinator's address.

    Raises:
        InvalidSettingError: it is none.
    """
    try:
        parts = urlsplit(address)
        path = parts.path.strip("/")
        if parts.scheme in ("etcd", "etcds") and path and not parts.query:
            endpoints = tuple(_endpoint(one) for one in parts.netloc.split(","))
            return EtcdAddress(endpoints, path, parts.scheme == "etcds")
        if parts.scheme == "kubernetes" and parts.netloc and path and "/" not in path:
            key, _, server = parts.query.partition("=")
            if not parts.query or (key == "server" and server.startswith("https://")):
                return KubernetesAddress(parts.netloc, path, server)
    except ValueError as error:
        raise _invalid(address, str(error)) from error
    raise _invalid(
        address, "use etcd://HOST:PORT[,HOST:PORT]/PREFIX, etcds://... with TLS, or kubernetes://NAMESPACE/PREFIX"
    )


def _endpoint(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.username is not None:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return parts.hostname, parts.port or ETCD_PORT


def _invalid(value: str, what: str) -> InvalidSettingError:
    return InvalidSettingError(f"the coordinator {value!r} cannot be used: {what}", name="coordinator", source=value)
