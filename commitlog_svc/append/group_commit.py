"""Group commit: one thread flushes the log, and every caller that waits for durability shares its flushes.

- What is written while a flush is running goes with the next one. A flush wakes only the
  waiters whose bytes it made durable: each waiter has a lock of its own, so they do not compete for a common one.
- Without a waiter a flush begins `interval_millis` after the last one began, so at once after a pause, or when half of
  `unflushed_bytes_max` is unflushed. So a power cut takes a bounded time and a bounded number of bytes, and consumers of
  single messages, who see what is flushed, do not wait for the interval. Where a flush takes longer than the interval, the
  first one after a pause waits for it, too: what came right behind its begin would wait for two flushes.
- An append waits before it writes (`wait_for_room`) while `unflushed_bytes_max` bytes are unflushed.
- `flushed_offset` only grows, and only after a flush that succeeded. It is the end of a request: callers note ends of
  requests only, so a follower never sees a part of one.
- The first flush that fails is the last one. Linux marks pages clean after a failure, so a second flush would report success
  without having written them. All waiters, now and later, get the error.
"""

import threading
import time
from collections.abc import Callable

from store.errors import FlushFailedError, StoreError

# About as much as RocketMQ leaves unflushed in the page cache, and little enough for a slow disk to flush within seconds.
UNFLUSHED_BYTES_MAX = 32 << 20
WAIT_SECONDS = 1.0  # a waiter also checks the offset this often


def _nobody() -> None:
    """For a log that is not replicated."""


