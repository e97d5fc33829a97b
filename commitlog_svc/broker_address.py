"""The address by which clients of the remoting protocol know the shard (docs/adr/0136).

Name servers are told it as it is set, so it may be a name, such as that of a Kubernetes Service. Message ids have room for an
IP only: the one that DNS gives for the name when the process starts. While DNS does not know the name, the shard does not
register: `KnownOnce`.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from services.rocketmq.address import Address
from store.format.host import Host

# A start waits no longer for DNS; the names of a new installation are known within a second or two.
LOOKUP_SECONDS_MAX = 5.0
LOOKUP_INTERVAL_SECONDS = 0.5


class KnownOnce:
    """Tells whether DNS has known a name since this was made; thread-safe.

    A name that was known is not asked for again: a shard that clients have found must not leave their routes with DNS.

    Args:
        address: a name or an IP.
        look_up: asks DNS, as `socket.getaddrinfo`; it may block.
    """

    def __init__(self, address: Address, look_up: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._address = address
        self._look_up = look_up
        self._is_known = False

    def __call__(self) -> bool:
        """Whether DNS has known it; asks if it has not."""
        if not self._is_known:
            # A name with an empty or too long part is a UnicodeError.
            with contextlib.suppress(OSError, UnicodeError):
                self._is_known = bool(self._look_up(self._address.host, self._address.port, type=socket.SOCK_STREAM))
        return self._is_known


def host_at(address: Address, look_up: Callable[..., list[Any]] = socket.getaddrinfo) -> Host | None:
    """The IP that the address has now, and its port; None if DNS does not tell it within LOOKUP_SECONDS_MAX.

    Args:
        address: a name or an IP.
        look_up: asks DNS, as `socket.getaddrinfo`; it may block.
    """
    found: list[Host] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            # A name with an empty or too long part is a UnicodeError.
            with contextlib.suppress(OSError, UnicodeError):
                rows = look_up(address.host, address.port, type=socket.SOCK_STREAM)
                # RocketMQ's clients take an IPv4 address where there is one.
                *_, place = min(rows, key=lambda row: row[0] != socket.AF_INET)
                found.append(Host(place[0].partition("%")[0], address.port))
                ended.set()
            ended.wait(LOOKUP_INTERVAL_SECONDS)

    threading.Thread(target=look, name="broker-address", daemon=True).start()
    ended.wait(LOOKUP_SECONDS_MAX)
    ended.set()
    return found[0] if found else None
