"""OpPositions: where a start has to read op records from."""

from bisect import bisect_right

# Pairs that are kept; every second one goes when there are more.
PAIR_COUNT_MAX = 1_024


class OpPositions:
    """Pairs of positions of both topics at one moment: half messages behind the one are ended by op records behind the other.

    An op record always comes after the half messages that it names.

    Args:
        half_queue_offset: of the half topic: everything before it has ended.
        op_queue_offset: of the op topic: no op record before it names a half message behind.
    """

    def __init__(self, half_queue_offset: int, op_queue_offset: int) -> None:
        self._halves = [half_queue_offset]
        self._ops = [op_queue_offset]

    def note(self, half_next_offset: int, op_next_offset: int) -> None:
        """Both topics end here now."""
        if half_next_offset > self._halves[-1]:
            self._halves.append(half_next_offset)
            self._ops.append(op_next_offset)
        elif half_next_offset == self._halves[-1]:
            self._ops[-1] = max(self._ops[-1], op_next_offset)  # no half message came meanwhile
        if len(self._halves) > PAIR_COUNT_MAX:
            del self._halves[1:-1:2], self._ops[1:-1:2]

    def op_offset(self, half_queue_offset: int) -> int:
        """Op records of half messages at or behind a queue offset are at or behind this one; earlier pairs are forgotten."""
        place = max(bisect_right(self._halves, half_queue_offset) - 1, 0)
        del self._halves[:place], self._ops[:place]
        return self._ops[0]
