"""Mode `shuffle`: every file written by one task, from its first byte to its last.

The log is read twice: once to check it and to know where it ends and which queues jump (as `scatter` does, writing
nothing), once for what the files hold. Pieces go to the task that writes their file:

    queue units    file (topic, queue id, number of the file)     a queue that jumps is one group, in log order, written
                                                                  by the rules for such queues
    index keys     file (number of the file)                      sorted by the first key's number in the whole log

A key's number follows from the first pass: the keys of all splits before, and its own place in its split. The last key of
a full file goes to the next one too, which begins to count seconds there.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.jobs.log_scan import LogSplit, load_kernels, scan_split
from pipeline.jobs.rebuild_files import FILL_KEY_COUNT, IndexFilePlan, Keys, QueueFiles, write_index_file
from pipeline.jobs.rebuild_out import index_names
from pipeline.jobs.rebuild_queues import fill_fronts
from pipeline.jobs.rebuild_scan import Batches, QueueId, is_rolled
from store.builders.queue_order import QueueOrder
from store.builders.queue_runs import UnitRun, place_runs
from store.dispatch_columns import DispatchColumns
from store.errors import InvalidArgumentError
from store.files.file_system import RealFileSystem
from store.format.index_layout import IndexHeader
from store.format.paths import index_dir, queue_dir
from store.format.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.rebuild import RebuildPlan, Scanned
    from pipeline.jobs.rebuild_out import Staging

ORDERED = -1  # number of the "file" of a queue that jumps
UNIT_SCHEMA = "topic string, queue_id int, file bigint, queue_offset bigint, first_offset bigint, units binary"
KEY_SCHEMA = "file bigint, number bigint, hashes binary, offsets binary, times binary"
DONE_SCHEMA = "path string"
HEADER_SCHEMA = "file bigint, header array<bigint>"
_UNITS = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("file", pa.int64()), ("queue_offset", pa.int64()),
     ("first_offset", pa.int64()), ("units", pa.binary())]
)  # fmt: skip
_KEYS = pa.schema(
    [("file", pa.int64()), ("number", pa.int64()), ("hashes", pa.binary()), ("offsets", pa.binary()),
     ("times", pa.binary())]
)  # fmt: skip
_DONE = pa.schema([("path", pa.string())])
_HEADERS = pa.schema([("file", pa.int64()), ("header", pa.list_(pa.int64()))])
_BEFORE = -1  # number of the key that the file before ends with


def make_all(
    spark: "SparkSession", plan: "RebuildPlan", scanned: "Scanned", ordered: set[QueueId], staging: "Staging"
) -> tuple[int, list[IndexHeader]]:
    """Writes all files of a checked log; how many queue files, and the header of each index file."""
    splits = [task.split for task, _ in scanned]
    if not splits:
        return 0, []
    numbers = spark.range(0, len(splits), 1, len(splits))
    size = plan.layout.queue_file_size_bytes
    paths = (
        numbers.mapInArrow(_units_of(splits, frozenset(ordered), size), UNIT_SCHEMA)
        .groupBy("topic", "queue_id", "file")
        .applyInArrow(_queue_writer(str(staging.root), size, is_flushed=plan.is_flushed), DONE_SCHEMA)
        .distinct()
        .count()
    )
    results = [result for _, result in scanned]
    layout = plan.layout.index
    room = layout.entry_count_max - 1
    counts = [result.key_count for result in results]
    total = sum(counts)
    file_count = -(-total // room)
    if total == file_count * room and is_rolled(results):
        file_count += 1
    names = list(islice(index_names(), file_count))
    plans = [
        IndexFilePlan(str(Path(index_dir(str(staging.root))) / name), layout, (), 0, 0, plan.is_flushed)
        for name in names
    ]
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    rows = (
        numbers.mapInArrow(_keys_of(splits, firsts, room, file_count), KEY_SCHEMA)
        .groupBy("file")
        .applyInArrow(_index_writer(plans), HEADER_SCHEMA)
        .collect()
    )
    headers = {row.file: IndexHeader._make(row.header) for row in rows}
    if file_count and not total:  # messages, and none with a key
        headers[0] = write_index_file(RealFileSystem(), plans[0])
    return paths, [headers[number] for number in range(file_count)]


def _batches_of(split: LogSplit) -> Iterator[DispatchColumns]:
    """The records of a split."""
    batches, ready = Batches(), list[DispatchColumns]()
    scan_split(split, lambda columns: ready.extend(batches.add(columns)))
    yield from ready
    yield from batches.rest()


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _units_of(
    splits: list[LogSplit], ordered: frozenset[QueueId], file_size_bytes: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task of the second pass does for the queues."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for number in _numbers(batches):
            for columns in _batches_of(splits[number]):
                rows = [row for queue in place_runs(columns) for row in _unit_rows(queue, ordered, file_size_bytes)]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=_UNITS)

    return work


def _unit_rows(queue: Any, ordered: frozenset[QueueId], file_size_bytes: int) -> Iterator[dict[str, Any]]:
    """The runs of one queue, cut where files end."""
    topic, queue_id, runs = queue
    try:
        queue_dir("", topic, queue_id)
    except InvalidArgumentError:
        return
    is_ordered = (topic, queue_id) in ordered
    file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
    for run in runs:
        position, units = run
        while units:
            count = len(units) // UNIT_SIZE_BYTES
            if not is_ordered:
                count = min(count, file_unit_count - position % file_unit_count)
            part = units[: count * UNIT_SIZE_BYTES]
            yield {
                "topic": topic,
                "queue_id": queue_id,
                "file": ORDERED if is_ordered else position // file_unit_count,
                "queue_offset": position,
                "first_offset": decode_queue_unit(part).commit_log_offset,
                "units": bytes(part),
            }
            position, units = position + count, units[len(part) :]


def _queue_writer(root: str, file_size_bytes: int, *, is_flushed: bool) -> Callable[[pa.Table], pa.Table]:
    """What writes one queue file, or all of a queue that jumps."""

    def write(table: pa.Table) -> pa.Table:
        rows = table.sort_by("first_offset").to_pylist()
        topic, queue_id = rows[0]["topic"], rows[0]["queue_id"]
        files = QueueFiles(RealFileSystem(), Path(root), file_size_bytes)
        try:
            if rows[0]["file"] == ORDERED:
                order = QueueOrder(file_size_bytes // UNIT_SIZE_BYTES)
                for units in order.place(UnitRun(row["queue_offset"], memoryview(row["units"])) for row in rows):
                    if units.begins_anew:
                        files.remove_queue(topic, queue_id)
                    files.write(topic, queue_id, units.queue_offset, units.units)
            else:
                first = min(row["queue_offset"] for row in rows)
                fill_fronts(files, {(topic, queue_id): first}, file_size_bytes // UNIT_SIZE_BYTES)
                files.write(topic, queue_id, first, b"".join(row["units"] for row in rows))
            if is_flushed:
                files.flush()
            return pa.table({"path": sorted(map(str, files.paths))}, schema=_DONE)
        finally:
            files.close()

    return write


def _keys_of(
    splits: list[LogSplit], firsts: list[int], room: int, file_count: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task of the second pass does for the index."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for number in _numbers(batches):
            at = firsts[number]
            for columns in _batches_of(splits[number]):
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
    """Keys from number `at` on, cut where files end."""
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


def _index_writer(plans: list[IndexFilePlan]) -> Callable[[pa.Table], pa.Table]:
    """What writes one index file."""

    def write(table: pa.Table) -> pa.Table:
        load_kernels()
        table = table.sort_by("number")
        file = table["file"][0].as_py()
        pieces = [_keys_from(row) for row in table.to_pylist()]
        plan = plans[file]
        if table["number"][0].as_py() == _BEFORE:
            _, offsets, times = pieces.pop(0)
            plan = IndexFilePlan(plan.path, plan.layout, (), int(times[0]), int(offsets[0]), plan.is_flushed)
        header = write_index_file(RealFileSystem(), plan, pieces)
        return pa.table({"file": [file], "header": [list(header)]}, schema=_HEADERS)

    return write


def _keys_from(row: dict[str, Any]) -> Keys:
    return (
        np.frombuffer(row["hashes"], dtype=np.int32),
        np.frombuffer(row["offsets"], dtype=np.int64),
        np.frombuffer(row["times"], dtype=np.int64),
    )
