"""IndexBuilder: applies the log's tail to the index files and knows how far it is.

Theory of operation: one thread calls `apply` with batches in log order (at least once: what was applied is passed over,
down to the single key). Entries are written at once; slots, header and checkpoint follow at most every second and at
the end. The checkpoint never says more than the disk holds; after a crash the newest file is cut back to it.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from index_svc.index_file_set import IndexFileSet
from index_svc.recovery import FirstIndexed, resume, save_checkpoint
from store.builders.progress import BuilderProgress
from store.dispatch import DispatchRequest
from store.errors import FlushFailedError

CHECKPOINT_INTERVAL_SECONDS = 1.0


class IndexBuilder:
    """Keeps the index files of one root equal to its log.

    Args:
        files: the index files, nothing loaded yet.
        checkpoint: our own checkpoint file.
        progress: where to say how far it is; None for an own one.
        on_flushed: told the offset (bytes) and the store time (ms, None for none) up to which all is on the disk.
        clock: seconds, rising.
    """

    def __init__(
        self,
        files: IndexFileSet,
        checkpoint: Path,
        *,
        progress: BuilderProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress or BuilderProgress()
        self._files = files
        self._checkpoint = checkpoint
        self._on_flushed = on_flushed
        self._clock = clock
        self._saved_at = clock()
        self._saved_offset = -1
        self._is_fenced = False

    def recover(
        self, *, is_clean_store: bool, log_first_offset: int, log_end_offset: int, first_indexed: FirstIndexed
    ) -> None:
        """Finds out where to go on; the log's range is in bytes."""
        found = resume(
            self._files.fs, self._checkpoint, self._files, is_clean_store=is_clean_store, first_indexed=first_indexed
        )
        self.progress.see_log(log_first_offset, log_end_offset)
        if found.next_offset > log_end_offset or self._files.applied_offset >= log_end_offset:
            self.rebuild()
            self.progress.see_log(log_first_offset, log_end_offset)
            return
        self.progress.advance(found.next_offset, found.store_time_millis)
        if found.next_offset >= 0:
            # From here on the files may be ahead of the checkpoint.
            self._save(is_clean=False)

    def start_offset(self) -> int:
        """Where the tail shall begin (bytes; -1 = the log's first record)."""
        return self.progress.next_offset

    def rebuild(self) -> None:
        """Builds everything again from the log's first record."""
        self.progress.restart()
        self._files.clear()

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
            self._files.apply(requests)
        self.progress.advance(max(next_offset, applied), requests[-1].store_time_millis if requests else None)
        if self._clock() - self._saved_at >= CHECKPOINT_INTERVAL_SECONDS:
            self._save(is_clean=False)

    def stop(self) -> None:
        """Flushes, writes the checkpoint and closes the files."""
        if not self._is_fenced and self.progress.next_offset >= 0:
            self._save(is_clean=True)
        self._files.close()

    def _save(self, *, is_clean: bool) -> None:
        next_offset = self.progress.next_offset
        if next_offset != self._saved_offset or is_clean:
            self._flush()
            save_checkpoint(
                self._files.fs,
                self._checkpoint,
                self._files,
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
            self._files.flush()
        except FlushFailedError:
            # A second flush would say OK without having written anything: only a restart knows what the disk holds.
            self._is_fenced = True
            raise
