"""How far a search has come: which part of the queues this step has looked at, and all of them since it began."""

from dataclasses import dataclass
from typing import Any

# A step that looks at more queues says how many.
SHOWN_RANGE_COUNT = 12


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """See the module.

    Attributes:
        passed_count: messages looked at or outside the window, since the search began.
        total_count: messages that there were then; 0 when nobody counted them.
        percent: what they are of these, whole numbers; below 100 until everything was looked at.
        ranges: queues and positions `[begin, end)` that this step looked at.
        more_range_count: those that are not among `ranges`.
        is_end: whether there is no further step.
        is_done: whether everything was looked at, by the steps before as well.
        has_window: whether messages may have been passed by their time.
    """

    passed_count: int
    total_count: int
    percent: int
    ranges: tuple[Any, ...]
    more_range_count: int
    is_end: bool
    is_done: bool
    has_window: bool


def scan_progress(answer: Any, *, is_partial: bool) -> ScanProgress:
    """The progress of a search by its answer, and whether that or one before it is partial."""
    total_count = answer.total_record_count
    is_end = not answer.next_page_token
    is_done = is_end and not is_partial
    percent = 100 * answer.passed_record_count // total_count if total_count else 0
    ranges = tuple(answer.scanned_ranges)
    return ScanProgress(
        passed_count=answer.passed_record_count,
        total_count=total_count,
        percent=percent if is_done else min(percent, 99),
        ranges=ranges[:SHOWN_RANGE_COUNT],
        more_range_count=max(0, len(ranges) - SHOWN_RANGE_COUNT),
        is_end=is_end,
        is_done=is_done,
        has_window=answer.HasField("begin_time") or answer.HasField("end_time"),
    )
