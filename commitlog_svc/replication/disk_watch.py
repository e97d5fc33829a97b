"""DiskWatch: whether the disk of a leader is stuck while those of others work.

A flush that never returns fails nothing: the leader would renew its lease for ever and acknowledge nothing. What it cannot
flush is on the disk of an in-sync replica by then, and that one can lead.
"""

LATE_SECONDS = 1.0  # after so long between two looks this process stood still itself, and its flush with it


class DiskWatch:
    """Looked at often, from one thread.

    Args:
        seconds_max: a flush that stands still for longer is stuck.
        now: seconds of a rising clock.
    """

    def __init__(self, seconds_max: float, now: float) -> None:
        self._seconds_max = seconds_max
        self._flushed_offset = -1
        self._still_since = self._looked_at = now
        self._was_stuck = False

    def is_stuck(self, now: float, flushed_offset: int, is_another_ahead: bool) -> bool:
        """Whether the disk is stuck; said once.

        Args:
            now: seconds of the same clock.
            flushed_offset: the end of what is on the disk here (bytes of the log).
            is_another_ahead: an in-sync replica has more of this log on its disk.
        """
        stood_still = now - self._looked_at > LATE_SECONDS
        self._looked_at = now
        if not is_another_ahead or flushed_offset != self._flushed_offset or stood_still:
            self._flushed_offset, self._still_since = flushed_offset, now
        if self._was_stuck or now - self._still_since <= self._seconds_max:
            return False
        self._was_stuck = True
        return True
