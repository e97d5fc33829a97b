"""FollowingBuilder: the follower that keeps files derived from the log.

Theory of operation: one thread calls `apply` with batches in log order, at least once; records that were applied before are
skipped. Files are written at once. They are flushed, and then their checkpoint is written, at most every second and at the end.
The content of a checkpoint is fixed before its flush begins, and it is written after the flush, on its own thread where one is
given. So it never claims more than the disk holds, and `apply` goes on meanwhile. After a crash the files are cut back to it.
Files that lie wholly before the log's first record are removed, a few each second: first the checkpoint is written without
them, then they are removed.

A builder resumes at the last record that it applied, not behind it, to check that the log is still the same. After an error of
any method it must not be used further: `abandon` it and make another one, which reads what the disk holds.

CheckpointThread: flushes and writes checkpoints beside the thread that applies, which must not wait for the disk.

It does one piece of work at a time. The next call raises an error of that work again, because the thread that applies must
learn that its files are not flushed. The builder must not be used after that.
"""

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from services.following.follower_progress import END_UNKNOWN, FollowerProgress
from store.derive.dispatch import DispatchRequest, LastRecord

if TYPE_CHECKING:
    from services.following.file_check import FileChecker
    from store.derive.dispatch_columns import DispatchColumns


class Checkpointer(Protocol):
    """Does the flushing of a builder."""

    @property
    def is_busy(self) -> bool:
        """Whether work is under way."""

    def start(self, work: Callable[[], None]) -> None:
        """Do the work now or later; no other work may be under way."""

    def settle(self) -> None:
        """Return when no work is under way; raises the error of the last piece of work."""


class InPlace:
    """Does the work at once, on the calling thread: for tools and tests."""

    is_busy = False

    def start(self, work: Callable[[], None]) -> None:
        """See Checkpointer."""
        work()

    def settle(self) -> None:
        """See Checkpointer."""


class CheckpointThread:
    """Does each piece of work on a thread of its own.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """See Checkpointer."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """See Checkpointer."""
        self.settle()
        self._thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """See Checkpointer."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error


CHECKPOINT_INTERVAL_SECONDS = 1.0
# Expired files removed each second: a day's files go within minutes, and a query waits for a few removals at most.
EXPIRED_FILE_COUNT_MAX = 10

_log = logging.getLogger("reput.builder")


