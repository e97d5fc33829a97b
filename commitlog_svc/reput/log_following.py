"""Streams of the log for followers, as requests or as columns, also during a long recovery."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.lookup import FrameStarts, check_start
from commitlog_svc.reput.reput import BATCH_BYTES_MAX, GATHER_SECONDS_MAX, Gathering, ReputBatch, follow_log
from store.errors import InvalidArgumentError, StoreRecoveringError
from store.files.mapped_files import MappedFileQueue

if TYPE_CHECKING:
    from commitlog_svc.reput.column_batches import ColumnBatches
    from commitlog_svc.reput.recovery_feed import RecoveryFeed
    from store.derive.dispatch_columns import DispatchColumns


class LogFollowing:
    """Makes streams for followers; thread-safe.

    Args:
        files, starts: the log.
        confirm: up to where the log may be shown.

    Attributes:
        feed: what a long recovery has checked so far; None when no recovery was long.
        gathering: how streams gather batches.
    """

    def __init__(self, files: MappedFileQueue, starts: FrameStarts, confirm: ConfirmOffset) -> None:
        self._files = files
        self._starts = starts
        self._confirm = confirm
        self._lock = threading.Lock()
        self._column_batches: ColumnBatches | None = None
        self._is_open = False
        self.feed: RecoveryFeed | None = None
        self.gathering = Gathering()

    @property
    def confirm_offset(self) -> int:
        """Everything before it may be shown (bytes): what the recovery has checked or, once recovered, what is confirmed."""
        if self.feed is not None and not self._is_open:
            return self.feed.confirm_offset
        return self._confirm.confirm_offset

    def show_now(self, *, is_read: bool) -> None:
        """End the pauses of followers of a replica.

        Args:
            is_read: somebody waits for what they build; else this replica begins to lead.
        """
        pauses = self.gathering.pauses
        if pauses is not None and (not is_read or self.gathering.is_copy()):
            pauses.end(self._confirm.confirm_offset, is_read=is_read)

    def open_feed(self, begin_offset: int) -> "RecoveryFeed":
        """Makes the feed of a long recovery whose walk begins at `begin_offset`.

        Only for a log on one replica: with several, records that are checked here may be missing on the others.
        """
        from commitlog_svc.reput.recovery_feed import RecoveryFeed

        self.feed = RecoveryFeed(self._batches(), begin_offset)
        return self.feed

    def open(self) -> None:
        """Shows the log from now on: it is recovered."""
        self._is_open = True
        if self.feed is not None:
            self.feed.end()

    def fail(self) -> None:
        """Ends the feed: the log could not be recovered."""
        if self.feed is not None:
            self.feed.fail()

    def follow(
        self,
        start_offset: int,
        batch_bytes_max: int,
        *,
        columns: bool = False,
        while_recovering: bool = False,
        gather_millis: int = 0,
    ) -> Iterator[ReputBatch]:
        """Batches of the data that builders need, from an offset on, without end.

        Args:
            start_offset: of the first record (bytes); -1: the first record of the log.
            batch_bytes_max: bytes of log in one batch; 0: BATCH_BYTES_MAX.
            columns: as columns, not as requests.
            while_recovering: also records that a long recovery has checked so far, with END_UNKNOWN as the log's end until
                that is known.
            gather_millis: the pause between batches at the end of the log that the receiver asks for; 1,000 at most count.

        Raises:
            StoreRecoveringError: the log is not recovered, or not yet up to the start.
            InvalidArgumentError: a negative batch size or pause.
            OffsetOutOfRangeError: the start is outside the log as far as it may be shown.
            RecordNotFoundError: no record starts there.
        """
        is_open = self._is_open
        feed = self.feed if while_recovering and not is_open else None
        if not is_open and (feed is None or start_offset > feed.confirm_offset):
            raise StoreRecoveringError("the commit log is being recovered: try again soon")
        if batch_bytes_max < 0:
            raise InvalidArgumentError(
                f"batch_bytes_max is {batch_bytes_max}: 0 or more is allowed", field="batch_bytes_max"
            )
        if gather_millis < 0:
            raise InvalidArgumentError(f"gather_millis is {gather_millis}: 0 or more is allowed", field="gather_millis")
        gathering = replace(self.gathering, asked_seconds=min(gather_millis / 1000, GATHER_SECONDS_MAX))
        confirm_offset = feed.confirm_offset if feed is not None else self._confirm.confirm_offset
        start = check_start(self._files, self._starts, start_offset, confirm_offset)
        batch_bytes_max = min(batch_bytes_max or BATCH_BYTES_MAX, BATCH_BYTES_MAX)
        read_columns = self._read_columns if columns else None
        return follow_log(self._files, self._confirm, start, batch_bytes_max, read_columns, feed, gathering)

    def _read_columns(self, offset: int, end_offset: int, batch_bytes_max: int) -> "tuple[DispatchColumns, int]":
        return self._batches().read(offset, end_offset, batch_bytes_max)

    def _batches(self) -> "ColumnBatches":
        if self._column_batches is None:
            from commitlog_svc.reput.column_batches import (
                ColumnBatches,  # numpy takes memory: import it only when there is a record
            )

            with self._lock:
                self._column_batches = self._column_batches or ColumnBatches(self._files)
        return self._column_batches
