"""Mode `shuffle`: every file written by one task, from its first byte to its last, into a directory or an object store.

The log is read twice. The first pass checks it and finds where it ends and which queues jump (as `scatter` does, but
without writing). The second pass makes units and keys. Spark's shuffle sends them to the task that writes their file,
sorted; Spark spills to its disk what does not fit into memory:

    queue units    by topic, queue id, number of the file, commit-log offset     a queue that jumps is one file to the
                                                                                 shuffle, written by `QueuePlacement`
    index keys     by number of the file, number in the whole log

A key's number is the count of keys in all earlier splits, from the first pass, plus its position in its own split. The
last key of a full file goes to the next file too, whose header counts seconds from it.

A task holds one batch of records or of rows, an index file's slot heads, and on its disk the file that it makes (for a
queue that jumps all its files, since a later message may begin the queue anew). Files are sparse there; in an object store
holes are zeros. A task that runs again makes the same bytes under the same names. Into an object store, two attempts may
also run at once.

Readers for tasks of mode `shuffle`: the log in batches of records, and the rows of Arrow batches.

Index files in mode `shuffle`: keys are numbered over the whole log and sent in that order to the task of their file.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, chain, groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.log_scan import LogSplit, damage_at, load_kernels, scan_split
from pipeline.rebuild.files import FILL_KEY_COUNT, IndexFilePlan, Keys, QueueFiles, write_index_file
from pipeline.rebuild.plan import sound_splits
from pipeline.rebuild.scan import (
    BATCH_RECORD_COUNT,
    OrderedQueue,
    QueueId,
    ScanResult,
    ends_without_keys,
    fill_fronts,
    made_queues,
)
from pipeline.target import MadeFiles, Target
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import entries_per_file, index_file_count
from store.derive.queue_placement import QueuePlacement, UnitRun
from store.errors import InvalidArgumentError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexHeader
from store.format.derived.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit
from store.format.paths import index_dir, queue_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.rebuild.plan import RebuildPlan, Scanned


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


KEY_SCHEMA = "file int, number bigint, hashes binary, offsets binary, times binary"
HEADER_SCHEMA = "file bigint, size_bytes bigint, header array<bigint>"
_KEYS = pa.schema(
    [("file", pa.int32()), ("number", pa.int64()), ("hashes", pa.binary()), ("offsets", pa.binary()),
     ("times", pa.binary())]
)  # fmt: skip
_HEADERS = pa.schema([("file", pa.int64()), ("size_bytes", pa.int64()), ("header", pa.list_(pa.int64()))])
_BEFORE = -1  # number of the row with the last key of the file before

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def keys_of(splits: list[LogSplit], firsts: list[int], room: int, file_count: int, *, has_tags: bool) -> Work:
    """The function of a second-pass task that makes rows of KEY_SCHEMA from splits; `has_tags`: see StoreLayout."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for number in numbers_of(batches):
            at = firsts[number]
            for batch in batches_of(splits[number]):
                columns = batch.with_tags() if has_tags else batch
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


ORDERED = -1  # number of the "file" of a queue that jumps
# Size of an Arrow batch from the JVM to a task: a row has up to 5 MB, and Spark's own limit is 10,000 rows.
BATCH_BYTES_MAX = 16 << 20
BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
# Approximate bytes of units for one task: enough that its fixed cost is small, few enough that a repetition is cheap.
TASK_UNIT_BYTES = 64 << 20
TASK_COUNT_MAX = 10_000
UNIT_SCHEMA = "topic string, queue_id int, file bigint, first_offset bigint, queue_offset bigint, units binary"
MADE_SCHEMA = "path string, size_bytes bigint, unit_count bigint, notes array<string>"
_UNITS = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("file", pa.int64()), ("first_offset", pa.int64()),
     ("queue_offset", pa.int64()), ("units", pa.binary())]
)  # fmt: skip
_MADE = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("unit_count", pa.int64()), ("notes", pa.list_(pa.string()))]
)


