"""FollowingBuilder: what every builder does that follows the log and owns files made from it.

Theory of operation: one thread calls `apply` with batches in log order (at least once: what was applied is passed over).
Files are written at once and flushed, with the checkpoint behind them, at most every second and at the end. What a
checkpoint says is fixed before its flush begins, and it is written when the flush is done, by a thread of its own where
one is given: so it never says more than the disk holds, and `apply` goes on meanwhile. After a crash the files are cut
back to it. Files that lie wholly before the log's first record go, a few a second: first the checkpoint is written
without them, then they are removed.

A builder resumes at the last record that it applied, not behind it, so that it can see whether the log is still the
same. After an error of any method it is of no use any more: `abandon` it and make another one, which finds out what the
disk holds.
"""

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from store.builders.checkpoint_thread import Checkpointer, InPlace
from store.builders.last_record import LastRecord
from store.builders.progress import END_UNKNOWN, BuilderProgress
from store.dispatch import DispatchRequest

if TYPE_CHECKING:
    from store.dispatch_columns import DispatchColumns

CHECKPOINT_INTERVAL_SECONDS = 1.0
# Expired files a second: a day's worth goes within minutes, and no query waits behind more than a few removals.
EXPIRED_FILE_COUNT_MAX = 10

_log = logging.getLogger("reput.builder")


