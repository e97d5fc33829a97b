"""BuilderProgress: how far a builder has come, and whether it has caught up since its start."""

from threading import Condition, Event

END_UNKNOWN = -1  # as the log's end: it is still being recovered


class BuilderProgress:
    """Written by the builder's thread, read by all.

    Attributes:
        next_offset: everything of the log before this is applied (bytes); -1 before anything is known.
        log_first_offset: the log's first record as last seen (bytes).
        log_end_offset: end of the flushed log as last seen (bytes).
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
        self._changed = Condition()  # held to change what is above
        self._waiting_count = 0

    @property
    def catching_up(self) -> bool:
        """True until the log as it was at the start is applied, and whenever the log's end is not known."""
        return self._is_stalled or not self.caught_up.is_set()

    def stall(self) -> None:
        """The log is not followed for now: what is applied may no longer be all."""
        self._is_stalled = True

    def wait_past(self, offset: int, timeout_seconds: float) -> bool:
        """Waits until the record that starts at an offset (bytes) is applied; False when the time was over before."""
        with self._changed:
            self._waiting_count += 1
            try:
                return self._changed.wait_for(lambda: self.next_offset > offset, timeout_seconds)
            finally:
                self._waiting_count -= 1

    def see_log(self, first_offset: int, end_offset: int) -> None:
        """Notes the log's range; the first call sets what has to be caught up with: none while the end is unknown."""
        with self._changed:
            self.log_first_offset = first_offset
            if end_offset == END_UNKNOWN:
                return
            self.log_end_offset = end_offset
            if self._target is None:
                self._target = end_offset

    def advance(self, next_offset: int, store_time_millis: int | None = None) -> None:
        """Notes that everything before an offset is applied, and that the log is followed."""
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
        """Begins anew at an offset that is surely applied: there is catching up to do."""
        with self._changed:
            self.next_offset = next_offset
            self.store_time_millis = store_time_millis
            self._target = None
            self.caught_up.clear()

    def restart(self) -> None:
        """Begins anew: nothing of the log is applied."""
        self.retreat(-1, 0)
