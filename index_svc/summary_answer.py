"""What the index service answers about its summaries, so that a caller knows when a search is not necessary.

An answer is true at one moment, and most of it stays true: sealed files do not change, and in a log that commitlog_svc
writes, no later record has an earlier store time than the newest indexed one and the clock, while the clock is not set back.
So these files hold all records with a store time before `later_times_millis`.
"""

import time
from collections.abc import Callable

from index_svc.index_file_set import IndexFileSet
from reput.index.v1 import index_service_pb2 as pb
from services.following.follower_progress import FollowerProgress
from store.errors import RecordNotFoundError
from store.format.derived.index_summary import (
    NO_TIMES,
    TIME_UNKNOWN_EARLY,
    TIME_UNKNOWN_LATE,
    TimeSpan,
)
from store.readers.index_reader import IndexFileView

# Rows of an answer: 1,024 full files hold 20 billion keys, and take 40 KiB here.
SEALED_COUNT_MAX = 1_024
# Pages in one answer: 2 MiB, half of what a caller receives by default.
FILTER_PAGE_COUNT_MAX = 512


def summary_of(
    files: IndexFileSet,
    progress: FollowerProgress,
    *,
    times_rise: bool,
    clock_millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> pb.IndexSummary | None:
    """A summary of the index; None while it is being built again.

    Args:
        files: the index files.
        progress: of the builder.
        times_rise: commitlog_svc writes the log. Older records may come from another clock, so the answer says nothing
            about later times until the index has caught up.
        clock_millis: since 1970; a record of the future does not keep later records from having the time of the clock.
    """
    # Read each value before the one that limits it, so that the answer never claims more than there is. Read the newest
    # file before the sealed files: it may become one of them in between.
    generation = files.generation
    is_settled = times_rise and not progress.catching_up
    later_times_millis, next_offset = progress.store_time_millis, progress.next_offset
    live = files.live
    sealed = files.sealed_views()
    span = live.time_span if live is not None else NO_TIMES
    if any(view.is_doubtful for view in sealed) or (live is not None and live.is_doubtful):
        return None
    if files.generation != generation or not 0 <= next_offset <= progress.next_offset:
        return None
    summary = pb.IndexSummary(next_offset=next_offset, has_newest=span != NO_TIMES)
    if is_settled and later_times_millis > 0:
        summary.later_times_millis = min(later_times_millis, clock_millis())
    if span is not None and span != NO_TIMES:
        summary.newest_begin_time_millis, summary.newest_end_time_millis = span
    older, newer = sealed[:-SEALED_COUNT_MAX], sealed[-SEALED_COUNT_MAX:]
    if older:
        _add(summary, "", _joined_span(older))
    for view in newer:
        reader = view.summary
        if reader is None:
            _add(summary, view.path.name, None)
        else:
            row = _add(summary, view.path.name, reader.header.time_span)
            row.header_crc, row.block_count = reader.header.index_header_crc, reader.header.block_count
    return summary


def filter_pages(files: IndexFileSet, name: str, header_crc: int, first_page: int) -> bytes:
    """Pages of a file's key filter.

    Raises:
        RecordNotFoundError: there is no such file, or it has another header, or no summary.
    """
    for view in files.sealed_views():
        reader = view.summary
        if view.path.name == name and reader is not None and reader.header.index_header_crc == header_crc:
            return reader.pages(max(first_page, 1), FILTER_PAGE_COUNT_MAX)
    raise RecordNotFoundError(f"there is no summary of an index file {name!r} with that header", name=name)


def _joined_span(views: list[IndexFileView]) -> TimeSpan | None:
    span = NO_TIMES
    for view in views:
        if view.summary is None:
            return None
        span = span.widened(*view.summary.header.time_span)
    return span


def _add(summary: pb.IndexSummary, name: str, span: TimeSpan | None) -> pb.IndexSummary.Sealed:
    row = summary.sealed.add(name=name)
    if span is not None and span.begin_millis != TIME_UNKNOWN_EARLY:
        row.begin_time_millis = span.begin_millis
    if span is not None and span.end_millis != TIME_UNKNOWN_LATE:
        row.end_time_millis = span.end_millis
    return row
