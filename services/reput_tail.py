"""Follow a commit log for ever, from a checkpoint, at least once.

Theory of operation: `run` asks the builder where to start, opens Reput there and hands over each batch. After a batch
is applied, the next stream would start at its `next_offset`. A stream that breaks is opened again after a growing pause
(0.1 s to 5 s). A batch that could not be applied for lack of space is asked for again: then the builder is asked anew
where to start, because only it knows how much of the batch it kept. So a builder sees a record once or more, never not
at all, and must be idempotent by commit-log offset.

    tail = ReputTail(client, start_offset=checkpoint.next_offset, apply=builder.apply, stop_event=stopping)
    threading.Thread(target=tail.run, name="reput-tail").start()
    ...
    tail.stop()         # from any thread; `run` returns after the batch in hand

`apply` is given heartbeats too (a batch without requests, about once a second), so that it can flush what is old and
see `log_end_offset`.
"""

import random
import threading
import time
from collections.abc import Callable

import structlog

from services.clients.commitlog import CommitLogClient, ReputBatch, ReputStream
from store.errors import DiskFullError, OffsetOutOfRangeError, StoreError

PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_MAX = 5.0
# Heartbeats come every second; a stream silent for so long hangs and is opened anew.
SILENCE_SECONDS_MAX = 15.0

_log = structlog.get_logger("reput.tail")


class ReputTail:
    """Hands every record of a log to a builder, in order.

    Args:
        client: of the commitlog service.
        start_offset: says where the builder wants to start (bytes; -1 = the log's first record); asked at the start,
            and again after a batch that failed to apply and after `on_out_of_range`.
        apply: takes a batch; may raise DiskFullError, which is tried again; other errors end `run`.
        on_progress: told of each batch after it was applied.
        on_out_of_range: told that the log has no such offset (retention took it, or a power cut took the log's end);
            must bring the builder to where it can start again, or raise. Without it the error ends `run`.
        stop_event: ends `run` when set, within a second; `stop` is faster.
        batch_bytes_max: of log a batch; 0 = the server's 4 MiB.

    Attributes:
        last_error: what is being retried, in words; empty when all is well.
    """

    def __init__(
        self,
        client: CommitLogClient,
        start_offset: Callable[[], int],
        apply: Callable[[ReputBatch], None],
        on_progress: Callable[[ReputBatch], None] | None = None,
        stop_event: threading.Event | None = None,
        *,
        on_out_of_range: Callable[[OffsetOutOfRangeError], None] | None = None,
        batch_bytes_max: int = 0,
    ) -> None:
        self._client = client
        self._start_offset = start_offset
        self._apply = apply
        self._on_progress = on_progress
        self._on_out_of_range = on_out_of_range
        self._stop_event = stop_event or threading.Event()
        self._batch_bytes_max = batch_bytes_max
        self._stream: ReputStream | None = None
        self._silent_since = 0.0  # 0 = not waiting for the stream
        self._next_offset: int | None = None  # None = ask the builder
        self.last_error = ""

    def stop(self) -> None:
        """End `run` after the batch in hand; returns at once."""
        self._stop_event.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def run(self) -> None:
        """Follow until stopped.

        Raises:
            OffsetOutOfRangeError: the log has no such offset and there is no `on_out_of_range`.
            Exception: what `apply` or a callback raised, except DiskFullError.
        """
        threading.Thread(target=self._watch, name="reput-tail-watch", daemon=True).start()
        pause_seconds = PAUSE_SECONDS_FIRST
        while not self._stop_event.is_set():
            offset_before = self._next_offset
            try:
                self._follow()
            except OffsetOutOfRangeError as error:
                self.last_error = error.message
                if self._on_out_of_range is None:
                    raise
                _log.warning("reput.tail.out_of_range", error=error.message, **error.metadata)
                self._on_out_of_range(error)
                self._next_offset = None
            except _StreamBrokenError as broken:
                if self._stop_event.is_set():
                    return
                self.last_error = broken.error.message
                _log.warning("reput.tail.broken", error=broken.error.message, reason=broken.error.reason())
            except DiskFullError as error:
                self.last_error = error.message
                self._next_offset = None
                _log.error("reput.tail.disk_full", error=error.message)
            if self._next_offset is not None and self._next_offset != offset_before:
                pause_seconds = PAUSE_SECONDS_FIRST  # it had worked for a while
            self._stop_event.wait(pause_seconds * random.uniform(0.5, 1.0))  # noqa: S311  # jitter is no secret
            pause_seconds = min(PAUSE_SECONDS_MAX, pause_seconds * 2)

    def _follow(self) -> None:
        if self._next_offset is None:
            self._next_offset = self._start_offset()
        self._stream = self._client.reput(self._next_offset, self._batch_bytes_max)
        try:
            batches = iter(self._stream)
            while not self._stop_event.is_set():
                self._silent_since = time.monotonic()
                try:
                    batch = next(batches)
                except OffsetOutOfRangeError:
                    raise
                except StoreError as error:
                    raise _StreamBrokenError(error) from error
                finally:
                    self._silent_since = 0.0
                self._apply(batch)
                self._next_offset = batch.next_offset
                self.last_error = ""
                if self._on_progress is not None:
                    self._on_progress(batch)
        finally:
            self._stream.cancel()

    def _watch(self) -> None:
        """Cancel the stream when it hangs or when the tail shall stop."""
        while not self._stop_event.wait(1.0):
            since = self._silent_since
            if since and time.monotonic() - since > SILENCE_SECONDS_MAX and self._stream is not None:
                _log.warning("reput.tail.silent", seconds=SILENCE_SECONDS_MAX)
                self._silent_since = 0.0
                self._stream.cancel()
        if self._stream is not None:
            self._stream.cancel()


class _StreamBrokenError(Exception):
    """The stream ended with an error, as opposed to `apply`, whose errors look the same."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.message)
        self.error = error
