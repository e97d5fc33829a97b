"""Followers of one process share a stream of the log: a batch is received and decoded once for all of them.

Theory of operation. A tail (reput_tail.py) that is behind reads a stream of its own. With each batch that brings it to the end
of the log it comes to the meeting of its process (`meet`). The first one there goes on reading its stream and is the giver. The
next ones end theirs and take what it is given, each in its own thread. So the commit log has one stream for a process, and what
keeps one follower busy delays no other.

- Each follower gets each record once: what a taker has already is cut off, and one that is behind the giver does not take yet.
- When the giver's stream ends, for whatever reason, its takers apply what they have, open streams of their own, and meet again.
- A taker that falls behind by GIVEN_COUNT_MAX batches opens a stream of its own, too.
- A giver that gave nothing for GIVEN_SECONDS_MAX hangs: its takers leave it, and the next tail at the end takes its place.
- A tail that asks for a pause between batches takes and never gives, because others would get that pause as well. It gathers by
  itself what it is given meanwhile.
- Nor does one give that has other work between batches: until it reads its stream again, others get nothing.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue

from services.calling.commitlog import ReputBatch

# A giver gets a heartbeat each second, and gives it.
GIVEN_SECONDS_MAX = 3.0
# With records 256 KiB each, so 16 MiB at most; a taker reads as fast from a stream of its own.
GIVEN_COUNT_MAX = 64


class Taking:
    """What a tail is given: iterate over the batches; they end when nothing more is given. `cancel` ends it from any thread.

    Args:
        next_offset: everything before it (bytes) is applied.
        pause_seconds: between the batches at the end of the log.
        sleep: takes seconds.
        clock: seconds, rising.
    """

    def __init__(
        self,
        next_offset: int,
        pause_seconds: float = 0.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._next_offset = next_offset
        self._pause_seconds = pause_seconds
        self._sleep = sleep
        self._clock = clock
        self._given: SimpleQueue[ReputBatch | None] = SimpleQueue()
        self._is_over = False

    def __iter__(self) -> Iterator[ReputBatch]:
        pause_until = 0.0
        while True:
            if self._given.empty() and (seconds := pause_until - self._clock()) > 0:
                self._sleep(seconds)  # no batch wakes it meanwhile
            batch = self._given.get()
            if batch is None:
                return
            if self._pause_seconds:
                pause_until = self._clock() + self._pause_seconds
            if batch.next_offset >= self._next_offset:
                columns = batch.columns
                yield replace(batch, columns=None if columns is None else columns.behind(self._next_offset))
                self._next_offset = batch.next_offset

    def cancel(self) -> None:
        """Nothing more is given."""
        self._is_over = True
        self._given.put(None)

    def give(self, batch: ReputBatch) -> bool:
        """Whether it takes the batch: not after its end, and not when it is too far behind; then it ends."""
        if not self._is_over and self._given.qsize() >= GIVEN_COUNT_MAX:
            self.cancel()
        if self._is_over:
            return False
        self._given.put(batch)
        return True


class Giver:
    """The tail whose stream the others of its process share.

    Args:
        next_offset: everything before it (bytes) was read from the stream.
        clock: seconds, rising.

    Attributes:
        is_replaced: another tail has its place.
        given_at: when it was last seen to give.
    """

    def __init__(self, next_offset: int, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._takers: list[Taking] = []
        self._next_offset = next_offset
        self._clock = clock
        self._is_over = False
        self.is_replaced = False
        self.given_at = clock()

    def admit(self, taking: Taking, next_offset: int) -> bool:
        """Whether that one takes from now on: it has everything before `next_offset` (bytes)."""
        with self._lock:
            if self._is_over or next_offset < self._next_offset:
                return False
            self._takers.append(taking)
            return True

    def give(self, batch: ReputBatch) -> None:
        """Give a batch to all that take."""
        with self._lock:
            self._next_offset = batch.next_offset
            self._takers = [taking for taking in self._takers if taking.give(batch)]
            self.given_at = self._clock()

    def end(self) -> None:
        """Nothing more is given."""
        with self._lock:
            self._is_over = True
            for taking in self._takers:
                taking.cancel()
            self._takers.clear()


class Meeting:
    """Where the tails of a process meet at the ends of their logs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._givers: dict[str, Giver] = {}

    def meet(
        self,
        log: str,
        next_offset: int,
        *,
        gives: bool = True,
        pause_seconds: float = 0.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> Giver | Taking | None:
        """The part of a tail that has everything of a log before `next_offset` (bytes), which is its end.

        Args:
            log: where the log is; the same for all that follow it.
            next_offset: see above.
            gives: whether others may take from it; with a pause none do.
            pause_seconds: what the tail asks for between its batches.
            sleep: takes seconds.
            clock: seconds, rising.

        Returns:
            What it gives to, what it takes from, or None when it goes on alone for now.
        """
        with self._lock:
            giver = self._givers.get(log)
            if giver is not None and clock() - giver.given_at <= GIVEN_SECONDS_MAX:
                taking = Taking(next_offset, pause_seconds, sleep, clock)
                return taking if giver.admit(taking, next_offset) else None
            if pause_seconds or not gives:
                return None
            if giver is not None:
                giver.is_replaced = True
            giver = self._givers[log] = Giver(next_offset, clock)
            return giver

    def leave(self, log: str, giver: Giver) -> None:
        """A tail gives no more."""
        with self._lock:
            if self._givers.get(log) is giver:
                del self._givers[log]
        giver.end()

    def forget(self) -> None:
        """In a fork, which has none of these tails."""
        self._lock = threading.Lock()
        self._givers.clear()


MEETING = Meeting()
os.register_at_fork(after_in_child=MEETING.forget)
