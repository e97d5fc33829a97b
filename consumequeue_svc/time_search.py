"""Finds the position in a queue that belongs to a store time.

Store times rise within a run of the log (RisingRuns); several messages may have the same millisecond. Units do not hold
store times, so they are read from the log, many in one request: each round reads PROBE_COUNT positions of a run, evenly spread
over those that are left. So a million units take four rounds. A run whose times are not known to rise is read as a whole, up to
LINEAR_COUNT_MAX units; of a longer one the binary search gives what it can, and the answer says that it is not proven.

RisingRuns: where the store times of a log fall, so the log as runs of records in which they rise.

A broker writes the time of its clock, which may be set back; leaders that follow one another have different clocks. A search by
time in a queue is a binary search only within a run. The builder sees each record once, in log order, and notes where a run
begins; the checkpoint keeps it. What the builder has not seen (queues that were taken as they are) is one run that is not
proven.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from consumequeue_svc.light_queues import LightUnits
from store.format.derived.queue_unit import QueueUnit
from store.readers.queue_reader import QueueUnits

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

# A clock is set back now and then. With more falls the last run is not proven from then on; each run takes 40 bytes of a
# checkpoint.
RUN_COUNT_MAX = 1_024


@dataclass(frozen=True, slots=True)
class RisingRun:
    """Records from one offset of the log (bytes) to the begin of the next run, and their first and last store time (ms).

    Attributes:
        rises: whether their store times are known to rise; else the two times are the least and the greatest, or unknown
            (0 and 0).
    """

    begin_offset: int
    first_millis: int
    last_millis: int
    rises: bool = True


UNSEEN = RisingRun(0, 0, 0, rises=False)
# A checkpoint of a version that did not note runs: it only took logs whose times rise, as far as it knew.
TAKEN_AS_RISING = RisingRun(0, 0, 1 << 62)


class RisingRuns:
    """Notes runs; one writer, and readers of other threads get whole tuples.

    Attributes:
        runs: in the order of the log.
    """

    def __init__(self, runs: tuple[RisingRun, ...] = ()) -> None:
        self.runs = runs

    def note(self, columns: "DispatchColumns") -> None:
        """Note records that follow those before."""
        times, offsets = columns.store_times_millis, columns.commit_log_offsets
        if not len(times):
            return
        falls = [0, *(int(at) + 1 for at in (times[1:] < times[:-1]).nonzero()[0])]
        ends = [*falls[1:], len(times)]
        runs = list(self.runs)
        for begin, end in zip(falls, ends, strict=True):
            first, last, offset = int(times[begin]), int(times[end - 1]), int(offsets[begin])
            known = runs[-1] if runs else None
            if known is not None and known.rises and first >= known.last_millis:
                runs[-1] = replace(known, last_millis=last)
            elif known is not None and known.begin_offset == offset:  # nothing lies between
                runs[-1] = RisingRun(offset, first, last)
            elif len(runs) < RUN_COUNT_MAX:
                runs.append(RisingRun(offset, first, last))
            else:
                assert known is not None
                runs[-1] = RisingRun(
                    known.begin_offset, min(known.first_millis, first), max(known.last_millis, last), rises=False
                )
        self.runs = tuple(runs)

    def start_over(self) -> None:
        """All of the log comes again."""
        self.runs = ()

    def forget_before(self, log_first_offset: int) -> None:
        """Retention removed what lies before an offset."""
        kept = [
            run for run, after in zip(self.runs, self.runs[1:], strict=False) if after.begin_offset > log_first_offset
        ]
        if len(kept) + 1 < len(self.runs):
            self.runs = (*kept, self.runs[-1])

    def cut(self, log_end_offset: int) -> None:
        """The log was cut at an offset."""
        self.runs = tuple(run for run in self.runs if run.begin_offset < log_end_offset)

    def state(self) -> list[list[int]]:
        """For the checkpoint; see `of_state`."""
        return [[run.begin_offset, run.first_millis, run.last_millis, int(run.rises)] for run in self.runs]


def runs_of_state(rows: Any) -> tuple[RisingRun, ...]:
    """The runs of a checkpoint; None, and what is no list of runs, is a checkpoint of a version that noted none."""
    try:
        runs = tuple(RisingRun(int(begin), int(first), int(last), bool(rises)) for begin, first, last, rises in rows)
    except (TypeError, ValueError):
        return (TAKEN_AS_RISING,)
    return runs


PROBE_COUNT = 64
# Reading so many store times takes a second or two.
LINEAR_COUNT_MAX = 65_536
READ_COUNT = 1_024  # in one request

# Reads the store times (ms) of the records of units, in the order given. Raises a StoreError if a record is gone.
StoreTimeReader = Callable[[Sequence[QueueUnit]], Sequence[int]]


class Boundary(Enum):
    """Which side of equal store times."""

    LOWER = "first at or after"
    UPPER = "last at or before"


class FoundPosition(NamedTuple):
    """A position, and whether it is certainly the one that was looked for."""

    queue_offset: int
    is_proven: bool


def search_offset(
    units: QueueUnits | LightUnits,
    log_first_offset: int,
    time_millis: int,
    boundary: Boundary,
    read_times: StoreTimeReader,
    runs: Sequence[RisingRun] = (UNSEEN,),
) -> FoundPosition:
    """The position for a store time.

    LOWER: the first unit stored at or after it; the queue's max offset if there is none.
    UPPER: the last unit stored at or before it; the queue's min offset if there is none.

    Args:
        units: the queue.
        log_first_offset: offset of the log's first record (bytes); units that point before it are left out.
        time_millis: milliseconds since 1970.
        boundary: which side.
        read_times: reads store times from the log.
        runs: of the log, in its order.
    """
    minimum, end = units.min_offset(log_first_offset), units.end
    is_lower = boundary is Boundary.LOWER
    # The first time behind the boundary.
    first_behind = time_millis if is_lower else time_millis + 1
    is_proven = True
    runs = runs or (UNSEEN,)
    order = range(len(runs)) if is_lower else range(len(runs) - 1, -1, -1)
    for number in order:
        run = runs[number]
        if run.rises and (run.last_millis < first_behind if is_lower else run.first_millis >= first_behind):
            continue
        begin = minimum if number == 0 else max(minimum, units.min_offset(run.begin_offset))
        stop = end if number == len(runs) - 1 else min(end, units.min_offset(runs[number + 1].begin_offset))
        if begin >= stop:
            continue
        if not run.rises and stop - begin <= LINEAR_COUNT_MAX:
            found = _read_all(units, begin, stop, first_behind, read_times, is_lower=is_lower)
        else:
            is_proven = is_proven and run.rises
            found = _search(units, begin, stop, first_behind, read_times, is_lower=is_lower)
        if found is not None:
            return FoundPosition(found, is_proven)
    return FoundPosition(end if is_lower else minimum, is_proven)


def _read_all(
    units: QueueUnits | LightUnits,
    begin: int,
    end: int,
    first_behind: int,
    read_times: StoreTimeReader,
    *,
    is_lower: bool,
) -> int | None:
    """The first unit with a time from `first_behind` on, or the last with one before it."""
    blocks = [(at, min(at + READ_COUNT, end)) for at in range(begin, end, READ_COUNT)]
    for low, high in blocks if is_lower else reversed(blocks):
        found = _real_units(units, range(low, high), high)
        times = read_times([unit for _, unit in found]) if found else ()
        fitting = [at for (at, _), time in zip(found, times, strict=True) if (time >= first_behind) == is_lower]
        if fitting:
            return fitting[0 if is_lower else -1]
    return None


def _search(
    units: QueueUnits | LightUnits,
    begin: int,
    end: int,
    first_behind: int,
    read_times: StoreTimeReader,
    *,
    is_lower: bool,
) -> int | None:
    """The same where times rise."""
    last_before: int | None = None  # the last unit that is known to be before the boundary
    stop = end
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
    if is_lower:
        return begin if begin < stop and units.real_from(begin) < stop else None
    return last_before


def time_span(
    units: QueueUnits | LightUnits, log_first_offset: int, read_times: StoreTimeReader
) -> tuple[int, int] | None:
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


def _real_units(units: QueueUnits | LightUnits, positions: range, end: int) -> list[tuple[int, QueueUnit]]:
    """The unit at each position, or the next unit that is not a filler; each unit once."""
    found: list[tuple[int, QueueUnit]] = []
    for position in positions:
        at = units.real_from(position) if not found or position > found[-1][0] else end
        if at < end:
            found.append((at, units.unit(at)))
    return found


def _none_between(units: QueueUnits | LightUnits, begin: int, end: int) -> bool:
    return units.real_from(begin) >= end
