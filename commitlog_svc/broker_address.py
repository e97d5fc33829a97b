"""The address by which clients of the remoting protocol know the shard (docs/adr/0136).

Name servers are told it as it is set, so it may be a name, such as that of a Kubernetes Service. Message ids have room for an
IP only: the one that DNS gives for the name when the process starts. While DNS does not know the name, or nothing listens at
the address yet, the shard does not register: `KnownOnce`.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from services.rocketmq.address import Address
from store.format.host import Host

# A start waits no longer for DNS; the names of a new installation are known within a second or two.
LOOKUP_SECONDS_MAX = 5.0
LOOKUP_INTERVAL_SECONDS = 0.5
# A gateway opens its door when the shard's services are there: some seconds on a busy machine. After this time a shard
# registers in any case, because its clients may come another way than it does.
DOOR_SECONDS_MAX = 15.0
DOOR_CONNECT_SECONDS_MAX = 1.0


def is_closed(address: Address) -> bool:
    """Whether the machine at an address says that nothing listens there; False as well if it says nothing."""
    try:
        socket.create_connection(address, DOOR_CONNECT_SECONDS_MAX).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


class KnownOnce:
    """Tells whether clients have been able to find an address since this was made; thread-safe.

    DNS knows its name, and something listens there, or DOOR_SECONDS_MAX have gone by. Until then a client that is told the
    address has its sends refused. It is not asked for again: a shard that clients have found must not leave their routes with
    DNS, or with a gateway that starts again.

    Args:
        address: a name or an IP.
        look_up: asks DNS, as `socket.getaddrinfo`; it may block.
        is_closed: tells whether nothing listens at an address; it may block.
        clock: seconds, rising.
    """

    def __init__(
        self,
        address: Address,
        look_up: Callable[..., list[Any]] = socket.getaddrinfo,
        is_closed: Callable[[Address], bool] = is_closed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._look_up = look_up
        self._is_closed = is_closed
        self._clock = clock
        self._deadline: float | None = None  # of the door, from when DNS knew its name
        self._is_known = False

    def __call__(self) -> bool:
        """Whether clients could find it once; looks if they could not."""
        if not self._is_known and self._is_in_dns():
            if self._deadline is None:
                self._deadline = self._clock() + DOOR_SECONDS_MAX
            self._is_known = not self._is_closed(self._address) or self._clock() >= self._deadline
        return self._is_known

    def _is_in_dns(self) -> bool:
        # A name with an empty or too long part is a UnicodeError.
        with contextlib.suppress(OSError, UnicodeError):
            return bool(self._look_up(self._address.host, self._address.port, type=socket.SOCK_STREAM))
        return False


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
