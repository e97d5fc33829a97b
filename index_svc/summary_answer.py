"""What the index service tells of its summaries, so that a caller can see for himself where asking is needless.

An answer is true at one moment, and most of it stays true: files that are not written any more do not change, and in a log that
this project's commit log writes, no later record is stored earlier than the newest one indexed. So who looks for records
stored before `later_times_millis` need never ask about more than these files hold.
"""

from index_svc.index_file_set import IndexFileSet
from reput.index.v1 import index_service_pb2 as pb
from store.builders.progress import BuilderProgress
from store.errors import RecordNotFoundError
from store.format.index_summary import (
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


def summary_of(files: IndexFileSet, progress: BuilderProgress, *, times_rise: bool) -> pb.IndexSummary | None:
    """What the index holds; None while it is being built again, when that cannot be said.

    Args:
        files: the index files.
        progress: of the builder.
        times_rise: this project's commit log writes the log. What it found there may have been written with another clock,
            so nothing is said of later times before the index has caught up with that.
    """
    # Each before what it must not go beyond: what is claimed is never more than what is there. The newest file before the
    # sealed ones, among which it may be by then.
    generation = files.generation
    is_settled = times_rise and not progress.catching_up
    later_times_millis, next_offset = progress.store_time_millis, progress.next_offset
    live = files.live
    sealed = files.sealed_views()
    span = live.time_span if live is not None else NO_TIMES
    if files.generation != generation or not 0 <= next_offset <= progress.next_offset:
        return None
    summary = pb.IndexSummary(next_offset=next_offset, has_newest=span != NO_TIMES)
    if is_settled and later_times_millis > 0:
        summary.later_times_millis = later_times_millis
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
    """Pages of a file's key filter; RecordNotFoundError when it has none, or is not the file that is meant."""
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
