"""Finds the position in a queue that belongs to a store time.

The store times of a queue rise; several messages may have the same millisecond. Units do not hold store times, so they
are read from the log, many in one request: each round reads PROBE_COUNT positions, evenly spread over the positions that
are left. So a million units take four rounds.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from store.format.derived.queue_unit import QueueUnit
from store.readers.queue_reader import QueueUnits

PROBE_COUNT = 64

# Reads the store times (ms) of the records of units, in the order given. Raises a StoreError if a record is gone.
StoreTimeReader = Callable[[Sequence[QueueUnit]], Sequence[int]]


class Boundary(Enum):
    """Which side of equal store times."""

    LOWER = "first at or after"
    UPPER = "last at or before"


def search_offset(
    units: QueueUnits, log_first_offset: int, time_millis: int, boundary: Boundary, read_times: StoreTimeReader
) -> int:
    """The position for a store time.

    LOWER: the first unit stored at or after it; the queue's max offset if there is none.
    UPPER: the last unit stored at or before it; the queue's min offset if there is none.

    Args:
        units: the queue.
        log_first_offset: offset of the log's first record (bytes); units that point before it are left out.
        time_millis: milliseconds since 1970.
        boundary: which side.
        read_times: reads store times from the log.
    """
    begin, end = units.min_offset(log_first_offset), units.end
    minimum = begin
    # The first time behind the boundary.
    first_behind = time_millis if boundary is Boundary.LOWER else time_millis + 1
    last_before = -1  # the last unit that is known to be before the boundary
    while begin < end:
        step = max(1, (end - begin) // PROBE_COUNT)
        probes = _real_units(units, range(begin, end, step), end)
        if not probes:
            begin = end
            break
        times = read_times([unit for _, unit in probes])
        behind = next((n for n, time in enumerate(times) if time >= first_behind), None)
        if behind is None:
            last_before = probes[-1][0]
            begin = last_before + 1
        else:
            if behind > 0:
                last_before = probes[behind - 1][0]
                begin = last_before + 1
            if probes[behind][0] == begin or behind == 0:
                begin = end = probes[behind][0]
                break
            end = probes[behind][0]
            if _none_between(units, begin, end):
                begin = end
    if boundary is Boundary.LOWER:
        return begin
    return last_before if last_before >= 0 else minimum


def time_span(units: QueueUnits, log_first_offset: int, read_times: StoreTimeReader) -> tuple[int, int] | None:
    """Store times of a queue's first and last message, in milliseconds; None if it has no message."""
    begin, end = units.min_offset(log_first_offset), units.end
    first = units.real_from(begin)
    if first >= end:
        return None
    last = end - 1
    while units.unit(last).is_filler:  # only a queue that was cut back ends with one
        last -= 1
    first_millis, last_millis = read_times([units.unit(first), units.unit(last)])
    return first_millis, last_millis


def _real_units(units: QueueUnits, positions: range, end: int) -> list[tuple[int, QueueUnit]]:
    """The unit at each position, or the next unit that is not a filler; each unit once."""
    found: list[tuple[int, QueueUnit]] = []
    for position in positions:
        at = units.real_from(position) if not found or position > found[-1][0] else end
        if at < end:
            found.append((at, units.unit(at)))
    return found


def _none_between(units: QueueUnits, begin: int, end: int) -> bool:
    return units.real_from(begin) >= end
