"""Growing pauses with jitter between attempts at the same work.

    backoff = Backoff()
    while not stopping.is_set():
        try:
            work()
        except OSError:
            stopping.wait(backoff.next_seconds())
        else:
            backoff.reset()

The jitter (half to all of the pause) keeps builders that failed at the same time from retrying at the same time.
"""

import random
from collections.abc import Callable

PAUSE_SECONDS_FIRST = 0.1
# A repair is noticed within this time.
PAUSE_SECONDS_MAX = 5.0


class Backoff:
    """Pauses that double, up to a limit.

    Args:
        first_seconds: the first pause, before jitter.
        max_seconds: no pause is longer.
        uniform: a random number between two, as `random.uniform`.
    """

    def __init__(
        self,
        *,
        first_seconds: float = PAUSE_SECONDS_FIRST,
        max_seconds: float = PAUSE_SECONDS_MAX,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._uniform = uniform
        self._pause_seconds = first_seconds

    def next_seconds(self, max_seconds: float | None = None) -> float:
        """The pause to make now, in seconds; `max_seconds` limits this one further."""
        pause_seconds = self._pause_seconds
        self._pause_seconds = min(self._max_seconds, pause_seconds * 2)
        if max_seconds is not None:
            pause_seconds = min(pause_seconds, max_seconds)
        return pause_seconds * self._uniform(0.5, 1.0)

    def reset(self) -> None:
        """The work succeeded: the next pause is the first one again."""
        self._pause_seconds = self._first_seconds
