"""How builders follow the log: as requests or as columns, also while a long recovery is still under way."""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.group_commit import GroupCommit
from commitlog_svc.lookup import check_start
from commitlog_svc.reput import BATCH_BYTES_MAX, ReputBatch, follow_log
from store.errors import InvalidArgumentError
from store.files.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from commitlog_svc.column_batches import ColumnBatches
    from commitlog_svc.recovery_feed import RecoveryFeed
    from store.dispatch_columns import DispatchColumns


class LogFollowing:
    """Makes followers; thread-safe.

    Args:
        files, starts: the log.
        commits: up to where it is flushed, and who is woken when it is further.

    Attributes:
        feed: what a long recovery has checked so far; None when no recovery was long.
    """

    def __init__(self, files: MappedFileQueue, starts: FrameStarts, commits: GroupCommit) -> None:
        self._files = files
        self._starts = starts
        self._commits = commits
        self._lock = threading.Lock()
        self._column_batches: ColumnBatches | None = None
        self.feed: RecoveryFeed | None = None

    def open_feed(self, begin_offset: int) -> "RecoveryFeed":
        """The feed of a recovery that begins to walk there and takes long."""
        from commitlog_svc.recovery_feed import RecoveryFeed

        self.feed = RecoveryFeed(self._batches(), begin_offset)
        return self.feed

    def follow(
        self, start_offset: int, batch_bytes_max: int, flushed_offset: int, *, columns: bool, of_recovery: bool
    ) -> Iterator[ReputBatch]:
        """See CommitLog.

        Args:
            start_offset: the first record's; -1: the first of all.
            batch_bytes_max: of one batch; 0: as much as may be.
            flushed_offset: everything before it is on the disk.
            columns: as columns.
            of_recovery: begin with what the recovery has checked.
        """
        if batch_bytes_max < 0:
            raise InvalidArgumentError(
                f"batch_bytes_max is {batch_bytes_max}; 0 or more is possible", field="batch_bytes_max"
            )
        start = check_start(self._files, self._starts, start_offset, flushed_offset)
        batch_bytes_max = min(batch_bytes_max or BATCH_BYTES_MAX, BATCH_BYTES_MAX)
        read_columns = self._read_columns if columns else None
        recovering = self.feed if of_recovery else None
        return follow_log(self._files, self._commits, start, batch_bytes_max, read_columns, recovering)

    def _read_columns(self, offset: int, end_offset: int, batch_bytes_max: int) -> "tuple[DispatchColumns, int]":
        return self._batches().read(offset, end_offset, batch_bytes_max)

    def _batches(self) -> "ColumnBatches":
        if self._column_batches is None:
            from commitlog_svc.column_batches import ColumnBatches  # not before there is a record: numpy takes memory

            with self._lock:
                self._column_batches = self._column_batches or ColumnBatches(self._files)
        return self._column_batches
