"""Unique keys, made as RocketMQ's producer makes its message ids (`MessageClientIDSetter`, 5.3.3).

    4 or 16 B address | u16 pid | i32 loader hash | u32 ms since the month began | u16 counter    32 or 56 digits

The store keeps one message for each unique key, so two equal keys would lose a message. Therefore two things differ from
RocketMQ: the loader hash is 32 random bits for each generator, so containers with equal addresses and pids differ; and the last
six bytes never decrease: a clock that is set back repeats none, and more than 65,536 keys in a millisecond use the next one.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

COUNTER_MAX = 0xFFFF
NANOS_OF_MILLI = 1_000_000


class UniqueKeyGenerator:
    """Makes unique keys; safe for many threads.

    Args:
        ip: IPv4 or IPv6 of this machine; by default the one that leads to the network.
        pid: of this process; its low 16 bits are kept.
        loader_hash: tells generators apart, 4 bytes; by default random.
        clock_nanos: nanoseconds since 1970 UTC.
    """

    def __init__(
        self,
        ip: str | None = None,
        pid: int | None = None,
        *,
        loader_hash: bytes | None = None,
        clock_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        ip = ip or local_ip()
        address = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
        pid = os.getpid() if pid is None else pid
        fixed = address + (pid & 0xFFFF).to_bytes(2, "big") + (os.urandom(4) if loader_hash is None else loader_hash)
        self._prefix = fixed.hex().upper().encode()
        self._clock_nanos = clock_nanos
        self._lock = threading.Lock()
        self._month_begin = self._month_end = 0
        # The millisecond, the key up to its counter, the counter: replaced together.
        self._current: tuple[int, bytes, Iterator[int]] = (-1, b"", iter(()))

    def create(self) -> str:
        """The next key, 32 or 56 upper-case digits; unlike all others of this generator."""
        return self.create_ascii().decode()

    def create_ascii(self) -> bytes:
        """The next key as bytes."""
        return self.create_many(1)[0]

    def create_many(self, count: int) -> list[bytes]:
        """The next keys as bytes, with the time of this call in all of them."""
        now = self._clock_nanos() // NANOS_OF_MILLI
        keys: list[bytes] = []
        while True:
            # A thread may still use the counter of an earlier millisecond: its keys are unique as well.
            millis, stem, counter = self._current
            if now <= millis:
                keys += [b"%b%04X" % (stem, number) for number in islice(counter, count - len(keys))]
                if len(keys) == count:
                    return keys
            with self._lock:
                if self._current[0] == millis:
                    self._current = self._begin_milli(max(now, millis + 1))

    def _begin_milli(self, millis: int) -> tuple[int, bytes, Iterator[int]]:
        if millis >= self._month_end:
            local = datetime.fromtimestamp(millis / 1000)
            begin = datetime(local.year, local.month, 1)
            end = datetime(local.year + local.month // 12, local.month % 12 + 1, 1)
            self._month_begin, self._month_end = int(begin.timestamp() * 1000), int(end.timestamp() * 1000)
        return millis, b"%b%08X" % (self._prefix, millis - self._month_begin), iter(range(COUNTER_MAX + 1))


def local_ip() -> str:
    """This machine's address towards the network; loopback when there is none. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1; connecting a datagram socket only looks up the route
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address
