"""The first step of a rebuild: writes the queue units of one split of the log, and its keys to scratch files.

A unit's position follows from its record alone. So tasks write to the same files at the same time, but to different
bytes. This is correct as long as the positions of a queue are consecutive. Each task reports where each of its queues
begins and ends. A queue that does not continue where the split before ended, or that jumps inside a split, is `ordered`:
one task that reads the whole log writes it again (`OrderedQueue`).

Queues whose positions are not consecutive, and the fillers before a queue's first message.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.log_scan import LogSplit, damage_at, load_kernels, scan_split
from pipeline.rebuild.files import KeySpill, QueueFiles
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import is_followed
from store.derive.queue_placement import Placement, QueuePlacement, UnitRun, fillers
from store.derive.queue_runs import QueueRuns, inner_batches, place_runs
from store.errors import InvalidArgumentError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.derived.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit
from store.format.paths import queue_dir
from store.format.topic import is_light_queue

# Records whose units are made together: enough for long runs in each of hundreds of queues; 10 MB of columns.
BATCH_RECORD_COUNT = 1 << 17

QueueId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The input of one task of the first step.

    Attributes:
        split: the part of the log to read.
        out: the root to write to; None to write nothing.
        queue_file_size_bytes: size of queue files.
        spill: path of the key spill without endings; None to keep no keys.
        is_flushed: whether queue files must be flushed.
        hidden: topics whose queues are not made.
        has_tags: see StoreLayout.
    """

    split: LogSplit
    out: str | None
    queue_file_size_bytes: int
    spill: str | None
    is_flushed: bool = True
    hidden: frozenset[str] = frozenset()
    has_tags: bool = False


@dataclass(slots=True)
class QueueSpan:
    """The messages of one queue in one split.

    Attributes:
        first: position of the first message.
        end: the position after the last message.
        first_offset: commit-log offset of the first record (bytes).
        is_broken: whether the positions in between are not consecutive.
        unit_count: count of its units.
    """

    first: int
    end: int
    first_offset: int
    is_broken: bool = False
    unit_count: int = 0


@dataclass(slots=True)
class ScanResult:
    """The result of one task.

    Attributes:
        begin, end: the range of the split (bytes of the log).
        end_offset: where the walk ended; `end` if the split is sound (bytes).
        why: the damage there, as a text; empty for zeros.
        record_count, key_count, unit_count: counts of records, of their keys and of their units.
        last_record_offset: where the last record starts (bytes); -1 without one.
        last_key_offset: where the last record with a key starts (bytes); -1 without one.
        last_store_time_millis: store time of the last record; 0 without one.
        queues: by topic and queue id.
        refused: topics and queue ids that are not valid as folder names.
        batch_topics: topics that have an inner batch, of which no plain queue may be made.
        paths: files written, below the root.
        memory_bytes_max: peak resident memory of the worker process so far.
    """

    begin: int
    end: int
    end_offset: int = 0
    why: str = ""
    record_count: int = 0
    key_count: int = 0
    unit_count: int = 0
    last_record_offset: int = -1
    last_key_offset: int = -1
    last_store_time_millis: int = 0
    queues: dict[QueueId, QueueSpan] = field(default_factory=dict)
    refused: set[QueueId] = field(default_factory=set)
    batch_topics: set[str] = field(default_factory=set)
    memory_bytes_max: int = 0


class Batches:
    """Joins small runs of columns to larger ones.

    Args:
        record_count: least size of a batch, in records.
    """

    def __init__(self, record_count: int = BATCH_RECORD_COUNT) -> None:
        self._wanted = record_count
        self._parts: list[DispatchColumns] = []
        self._count = 0

    def add(self, columns: DispatchColumns) -> Iterator[DispatchColumns]:
        """Adds records; yields a batch if there are enough."""
        self._parts.append(columns)
        self._count += len(columns)
        if self._count >= self._wanted:
            yield from self.rest()

    def rest(self) -> Iterator[DispatchColumns]:
        """Yields the remaining records as a batch."""
        if self._count:
            parts, self._parts, self._count = self._parts, [], 0
            yield DispatchColumns.joined(parts)


