"""Addresses of brokers in settings."""

from typing import NamedTuple

from store.errors import InvalidArgumentError

SCHEME = "rocketmq://"


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


def parse_mirror(text: str) -> Address:
    """The address in `rocketmq://HOST:HA_PORT`; InvalidArgumentError for another text."""
    if not text.startswith(SCHEME):
        raise InvalidArgumentError(f"{text!r} names no broker to mirror: write {SCHEME}HOST:HA_PORT", field="mirror")
    return parse_address(text.removeprefix(SCHEME).rstrip("/"))
