"""Where the store times of a log fall: the log as runs of records in which they rise.

A broker writes the time of its clock, which may be set back; leaders that follow one another have different clocks. A search by
time in a queue is a binary search only within a run. The builder sees each record once, in log order, and notes where a run
begins; the checkpoint keeps it. What the builder has not seen (queues that were taken as they are) is one run that is not
proven.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

# A clock is set back now and then. With more falls the last run is not proven from then on; each run takes 40 bytes of a
# checkpoint.
RUN_COUNT_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Run:
    """Records from one offset of the log (bytes) to the begin of the next run, and their first and last store time (ms).

    Attributes:
        rises: whether their store times are known to rise; else the two times are the least and the greatest, or unknown
            (0 and 0).
    """

    begin_offset: int
    first_millis: int
    last_millis: int
    rises: bool = True


UNSEEN = Run(0, 0, 0, rises=False)
# A checkpoint of a version that did not note runs: it only took logs whose times rise, as far as it knew.
TAKEN_AS_RISING = Run(0, 0, 1 << 62)


class RisingRuns:
    """Notes runs; one writer, and readers of other threads get whole tuples.

    Attributes:
        runs: in the order of the log.
    """

    def __init__(self, runs: tuple[Run, ...] = ()) -> None:
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
                runs[-1] = Run(offset, first, last)
            elif len(runs) < RUN_COUNT_MAX:
                runs.append(Run(offset, first, last))
            else:
                assert known is not None
                runs[-1] = Run(
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


def runs_of_state(rows: Any) -> tuple[Run, ...]:
    """The runs of a checkpoint; None, and what is no list of runs, is a checkpoint of a version that noted none."""
    try:
        runs = tuple(Run(int(begin), int(first), int(last), bool(rises)) for begin, first, last, rises in rows)
    except (TypeError, ValueError):
        return (TAKEN_AS_RISING,)
    return runs
