"""Pace: how many messages a consumer fetches ahead of its program.

What a process had fetched when it died counts as an attempt, because one of these messages may be what it died of. So nothing
is fetched ahead of a program that takes its time: a poll asks for as many messages as the program waits for, and costs such a
program little. A program that asks for the next message within QUICK_SECONDS, many times in a row, would wait for polls most of
its time; messages are fetched ahead of it, more with each quick one, and none soon after it slows down.
"""

from contextvars import ContextVar

# A poll takes some milliseconds: less than a tenth of this.
QUICK_SECONDS = 0.05
# Quick ones in a row before a message is fetched ahead; each one more fetches AHEAD_STEP more.
QUICK_COUNT_MIN = 32
AHEAD_STEP = 4
# Quick ones that are remembered: two slow ones halve it twice, and then nothing is fetched ahead.
QUICK_COUNT_MAX = 63
# By default: two answers of a poll.
AHEAD_COUNT_MAX = 64

# Of the running thread or task: for which Pace it got a message last, and when.
_given: ContextVar[tuple[object, float | None]] = ContextVar("reput_client_given")


class Pace:
    """Of one consumer. Its caller locks.

    Args:
        ahead_count_max: fetched ahead at most.
    """

    def __init__(self, ahead_count_max: int = AHEAD_COUNT_MAX) -> None:
        self._ahead_count_max = ahead_count_max
        self._quick_count = 0
        self._newest_at: float | None = None

    @property
    def ahead_count(self) -> int:
        """Messages that may lie ready beside those that are waited for."""
        return min(self._ahead_count_max, max(0, self._quick_count - QUICK_COUNT_MIN + 1) * AHEAD_STEP)

    def given(self, now: float) -> None:
        """The running thread or task got a message."""
        _given.set((self, now))
        self._newest_at = now

    def asked(self, now: float) -> None:
        """The running thread or task asks for a message. One that is new, or has several consumers, goes by all of them."""
        pace, given_at = _given.get((None, None))
        since = given_at if pace is self else self._newest_at
        if since is None:
            return  # it got none since it asked
        _given.set((self, None))
        self._newest_at = None
        if now - since <= QUICK_SECONDS:
            self._quick_count = min(self._quick_count + 1, QUICK_COUNT_MAX)
        else:
            self._quick_count //= 2
