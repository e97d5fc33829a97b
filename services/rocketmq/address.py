"""Addresses of brokers in settings."""

from collections.abc import Sequence
from typing import NamedTuple

from store.errors import InvalidArgumentError

SCHEME = "rocketmq://"
TLS_SCHEME = "tls://"


class Address(NamedTuple):
    """Host and port, as sockets take them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, port_min: int = 1) -> Address:
    """The address in `HOST:PORT` or `[IPv6]:PORT`; InvalidArgumentError for another text."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdecimal() or not port_min <= int(port) <= 65_535:
        raise InvalidArgumentError(f"{text!r} is not an address: write HOST:PORT", field="address")
    return Address(host, int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses in `HOST:PORT,HOST:PORT`; errors as `parse_address`."""
    return tuple(parse_address(part.strip()) for part in text.split(",") if part.strip())


class NameServer(NamedTuple):
    """Where a name server listens, and whether it is called over TLS."""

    address: Address
    is_tls: bool = False

    def __str__(self) -> str:
        return f"{TLS_SCHEME if self.is_tls else ''}{self.address}"


def parse_nameserver(text: str) -> NameServer:
    """The name server in `HOST:PORT` or `tls://HOST:PORT`; InvalidArgumentError for another text."""
    return NameServer(parse_address(text.removeprefix(TLS_SCHEME)), text.startswith(TLS_SCHEME))


def parse_named_addresses(text: str, names: Sequence[str], field: str, *, port_min: int = 1) -> dict[str, Address]:
    """Addresses by name, from `NAME=HOST:PORT,...`, or from `HOST:PORT` if there is one name only.

    Args:
        text: the addresses.
        names: those that an address without a name may be of.
        field: the setting, for errors.
        port_min: the lowest port.

    Raises:
        InvalidArgumentError: an address is none, or it is not clear which name is meant.
    """
    found: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, address = part.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise InvalidArgumentError(
                    f"{part!r} names no shard, and there are {len(names)}: write NAME=HOST:PORT for each", field=field
                )
            name = names[0]
        found[name] = parse_address(address, port_min=port_min)
    return found


def parse_mirror(text: str) -> Address:
    """The address in `rocketmq://HOST:HA_PORT`; InvalidArgumentError for another text."""
    if not text.startswith(SCHEME):
        raise InvalidArgumentError(f"{text!r} names no broker to mirror: write {SCHEME}HOST:HA_PORT", field="mirror")
    return parse_address(text.removeprefix(SCHEME).rstrip("/"))
