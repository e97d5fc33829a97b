"""What ends a call: its deadline, which is passed to every call of a port, and a caller that cancels it."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from store.errors import DeadlineExceededError, StoreError

# The share of the remaining time for one shard of several. The rest is for the answer from the others.
SHARD_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of a monotonic clock.

    Args:
        at_seconds: the moment, on the clock's scale.
        allowed_seconds: the whole time of the call.
        clock: the monotonic clock, in seconds.
        waits: False: only what is at hand is asked for, so no call may wait, nor be made to another process.
    """

    at_seconds: float
    allowed_seconds: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    waits: bool = True

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> "Deadline":
        """The deadline that many seconds from now."""
        return cls(clock() + seconds, seconds, clock)

    @classmethod
    def at_hand(cls, clock: Callable[[], float] = time.monotonic) -> "Deadline":
        """No time: see `waits`."""
        return cls(clock(), 0.0, clock, waits=False)

    def remaining_seconds(self) -> float:
        """Seconds left, above 0; DeadlineExceededError when there are none. For what is at hand 0, in which no call is made."""
        if not self.waits:
            return 0.0
        remaining = self.at_seconds - self.clock()
        if remaining <= 0:
            raise DeadlineExceededError(
                "The deadline passed before the answer was ready: allow more time or ask for less."
            )
        return remaining

    def for_one_of(self, shard_count: int) -> "Deadline":
        """The deadline for each of several shards that are asked at once, so that one that hangs does not cost the answer.

        A single shard has all the time.
        """
        if shard_count < 2 or not self.waits:
            return self
        now = self.clock()
        return Deadline(now + (self.at_seconds - now) * SHARD_SHARE, self.allowed_seconds, self.clock)

    def is_near(self) -> bool:
        """Whether less than a fifth of the time is left; a query of several rounds should end now."""
        return self.at_seconds - self.clock() < self.allowed_seconds / 5


def ran_out_of_time(error: StoreError) -> bool:
    """Whether a call failed because its time was over, also when the error names the service that did not answer."""
    return isinstance(error, DeadlineExceededError) or isinstance(error.__cause__, DeadlineExceededError)


class Cancellation(Protocol):
    """The cancellation of one call; services/serving/calls/cancellation.py makes one from a gRPC context."""

    @property
    def happened(self) -> "Future[None]":
        """Done once the call is cancelled, for `concurrent.futures.wait`."""

    @property
    def is_set(self) -> bool:
        """Whether the call is cancelled."""

    def ending(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `end` once, on any thread, if the call is cancelled before the block ends."""
