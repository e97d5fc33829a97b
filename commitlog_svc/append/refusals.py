"""The reasons for which the log refuses appends.

FollowerFence: appends of an earlier life of a follower are refused once a later life has appended.

A follower that starts again reads the log to know what it had done. An append of its earlier life may still be under way in
this process then, and must not land behind the first record of the new life. Such appends end with this process, so epochs are
kept in memory only.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from commitlog_svc.append.group_commit import GroupCommit, again
from commitlog_svc.recovery.store_root import StoreRoot
from commitlog_svc.reput.followers import FOLLOWER_COUNT_MAX, check_name
from commitlog_svc.retention.disk_space import DiskSpace
from store.errors import (
    DiskFullError,
    FollowerFencedError,
    InvalidArgumentError,
    StoreReadOnlyError,
    StoreRecoveringError,
)
from store.files.locks import ABORT_NAME


class AppendGate(Protocol):
    """The appends that the replicas of a shard allow; see replication/replica.py. Thread-safe."""

    @property
    def leads(self) -> bool:
        """Whether this replica has begun to lead."""
        ...

    def refuse(self) -> None:
        """Raises NotLeaderError unless this replica leads and may acknowledge."""

    def refuse_replicated(self) -> None:
        """Raises NotEnoughReplicasError when too few replicas are in sync."""

    def check_written(self, end_offset: int) -> None:
        """Raises NotConfirmedError when a write up to an offset (bytes) may not be acknowledged any more."""

    def wait_replicated(self, end_offset: int) -> None:
        """Returns when enough replicas have everything before an offset (bytes); NotConfirmedError when that is not known."""


class AppendRefusals:
    """Checks every reason to refuse an append.

    Args:
        root: the store root; appends to a read-only one are refused.
        commits: its first failure fences the log.
        closing: set when the log is being closed.
        mirrored: what the log is a mirror of; appends to a mirror are refused.

    Attributes:
        mirrored: see above.
        disk: the disk under the log; None until the log is recovered.
        gate: what the replicas allow; None on a log without replicas.
    """

    def __init__(self, root: StoreRoot, commits: GroupCommit, closing: threading.Event, mirrored: str = "") -> None:
        self._root = root
        self._commits = commits
        self._is_marked = True
        self._closing = closing
        self.mirrored = mirrored
        self.disk: DiskSpace | None = None
        self.gate: AppendGate | None = None

    def refuse(self, is_internal: bool) -> None:
        """Raises the reason why nothing may be appended, if there is one.

        Args:
            is_internal: whether this is an AppendInternal, which may use the reserve of the disk.

        Raises:
            StoreReadOnlyError, NotLeaderError, FlushFailedError, StoreRecoveringError, DiskFullError: the reason.
        """
        if self.mirrored:
            raise StoreReadOnlyError(
                f"this store mirrors {self.mirrored}: send there, or end the mirror and start the service without it",
                directory=self._root.directory,
            )
        if self._root.read_only:
            raise StoreReadOnlyError(
                f"{self._root.directory} is served read-only: start the service without read_only to append",
                directory=self._root.directory,
            )
        if self.gate is not None:
            self.gate.refuse()
        failure = self._commits.failure
        if failure is not None:
            raise again(failure)
        if self._closing.is_set():
            raise StoreRecoveringError("the commit log is closing: try again soon")
        if not self._is_marked:
            raise DiskFullError(
                f"no space left for the abort marker of {self._root.directory}: free some and try again",
                file=self._root.directory / ABORT_NAME,
            )
        if self.disk is not None:
            self.disk.refuse_full(is_internal)

    def mark_open(self, open_mark: Callable[[], None]) -> None:
        """Writes abort marker and durable mark. Without room, appends are refused until `mark_open_late` finds some."""
        try:
            self._root.mark_open()
            open_mark()
            self._is_marked = True
        except DiskFullError:
            self._is_marked = False

    def mark_open_late(self, open_mark: Callable[[], None]) -> None:
        """Writes abort marker and durable mark, if there was no room for them before."""
        if not self._is_marked:
            self.mark_open(open_mark)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk had no room for new messages when it was last looked at."""
        return not self._is_marked or (self.disk is not None and self.disk.is_full)


class FollowerFence:
    """The largest epoch of each follower; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: dict[str, int] = {}

    def enter(self, follower: str, epoch: int, *, begins: bool = False) -> None:
        """Notes an epoch. The appender calls it under its lock, so no request is written between this check and the write.

        Args:
            follower: its name; empty: nothing is checked.
            epoch: which life of the follower this is.
            begins: whether that life begins: two that begin at the same time may have found the same epoch.

        Raises:
            FollowerFencedError: a larger epoch of this follower was here before, or this one and the life begins.
            InvalidArgumentError: the name is not valid, the epoch is negative, or there are too many followers.
        """
        if not follower:
            return
        with self._lock:
            current = self._epochs.get(follower)
            if current is None:
                self._check_new(follower)
                current = epoch
            if epoch < 0:
                raise InvalidArgumentError(
                    f"follower_epoch is {epoch}: 0 or more is allowed", field="follower_epoch", followerEpoch=epoch
                )
            if epoch < current or (begins and self._epochs.get(follower) == epoch):
                raise FollowerFencedError(
                    f"{follower} appends with epoch {epoch}, and a later life of it has appended with {current}: nothing "
                    "was written, end this one",
                    follower=follower,
                    followerEpoch=epoch,
                    currentEpoch=current,
                )
            self._epochs[follower] = epoch

    def _check_new(self, follower: str) -> None:
        check_name(follower, "follower")
        if len(self._epochs) >= FOLLOWER_COUNT_MAX:
            raise InvalidArgumentError(
                f"{follower} cannot append: {len(self._epochs)} followers have, which is the most",
                field="follower",
                followerCount=len(self._epochs),
            )