def make_all(
    spark: "SparkSession",
    plan: "RebuildPlan",
    scanned: "Scanned",
    ordered: set[QueueId],
    target: Target,
    index_names: Iterator[str],
) -> MadeFiles:
    """Writes all files of a checked log.

    Args:
        spark: the session that runs the tasks.
        plan: what to read and to make.
        scanned: the splits with records, and their results of the first pass.
        ordered: queues that jump.
        target: where files go.
        index_names: names for index files, ascending.
    """
    if not scanned:
        return MadeFiles(_MADE.empty_table())
    results = [result for _, result in scanned]
    splits = sound_splits(scanned)
    session = spark.newSession()  # so that the settings below do not change the caller's session
    session.conf.set(BATCH_BYTES_SETTING, BATCH_BYTES_MAX)
    numbers = session.range(0, len(splits), 1, len(splits))
    size_bytes = plan.layout.queue_file_size_bytes
    parallelism = spark.sparkContext.defaultParallelism
    made = (
        numbers.mapInArrow(_units_of(splits, frozenset(ordered), size_bytes, plan.hidden), UNIT_SCHEMA)
        .repartition(_unit_task_count(results, size_bytes, parallelism), "topic", "queue_id", "file")
        .sortWithinPartitions("topic", "queue_id", "file", "first_offset")
        .mapInArrow(_queue_writer(target, size_bytes), MADE_SCHEMA)
        .toArrow()
    )
    notes = [note for row in made["notes"].to_pylist() if row for note in row]
    files = MadeFiles(made.filter(made["path"].is_valid()), notes=sorted(notes))
    layout = plan.layout.index
    room = entries_per_file(layout.entry_count_max)
    counts = [result.key_count for result in results]
    total = sum(counts)
    file_count = index_file_count(total, layout.entry_count_max, is_followed=ends_without_keys(results))
    paths = [f"{index_dir('')}/{name}" for name in islice(index_names, file_count)]
    plans = [IndexFilePlan(path, layout, (), 0, 0, is_flushed=False) for path in paths]
    headers: dict[int, tuple[int, IndexHeader]] = {}
    if total:
        firsts = list(accumulate(counts, initial=0))
        table = (
            numbers.mapInArrow(
                keys_of(splits, firsts, room, file_count, has_tags=bool(plan.layout.has_tags)), KEY_SCHEMA
            )
            .repartitionById(min(file_count, TASK_COUNT_MAX), "file")
            .sortWithinPartitions("file", "number")
            .mapInArrow(index_writer(target, plans), HEADER_SCHEMA)
            .toArrow()
        )
        headers = {row["file"]: (row["size_bytes"], IndexHeader._make(row["header"])) for row in table.to_pylist()}
    elif file_count:  # the log has messages, but none with a key
        headers[0] = write_index(target, plans[0], iter(()))
    files.index_files = [(path, *headers[number]) for number, path in enumerate(paths)]
    return files


def _unit_task_count(results: list[ScanResult], file_size_bytes: int, parallelism: int) -> int:
    """The count of tasks that write queue files."""
    unit_bytes = UNIT_SIZE_BYTES * sum(result.unit_count for result in results)
    queue_count = len(set[QueueId]().union(*(result.queues.keys() for result in results)))
    file_count = queue_count + unit_bytes // file_size_bytes
    wanted = max(parallelism, unit_bytes // TASK_UNIT_BYTES)
    return max(1, min(wanted, file_count, TASK_COUNT_MAX))


def _units_of(
    splits: list[LogSplit], ordered: frozenset[QueueId], file_size_bytes: int, hidden: frozenset[str]
) -> Work:
    """The function of a second-pass task that makes rows of UNIT_SCHEMA from splits."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for number in numbers_of(batches):
            for columns in batches_of(splits[number]):
                rows = [
                    row for queue in made_queues(columns, hidden) for row in _unit_rows(queue, ordered, file_size_bytes)
                ]
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
                "first_offset": decode_queue_unit(part).commit_log_offset,
                "queue_offset": position,
                "units": bytes(part),
            }
            position, units = position + count, units[len(part) :]


class _UnitRow(NamedTuple):
    """A row of UNIT_SCHEMA; the units stay where Arrow has them."""

    topic: str
    queue_id: int
    file: int
    first_offset: int
    queue_offset: int
    units: memoryview


def _queue_writer(target: Target, file_size_bytes: int) -> Work:
    """The function of a task that writes queue files from sorted rows, one file, or one queue that jumps, at a time."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (_UnitRow._make(row) for row in rows_of(batches))
        for (topic, queue_id, file), units in groupby(rows, lambda row: row[:3]):
            yield pa.RecordBatch.from_pylist(
                _write_queue(target, topic, queue_id, units, file_size_bytes, is_ordered=file == ORDERED),
                schema=_MADE,
            )

    return work


def _write_queue(
    target: Target,
    topic: str,
    queue_id: int,
    rows: Iterator[_UnitRow],
    file_size_bytes: int,
    *,
    is_ordered: bool,
) -> list[dict[str, Any]]:
    """Writes one queue file, or all files of a queue that jumps, to the target; returns a row of MADE_SCHEMA for each."""
    notes: list[str] = []
    file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
    with target.working_root() as root:
        files = QueueFiles(RealFileSystem(), root, file_size_bytes)
        try:
            if is_ordered:
                placement = QueuePlacement(file_unit_count)
                for placed in placement.place(UnitRun(row.queue_offset, row.units) for row in rows):
                    files.write_placed(topic, queue_id, placed)
                notes = OrderedQueue.of(topic, queue_id, placement).notes()
            else:
                for number, row in enumerate(rows):
                    if not number:
                        fill_fronts(files, {(topic, queue_id): row.queue_offset}, file_unit_count)
                    files.write(topic, queue_id, row.queue_offset, row.units)
            if target.is_flushed:
                files.flush()
        finally:
            files.close()
        made: list[dict[str, Any]] = []
        for path, unit_count in sorted(files.unit_counts.items()):
            target.keep(root, path)
            made.append(
                {"path": path.relative_to(root).as_posix(), "size_bytes": file_size_bytes, "unit_count": unit_count}
            )
    return [*made, {"notes": notes}] if notes else made
