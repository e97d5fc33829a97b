"""The progress of a search: the positions of the queues that this step has searched, and the sum since the first step."""

from dataclasses import dataclass
from typing import Any

# Of further ranges only the number is shown.
SHOWN_RANGE_COUNT = 12


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """The progress of a search.

    Attributes:
        passed_count: messages searched or outside the window, since the search began.
        total_count: messages at the begin of the search; 0 when they were not counted.
        percent: `passed_count` of `total_count`, a whole number; below 100 until everything was searched.
        ranges: queues and positions `[begin, end)` that this step searched.
        more_range_count: the number of ranges that are not among `ranges`.
        is_end: whether this is the last step.
        is_done: whether everything was searched, also by the steps before.
        has_window: whether messages may have been passed because of their store time.
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
    """The progress of a search from its answer; `is_partial`: this answer or one before it is partial."""
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
