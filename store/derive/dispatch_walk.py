"""Decodes a piece of the log to DispatchColumns, for Reput.

The kernel (`dispatch_kernel.py`) decodes ordinary records. It stops at any other record, which `decode_dispatch` decodes,
or says what is wrong with it. So the result is that of the plain twin for any bytes.
"""

import threading
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from store.compiled import loading
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError

KERNEL = "store.derive.dispatch_kernel"
Chunk = bytes | bytearray | memoryview

# Size of the tables that the kernel fills; each thread that walks has its own.
TABLE_RECORD_COUNT = 4096
TABLE_KEY_COUNT = 4 * TABLE_RECORD_COUNT
# For fewer bytes the kernel's fixed cost, that of about two records, does not pay.
KERNEL_BYTES_MIN = 2048
# If the kernel stops soon again, more records are decoded plainly before its next call: twice as many each time.
PLAIN_RUN_COUNT_MAX = 1024
KERNEL_RUN_COUNT_MIN = 16  # with a run of this length the kernel call pays


class Walked(NamedTuple):
    """Some records, and where and why the walk stopped.

    Attributes:
        columns: the records, in log order; maybe none.
        next_offset: the first byte behind the last of them (commit-log offset); where the walk began when there are none.
        why: what `decode_dispatch` says about the record at `next_offset`: IncompleteRecordError when the chunk ends
            inside it (read again from there, and more), RecordCorruptedError when it is a blank or damaged. None when
            the chunk ends there, or enough was walked: go on there.
    """

    columns: DispatchColumns
    next_offset: int
    why: RecordCorruptedError | None


class _Tables(threading.local):
    """The kernel's tables, of this thread."""

    def __init__(self) -> None:
        self.rows: tuple[npt.NDArray[Any], ...] | None = None

    def of(self, kernel: ModuleType) -> tuple[npt.NDArray[Any], ...]:
        if self.rows is None:
            self.rows = (
                np.empty((kernel.ROW_COUNT_32, TABLE_RECORD_COUNT), dtype=np.int32),
                np.empty((kernel.ROW_COUNT_64, TABLE_RECORD_COUNT), dtype=np.int64),
                np.empty(TABLE_KEY_COUNT, dtype=np.int32),
                np.empty(TABLE_KEY_COUNT, dtype=np.int32),
                np.empty((kernel.TOPIC_ROW_COUNT, kernel.TOPIC_COUNT_MAX), dtype=np.int64),
                np.empty(kernel.SLOT_COUNT, dtype=np.int32),
            )
        return self.rows


_tables = _Tables()


def walk_columns(chunk: Chunk, at: int, commit_log_offset: int, record_count_max: int) -> Walked:
    """The records of a chunk as columns; never raises for bad bytes. With the kernel when it is loaded.

    Args:
        chunk: any bytes of the log, as far as they may be shown.
        at: index in `chunk` of a record's start.
        commit_log_offset: where in the log that start is, in bytes.
        record_count_max: stop behind that many records, 1 at least.
    """
    kernel = loading.load(KERNEL)
    if kernel is None or len(chunk) - at < KERNEL_BYTES_MIN:
        return walk_columns_plainly(chunk, at, commit_log_offset, record_count_max)
    base = commit_log_offset - at
    parts: list[DispatchColumns] = []
    count, plain_run_count = 0, 1
    why: RecordCorruptedError | None = None
    while at < len(chunk) and count < record_count_max:
        columns, next_at = _walk_with(kernel, chunk, at, base + at, record_count_max - count)
        if columns is not None:
            parts.append(columns)
            count += len(columns)
            at = next_at
            if len(columns) == TABLE_RECORD_COUNT or at == len(chunk) or count == record_count_max:
                continue
        if columns is not None and len(columns) >= KERNEL_RUN_COUNT_MIN:
            plain_run_count = 1
        plain = walk_columns_plainly(chunk, at, base + at, min(plain_run_count, record_count_max - count))
        if plain.columns:
            parts.append(plain.columns)
            count += len(plain.columns)
            at = plain.next_offset - base
        if plain.why is not None:
            why = plain.why
            break
        plain_run_count = min(2 * plain_run_count, PLAIN_RUN_COUNT_MAX)
    return Walked(DispatchColumns.joined(parts), base + at, why)


def _walk_with(
    kernel: ModuleType, chunk: Chunk, at: int, commit_log_offset: int, record_count_max: int
) -> tuple[DispatchColumns | None, int]:
    """The ordinary records that start here, None if there is none, and where they end in `chunk`."""
    rows_32, rows_64, key_records, key_hashes, topics, slots = _tables.of(kernel)
    count, key_count, topic_count, next_at = kernel.fill_columns(
        chunk, at, commit_log_offset, record_count_max, rows_32, rows_64, key_records, key_hashes, topics, slots
    )
    if not count:
        return None, at
    spans = topics[kernel.TOPIC_AT : kernel.TOPIC_SIZE + 1, :topic_count].T.tolist()
    last_at = int(rows_64[kernel.COMMIT_LOG_OFFSET, count - 1]) - commit_log_offset + at
    return (
        DispatchColumns(
            tuple([str(chunk[begin : begin + size], "ascii") for begin, size in spans]),
            rows_32[kernel.TOPIC_NUMBER, :count].copy(),
            rows_32[kernel.QUEUE_ID, :count].copy(),
            rows_64[kernel.QUEUE_OFFSET, :count].copy(),
            rows_64[kernel.COMMIT_LOG_OFFSET, :count].copy(),
            rows_32[kernel.RECORD_SIZE, :count].copy(),
            rows_64[kernel.TAGS_CODE, :count].copy(),
            rows_64[kernel.STORE_TIME, :count].copy(),
            rows_32[kernel.SYS_FLAG, :count].copy(),
            rows_32[kernel.TAGS_HASH, :count].copy(),
            key_records[:key_count].copy(),
            key_hashes[:key_count].copy(),
            decode_dispatch(chunk, at, commit_log_offset),
            decode_dispatch(chunk, last_at, commit_log_offset + last_at - at),
        ),
        next_at,
    )


def walk_columns_plainly(chunk: Chunk, at: int, commit_log_offset: int, record_count_max: int) -> Walked:
    """The plain twin of the kernel: decodes record by record."""
    requests: list[DispatchRequest] = []
    why: RecordCorruptedError | None = None
    size = len(chunk)
    while at < size and len(requests) < record_count_max:
        try:
            request = decode_dispatch(chunk, at, commit_log_offset)
        except RecordCorruptedError as error:
            why = error
            break
        requests.append(request)
        at += request.record_size_bytes
        commit_log_offset = request.next_offset
    return Walked(DispatchColumns.of(requests), commit_log_offset, why)