class GroupCommit:
    """The flush thread and its waiters.

    Args:
        flush: makes the log's bytes `[begin, end)` durable, or raises.
        interval_millis: between the begins of two flushes when no caller waits; no byte waits longer for the begin of its own,
            but for a flush that is under way.
        on_failure: called once, from the flush thread, with the error that ended flushing.
        unflushed_bytes_max: `wait_for_room` waits while so many bytes are unflushed.
        clock: seconds, rising.
        on_flushed: called with the seconds of each successful flush, from the flush thread.

    Attributes:
        on_moved: called when the written or the flushed offset has moved, from any thread; it must return at once.
    """

    def __init__(
        self,
        flush: Callable[[int, int], None],
        interval_millis: int,
        on_failure: Callable[[StoreError], None],
        unflushed_bytes_max: int = UNFLUSHED_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
        on_flushed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._flush = flush
        self._on_flushed = on_flushed
        self._interval_seconds = interval_millis / 1000
        self._on_failure = on_failure
        self._unflushed_bytes_max = unflushed_bytes_max
        self._clock = clock
        self._began_at = 0.0  # when the last flush began, or this
        self._took_seconds = 0.0  # the last flush
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._written_offset = 0
        self._flushed_offset = 0
        self._flushing_offset = 0  # where the running flush ends, or else the last one
        self._is_idle = True
        self._waiters: list[
            tuple[int, threading.Lock]
        ] = []  # offset and lock of each waiter; all beyond the flushed offset
        self._wanted_offset = 0  # everything before it is to be flushed without delay, though nobody waits here for it
        self._stopping = False
        self._failure: StoreError | None = None
        self._thread: threading.Thread | None = None
        self.on_moved: Callable[[], None] = _nobody

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk; the end of a request."""
        return self._flushed_offset

    @property
    def written_offset(self) -> int:
        """Everything before it is written; the end of a request."""
        return self._written_offset

    @property
    def failure(self) -> StoreError | None:
        """The error that ended flushing, or None."""
        return self._failure

    def start(self, flushed_offset: int) -> None:
        """Begins with a log that is on the disk up to `flushed_offset`."""
        self._written_offset = self._flushed_offset = self._flushing_offset = flushed_offset
        self._began_at = self._clock()
        self._thread = threading.Thread(target=self._run, name="commitlog-flush", daemon=True)
        self._thread.start()

    def note_written(self, end_offset: int) -> None:
        """The log is written up to `end_offset`, the end of a request."""
        with self._lock:
            if end_offset <= self._written_offset:
                return
            self._written_offset = end_offset
            if self._is_due_now() or self._is_idle:
                self._work.notify()
        self.on_moved()

    def wait_for_room(self) -> None:
        """Returns when more may be written; FlushFailedError when flushing has ended."""
        if self._written_offset - self._flushed_offset < self._unflushed_bytes_max:
            return
        with self._lock:
            while self._written_offset - self._flushed_offset >= self._unflushed_bytes_max:
                if self._failure is not None:
                    raise again(self._failure)
                if self._stopping:
                    return  # the append itself is refused then
                self._progress.wait(WAIT_SECONDS)

    def wait_flushed(self, offset: int) -> None:
        """Returns when everything before `offset` is on the disk; FlushFailedError when flushing has ended before."""
        if self._flushed_offset >= offset:
            return
        turn = threading.Lock()
        turn.acquire()  # `_wake` releases it
        with self._lock:
            if self._flushed_offset >= offset:
                return
            self._raise_if_ended()
            self._waiters.append((offset, turn))
            self._work.notify()
        while not turn.acquire(timeout=WAIT_SECONDS) and self._flushed_offset < offset and self._failure is None:
            continue
        if self._flushed_offset < offset:
            self._raise_if_ended()

    def want_flushed(self, offset: int) -> None:
        """Has everything before `offset` flushed without delay, and returns at once; FlushFailedError as `wait_flushed`.

        For a caller that waits elsewhere for more than the flush here, and looks at `failure` meanwhile.
        """
        if self._flushed_offset >= offset:
            return
        with self._lock:
            if self._flushed_offset >= offset:
                return
            self._raise_if_ended()
            if offset > self._wanted_offset:
                self._wanted_offset = offset
                self._work.notify()

    def raise_failure(self) -> None:
        """FlushFailedError when flushing has failed."""
        if self._failure is not None:
            raise again(self._failure)

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The flushed offset, as soon as it is greater than `offset`, at the latest after the timeout."""
        with self._lock:
            self._progress.wait_for(
                lambda: self._flushed_offset > offset or self._failure is not None or self._stopping, timeout_seconds
            )
            return self._flushed_offset

    def fail(self, error: StoreError) -> None:
        """Ends flushing with an error that another part of the log has met."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            self._work.notify_all()
            self._wake(every_waiter=True)
        self._on_failure(error)

    def close(self) -> None:
        """Flushes what is written, unless flushing has failed, and ends the thread."""
        with self._lock:
            self._stopping = True
            self._work.notify_all()
            self._progress.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._thread = None
            self._wake(every_waiter=True)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._is_idle = True
                is_pause = self._written_offset <= self._flushed_offset
                self._work.wait_for(
                    lambda: self._written_offset > self._flushed_offset or self._stopping or self._failure is not None
                )
                self._is_idle = False
                if self._failure is not None or self._written_offset <= self._flushed_offset:
                    return
                if not self._is_due_now():
                    is_slow = is_pause and self._took_seconds >= self._interval_seconds
                    since_seconds = 0.0 if is_slow else self._clock() - self._began_at
                    self._work.wait_for(self._is_due_now, max(0.0, self._interval_seconds - since_seconds))
                if self._failure is not None:
                    return
                begin, end = self._flushed_offset, self._written_offset
                self._flushing_offset = end
            began = self._began_at = self._clock()
            try:
                self._flush(begin, end)
            except StoreError as error:
                self.fail(error)
                return
            except Exception as error:
                self.fail(FlushFailedError(f"flushing the log failed ({error}): check the disk, then restart"))
                return
            with self._lock:
                self._flushed_offset = end
                self._wake()
            self.on_moved()
            self._took_seconds = self._clock() - began
            self._on_flushed(self._took_seconds)

    def _wake(self, every_waiter: bool = False) -> None:
        """Wakes the waiters whose offset is flushed, or all, before those that follow; the caller holds the lock."""
        flushed = self._flushed_offset
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if every_waiter or waiter[0] <= flushed:
                waiter[1].release()
            else:
                self._waiters.append(waiter)
        self._progress.notify_all()

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise again(self._failure)
        if self._stopping and self._thread is None:
            raise FlushFailedError("the log is closed: what was written may not be on the disk")

    def _is_due_now(self) -> bool:
        """Whether a flush must start now."""
        return (
            len(self._waiters) > 0
            or self._wanted_offset > self._flushed_offset
            or self._stopping
            or self._failure is not None
            or self._written_offset - self._flushed_offset >= self._unflushed_bytes_max // 2
        )


def again(failure: StoreError) -> FlushFailedError:
    """A copy of the failure, so that many threads can raise it."""
    error = (type(failure) if isinstance(failure, FlushFailedError) else FlushFailedError)(failure.message)
    error.metadata = dict(failure.metadata)
    return error
