"""RecoveryFeed: what a recovery has checked already, for builders that have everything still to do.

The walk has each record in hand that a builder will ask for. So what it found good is decoded while it lies in the CPU's
cache, and whoever follows finds batches ready while the walk goes on; nothing is read twice:

    walk      |== checked ==|== checked ==|== checked ==|...
    batches   [     about 4 MiB of log    ][  pending   ]
    follower  ------- shown ------------->| waits

What is shown is checked and on the disk, as always; only where the log ends nobody knows yet (END_UNKNOWN). A follower
that comes later than batches are kept reads the log itself, up to where the next kept one begins. When the recovery is
over, followers go on with what the flusher says.
"""

import threading

from commitlog_svc.column_batches import COLUMN_BYTES_MAX, ColumnBatches, size_bytes
from commitlog_svc.reput import BATCH_BYTES_MAX
from store.dispatch_columns import DispatchColumns
from store.errors import StoreRecoveringError


class RecoveryFeed:
    """Of one recovery: its walk writes, any thread follows.

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
    def flushed_offset(self) -> int:
        """Everything before it is checked and on the disk."""
        return self._shown_offset

    @property
    def is_over(self) -> bool:
        """Whether the recovery has come to its end: the flusher knows better now.

        Raises:
            StoreRecoveringError: it has failed.
        """
        if self._failure is not None:
            raise self._failure
        return self._is_over

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The flushed offset, once it is greater than `offset`, the recovery is over or the time is up."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._shown_offset > offset or self._is_over or self._failure is not None, timeout_seconds
            )
            return self._shown_offset

    def see_stretch(self, chunk: bytes, at: int, end: int, commit_log_offset: int) -> None:
        """Takes good records, chunk[at:end], which stand at this offset of the log."""
        if commit_log_offset != self._parts_end:
            self._show_parts()
            self._parts_end = commit_log_offset
        stretch = memoryview(chunk)[:end]
        behind = commit_log_offset + end - at
        while self._parts_end < behind:
            position = at + self._parts_end - commit_log_offset
            columns, next_offset = self.batches.decode(stretch, position, self._parts_end)
            if not len(columns):
                return  # a builder's decoder may refuse what is good for the log: the follower that comes here says so
            columns_bytes = size_bytes(columns)
            begin = int((self._parts or [columns])[0].commit_log_offsets[0])
            if self._parts_bytes + columns_bytes > COLUMN_BYTES_MAX or next_offset - begin > BATCH_BYTES_MAX:
                self._show_parts()
            self._parts.append(columns)
            self._parts_bytes += columns_bytes
            self._parts_end = next_offset

    def see_walked(self, offset: int) -> None:
        """The walk has come to an offset; what it took last need not all have been a stretch."""
        if offset != self._parts_end:
            self.see_end(offset)

    def see_end(self, offset: int) -> None:
        """As `see_walked`, and shows all of it: nothing may follow."""
        self._show_parts()
        self._parts_end = offset
        self._show(offset)

    def end(self) -> None:
        """The log is recovered and its flusher at work."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def fail(self) -> None:
        """The recovery has failed: nothing more is shown."""
        with self._changed:
            self._failure = StoreRecoveringError("the commit log could not be recovered; its service's log says why")
            self._changed.notify_all()

    def _show_parts(self) -> None:
        if self._parts:
            columns = DispatchColumns.joined(self._parts)
            self._parts, self._parts_bytes = [], 0
            self.batches.keep_ahead(columns, self._parts_end)
            self._show(self._parts_end)

    def _show(self, offset: int) -> None:
        with self._changed:
            self._shown_offset = offset
            self._changed.notify_all()