def scan(task: ScanTask) -> ScanResult:
    """Runs one task of the first step. Its only side effect is the files that it writes."""
    load_kernels()
    return _Scan(RealFileSystem(), task).run()


class _Scan:
    def __init__(self, fs: FileSystem, task: ScanTask) -> None:
        self._task = task
        self._result = ScanResult(task.split.begin, task.split.end)
        self._files = QueueFiles(fs, Path(task.out), task.queue_file_size_bytes) if task.out is not None else None
        self._spill = KeySpill(fs, Path(task.spill)) if task.spill is not None else None

    def run(self) -> ScanResult:
        batches, result = Batches(), self._result

        def see(columns: DispatchColumns) -> None:
            for batch in batches.add(columns):
                self._take(batch)

        try:
            end = scan_split(self._task.split, see)
            for batch in batches.rest():
                self._take(batch)
            if self._files is not None and self._task.is_flushed:
                self._files.flush()
        finally:
            if self._files is not None:
                self._files.close()
            if self._spill is not None:
                self._spill.close()
        result.end_offset = end.end_offset
        result.why = end.why.message if end.why is not None else ""
        result.memory_bytes_max = memory_bytes_max()
        return result

    def _take(self, columns: DispatchColumns) -> None:
        result = self._result
        if self._task.has_tags:
            columns = columns.with_tags()
        result.record_count += len(columns)
        result.last_record_offset = int(columns.commit_log_offsets[-1])
        result.last_store_time_millis = int(columns.store_times_millis[-1])
        if len(columns.key_records):
            offsets = columns.commit_log_offsets[columns.key_records]
            result.last_key_offset = int(offsets[-1])
            result.key_count += len(offsets)
            if self._spill is not None:
                times_millis = columns.store_times_millis[columns.key_records]
                self._spill.append(np.ascontiguousarray(columns.key_hashes), offsets, times_millis)
        result.batch_topics |= {batch.topic for batch in inner_batches(columns)}
        for queue in made_queues(columns, self._task.hidden):
            self._place((queue.topic, queue.queue_id), queue.runs)

    def _place(self, queue: QueueId, runs: list[UnitRun]) -> None:
        if queue in self._result.refused:
            return
        span = self._result.queues.get(queue)
        if span is None:
            try:
                queue_dir("", *queue)
            except InvalidArgumentError:
                self._result.refused.add(queue)
                return
            position, units = runs[0]
            offset = decode_queue_unit(units).commit_log_offset
            is_broken = QueuePlacement(1).judge(position, units) is not Placement.FIRST
            span = self._result.queues[queue] = QueueSpan(position, position, offset, is_broken)
        for position, units in runs:
            self._result.unit_count += len(units) // UNIT_SIZE_BYTES
            span.unit_count += len(units) // UNIT_SIZE_BYTES
            if position != span.end:
                span.is_broken = True
            if span.is_broken:
                continue  # another task writes the whole queue
            if self._files is not None:
                self._files.write(*queue, position, units)
            span.end = position + len(units) // UNIT_SIZE_BYTES


def made_queues(columns: DispatchColumns, hidden: frozenset[str]) -> Iterator[QueueRuns]:
    """The units of records by queue, without queues that only a broker makes: those of hidden topics, and light queues."""
    return (queue for queue in place_runs(columns) if queue.topic not in hidden and not is_light_queue(queue.topic))


def drop_topics(results: list[ScanResult], topics: Collection[str]) -> None:
    """Takes the queues of topics out of results."""
    for result in results:
        for queue in [queue for queue in result.queues if queue[0] in topics]:
            result.unit_count -= result.queues.pop(queue).unit_count


def ends_without_keys(results: list[ScanResult]) -> bool:
    """Whether a record without keys follows the log's last record with keys."""
    last_record = max((result.last_record_offset for result in results), default=-1)
    return is_followed(last_record, max((result.last_key_offset for result in results), default=-1))


