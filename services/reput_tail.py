"""Follow a commit log for ever, at least once.

Theory of operation: `run` asks the builder where to start, opens Reput there and hands over each batch. A stream that
breaks is opened again after a growing pause (0.1 s to 5 s); the builder is asked anew where to start, because only it
knows how much it kept. So a builder sees a record once or more, never not at all, and must be idempotent by commit-log
offset. What the builder itself raises ends `run`: whoever owns the builder knows what to do (`builder_process.py`).

    tail = ReputTail(client, builder.start_offset, builder.apply, on_lost=builder.find_place, stop_event=stopping)
    threading.Thread(target=tail.run, name="reput-tail").start()
    ...
    tail.stop()         # from any thread; `run` returns after the batch in hand

`apply` is given heartbeats too (a batch without requests, about once a second), so that it can flush what is old and
see `log_end_offset`.
"""

import threading
import time
from collections.abc import Callable

import structlog

from services.backoff import Backoff
from services.clients.commitlog import CommitLogClient, ReputBatch, ReputStream
from store.builders.progress import END_UNKNOWN
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError

# Heartbeats come every second; a stream silent for so long hangs and is opened anew.
SILENCE_SECONDS_MAX = 15.0
WATCH_SECONDS = 1.0
# A stream that has nothing new is good once it has lived for so long: its first answer comes at once, and may be its last.
SETTLED_SECONDS = 0.5

_log = structlog.get_logger("reput.tail")


class ReputTail:
    """Hands every record of a log to a builder, in order.

    Args:
        client: of the commitlog service.
        start_offset: says where the builder wants to start (bytes; -1 = the log's first record); asked for each stream.
        apply: takes a batch; False asks for a new stream from `start_offset` at once; what it raises ends `run`.
        on_lost: told that the log has no record at that offset (retention took it, a power cut took the log's end, or
            it is another log); must bring the builder to where it can start again, or raise. Without it the error ends
            `run`.
        on_broken: told why a stream broke, or was refused.
        stop_event: ends `run` when set, within a second; `stop` is faster.
        backoff: pauses between streams.
        batch_bytes_max: of log a batch; 0 = the server's 4 MiB.
        while_recovering: take also what the log's recovery has checked so far, until the log's end is known.
        clock: seconds, rising.

    Attributes:
        last_error: why the stream is broken, in words; empty when all is well.
        failure_count: streams that broke since the last batch that led further.
    """

    def __init__(
        self,
        client: CommitLogClient,
        start_offset: Callable[[], int],
        apply: Callable[[ReputBatch], bool],
        *,
        on_lost: Callable[[StoreError], None] | None = None,
        on_broken: Callable[[StoreError], None] | None = None,
        stop_event: threading.Event | None = None,
        backoff: Backoff | None = None,
        batch_bytes_max: int = 0,
        while_recovering: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._start_offset = start_offset
        self._apply = apply
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._stop_event = stop_event or threading.Event()
        self._backoff = backoff or Backoff()
        self._batch_bytes_max = batch_bytes_max
        self._while_recovering = while_recovering
        self._clock = clock
        self._stream: ReputStream | None = None
        self._silent_since: float | None = None  # None = not waiting for the stream
        self._reached_offset = -1
        self._ended = threading.Event()
        self.last_error = ""
        self.failure_count = 0

    def stop(self) -> None:
        """End `run` after the batch in hand; returns at once."""
        self._stop_event.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def run(self) -> None:
        """Follow until stopped.

        Raises:
            OffsetOutOfRangeError, RecordNotFoundError: the log has no such record and there is no `on_lost`.
            Exception: what `apply` or a callback raised.
        """
        watch = threading.Thread(target=self._watch, name="reput-tail-watch", daemon=True)
        watch.start()
        try:
            while not self._stop_event.is_set():
                try:
                    self._follow()
                except _StreamBrokenError as broken:
                    if self._stop_event.is_set():
                        return
                    self._broken(broken.error)
                    self._stop_event.wait(self._backoff.next_seconds())
        finally:
            self._ended.set()

    def _follow(self) -> None:
        options = {"while_recovering": True} if self._while_recovering else {}
        stream = self._client.reput(self._start_offset(), self._batch_bytes_max, **options)
        self._stream = stream
        began = self._clock()
        try:
            batches = iter(stream)
            while not self._stop_event.is_set():
                self._silent_since = self._clock()
                try:
                    batch = next(batches)
                except StoreError as error:
                    raise _StreamBrokenError(error) from error
                finally:
                    self._silent_since = None
                if not self._apply(batch):
                    return
                if batch.log_end_offset != END_UNKNOWN:
                    self._while_recovering = False
                is_settled = self._clock() - began >= SETTLED_SECONDS
                if batch.next_offset > self._reached_offset or (
                    is_settled and batch.next_offset == batch.log_end_offset
                ):
                    # Not for any batch: a stream that always breaks at the same record is no success.
                    self._reached_offset = batch.next_offset
                    self.failure_count, self.last_error = 0, ""
                    self._backoff.reset()
        finally:
            self._stream = None
            stream.cancel()

    def _broken(self, error: StoreError) -> None:
        self.failure_count += 1
        if error.message != self.last_error:
            _log.warning("reput.tail.broken", error=error.message, reason=error.reason(), **error.metadata)
        self.last_error = error.message
        if self._on_broken is not None:
            self._on_broken(error)
        if isinstance(error, OffsetOutOfRangeError | RecordNotFoundError):
            if self._on_lost is None:
                raise error
            self._on_lost(error)
            self._reached_offset = -1

    def _watch(self) -> None:
        """Cancel the stream when it hangs or when the tail shall stop."""
        while not self._ended.is_set() and not self._stop_event.wait(WATCH_SECONDS):
            since, stream = self._silent_since, self._stream
            if since is not None and self._clock() - since > SILENCE_SECONDS_MAX and stream is not None:
                _log.warning("reput.tail.silent", seconds=SILENCE_SECONDS_MAX)
                self._silent_since = None
                stream.cancel()
        stream = self._stream
        if stream is not None and not self._ended.is_set():
            stream.cancel()


class _StreamBrokenError(Exception):
    """The stream ended with an error, as opposed to `apply`, whose errors look the same."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.message)
        self.error = error
