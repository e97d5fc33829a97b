"""Ports that a starter chooses for services that start later, free also between two starts of a service."""

import errno
import pathlib
import random
import socket
from collections.abc import Collection, Iterator

RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
RANGE_BEGIN_DEFAULT = 32_768
PORT_MIN = 10_000
LOOPBACK = "127.0.0.1"
TAKEN_ERRORS = (errno.EADDRINUSE, errno.EACCES)


def free_ports(count: int, host: str = LOOPBACK, avoided: Collection[int] = ()) -> list[int]:
    """So many ports that nothing listens on, below those that the kernel gives to outgoing connections.

    A port of that range could be taken by a connection while the service that has it is started again.

    Args:
        count: how many.
        host: where they will be bound: a port may be taken at one address of the machine and free at another.
        avoided: those that have another purpose.

    Raises:
        OSError: there are not so many, or no port of this host can be bound here.
    """
    found: list[int] = []
    for port in _candidates():
        if port in avoided:
            continue
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno in TAKEN_ERRORS:
                    continue
                raise
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} free ports of {host} were not found")


def is_free(port: int) -> bool:
    """Whether a service could listen on a port of loopback; connections of one that has stopped may still linger."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def claim_port(port: int) -> socket.socket | None:
    """Keep other stacks and clusters from a port until the socket is closed, or the process ends; None: it is taken.

    The service that is to have it starts later, of a cluster by seconds: without the claim two could find it free.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0reput-port-{port}")
    except OSError:
        claim.close()
        return None
    if is_free(port):
        return claim
    claim.close()
    return None


def _candidates() -> Iterator[int]:
    try:
        end = int(RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        end = RANGE_BEGIN_DEFAULT
    if end <= PORT_MIN:  # the kernel uses them all
        end = RANGE_BEGIN_DEFAULT
    begin = random.randrange(PORT_MIN, end)  # noqa: S311  # two clusters that start together shall not meet
    yield from range(begin, end)
    yield from range(PORT_MIN, begin)
