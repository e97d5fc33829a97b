"""Rate: so much each second, with a burst of one second; a token bucket that may go into debt.

    level   1 s of the rate, or 1 ┐ at the begin, and after a rest
                                1 ┤ what is asked for passes while the level is not below this line
                             debt ┘ what passed may be more than was there: then nothing passes until the debt is paid

A request may be larger than a second's worth; without debt it could never pass. In a time of T seconds pass at most T + 1
seconds of the rate, and one request.
"""


class Rate:
    """See above; not thread-safe.

    Args:
        per_second: what passes each second; 0: nothing.
        now_seconds: rising.
    """

    __slots__ = ("_at_seconds", "_level", "per_second")

    def __init__(self, per_second: float, now_seconds: float) -> None:
        self.per_second = per_second
        self._level = self._level_max
        self._at_seconds = now_seconds

    @property
    def _level_max(self) -> float:
        return max(self.per_second, 1.0)

    def change(self, per_second: float) -> None:
        """Another rate from now on; a debt stays, and what was saved is cut."""
        self.per_second = per_second
        self._level = min(self._level, self._level_max)

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until something may pass; 0: now."""
        self._go_on(now_seconds)
        if not self.per_second:
            return float("inf")
        return max(1 - self._level, 0.0) / self.per_second

    def take(self, count: int, now_seconds: float) -> None:
        """So much passes now."""
        self._go_on(now_seconds)
        self._level -= count

    def _go_on(self, now_seconds: float) -> None:
        elapsed_seconds = max(now_seconds - self._at_seconds, 0.0)
        self._level = min(self._level + elapsed_seconds * self.per_second, self._level_max)
        self._at_seconds = now_seconds
