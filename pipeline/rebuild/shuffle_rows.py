"""Readers for tasks of mode `shuffle`: the log in batches of records, and the rows of Arrow batches."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline.log_scan import LogSplit, damage_at, scan_split
from pipeline.rebuild.scan import BATCH_RECORD_COUNT
from store.derive.dispatch_columns import DispatchColumns


class _EnoughError(Exception):
    """Ends a walk when there are enough records for a batch."""


def batches_of(split: LogSplit, record_count: int = BATCH_RECORD_COUNT) -> Iterator[DispatchColumns]:
    """The records of a split in batches; memory holds one batch.

    Args:
        split: the part of the log to read; it ends where the first pass ended.
        record_count: approximate size of a batch, in records.

    Raises:
        RecordCorruptedError: the log has been damaged since the first pass.
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
    """The numbers in the batches of `spark.range`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches; binary values are views into the batch, without a copy."""
    for batch in batches:
        columns = [
            (memoryview(value.as_buffer()) for value in column)
            if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]
        yield from zip(*columns, strict=True)
