"""FollowerProgress: the offset that a follower has reached, and whether it has caught up since its start.

FollowerLag: an upper bound of the age of the oldest record that is not applied.

A follower does not know that record. It knows when it was last at the log's end, and the store time of the newest record that
it has applied. The record came after both, so the shorter of the two times is a bound. The lag is 0 while the follower is at
the end of the log, also when nothing has been appended for a day.

ProgressWait: waits for a follower in GetStatus, by the fields `past_offset` and `wait_millis` of the requests of all followers.

A call that waits holds a thread of its service, so waits are short and few calls wait at a time. A call without a place, or
with too short a wait, gets the state as it is; its caller calls again.
"""

import threading
import time
from collections.abc import Callable, Mapping
from threading import Condition, Event
from typing import Protocol

from services.observing.meters import Meters
from store.errors import InvalidArgumentError

END_UNKNOWN = -1  # instead of the log's end while the log is being recovered


class FollowerProgress:
    """Written by the follower's thread, read by all threads.

    Attributes:
        next_offset: everything of the log before this is applied (bytes); -1 before anything is known.
        log_first_offset: the log's first record as last reported (bytes).
        log_end_offset: end of the flushed log as last reported (bytes).
        store_time_millis: of the newest record applied; 0 for none.
        caught_up: set once the log as it was at the start is applied.
        on_wait: called when somebody begins to wait for a record that is not applied.
    """

    def __init__(self) -> None:
        self.next_offset = -1
        self.log_first_offset = 0
        self.log_end_offset = 0
        self.store_time_millis = 0
        self.caught_up = Event()
        self.on_wait: Callable[[], object] = lambda: None
        self._is_stalled = False
        self._target: int | None = None
        self._changed = Condition()  # held to change the attributes above
        self._waiting_count = 0

    @property
    def catching_up(self) -> bool:
        """True until the log as it was at the start is applied, and while the log's end is not known."""
        return self._is_stalled or not self.caught_up.is_set()

    def stall(self) -> None:
        """Note that the log is not followed now, so newer records may be missing."""
        self._is_stalled = True

    def wait_past(self, offset: int, timeout_seconds: float) -> bool:
        """Wait until the record that starts at an offset (bytes) is applied; False when the time ran out first."""
        if self.next_offset <= offset:
            self.on_wait()
        with self._changed:
            self._waiting_count += 1
            try:
                return self._changed.wait_for(lambda: self.next_offset > offset, timeout_seconds)
            finally:
                self._waiting_count -= 1

    def see_log(self, first_offset: int, end_offset: int) -> None:
        """Note the log's range. The first known end is the offset to catch up with."""
        with self._changed:
            self.log_first_offset = first_offset
            if end_offset == END_UNKNOWN:
                return
            self.log_end_offset = end_offset
            if self._target is None:
                self._target = end_offset

    def advance(self, next_offset: int, store_time_millis: int | None = None) -> None:
        """Note that everything before an offset is applied, and that the log is followed."""
        with self._changed:
            self.next_offset = next_offset
            if store_time_millis is not None:
                self.store_time_millis = store_time_millis
            if self._target is not None and next_offset >= self._target:
                self.caught_up.set()
            self._is_stalled = False
            if self._waiting_count:
                self._changed.notify_all()

    def retreat(self, next_offset: int, store_time_millis: int) -> None:
        """Begin again at an offset that is certainly applied, with catching up to do."""
        with self._changed:
            self.next_offset = next_offset
            self.store_time_millis = store_time_millis
            self._target = None
            self.caught_up.clear()

    def restart(self) -> None:
        """Begin again with nothing of the log applied."""
        self.retreat(-1, 0)


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


WAIT_MILLIS_MAX = 1_000  # a clean stop waits for these calls
WAITING_COUNT_MAX = 32  # half of a service's threads by default


class WaitRequest(Protocol):
    """The GetStatusRequest of a follower."""

    past_offset: int
    wait_millis: int

    def HasField(self, field: str) -> bool:  # noqa: N802  # protobuf's name
        """Whether the field is set."""


class ProgressWait:
    """Lets calls wait for one follower.

    Args:
        progress: of the follower.
        place_count: calls that wait at the same time.
    """

    def __init__(self, progress: FollowerProgress, place_count: int) -> None:
        self._progress = progress
        self._places = threading.BoundedSemaphore(place_count)

    def wait(self, request: WaitRequest) -> bool:
        """Wait as the request asks; returns whether it asked to wait.

        Raises:
            InvalidArgumentError: a number is negative.
        """
        for field in ("past_offset", "wait_millis"):
            if getattr(request, field) < 0:
                raise InvalidArgumentError(f"{field} is {getattr(request, field)}: it must be 0 or more", field=field)
        if not request.HasField("past_offset") or not request.wait_millis:
            return False
        if self._places.acquire(blocking=False):
            try:
                seconds = min(request.wait_millis, WAIT_MILLIS_MAX) / 1000
                self._progress.wait_past(request.past_offset, seconds)
            finally:
                self._places.release()
        return True
