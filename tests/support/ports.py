"""Ports on loopback for programs that cannot be told to take any free one and say which (port 0).

A port that the kernel hands out and that is let go again can be taken by any outgoing connection before the program
binds it, so these lie below the kernel's ephemeral range, where only a program that asks for the number gets it. A test keeps
its ports while its programs are away (a replica that was killed): other processes of tests that ask meanwhile get others.
"""

import contextlib
import fcntl
import os
import pathlib
import random
import socket
import tempfile
from collections.abc import Sequence

EPHEMERAL_RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_FIRST = 32768  # where the kernel does not say: Linux's default
FIRST_PORT = 12000  # above what well-known servers listen on
TRIES_MAX = 200
# Byte N of this file is locked by the process whose test has port N; the kernel lets go of it when that process ends.
KEPT = pathlib.Path(tempfile.gettempdir()) / "reput-test-ports"


class _Kept:
    """The ports that this process was given."""

    def __init__(self) -> None:
        self._pid = 0
        self._fd = -1
        self._ports: set[int] = set()

    def keep(self, ports: Sequence[int]) -> bool:
        """Whether no test has one of them; then this process has all."""
        if self._pid != os.getpid():  # a fork has none of its parent's locks
            self._pid, self._ports = os.getpid(), set()
            self._fd = os.open(KEPT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not self._ports.isdisjoint(ports):
            return False
        locked: list[int] = []
        for port in ports:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                for each in locked:
                    fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, each)
                return False
            locked.append(port)
        self._ports.update(ports)
        return True


_kept = _Kept()


def free_port(*neighbours: int) -> int:
    """A port that nobody listens on now and no test was given, and whose neighbours (`-2`: two below) are free too.

    Raises:
        RuntimeError: none was found.
    """
    first_ephemeral = int(EPHEMERAL_RANGE.read_text().split()[0]) if EPHEMERAL_RANGE.exists() else EPHEMERAL_FIRST
    dice = random.SystemRandom()  # tests that seed `random` must not meet at one port
    for _ in range(TRIES_MAX):
        port = dice.randrange(FIRST_PORT, max(first_ephemeral, FIRST_PORT + TRIES_MAX) - 10)
        ports = [port, *(port + neighbour for neighbour in neighbours)]
        with contextlib.ExitStack() as held:
            try:
                for number in ports:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            if _kept.keep(ports):
                return port
    raise RuntimeError(f"no free port on loopback in {TRIES_MAX} tries")
