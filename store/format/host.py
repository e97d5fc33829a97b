"""Host: an IP address and a port, as RocketMQ keeps it in records and ids.

    IPv4   4 bytes address | i32 port      8 bytes
    IPv6  16 bytes address | i32 port     20 bytes

In a record its sysFlag (`sys_flag.py`) tells which of the two it is, in an id the length.
Source of the format: `MessageExt.socketAddress2ByteBuffer` of Apache RocketMQ 5.3.3.
"""

import socket
import struct
from dataclasses import dataclass
from functools import lru_cache

from store.errors import InvalidArgumentError

IPV4_HOST_SIZE_BYTES = 8
IPV6_HOST_SIZE_BYTES = 20
_PORT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Host:
    """An address as stored: `ip` without brackets or zone (IPv6 in its RFC 5952 spelling), `port` the signed i32."""

    ip: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        """Whether it takes 20 bytes, not 8."""
        return ":" in self.ip

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_ipv6 else f"{self.ip}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Host":
        """The host in a text such as `1.2.3.4:10911` or `[::1]:10911`; InvalidArgumentError for anything else."""
        ip, colon, port = text.rpartition(":")
        bracketed = ip.startswith("[") and ip.endswith("]")
        if bracketed:
            ip = ip[1:-1]
        well_formed = colon and port.isascii() and port.isdigit() and int(port) <= 65535 and bracketed == (":" in ip)
        if not well_formed:
            raise InvalidArgumentError(
                f"{text!r} is not a host: write IP:port or [IPv6]:port.", field="host", value=text
            )
        # Encoded and decoded, so that each address has one spelling.
        return decode_host(encode_host(cls(ip, int(port))))


def encode_host(host: Host) -> bytes:
    """8 bytes for IPv4, 20 for IPv6; InvalidArgumentError when `ip` is not an address or `port` not an i32."""
    return _encode_host(host.ip, host.port)


@lru_cache(maxsize=4096)
def _encode_host(ip: str, port: int) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip) + _PORT.pack(port)
    except (OSError, ValueError, struct.error) as error:
        raise InvalidArgumentError(
            f"{ip!r} port {port} is not a host: give an IP address and a port.", field="host", value=f"{ip}:{port}"
        ) from error


@lru_cache(maxsize=4096)
def decode_host(data: bytes) -> Host:
    """The host in 8 or 20 stored bytes; other lengths are not allowed."""
    assert len(data) in (IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES), len(data)
    family = socket.AF_INET if len(data) == IPV4_HOST_SIZE_BYTES else socket.AF_INET6
    return Host(socket.inet_ntop(family, data[:-4]), _PORT.unpack(data[-4:])[0])
