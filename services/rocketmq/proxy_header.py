"""The header by which a proxy says for whom it has opened a connection: the PROXY protocol, versions 1 and 2.

    1    `PROXY TCP4 10.0.0.7 10.1.0.1 51234 10911\\r\\n`    a line of at most 107 bytes; TCP4, TCP6 or UNKNOWN
    2    0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A               12 bytes
         21 (for a client) or 20 (of the proxy itself)      1 byte: version and command
         11 (TCP over IPv4), 21 (TCP over IPv6), others     1 byte: without an address here
         size of what follows                               2 bytes, big-endian
         source, destination, their ports, extensions       IPv4: 4 + 4 + 2 + 2 bytes; IPv6: 16 + 16 + 2 + 2 bytes

UNKNOWN, the command 20 and other families have no client: the connection is the proxy's own, as its health checks are.
Extensions are skipped. An IPv4 address in IPv6 (`::ffff:10.0.0.7`) is the same client as without.

Source: the specification of HAProxy, "The PROXY protocol", 2.1 and 2.2; RocketMQ's `HAProxyMessageHandler` reads the same.
"""

import ipaddress
import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from services.rocketmq.address import Address
from services.rocketmq.command import FrameError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE_BEGIN = b"PROXY "
LINE_BYTES_MAX = 107
FIXED = struct.Struct(">12sBBH")
assert FIXED.size == 16
# The extensions of a proxy that ends TLS have the client's certificate names: hundreds of bytes.
REST_BYTES_MAX = 4_096
OF_CLIENT, OF_PROXY = 0x21, 0x20
TCP4, TCP6 = struct.Struct(">4s4sHH"), struct.Struct(">16s16sHH")
FAMILIES = {0x11: TCP4, 0x21: TCP6}
PORT_MAX = 65_535

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks: TypeAlias = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


class ProxyHeader(NamedTuple):
    """What a header says.

    Attributes:
        client: the address for which the connection was opened; None: it is the proxy's own.
        size_bytes: of the header; what is behind it is the connection's.
    """

    client: Address | None
    size_bytes: int


def parse_networks(text: str) -> Networks:
    """Addresses and networks, separated by commas; ValueError for another text."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def is_in(host: str, networks: Networks) -> bool:
    """Whether an address, as a socket has it, lies in one of the networks."""
    address = unmapped(ipaddress.ip_address(host.partition("%")[0]))
    return any(address in network for network in networks)


def unmapped(address: IpAddress) -> IpAddress:
    """The IPv4 address that one of IPv6 stands for; others as they are."""
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def parse_header(data: bytes) -> ProxyHeader | None:
    """The header at the begin of a connection; None: it is not whole yet. FrameError: it is none."""
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _parse_binary(data)
    if LINE_BEGIN.startswith(data[: len(LINE_BEGIN)]):
        return _parse_line(data)
    raise FrameError("the connection of a proxy does not begin with a PROXY header")


def _parse_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise FrameError(f"the PROXY header has no end within {LINE_BYTES_MAX} bytes")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(None, end + 2)
    try:
        _, family, source, _, port, _ = words
        address = ipaddress.ip_address(source)
        if "%" in source:  # a scope has any characters, and means something on the proxy's machine only
            raise ValueError("an address with a scope")
        if family != f"TCP{address.version}" or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
            raise ValueError("a family or port that does not fit")
    except ValueError as error:
        raise FrameError("the PROXY header names no client") from error
    return ProxyHeader(Address(str(unmapped(address)), int(port)), end + 2)


def _parse_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < FIXED.size:
        return None
    _, command, family, rest_bytes = FIXED.unpack_from(data)
    if command not in (OF_CLIENT, OF_PROXY) or rest_bytes > REST_BYTES_MAX:
        raise FrameError(f"the PROXY header has the command {command:#x} and {rest_bytes} bytes behind it")
    size_bytes = FIXED.size + rest_bytes
    if len(data) < size_bytes:
        return None
    addresses = FAMILIES.get(family)
    if command == OF_PROXY or addresses is None:
        return ProxyHeader(None, size_bytes)
    if rest_bytes < addresses.size:
        raise FrameError("the PROXY header names no client")
    source, _, port, _ = addresses.unpack_from(data, FIXED.size)
    return ProxyHeader(Address(str(unmapped(ipaddress.ip_address(source))), port), size_bytes)
