"""What tasks of mode `shuffle` read: the log, a batch of records at a time, and rows that came through the shuffle."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline.jobs.log_scan import LogSplit, damage_at, scan_split
from pipeline.jobs.rebuild_scan import BATCH_RECORD_COUNT
from store.dispatch_columns import DispatchColumns


class _EnoughError(Exception):
    """There are records enough for a batch."""


def batches_of(split: LogSplit, record_count: int = BATCH_RECORD_COUNT) -> Iterator[DispatchColumns]:
    """The records of a split, about so many at a time; memory holds no more of them.

    Args:
        split: what to read, up to where a first pass has found it sound.
        record_count: how many to wait for.

    Raises:
        RecordCorruptedError: it is sound no more.
    """
    begin = split.begin
    while begin < split.end:
        parts: list[DispatchColumns] = []

        def see(columns: DispatchColumns, parts: list[DispatchColumns] = parts) -> None:
            parts.append(columns)
            if sum(map(len, parts)) >= record_count:
                raise _EnoughError

        try:
            end = scan_split(split, see, begin=begin)
            if end.end_offset < split.end:
                raise damage_at(end)
            begin = split.end
        except _EnoughError:
            begin = int(parts[-1].commit_log_offsets[-1] + parts[-1].record_sizes_bytes[-1])
        if parts:
            yield DispatchColumns.joined(parts)


def numbers_of(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """The numbers of a range."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches; binary values are views of the batch."""
    for batch in batches:
        columns = [
            (memoryview(value.as_buffer()) for value in column)
            if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]
        yield from zip(*columns, strict=True)
