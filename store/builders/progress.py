"""BuilderProgress: how far a builder has come, and whether it has caught up since its start."""

from threading import Event, Lock


class BuilderProgress:
    """Written by the builder's thread, read by all.

    Attributes:
        next_offset: everything of the log before this is applied (bytes); -1 before anything is known.
        log_first_offset: the log's first record as last seen (bytes).
        log_end_offset: end of the flushed log as last seen (bytes).
        store_time_millis: of the newest record applied; 0 for none.
        caught_up: set once the log as it was at the start is applied.
        last_error: the last thing that went wrong and is being retried, in words.
    """

    def __init__(self) -> None:
        self.next_offset = -1
        self.log_first_offset = 0
        self.log_end_offset = 0
        self.store_time_millis = 0
        self.caught_up = Event()
        self.last_error = ""
        self._target: int | None = None
        self._lock = Lock()

    @property
    def catching_up(self) -> bool:
        """True until the log as it was at the start is applied."""
        return not self.caught_up.is_set()

    def see_log(self, first_offset: int, end_offset: int) -> None:
        """Notes the log's range; the first call sets what has to be caught up with."""
        with self._lock:
            self.log_first_offset = first_offset
            self.log_end_offset = end_offset
            if self._target is None:
                self._target = end_offset

    def advance(self, next_offset: int, store_time_millis: int | None = None) -> None:
        """Notes that everything before an offset is applied."""
        with self._lock:
            self.next_offset = next_offset
            if store_time_millis is not None:
                self.store_time_millis = store_time_millis
            if self._target is not None and next_offset >= self._target:
                self.caught_up.set()

    def restart(self) -> None:
        """Begins anew: nothing is known of the log, and there is catching up to do."""
        with self._lock:
            self.next_offset = -1
            self._target = None
            self.caught_up.clear()
