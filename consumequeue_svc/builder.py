"""ConsumeQueueBuilder: applies the log's tail to the queues and knows how far it is.

Theory of operation: one thread calls `apply` with batches in log order (at least once: records before `next_offset` are
passed over). Units are written at once and flushed, with the checkpoint behind them, at most every second and at the
end. The checkpoint never says more than the disk holds; after a crash the queues are cut back to it (`recovery.py`).
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import resume, save_checkpoint
from store.builders.progress import BuilderProgress
from store.dispatch import DispatchRequest
from store.errors import FlushFailedError

CHECKPOINT_INTERVAL_SECONDS = 1.0


class ConsumeQueueBuilder:
    """Keeps the queues of one root equal to its log.

    Args:
        table: the queues, loaded.
        checkpoint: our own checkpoint file.
        progress: where to say how far it is; None for an own one.
        on_flushed: told the offset (bytes) and the store time (ms, None for none) up to which all is on the disk.
        clock: seconds, rising.
    """

    def __init__(
        self,
        table: ConsumeQueueTable,
        checkpoint: Path,
        *,
        progress: BuilderProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress or BuilderProgress()
        self._table = table
        self._checkpoint = checkpoint
        self._on_flushed = on_flushed
        self._clock = clock
        self._saved_at = clock()
        self._saved_offset = -1
        self._is_fenced = False
        self._is_replay = False

    def recover(self, *, is_clean_store: bool, log_first_offset: int, log_end_offset: int) -> None:
        """Finds out where to go on; the log's range is in bytes."""
        found = resume(
            self._table.fs,
            self._checkpoint,
            self._table,
            is_clean_store=is_clean_store,
            log_size_bytes=log_end_offset - log_first_offset,
        )
        self._is_replay = found.is_replay
        self.progress.see_log(log_first_offset, log_end_offset)
        if found.next_offset > log_end_offset:
            self.rebuild()
            self.progress.see_log(log_first_offset, log_end_offset)
            return
        self.progress.advance(found.next_offset, found.store_time_millis)
        if not found.is_replay:
            # From here on the files may be ahead of the checkpoint.
            self._table.cut(log_end_offset)
            self._save(is_clean=False)

    def start_offset(self) -> int:
        """Where the tail shall begin (bytes; -1 = the log's first record)."""
        return self.progress.next_offset

    def rebuild(self) -> None:
        """Applies the whole log again: the log is not the one that the queues were made from."""
        self.progress.restart()
        self._is_replay = True
        self._table.forget_replay()

    def resume_inside(self, log_first_offset: int, log_end_offset: int) -> None:
        """The log has no record at `start_offset`: its front was retired, or it is another log."""
        if 0 <= self.progress.next_offset < log_first_offset:
            self.progress.advance(log_first_offset)
        else:
            self.rebuild()

    def apply(
        self, requests: Sequence[DispatchRequest], next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> None:
        """Applies a batch; a batch without requests only moves the clock.

        Args:
            requests: records in log order.
            next_offset: the log position behind the batch (bytes).
            log_first_offset: the log's first record (bytes).
            log_end_offset: end of the flushed log (bytes).
        """
        self.progress.see_log(log_first_offset, log_end_offset)
        applied = self.progress.next_offset
        if requests and requests[0].commit_log_offset < applied:
            requests = [request for request in requests if request.commit_log_offset >= applied]
        if requests:
            self._table.apply(requests, is_replay=self._is_replay)
        if self._is_replay and next_offset >= log_end_offset:
            self._table.end_replay(log_first_offset)
            self._is_replay = False
            self._saved_at = -CHECKPOINT_INTERVAL_SECONDS
        self.progress.advance(max(next_offset, applied), requests[-1].store_time_millis if requests else None)
        # A replay has nothing to save: until its end the files hold both what was and what is found.
        if not self._is_replay and self._clock() - self._saved_at >= CHECKPOINT_INTERVAL_SECONDS:
            self._save(is_clean=False)

    def stop(self) -> None:
        """Flushes, writes the checkpoint and closes the queues."""
        if not self._is_fenced and not self._is_replay and self.progress.next_offset >= 0:
            self._save(is_clean=True)
        self._table.close()

    def _save(self, *, is_clean: bool) -> None:
        next_offset = self.progress.next_offset
        if next_offset != self._saved_offset or is_clean:
            self._flush()
            save_checkpoint(
                self._table.fs,
                self._checkpoint,
                self._table,
                next_offset,
                self.progress.store_time_millis,
                is_clean=is_clean,
            )
            self._saved_offset = next_offset
        self._saved_at = self._clock()
        if self._on_flushed is not None:
            self._on_flushed(next_offset, self.progress.store_time_millis or None)

    def _flush(self) -> None:
        try:
            self._table.flush()
        except FlushFailedError:
            # A second flush would say OK without having written anything: only a restart knows what the disk holds.
            self._is_fenced = True
            raise
