"""QueueOrder: which units of a queue stand where, when its messages do not come as 0, 1, 2, without any file.

The rules are those at the top of `consumequeue_svc/consume_queue.py`, for a queue that is built from its first message on:
places before the first message, and in a gap, are filled; a message whose position is taken is left out, except number 0,
with which the queue begins anew; so is one whose position the log has no room for.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from store.builders.queue_runs import UnitRun
from store.format.queue_unit import FILLER, UNIT_SIZE_BYTES, decode_queue_unit, encode_queue_unit
from store.format.record import FRAME_SIZE_BYTES_MIN

FILLER_BYTES = encode_queue_unit(FILLER)
FILL_UNIT_COUNT = 16_384
# RocketMQ uses up a position for a message that it refuses (#6570), so that a gap needs no record.
BURNT_POSITION_COUNT_MAX = 4096


class OrderedUnits(NamedTuple):
    """Units to be written at consecutive positions from `queue_offset` on; first everything there is removed if
    `begins_anew`."""

    queue_offset: int
    units: memoryview | bytes
    begins_anew: bool


def can_be(position: int, commit_log_offset: int, expected: int | None, log_end_offset: int) -> bool:
    """Whether the log has room for the records that a gap before a position would stand for.

    Args:
        position: which the record says (units).
        commit_log_offset: where the record starts (bytes).
        expected: the position behind the record before; None for a queue's first record.
        log_end_offset: where that record ends (bytes).
    """
    known_position, known_offset = (0, 0) if expected is None else (expected, log_end_offset)
    record_count_max = max(commit_log_offset - known_offset, 0) // FRAME_SIZE_BYTES_MIN + BURNT_POSITION_COUNT_MAX
    return 0 <= position <= known_position + record_count_max


class QueueOrder:
    """Follows one queue.

    Args:
        file_unit_count: units a file has: the files before a queue's first message are not made.

    Attributes:
        end: the next position; None before the first message.
        filled_count: places that were filled.
        dropped_count: messages left out because their place was taken.
        refused: position and commit-log offset of messages whose position cannot be.
    """

    def __init__(self, file_unit_count: int) -> None:
        self.end: int | None = None
        self.filled_count = 0
        self.dropped_count = 0
        self.refused: list[tuple[int, int]] = []
        self._file_unit_count = file_unit_count
        self._log_end_offset = 0
        self._number_0 = b""

    def place(self, runs: Iterable[UnitRun]) -> Iterator[OrderedUnits]:
        """What the next messages, given in log order, have written."""
        for run in runs:
            position, units = run
            while units:
                if self.end is not None and 0 != position < self.end:
                    count = min(self.end - position, len(units) // UNIT_SIZE_BYTES)
                    self.dropped_count += count
                    position, units = position + count, units[count * UNIT_SIZE_BYTES :]
                    continue
                if position != self.end:
                    first = bytes(units[:UNIT_SIZE_BYTES])
                    if not self._may_stand(position, first):
                        position, units = position + 1, units[UNIT_SIZE_BYTES:]
                        continue
                    begins_anew = self.end is not None and position == 0
                    if begins_anew:
                        self.end = None
                        yield OrderedUnits(0, b"", True)
                    yield from self._fill_before(position)
                if position == 0:
                    self._number_0 = bytes(units[:UNIT_SIZE_BYTES])
                yield OrderedUnits(position, units, False)
                self.end = position + len(units) // UNIT_SIZE_BYTES
                self._log_end_offset = decode_queue_unit(units, len(units) - UNIT_SIZE_BYTES).next_offset
                break

    def _may_stand(self, position: int, unit: bytes) -> bool:
        offset = decode_queue_unit(unit).commit_log_offset
        if not can_be(position, offset, self.end, self._log_end_offset):
            self.refused.append((position, offset))
            return False
        if self.end is not None and position == 0 and unit == self._number_0:
            self.dropped_count += 1  # the same record once more
            return False
        return True

    def _fill_before(self, position: int) -> Iterator[OrderedUnits]:
        at = position - position % self._file_unit_count if self.end is None else self.end
        self.filled_count += position - at
        while at < position:
            count = min(FILL_UNIT_COUNT, position - at)
            yield OrderedUnits(at, FILLER_BYTES * count, False)
            at += count