class FollowingBuilder(ABC):
    """Keeps derived files equal to a log.

    Args:
        progress: where to say how far it is; None for an own one.
        on_flushed: told the offset (bytes) and the store time (ms, None for none) up to which all is on the disk; by
            the thread that flushed.
        checkpointer: who flushes and writes checkpoints while records are applied; None for `apply` itself.
        clock: seconds, rising.
    """

    def __init__(
        self,
        *,
        progress: BuilderProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        checkpointer: Checkpointer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress or BuilderProgress()
        self._last_record: LastRecord | None = None
        self._is_marked = False  # the checkpoint says that files may be ahead of it
        self._on_flushed = on_flushed
        self._checkpointer = checkpointer or InPlace()
        self._clock = clock
        self._save_at = clock()  # at once: the first batch's checkpoint shows that the disk works
        self._saved_offset = -1
        self._expire_at = clock()
        self._expired_offset = -1  # no file that lies before it is left

    # -- what a kind of builder says

    @property
    def _is_savable(self) -> bool:
        """Whether anything of the log is applied."""
        return self.progress.next_offset >= 0

    @property
    def _may_expire(self) -> bool:
        """Whether files may be taken out of use."""
        return True

    @abstractmethod
    def _put(self, columns: "DispatchColumns") -> None:
        """Applies records in log order, none of which was applied."""

    def _reach_end(self, log_first_offset: int) -> bool:
        """The end of the flushed log is reached; whether a checkpoint is wanted at once."""
        return False

    @abstractmethod
    def _start_over(self) -> None:
        """Prepares for the whole log; a checkpoint that fits nothing is written first."""

    @abstractmethod
    def _prepare_checkpoint(self, *, is_clean: bool) -> Callable[[], None]:
        """What flushes all, then writes down that everything before `next_offset` is on the disk.

        It may be called on any thread while more is applied: what it writes down is as of now, what it flushes is as
        of now or newer.
        """

    @abstractmethod
    def _hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files out of use that lie wholly before the log, never the newest; their paths."""

    @abstractmethod
    def _remove_hidden(self, paths: Sequence[Path]) -> None:
        """Removes files that `_hide_expired` gave."""

    @abstractmethod
    def _close(self) -> None:
        """Closes all files."""

    # -- what they have in common

    def begin(self) -> None:
        """From here on the files may be ahead of the checkpoint, which says so."""
        if self._is_savable and not self._is_marked:
            self._save(is_clean=False, at_once=True)

    def start_offset(self) -> int:
        """Where the tail shall begin (bytes; -1 = the log's first record)."""
        return self._last_record.commit_log_offset if self._last_record else self.progress.next_offset

    def rebuild(self) -> None:
        """Applies the whole log again: it is not the one that the files were made from."""
        self._checkpointer.settle()
        self._last_record = None
        self.progress.restart()
        self._start_over()
        self._saved_offset = -1

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """The log has no record at `start_offset`: its front was retired, or it is another log."""
        next_offset, last_record = self.progress.next_offset, self._last_record
        self._last_record = None
        if 0 <= next_offset < log_first_offset:
            self.progress.advance(log_first_offset)
        elif last_record and last_record.commit_log_offset < log_first_offset <= next_offset <= log_end_offset:
            return  # only the record to compare with is gone
        else:
            self.rebuild()

    def pass_last_record(self) -> bool:
        """The last record applied can't be read any more: begins behind it from now on; False when it did before."""
        knew, self._last_record = self._last_record is not None, None
        return knew

    def apply(
        self,
        records: "DispatchColumns | Sequence[DispatchRequest] | None",
        next_offset: int,
        log_first_offset: int,
        log_end_offset: int,
    ) -> bool:
        """Applies a batch; a batch without records only moves the clock.

        Args:
            records: in log order.
            next_offset: the log position behind the batch (bytes).
            log_first_offset: the log's first record (bytes).
            log_end_offset: end of the flushed log (bytes); END_UNKNOWN while it is being recovered.

        Returns:
            False when the batch was not taken: the log shall be followed anew from `start_offset`.
        """
        if not self._checkpointer.is_busy:
            self._checkpointer.settle()
        columns = _columns(records)
        if self._last_record and columns and columns.first and _is_another(columns.first, self._last_record):
            _log.warning("another record is at %d than the one applied: rebuilding", columns.first.commit_log_offset)
            self.rebuild()
            return False
        self.progress.see_log(log_first_offset, log_end_offset)
        applied = self.progress.next_offset
        if columns and columns.commit_log_offsets[0] < applied:
            columns = columns.behind(applied)
        store_time_millis = None
        if columns:
            assert columns.last is not None
            self._put(columns)
            self._last_record = LastRecord.of(columns.last)
            store_time_millis = columns.last.store_time_millis
        is_at_end = next_offset >= log_end_offset != END_UNKNOWN
        if is_at_end and self._reach_end(log_first_offset):
            self._save_at, self._saved_offset = self._clock(), -1
        self.progress.advance(max(next_offset, applied), store_time_millis)
        if self._is_savable:
            if self._clock() >= self._save_at and not self._checkpointer.is_busy:
                self._save(is_clean=False)
            if self._may_expire:
                self._expire(log_first_offset)
        return True

    def stop(self) -> None:
        """Flushes, writes the checkpoint and closes the files."""
        if self._is_savable:
            self._save(is_clean=True, at_once=True)
        self._checkpointer.settle()
        self._close()

    def abandon(self) -> None:
        """Closes the files as they are; the next builder starts from the checkpoint."""
        with contextlib.suppress(Exception):  # nobody asks any more whether it came to its end
            self._checkpointer.settle()
        self._close()

    def _save(self, *, is_clean: bool, at_once: bool = False) -> None:
        self._checkpointer.settle()
        next_offset, store_time_millis = self.progress.next_offset, self.progress.store_time_millis or None
        write = None
        if next_offset != self._saved_offset or is_clean:
            write = self._prepare_checkpoint(is_clean=is_clean)
            self._saved_offset = next_offset
        self._save_at = self._clock() + CHECKPOINT_INTERVAL_SECONDS

        def work() -> None:
            if write is not None:
                write()
            if self._on_flushed is not None:
                self._on_flushed(next_offset, store_time_millis)

        if at_once:
            work()
        else:
            self._checkpointer.start(work)

    def _expire(self, log_first_offset: int) -> None:
        if log_first_offset <= self._expired_offset or self._clock() < self._expire_at:
            return
        self._expire_at = self._clock() + 1.0
        paths = self._hide_expired(log_first_offset, EXPIRED_FILE_COUNT_MAX)
        if not paths:
            self._expired_offset = log_first_offset
            return
        # First written down, then done: what a crash leaves of them is removed at the next start.
        self._checkpointer.settle()
        self._prepare_checkpoint(is_clean=False)()
        self._remove_hidden(paths)
        _log.info("removed %s: the log begins at %d", ", ".join(map(str, paths)), log_first_offset)


def _is_another(request: DispatchRequest, known: LastRecord) -> bool:
    return request.commit_log_offset == known.commit_log_offset and LastRecord.of(request) != known


def _columns(records: "DispatchColumns | Sequence[DispatchRequest] | None") -> "DispatchColumns | None":
    if records is None or not len(records):
        return None
    from store.dispatch_columns import DispatchColumns  # not before there is a record: numpy takes memory

    return records if isinstance(records, DispatchColumns) else DispatchColumns.of(records)
