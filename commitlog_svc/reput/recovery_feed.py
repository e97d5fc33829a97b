"""RecoveryFeed: the records that a recovery has checked so far, for builders that must build from the start.

The walk reads each record that a builder needs later. So good records are decoded while they are in the CPU's cache, and
followers get ready batches during the walk; nothing is read twice:

    walk      |== checked ==|== checked ==|== checked ==|...
    batches   [     about 4 MiB of log    ][  pending   ]
    follower  ------- shown ------------->| waits

Records that are shown are checked and on the disk; only the end of the log is not known yet (END_UNKNOWN). A follower whose
batches were dropped reads the log itself, up to where the next kept one begins. When the recovery is over, followers
continue with the log's confirm offset. A log with replicas has no feed: its confirm offset is not known before it is recovered.
"""

import threading

import numpy as np

from commitlog_svc.reput.column_batches import COLUMN_BYTES_MAX, ColumnBatches, size_bytes
from commitlog_svc.reput.reput import BATCH_BYTES_MAX
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreRecoveringError
from store.format.record import Buffer
from store.format.request_mark import TAIL_SIZE_BYTES, decode_request_mark


class RecoveryFeed:
    """The feed of one recovery: its walk writes, any thread reads.

    Args:
        batches: keeps what was decoded.
        begin_offset: where the walk begins; all before it is checked and on the disk.
    """

    def __init__(self, batches: ColumnBatches, begin_offset: int) -> None:
        self.batches = batches
        self._changed = threading.Condition()
        self._shown_offset = begin_offset
        self._is_over = False
        self._failure: StoreRecoveringError | None = None
        self._parts: list[DispatchColumns] = []
        self._parts_bytes = 0
        self._parts_end = begin_offset

    @property
    def confirm_offset(self) -> int:
        """Everything before it is checked and on the disk, and so may be shown (bytes)."""
        return self._shown_offset

    @property
    def is_over(self) -> bool:
        """Whether the recovery has ended: then the log's confirm offset counts.

        Raises:
            StoreRecoveringError: the recovery has failed.
        """
        if self._failure is not None:
            raise self._failure
        return self._is_over

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The confirm offset, once it is greater than `offset`, the recovery is over or the time is up."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._shown_offset > offset or self._is_over or self._failure is not None, timeout_seconds
            )
            return self._shown_offset

    def see_stretch(self, chunk: Buffer, at: int, end: int, commit_log_offset: int) -> None:
        """Takes good records, chunk[at:end], which are at this offset of the log."""
        if commit_log_offset != self._parts_end:
            self._show_parts()
            self._parts_end = commit_log_offset
        stretch = memoryview(chunk)[:end]
        behind = commit_log_offset + end - at
        while self._parts_end < behind:
            position = at + self._parts_end - commit_log_offset
            columns, next_offset = self._decode(stretch, position)
            if not len(columns):
                # An unfinished request, or a record that a builder's decoder refuses: a follower at this place
                # reads the log itself.
                return
            columns_bytes = size_bytes(columns)
            begin = int((self._parts or [columns])[0].commit_log_offsets[0])
            if self._parts_bytes + columns_bytes > COLUMN_BYTES_MAX or next_offset - begin > BATCH_BYTES_MAX:
                self._show_parts()
            self._parts.append(columns)
            self._parts_bytes += columns_bytes
            self._parts_end = next_offset

    def see_walked(self, offset: int) -> None:
        """Notes that the walk has reached an offset, the end of a request; records before it may not have been a stretch."""
        if offset > self._parts_end:
            self.see_end(offset)

    def see_end(self, offset: int) -> None:
        """As `see_walked`, and shows all records before it: maybe none follow."""
        self._show_parts()
        self._parts_end = offset
        self._show(offset)

    def end(self) -> None:
        """Ends the feed: the log is recovered and its flusher runs."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def fail(self) -> None:
        """Ends the feed: the recovery has failed, nothing more is shown."""
        with self._changed:
            self._failure = StoreRecoveringError("the commit log could not be recovered: see the log of its service")
            self._changed.notify_all()

    def _decode(self, stretch: memoryview, position: int) -> tuple[DispatchColumns, int]:
        """The next columns at the end of what was decoded, up to the end of a request; and the offset behind them."""
        columns, next_offset = self.batches.decode(stretch, position, self._parts_end)
        if not len(columns):
            return columns, next_offset
        end = position + next_offset - self._parts_end
        mark = decode_request_mark(stretch[end - TAIL_SIZE_BYTES : end])
        if mark is None or mark.behind_bytes == 0:
            return columns, next_offset
        request_begin = int(columns.commit_log_offsets[-1]) - mark.before_bytes
        whole_count = int(np.searchsorted(columns.commit_log_offsets, request_begin))
        if not whole_count:
            return DispatchColumns.of([]), self._parts_end
        return self.batches.decode(stretch, position, self._parts_end, whole_count)

    def _show_parts(self) -> None:
        if self._parts:
            columns = DispatchColumns.joined(self._parts)
            self._parts, self._parts_bytes = [], 0
            self.batches.keep_ahead(columns, self._parts_end)
            self._show(self._parts_end)

    def _show(self, offset: int) -> None:
        with self._changed:
            self._shown_offset = max(self._shown_offset, offset)
            self._changed.notify_all()
