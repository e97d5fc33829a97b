"""ConfirmOffset: the one rule for what may be shown of the log.

    written   |=================================|   end of the last request
    flushed   |========================|            on this disk
    confirm   |==================|                  on every replica that must have it: may be shown

- On one replica the confirm offset is the flushed offset, and a reader of single records also sees what is written and not
  flushed yet: a producer that has its receipt can read its message at once.
- With replicas, replication limits it. Then followers and readers see nothing behind the limit: a record that another
  leader may cut is never shown.
- Both offsets move at ends of requests, so a request is shown whole or not at all.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol


class ConfirmProgress(Protocol):
    """Progress that a follower of the log can wait for."""

    @property
    def confirm_offset(self) -> int:
        """Everything before it may be shown (bytes)."""

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The confirm offset, as soon as it is greater than `offset`, at the latest after the timeout."""


class FlushProgress(Protocol):
    """Progress of the flushes on this disk; see append/group_commit.py."""

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk (bytes)."""

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The flushed offset, as soon as it is greater than `offset`, at the latest after the timeout."""


def _nobody(_offset: int) -> None:
    """For a log on one replica."""


class ConfirmOffset:
    """See the top of this file; thread-safe.

    Args:
        flushes: what is on this disk.
        clock: seconds, rising.

    Attributes:
        on_limited: called with each new limit (bytes) before anything behind the former one is shown.
    """

    def __init__(self, flushes: FlushProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._flushes = flushes
        self._clock = clock
        self._moved = threading.Condition()
        self._limit_offset: int | None = None
        self.on_limited: Callable[[int], None] = _nobody

    @property
    def limit_offset(self) -> int | None:
        """The last limit (bytes); None on one replica."""
        return self._limit_offset

    @property
    def is_limited(self) -> bool:
        """Whether replication decides; False on one replica."""
        return self._limit_offset is not None

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on this disk; in a log that is only followed, everything that is whole (bytes)."""
        return self._flushes.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """Everything before it may be shown (bytes)."""
        flushed_offset, limit_offset = self._flushes.flushed_offset, self._limit_offset
        return flushed_offset if limit_offset is None else min(flushed_offset, limit_offset)

    def readable_offset(self, written_offset: int) -> int:
        """Up to where single records may be read, in a log that is written up to `written_offset` (bytes)."""
        return written_offset if self._limit_offset is None else self.confirm_offset

    def limit(self, offset: int) -> None:
        """Sets how much of the log all required replicas have.

        The first call makes this a log with replicas; call it before the log is recovered.

        Args:
            offset: the end of a request (bytes).

        Raises:
            ValueError: the limit would go back, behind records that were shown.
        """
        with self._moved:
            if self._limit_offset is not None and offset < self._limit_offset:
                raise ValueError(
                    f"the limit of the confirm offset is {self._limit_offset}, it cannot go back to {offset}"
                )
            self.on_limited(offset)
            self._limit_offset = offset
            self._moved.notify_all()

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The confirm offset, as soon as it is greater than `offset`, at the latest after the timeout.

        It returns early when no flush will come any more, because the log is closed or fenced.
        """
        deadline = self._clock() + timeout_seconds
        with self._moved:
            if not self._is_within(offset):
                self._moved.wait_for(lambda: self._is_within(offset), timeout_seconds)
        # With replicas the limit moves after the flush: nothing is left to wait for.
        if self._is_within(offset) and self._flushes.flushed_offset <= offset:
            self._flushes.wait_beyond(offset, max(0.0, deadline - self._clock()))
        return self.confirm_offset

    def _is_within(self, offset: int) -> bool:
        """Whether the limit leaves room for a record at an offset."""
        return self._limit_offset is None or self._limit_offset > offset
