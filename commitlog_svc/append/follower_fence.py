"""FollowerFence: appends of an earlier life of a follower are refused once a later life has appended.

A follower that starts again reads the log to know what it had done. An append of its earlier life may still be under way in
this process then, and must not land behind the first record of the new life. Such appends end with this process, so epochs are
kept in memory only.
"""

import threading

from commitlog_svc.reput.followers import FOLLOWER_COUNT_MAX, check_name
from store.errors import FollowerFencedError, InvalidArgumentError


class FollowerFence:
    """The largest epoch of each follower; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: dict[str, int] = {}

    def enter(self, follower: str, epoch: int) -> None:
        """Notes an epoch. The appender calls it under its lock, so no request is written between this check and the write.

        Args:
            follower: its name; empty: nothing is checked.
            epoch: which life of the follower this is.

        Raises:
            FollowerFencedError: a larger epoch of this follower was here before.
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
            if epoch < current:
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
