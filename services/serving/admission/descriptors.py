"""Descriptors and connections: as many as the system gives, with a limit below that and a warning before it.

A connection costs a descriptor. gRPC closes new connections beyond `connection_count_max`, so files can always be opened. When
DESCRIPTOR_PART of them are in use, the log has `descriptors.short` once, and again after the count has fallen below; the
metrics page shows the count and the limits.
"""

import os
import time
from collections.abc import Callable

import structlog

from services.observing.meters import Gauge
from store.files.open_files import open_file_limit

# 10,000 clients and as many again while they reconnect. An idle connection takes about 15 KiB here.
CONNECTION_COUNT_MAX = 20_000
# For the files of a service, its sockets to other services, and the metrics page.
DESCRIPTOR_RESERVE = 1_024
DESCRIPTOR_PART = 0.9
LOOK_SECONDS = 5.0

_log = structlog.get_logger("reput.server")


def connection_count_max(descriptor_count: int) -> int:
    """Connections that a server may hold when its process may have so many descriptors; the reserve is a half at most."""
    return min(CONNECTION_COUNT_MAX, descriptor_count - min(DESCRIPTOR_RESERVE, descriptor_count // 2))


def open_descriptor_count() -> int:
    """Descriptors of this process; their limit when they cannot be counted: that takes a descriptor."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return open_file_limit()


class DescriptorWatch:
    """Warns when descriptors become few; `look` is called often and does something every LOOK_SECONDS.

    Args:
        clock: seconds, rising.
        count: descriptors in use.
        count_max: their limit.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[], int] = open_descriptor_count,
        count_max: Callable[[], int] = open_file_limit,
    ) -> None:
        self._clock = clock
        self._count = count
        self._count_max = count_max
        self._next_look = clock() + LOOK_SECONDS
        self._is_short = False

    def look(self) -> None:
        """Log when the count has passed its mark."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        count, count_max = self._count(), self._count_max()
        was_short, self._is_short = self._is_short, count >= connection_count_max(count_max) * DESCRIPTOR_PART
        if self._is_short and not was_short:
            _log.warning(
                "descriptors.short",
                count=count,
                count_max=count_max,
                connection_count_max=connection_count_max(count_max),
            )

    def gauges(self) -> tuple[Gauge, ...]:
        """For the metrics page, which has the process's descriptors already."""
        text = "Connections that this service takes; further ones are closed at once."
        return (Gauge("reput_rpc_connections_max", text, lambda: {(): connection_count_max(self._count_max())}),)
