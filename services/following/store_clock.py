"""The clocks of followers that do something at a time: they do not run backwards."""

import time
from collections.abc import Callable

from store.store_time import AHEAD_MILLIS_MAX, next_store_time


class StoreClock:
    """Milliseconds since 1970 that never run backwards and never jump: the time at the start, and what has passed since.

    Args:
        wall: seconds since 1970.
        rising: seconds, rising.
        start_millis_min: the time of the newest record of the log; it counts unless it is far ahead of the wall.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        rising: Callable[[], float] = time.monotonic,
        start_millis_min: int = 0,
    ) -> None:
        self._rising = rising
        self._began = rising()
        self._start_millis = next_store_time(int(wall() * 1000), start_millis_min)

    def millis(self) -> int:
        """Now."""
        return self._start_millis + int((self._rising() - self._began) * 1000)


def _wall_millis() -> int:
    return time.time_ns() // 1_000_000


class DueClock:
    """The time that a record would be stored with now: that of the wall, but not before the newest record of the log.

    A record that is far ahead of the wall does not count (docs/adr/0103-store-times-follow-the-clock.md).

    So a message that is due by this clock gets a store time that is not before its delivery. It follows the wall in both
    directions, but not back behind a record (docs/adr/0056-messages-that-wait-are-records-of-the-log.md). Thread-safe.

    Args:
        wall_millis: the wall, since 1970.
        newest_millis: store time of the newest record of the log.
    """

    def __init__(self, wall_millis: Callable[[], int] = _wall_millis, newest_millis: int = 0) -> None:
        self._wall_millis = wall_millis
        self._newest_millis = 0
        self.see(newest_millis)

    def see(self, store_time_millis: int) -> None:
        """Note the store time of a record."""
        if store_time_millis <= self._wall_millis() + AHEAD_MILLIS_MAX:
            self._newest_millis = max(self._newest_millis, store_time_millis)

    def millis(self) -> int:
        """Now, since 1970."""
        return next_store_time(self._wall_millis(), self._newest_millis)
