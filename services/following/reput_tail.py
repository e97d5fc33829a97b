"""Follow a commit log without end; each record is delivered at least once.

Theory of operation: `run` asks the follower where to start, opens Reput there and passes on each batch. A stream that breaks
is opened again after a growing pause (0.1 s to 5 s). The follower is asked again where to start, because only it knows how
much it kept. So a follower gets every record once or more, and must be idempotent by commit-log offset. An error of the
follower itself ends `run`; the owner of the follower handles it (`follower_process.py`).

    tail = ReputTail(client, follower.start_offset, follower.apply, on_lost=follower.find_place, stop_event=stopping)
    threading.Thread(target=tail.run, name="reput-tail").start()
    ...
    tail.stop()         # from any thread; `run` returns after the batch in hand

`apply` also gets heartbeats (a batch without records, about once a second), so that it can flush old data and read
`log_end_offset`. At the end of the log, the tails of a process share a stream (shared_stream.py).
"""

import threading
import time
from collections.abc import Callable

import structlog

from services.calling.backoff import Backoff
from services.calling.commitlog import CommitLogClient, ReputBatch, ReputStream
from services.following.follower_progress import END_UNKNOWN
from services.following.shared_stream import GIVEN_SECONDS_MAX, MEETING, Giver, Taking
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError, failure_fields

# Heartbeats come every second; a stream that is silent for so long hangs and is opened again.
SILENCE_SECONDS_MAX = 15.0
WATCH_SECONDS = 1.0
# A stream without new records counts as working after this time. Its first answer comes at once and may be its only one.
SETTLED_SECONDS = 0.5

_log = structlog.get_logger("reput.tail")


class ReputTail:
    """Passes every record of a log to a follower, in order.

    Args:
        client: of the commitlog service.
        start_offset: where the follower wants to start (bytes; -1 = the log's first record); called for each stream.
        apply: takes a batch; False asks for a new stream from `start_offset` at once; its errors end `run`.
        on_lost: called when the log has no record at that offset: retention or a power cut removed it, or it is another
            log. It must move the follower to a place where it can start again, or raise. Without it the error ends `run`.
        on_broken: called with the reason when a stream broke or was refused.
        stop_event: ends `run` when set, within a second; `stop` is faster.
        backoff: pauses between streams.
        batch_bytes_max: of log a batch; 0 = the server's 4 MiB.
        while_recovering: also take the records that the log's recovery has checked, until the log's end is known.
        gather_millis: the pause between batches at the end of the log that is asked for; 0: what the server likes.
        shares: whether it shares a stream with the others of this process that follow the log at this target.
        gives: whether it may be the one whose stream they share; not where `apply` has other work, too.
        clock: seconds, rising.

    Attributes:
        last_error: why the stream is broken; empty when it works.
        failure_count: streams that broke since the last batch that brought progress.
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
        gather_millis: int = 0,
        shares: bool = False,
        gives: bool = True,
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
        self._gather_millis = gather_millis
        self._shares = shares
        self._gives = gives
        self._clock = clock
        self._stream: ReputStream | Taking | None = None
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
            Exception: an error of `apply` or of a callback.
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
        """Read a stream of its own, and then, from the end of the log on, what it is given."""
        taking = self._read(
            self._client.reput(
                self._start_offset(),
                self._batch_bytes_max,
                while_recovering=self._while_recovering,
                gather_millis=self._gather_millis,
            )
        )
        if taking is not None:
            self._read(taking)

    def _read(self, stream: ReputStream | Taking) -> Taking | None:
        """Apply its batches until it ends, or until they can be taken from another tail."""
        self._stream = stream
        giver: Giver | None = None
        began = self._clock()
        try:
            batches = iter(stream)
            while not self._stop_event.is_set():
                self._silent_since = self._clock()
                try:
                    batch = next(batches, None)
                except StoreError as error:
                    raise _StreamBrokenError(error) from error
                finally:
                    self._silent_since = None
                if batch is None:
                    return None
                if giver is not None:
                    giver.give(batch)  # first, so that the others work beside this one
                if not self._apply(batch):
                    return None
                if batch.log_end_offset != END_UNKNOWN:
                    self._while_recovering = False
                is_settled = self._clock() - began >= SETTLED_SECONDS
                if batch.next_offset > self._reached_offset or (
                    is_settled and batch.next_offset == batch.log_end_offset
                ):
                    # Not for every batch: a stream that always breaks at the same record makes no progress.
                    self._reached_offset = batch.next_offset
                    self.failure_count, self.last_error = 0, ""
                    self._backoff.reset()
                if giver is not None and giver.is_replaced:
                    MEETING.leave(self._client.target, giver)
                    giver = None
                if giver is None and self._shares and isinstance(stream, ReputStream):
                    met = self._meet(batch)
                    if isinstance(met, Taking):
                        return met
                    giver = met
        finally:
            if giver is not None:
                MEETING.leave(self._client.target, giver)
            self._stream = None
            stream.cancel()
        return None

    def _meet(self, batch: ReputBatch) -> Giver | Taking | None:
        """See `Meeting.meet`; None before the end of the log."""
        if batch.next_offset != batch.log_end_offset:
            return None
        pause_seconds = self._gather_millis / 1000
        return MEETING.meet(
            self._client.target,
            batch.next_offset,
            gives=self._gives,
            pause_seconds=pause_seconds,
            clock=self._clock,
        )

    def _broken(self, error: StoreError) -> None:
        self.failure_count += 1
        if error.message != self.last_error:
            _log.warning("reput.tail.broken", **failure_fields(error))
        self.last_error = error.message
        if self._on_broken is not None:
            self._on_broken(error)
        if isinstance(error, OffsetOutOfRangeError | RecordNotFoundError):
            if self._on_lost is None:
                raise error
            self._on_lost(error)
            self._reached_offset = -1

    def _watch(self) -> None:
        """Cancel the stream when it hangs or when the tail is stopped."""
        while not self._ended.is_set() and not self._stop_event.wait(WATCH_SECONDS):
            since, stream = self._silent_since, self._stream
            seconds_max = GIVEN_SECONDS_MAX if isinstance(stream, Taking) else SILENCE_SECONDS_MAX
            if since is not None and self._clock() - since > seconds_max and stream is not None:
                _log.warning("reput.tail.silent", seconds=seconds_max)
                self._silent_since = None
                stream.cancel()
        stream = self._stream
        if stream is not None and not self._ended.is_set():
            stream.cancel()


class _StreamBrokenError(Exception):
    """The stream ended with an error; it tells this from an error of `apply`."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.message)
        self.error = error