class FollowingBuilder(ABC):
    """Keeps derived files equal to a log; a `Follower` (follower_process.py).

    Args:
        progress: where it notes the offset that it has reached; None for one of its own.
        on_flushed: called with the offset (bytes) and the store time (ms, None for none) up to which everything is on
            the disk, by the thread that flushed.
        checkpointer: flushes and writes checkpoints while records are applied; None: `apply` does it.
        clock: seconds, rising.
    """

    def __init__(
        self,
        *,
        progress: FollowerProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        checkpointer: Checkpointer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress or FollowerProgress()
        self._last_record: LastRecord | None = None
        self._is_marked = False  # the checkpoint notes that files may be ahead of it
        self._on_flushed = on_flushed
        self._checkpointer = checkpointer or InPlace()
        self._clock = clock
        self._save_at = clock()  # at once: the checkpoint of the first batch tests the disk
        self._saved_offset = -1
        self._handed_over: SimpleQueue[Callable[[], bool]] = SimpleQueue()
        self.checker: FileChecker | None = None  # looks after the files from `begin` on; closed with them
        self._expire_at = clock()
        self._expired_offset = -1  # no file before this offset is left

    # -- for each kind of builder

    @property
    def _is_savable(self) -> bool:
        """Whether anything of the log is applied."""
        return self.progress.next_offset >= 0

    @property
    def _may_expire(self) -> bool:
        """Whether expired files may be removed now."""
        return True

    def _checkpoint_pause_seconds(self, seconds: float) -> float:
        """How long after a checkpoint that took so long the next one begins at the earliest."""
        return 0.0

    @abstractmethod
    def _put(self, columns: "DispatchColumns") -> None:
        """Apply records in log order, none of which was applied before."""

    def _reach_end(self, log_first_offset: int) -> bool:
        """The end of the flushed log is reached; returns whether a checkpoint is wanted at once."""
        return False

    @abstractmethod
    def _start_over(self) -> None:
        """Prepare to apply the whole log; first write a checkpoint that fits no files."""

    @abstractmethod
    def _prepare_checkpoint(self, *, is_clean: bool) -> Callable[[], None]:
        """A function that flushes everything, then writes the checkpoint for everything before `next_offset`.

        It may run on any thread while more is applied. The checkpoint is as of this call; the flush covers this or more.
        """

    @abstractmethod
    def _hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Take files out of use that lie wholly before the log, never the newest; returns their paths."""

    @abstractmethod
    def _remove_hidden(self, paths: Sequence[Path]) -> None:
        """Remove files that `_hide_expired` returned."""

    @abstractmethod
    def _close(self) -> None:
        """Close all files."""

    # -- common to all

    def begin(self) -> None:
        """Note in the checkpoint that from now on the files may be ahead of it."""
        if self._is_savable and not self._is_marked:
            self._save(is_clean=False, at_once=True)
        if self.checker is not None:
            self.checker.start()

    def hand_over(self, work: Callable[[], bool]) -> None:
        """Have the thread that applies do something before its next batch; any thread may call it.

        The work returns False when the log must be followed anew from `start_offset`.
        """
        self._handed_over.put(work)

    def start_offset(self) -> int:
        """Where the tail shall begin (bytes; -1 = the log's first record)."""
        return self._last_record.commit_log_offset if self._last_record else self.progress.next_offset

    def rebuild(self) -> None:
        """Apply the whole log again: it is not the log that the files were made from."""
        self._checkpointer.settle()
        self._last_record = None
        self.progress.restart()
        self._start_over()
        self._saved_offset = -1

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """The log has no record at `start_offset`: retention removed it, or it is another log."""
        next_offset, last_record = self.progress.next_offset, self._last_record
        self._last_record = None
        if 0 <= next_offset < log_first_offset:
            self.progress.advance(log_first_offset)
        elif last_record and last_record.commit_log_offset < log_first_offset <= next_offset <= log_end_offset:
            return  # only the record for the comparison is gone
        else:
            self.rebuild()

    def pass_last_record(self) -> bool:
        """Begin behind the last record applied, which cannot be read any more; False when it did so before."""
        knew, self._last_record = self._last_record is not None, None
        return knew

    def apply(
        self,
        records: "DispatchColumns | Sequence[DispatchRequest] | None",
        next_offset: int,
        log_first_offset: int,
        log_end_offset: int,
    ) -> bool:
        """Apply a batch; one without records only gives time for checkpoints.

        Args:
            records: in log order.
            next_offset: the log position behind the batch (bytes).
            log_first_offset: the log's first record (bytes).
            log_end_offset: end of the flushed log (bytes); END_UNKNOWN while it is being recovered.

        Returns:
            False when the batch was not taken and the log shall be followed anew from `start_offset`.
        """
        if not self._checkpointer.is_busy:
            self._checkpointer.settle()
        if not self._do_handed_over():
            return False
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
            if self._may_expire:
                self._expire(log_first_offset)
            if self._clock() >= self._save_at and not self._checkpointer.is_busy:
                self._save(is_clean=False)
        return True

    def _do_handed_over(self) -> bool:
        goes_on = True
        with contextlib.suppress(Empty):
            while True:
                work = self._handed_over.get_nowait()
                self._checkpointer.settle()  # the work may change files that a checkpoint writes
                goes_on &= work()
        return goes_on

    def stop(self) -> None:
        """Flush, write the checkpoint and close the files."""
        if self.checker is not None:
            self.checker.close()
        if self._is_savable:
            self._save(is_clean=True, at_once=True)
        self._checkpointer.settle()
        self._close()

    def abandon(self) -> None:
        """Close the files as they are; the next builder starts from the checkpoint."""
        if self.checker is not None:
            self.checker.close()
        with contextlib.suppress(Exception):  # the result does not matter any more
            self._checkpointer.settle()
        self._close()

    def _save(self, *, is_clean: bool, at_once: bool = False) -> None:
        self._checkpointer.settle()
        begin = self._clock()
        next_offset, store_time_millis = self.progress.next_offset, self.progress.store_time_millis or None
        write = None
        if next_offset != self._saved_offset or is_clean:
            write = self._prepare_checkpoint(is_clean=is_clean)
            self._saved_offset = next_offset
        self._save_at = self._clock() + CHECKPOINT_INTERVAL_SECONDS

        def work() -> None:
            if write is not None:
                write()
                end = self._clock()
                self._save_at = max(self._save_at, end + self._checkpoint_pause_seconds(end - begin))
            if self._on_flushed is not None:
                self._on_flushed(next_offset, store_time_millis)

        if at_once:
            work()
        else:
            self._checkpointer.start(work)

    def _expire(self, log_first_offset: int) -> None:
        if log_first_offset <= self._expired_offset or self._clock() < self._expire_at:
            return
        if self._checkpointer.is_busy:
            return  # it may add files to the queues that are looked through
        self._expire_at = self._clock() + 1.0
        paths = self._hide_expired(log_first_offset, EXPIRED_FILE_COUNT_MAX)
        if not paths:
            self._expired_offset = log_first_offset
            return
        # The checkpoint comes first: the next start removes the files that a crash left.
        self._checkpointer.settle()
        self._prepare_checkpoint(is_clean=False)()
        self._remove_hidden(paths)
        _log.info("removed %s: the log begins at %d", ", ".join(map(str, paths)), log_first_offset)


def _is_another(request: DispatchRequest, known: LastRecord) -> bool:
    return request.commit_log_offset == known.commit_log_offset and LastRecord.of(request) != known


def _columns(records: "DispatchColumns | Sequence[DispatchRequest] | None") -> "DispatchColumns | None":
    if records is None or not len(records):
        return None
    from store.derive.dispatch_columns import DispatchColumns  # loaded with the first record: numpy takes memory

    return records if isinstance(records, DispatchColumns) else DispatchColumns.of(records)
