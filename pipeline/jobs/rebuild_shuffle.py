"""Mode `shuffle`: every file written by one task, from its first byte to its last, into a directory or an object store.

The log is read twice: once to check it and to know where it ends and which queues jump (as `scatter` does, writing
nothing), once for what the files hold. Pieces go through Spark's shuffle to the task that writes their file, and come
there in order, sorted by Spark, which spills what memory cannot hold:

    queue units    by topic, queue id, number of the file, commit-log offset     a queue that jumps is one file to the
                                                                                 shuffle, written by the rules for such
    index keys     by number of the file, number in the whole log

A key's number follows from the first pass: the keys of all splits before, and its own place in its split. The last key of
a full file goes to the next one too, which begins to count seconds there.

A task holds one batch of pieces, an index file's slot heads, and on its disk the file that it makes (a queue that jumps:
all its files, since a later message may begin the queue anew). Files are sparse there, and full of zeros where they are
sent. Run again, or twice at once, a task makes the same bytes under the same names.
"""

from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.jobs.log_scan import LogSplit, load_kernels, scan_split
from pipeline.jobs.rebuild_files import FILL_KEY_COUNT, IndexFilePlan, Keys, QueueFiles, write_index_file
from pipeline.jobs.rebuild_queues import OrderedQueue, fill_fronts
from pipeline.jobs.rebuild_scan import Batches, QueueId, ScanResult, is_rolled
from pipeline.jobs.rebuild_target import MadeFiles, Target
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

ORDERED = -1  # number of the "file" of a queue that jumps
# Arrow batches from the JVM to a task: rows have up to 5 MB, and 10,000 of them are a batch otherwise.
BATCH_BYTES_MAX = 16 << 20
BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
# Units for one task, about: so many that its fixed cost is small, so few that one that is run again costs little.
TASK_UNIT_BYTES = 64 << 20
TASK_COUNT_MAX = 10_000
UNIT_SCHEMA = "topic string, queue_id int, file bigint, first_offset bigint, queue_offset bigint, units binary"
KEY_SCHEMA = "file int, number bigint, hashes binary, offsets binary, times binary"
MADE_SCHEMA = "path string, size_bytes bigint, unit_count bigint, notes array<string>"
HEADER_SCHEMA = "file bigint, size_bytes bigint, header array<bigint>"
_UNITS = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("file", pa.int64()), ("first_offset", pa.int64()),
     ("queue_offset", pa.int64()), ("units", pa.binary())]
)  # fmt: skip
_KEYS = pa.schema(
    [("file", pa.int32()), ("number", pa.int64()), ("hashes", pa.binary()), ("offsets", pa.binary()),
     ("times", pa.binary())]
)  # fmt: skip
_MADE = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("unit_count", pa.int64()), ("notes", pa.list_(pa.string()))]
)
_HEADERS = pa.schema([("file", pa.int64()), ("size_bytes", pa.int64()), ("header", pa.list_(pa.int64()))])
_BEFORE = -1  # number of the key that the file before ends with

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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
        spark: whose executors do it.
        plan: what is to be done.
        scanned: the splits with records, and what the first pass knows of them.
        ordered: queues that jump.
        target: where files go.
        index_names: names for index files, rising.
    """
    if not scanned:
        return MadeFiles(_MADE.empty_table())
    splits, results = [task.split for task, _ in scanned], [result for _, result in scanned]
    session = spark.newSession()  # a setting of ours is nobody else's
    session.conf.set(BATCH_BYTES_SETTING, BATCH_BYTES_MAX)
    numbers = session.range(0, len(splits), 1, len(splits))
    size_bytes = plan.layout.queue_file_size_bytes
    parallelism = spark.sparkContext.defaultParallelism
    made = (
        numbers.mapInArrow(_units_of(splits, frozenset(ordered), size_bytes), UNIT_SCHEMA)
        .repartition(_unit_task_count(results, size_bytes, parallelism), "topic", "queue_id", "file")
        .sortWithinPartitions("topic", "queue_id", "file", "first_offset")
        .mapInArrow(_queue_writer(target, size_bytes, is_flushed=plan.is_flushed), MADE_SCHEMA)
        .toArrow()
    )
    notes = [note for row in made["notes"].to_pylist() if row for note in row]
    files = MadeFiles(made.filter(made["path"].is_valid()), notes=sorted(notes))
    layout = plan.layout.index
    room = layout.entry_count_max - 1
    counts = [result.key_count for result in results]
    total = sum(counts)
    file_count = -(-total // room)
    if total == file_count * room and is_rolled(results):
        file_count += 1
    paths = [f"{index_dir('')}/{name}" for name in islice(index_names, file_count)]
    plans = [IndexFilePlan(path, layout, (), 0, 0, plan.is_flushed) for path in paths]
    headers: dict[int, tuple[int, IndexHeader]] = {}
    if total:
        firsts = [sum(counts[:number]) for number in range(len(counts))]
        table = (
            numbers.mapInArrow(_keys_of(splits, firsts, room, file_count), KEY_SCHEMA)
            .repartitionById(min(file_count, TASK_COUNT_MAX), "file")
            .sortWithinPartitions("file", "number")
            .mapInArrow(_index_writer(target, plans), HEADER_SCHEMA)
            .toArrow()
        )
        headers = {row["file"]: (row["size_bytes"], IndexHeader._make(row["header"])) for row in table.to_pylist()}
    elif file_count:  # messages, and none with a key
        headers[0] = _write_index(target, plans[0], iter(()))
    files.index_files = [(path, *headers[number]) for number, path in enumerate(paths)]
    return files


def _unit_task_count(results: list[ScanResult], file_size_bytes: int, parallelism: int) -> int:
    """Into how many tasks the writing of queue files is cut."""
    unit_bytes = UNIT_SIZE_BYTES * sum(result.unit_count for result in results)
    queue_count = len(set[QueueId]().union(*(result.queues.keys() for result in results)))
    file_count = queue_count + unit_bytes // file_size_bytes
    wanted = max(parallelism, unit_bytes // TASK_UNIT_BYTES)
    return max(1, min(wanted, file_count, TASK_COUNT_MAX))


def _batches_of(split: LogSplit) -> Iterator[DispatchColumns]:
    """The records of a split."""
    batches, ready = Batches(), list[DispatchColumns]()
    scan_split(split, lambda columns: ready.extend(batches.add(columns)))
    yield from ready
    yield from batches.rest()


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _units_of(splits: list[LogSplit], ordered: frozenset[QueueId], file_size_bytes: int) -> Work:
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


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches; binary values are views of the batch."""
    for batch in batches:
        columns = [
            (memoryview(value.as_buffer()) for value in column)
            if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]
        yield from zip(*columns, strict=True)


