"""Ports on loopback for programs that cannot be told to take any free one and say which (port 0).

A port that the kernel hands out and that is let go again can be taken by any outgoing connection before the program
binds it, so these lie below the kernel's ephemeral range, where only a program that asks for the number gets it.
"""

import contextlib
import pathlib
import random
import socket

EPHEMERAL_RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_FIRST = 32768  # where the kernel does not say: Linux's default
FIRST_PORT = 12000  # above what well-known servers listen on
TRIES_MAX = 200


def free_port(*neighbours: int) -> int:
    """A port that nobody listens on now, and whose neighbours (`-2`: two below) are free too.

    Raises:
        RuntimeError: none was found.
    """
    first_ephemeral = int(EPHEMERAL_RANGE.read_text().split()[0]) if EPHEMERAL_RANGE.exists() else EPHEMERAL_FIRST
    dice = random.SystemRandom()  # tests that seed `random` must not meet at one port
    for _ in range(TRIES_MAX):
        port = dice.randrange(FIRST_PORT, max(first_ephemeral, FIRST_PORT + TRIES_MAX) - 10)
        with contextlib.ExitStack() as held:
            try:
                for number in (port, *(port + neighbour for neighbour in neighbours)):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port on loopback in {TRIES_MAX} tries")
