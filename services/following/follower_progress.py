"""FollowerProgress: the offset that a follower has reached, and whether it has caught up since its start."""

from threading import Condition, Event

END_UNKNOWN = -1  # instead of the log's end while the log is being recovered


class FollowerProgress:
    """Written by the follower's thread, read by all threads.

    Attributes:
        next_offset: everything of the log before this is applied (bytes); -1 before anything is known.
        log_first_offset: the log's first record as last reported (bytes).
        log_end_offset: end of the flushed log as last reported (bytes).
        store_time_millis: of the newest record applied; 0 for none.
        caught_up: set once the log as it was at the start is applied.
    """

    def __init__(self) -> None:
        self.next_offset = -1
        self.log_first_offset = 0
        self.log_end_offset = 0
        self.store_time_millis = 0
        self.caught_up = Event()
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