def _queue_writer(target: Target, file_size_bytes: int, *, is_flushed: bool) -> Work:
    """What writes queue files: of rows in order, one file after the other, or all of a queue that jumps."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (_UnitRow._make(row) for row in _rows(batches))
        for (topic, queue_id, file), units in groupby(rows, lambda row: row[:3]):
            yield pa.RecordBatch.from_pylist(
                _write_queue(
                    target, topic, queue_id, units, file_size_bytes, is_ordered=file == ORDERED, is_flushed=is_flushed
                ),
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
    is_flushed: bool,
) -> list[dict[str, Any]]:
    """Writes one queue file, or all of a queue that jumps, and brings them to their place; a row of MADE_SCHEMA for each."""
    notes: list[str] = []
    file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
    with target.working_root() as root:
        files = QueueFiles(RealFileSystem(), root, file_size_bytes)
        try:
            if is_ordered:
                order = QueueOrder(file_unit_count)
                for units in order.place(UnitRun(row.queue_offset, row.units) for row in rows):
                    if units.begins_anew:
                        files.remove_queue(topic, queue_id)
                    files.write(topic, queue_id, units.queue_offset, units.units)
                notes = OrderedQueue.of(topic, queue_id, order).notes()
            else:
                for number, row in enumerate(rows):
                    if not number:
                        fill_fronts(files, {(topic, queue_id): row.queue_offset}, file_unit_count)
                    files.write(topic, queue_id, row.queue_offset, row.units)
            if is_flushed:
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


def _keys_of(splits: list[LogSplit], firsts: list[int], room: int, file_count: int) -> Work:
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


def _index_writer(target: Target, plans: list[IndexFilePlan]) -> Work:
    """What writes index files: of rows in order, one file after the other."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernels()
        for file, rows in groupby(_rows(batches), lambda row: row[0]):
            size_bytes, header = _write_index(target, plans[file], rows)
            yield pa.RecordBatch.from_pylist(
                [{"file": file, "size_bytes": size_bytes, "header": list(header)}], schema=_HEADERS
            )

    return work


def _write_index(target: Target, plan: IndexFilePlan, rows: Iterator[tuple[Any, ...]]) -> tuple[int, IndexHeader]:
    """Writes one index file of rows of KEY_SCHEMA, and brings it to its place; its size in bytes and header."""
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
        placed = IndexFilePlan(str(path), plan.layout, (), time_millis, offset, plan.is_flushed)
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
