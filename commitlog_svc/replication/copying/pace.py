"""Pace: at most so many bytes a second to one follower, over its stream and its fetches together."""


class Pace:
    """For the holder of the leader's lock.

    Args:
        bytes_per_second_max: 0: no limit.

    Attributes:
        free_at: when the next bytes may be sent, by the clock whose times `take` is given (seconds).
    """

    def __init__(self, bytes_per_second_max: int) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self.free_at = 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Takes a turn for so many bytes; they may be sent at the time that is returned."""
        if not self._bytes_per_second_max:
            return now
        begin = max(now, self.free_at)
        self.free_at = begin + size_bytes / self._bytes_per_second_max
        return begin
