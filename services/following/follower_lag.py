"""FollowerLag: an upper bound of the age of the oldest record that is not applied.

A follower does not know that record. It knows when it was last at the log's end, and the store time of the newest record that
it has applied. The record came after both, so the shorter of the two times is a bound. The lag is 0 while the follower is at
the end of the log, also when nothing has been appended for a day.
"""

import time
from collections.abc import Callable, Mapping

from services.following.follower_progress import END_UNKNOWN, FollowerProgress
from services.observing.meters import Meters


class FollowerLag:
    """The lag of one follower; written by its thread, read by any.

    Args:
        progress: of the follower.
        clock: seconds, rising.
        wall_clock: seconds since 1970, as store times are.
    """

    def __init__(
        self,
        progress: FollowerProgress,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._progress = progress
        self._clock = clock
        self._wall_clock = wall_clock
        self._at_end_at: float | None = None

    def note(self, next_offset: int, log_end_offset: int) -> None:
        """Note a batch, applied up to `next_offset` (bytes) of a log that was flushed up to `log_end_offset`."""
        if next_offset >= log_end_offset != END_UNKNOWN:
            self._at_end_at = self._clock()

    def seconds(self) -> float | None:
        """The lag in seconds; None before anything is known."""
        progress = self._progress
        if progress.next_offset < 0:
            return None
        if not progress.catching_up and progress.next_offset >= progress.log_end_offset:
            return 0.0
        bounds = []
        if self._at_end_at is not None:
            bounds.append(self._clock() - self._at_end_at)
        if progress.store_time_millis:
            bounds.append(self._wall_clock() - progress.store_time_millis / 1000)
        return max(0.0, min(bounds)) if bounds else None

    def show(self, builder: str, meters: Meters) -> None:
        """Show the lag on the metrics page."""

        def read() -> Mapping[tuple[str, ...], float]:
            seconds = self.seconds()
            return {} if seconds is None else {(builder,): seconds}

        text = "Age of the oldest record that is not built yet, at most."
        meters.gauge("reput_builder_lag_seconds", text, read, ("builder",))