def memory_bytes_max() -> int:
    """The peak resident memory of this process, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


NOTED_COUNT_MAX = 10  # records with a damaged position that a report names for each queue: more are not read


@dataclass(frozen=True, slots=True)
class OrderedTask:
    """Queues that one task writes in log order.

    Attributes:
        splits: all of the log; each split ends where the first pass ended.
        queues: the queues to write.
        out: the root to write to; None to write nothing.
        queue_file_size_bytes: size of queue files.
        is_flushed: whether the files must be flushed.
    """

    splits: tuple[LogSplit, ...]
    queues: frozenset[QueueId]
    out: str | None
    queue_file_size_bytes: int
    is_flushed: bool = True


@dataclass(frozen=True, slots=True)
class OrderedQueue:
    """The result for a queue that was written in log order; see `QueuePlacement`."""

    topic: str
    queue_id: int
    end: int
    filled_count: int
    taken_count: int
    damaged: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, topic: str, queue_id: int, placement: QueuePlacement) -> "OrderedQueue":
        """The result of a placement that has seen the whole queue."""
        counts = placement.filled_count, placement.taken_count
        return cls(topic, queue_id, placement.end or 0, *counts, tuple(placement.damaged))

    def notes(self) -> list[str]:
        """Notes on the queue for the report of the rebuild."""
        name, notes = f"queue {self.topic}/{self.queue_id}", []
        if self.filled_count:
            notes.append(f"{name}: {self.filled_count} positions without a message were filled")
        if self.taken_count:
            notes.append(f"{name}: {self.taken_count} messages whose position was taken were left out")
        for position, offset in self.damaged[:NOTED_COUNT_MAX]:
            notes.append(f"{name}: the record at {offset} states position {position}, for which the log has no room")
        return notes


def out_of_order(results: list[ScanResult]) -> set[QueueId]:
    """Queues that must be written in log order, because their positions are not consecutive."""
    ordered: set[QueueId] = set()
    last: dict[QueueId, QueueSpan] = {}
    for result in results:
        for queue, span in result.queues.items():
            before = last.get(queue)
            if span.is_broken or (before is not None and span.first != before.end):
                ordered.add(queue)
            last[queue] = span
    return ordered


def first_positions(results: list[ScanResult]) -> dict[QueueId, int]:
    """The position of each queue's first message."""
    firsts: dict[QueueId, int] = {}
    for result in results:
        for queue, span in result.queues.items():
            firsts.setdefault(queue, span.first)
    return firsts


def fill_fronts(files: QueueFiles, firsts: dict[QueueId, int], file_unit_count: int) -> int:
    """Fills the positions before each queue's first message, in the file that holds it; returns their count."""
    filled = 0
    for (topic, queue_id), first in firsts.items():
        begin = first - first % file_unit_count
        filled += first - begin
        for at, units in fillers(begin, first):
            files.write(topic, queue_id, at, units)
    return filled


def write_in_order(task: OrderedTask) -> list[OrderedQueue]:
    """Writes the queues of one task.

    Raises:
        RecordCorruptedError: the log has been damaged since the first pass.
    """
    load_kernels()
    placements = {queue: QueuePlacement(task.queue_file_size_bytes // UNIT_SIZE_BYTES) for queue in task.queues}
    files = QueueFiles(RealFileSystem(), Path(task.out), task.queue_file_size_bytes) if task.out is not None else None
    try:
        if files is not None:
            for queue in task.queues:
                files.remove_queue(*queue)
        for columns in _columns_of(task.splits):
            for topic, queue_id, runs in place_runs(columns):
                placement = placements.get((topic, queue_id))
                if placement is None:
                    continue
                for placed in placement.place(runs):
                    if files is not None:
                        files.write_placed(topic, queue_id, placed)
        if files is not None and task.is_flushed:
            files.flush()
    finally:
        if files is not None:
            files.close()
    return [OrderedQueue.of(topic, queue_id, placement) for (topic, queue_id), placement in placements.items()]


def _columns_of(splits: tuple[LogSplit, ...]) -> Iterator[DispatchColumns]:
    """All records of all splits, one split at a time."""
    for split in splits:
        parts: list[DispatchColumns] = []
        batches = Batches()

        def see(columns: DispatchColumns, parts: list[DispatchColumns] = parts, batches: Batches = batches) -> None:
            parts.extend(batches.add(columns))

        end = scan_split(split, see)
        if end.end_offset < split.end:
            raise damage_at(end)
        yield from parts
        yield from batches.rest()
