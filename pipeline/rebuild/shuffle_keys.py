"""Index files in mode `shuffle`: keys are numbered over the whole log and sent in that order to the task of their file."""

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.log_scan import LogSplit, load_kernels
from pipeline.rebuild.files import FILL_KEY_COUNT, IndexFilePlan, Keys, write_index_file
from pipeline.rebuild.shuffle_rows import batches_of, numbers_of, rows_of
from pipeline.rebuild.target import Target
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexHeader

KEY_SCHEMA = "file int, number bigint, hashes binary, offsets binary, times binary"
HEADER_SCHEMA = "file bigint, size_bytes bigint, header array<bigint>"
_KEYS = pa.schema(
    [("file", pa.int32()), ("number", pa.int64()), ("hashes", pa.binary()), ("offsets", pa.binary()),
     ("times", pa.binary())]
)  # fmt: skip
_HEADERS = pa.schema([("file", pa.int64()), ("size_bytes", pa.int64()), ("header", pa.list_(pa.int64()))])
_BEFORE = -1  # number of the row with the last key of the file before

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def keys_of(splits: list[LogSplit], firsts: list[int], room: int, file_count: int) -> Work:
    """The function of a second-pass task that makes rows of KEY_SCHEMA from splits."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for number in numbers_of(batches):
            at = firsts[number]
            for columns in batches_of(splits[number]):
                keys = (
                    np.ascontiguousarray(columns.key_hashes),
                    columns.commit_log_offsets[columns.key_records],
                    columns.store_times_millis[columns.key_records],
                )
                rows = list(_key_rows(keys, at, room, file_count))
                at += len(keys[0])
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=_KEYS)

    return work


def _key_rows(keys: Keys, at: int, room: int, file_count: int) -> Iterator[dict[str, Any]]:
    """Rows for keys from number `at` on, cut where files end."""
    begin, count = 0, len(keys[0])
    while begin < count:
        file, within = divmod(at + begin, room)
        size = min(room - within, count - begin, FILL_KEY_COUNT)
        hashes, offsets, times = (column[begin : begin + size] for column in keys)
        yield {"file": file, "number": at + begin} | _packed(hashes, offsets, times)
        begin += size
        if within + size == room and file + 1 < file_count:
            yield {"file": file + 1, "number": _BEFORE} | _packed(hashes[-1:], offsets[-1:], times[-1:])


def _packed(hashes: Any, offsets: Any, times: Any) -> dict[str, bytes]:
    return {"hashes": hashes.tobytes(), "offsets": offsets.tobytes(), "times": times.tobytes()}


def index_writer(target: Target, plans: list[IndexFilePlan]) -> Work:
    """The function of a task that writes index files from sorted rows, one file at a time."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for file, rows in groupby(rows_of(batches), lambda row: row[0]):
            size_bytes, header = write_index(target, plans[file], rows)
            yield pa.RecordBatch.from_pylist(
                [{"file": file, "size_bytes": size_bytes, "header": list(header)}], schema=_HEADERS
            )

    return work


def write_index(target: Target, plan: IndexFilePlan, rows: Iterator[tuple[Any, ...]]) -> tuple[int, IndexHeader]:
    """Writes one index file from rows of KEY_SCHEMA to the target; returns its size in bytes and its header."""
    first = next(rows, None)
    time_millis, offset = 0, 0
    keys = _keys_from(rows)
    if first is not None and first[1] == _BEFORE:
        ((_, offsets, times),) = _keys_from(iter((first,)))
        time_millis, offset = int(times[0]), int(offsets[0])
    elif first is not None:
        keys = _keys_from(chain((first,), rows))
    with target.working_root() as root:
        path = root / plan.path
        placed = IndexFilePlan(str(path), plan.layout, (), time_millis, offset, target.is_flushed)
        header = write_index_file(RealFileSystem(), placed, keys)
        target.keep(root, path)
    return plan.layout.file_size_bytes, header


def _keys_from(rows: Iterator[tuple[Any, ...]]) -> Iterator[Keys]:
    for _, _, hashes, offsets, times in rows:
        yield (
            np.frombuffer(hashes, dtype=np.int32),
            np.frombuffer(offsets, dtype=np.int64),
            np.frombuffer(times, dtype=np.int64),
        )
