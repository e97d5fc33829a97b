"""Whether the log takes appends just now, and what is wrong when it does not."""

import threading
from collections.abc import Callable

from commitlog_svc.disk_space import DiskSpace
from commitlog_svc.group_commit import GroupCommit
from commitlog_svc.store_root import StoreRoot
from store.errors import DiskFullError, FlushFailedError, StoreReadOnlyError, StoreRecoveringError
from store.files.abort import ABORT_NAME


class AppendGate:
    """Open while every reason to refuse an append is absent.

    Args:
        root: the store root, and whether it is served read-only.
        commits: whose first failure fences the log.
        closing: set once the log is being closed.

    Attributes:
        disk: what is free under the log; None until that is known.
    """

    def __init__(self, root: StoreRoot, commits: GroupCommit, closing: threading.Event) -> None:
        self._root = root
        self._commits = commits
        self._is_marked = True
        self._closing = closing
        self.disk: DiskSpace | None = None

    def refuse(self) -> None:
        """Raises why nothing may be appended, if there is a reason.

        Raises:
            StoreReadOnlyError, FlushFailedError, StoreRecoveringError, DiskFullError: see CommitLog.
        """
        if self._root.read_only:
            raise StoreReadOnlyError(f"{self._root.directory} is served read-only", directory=self._root.directory)
        failure = self._commits.failure
        if failure is not None:
            error = FlushFailedError(failure.message)
            error.metadata = dict(failure.metadata)
            raise error
        if self._closing.is_set():
            raise StoreRecoveringError("the commit log is closing: try again soon")
        if not self._is_marked:
            raise DiskFullError(
                f"no space left for the abort marker of {self._root.directory}: free some and try again",
                file=self._root.directory / ABORT_NAME,
            )
        if self.disk is not None:
            self.disk.refuse_full()

    def mark_open(self, open_mark: Callable[[], None]) -> None:
        """Puts abort marker and durable mark; without room for them the log is served for reading until there is some."""
        try:
            self._root.mark_open()
            open_mark()
            self._is_marked = True
        except DiskFullError:
            self._is_marked = False

    def mark_open_late(self, open_mark: Callable[[], None]) -> None:
        """The same, if there was no room for them before."""
        if not self._is_marked:
            self.mark_open(open_mark)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk has no room for appends, as far as it was looked at."""
        return not self._is_marked or (self.disk is not None and self.disk.is_full)
