"""The first step of a rebuild: one split of the log to queue units in their places and keys in scratch.

A unit's place follows from its record alone, so splits write side by side: into the same file, never the same bytes. That
is right as long as the positions of a queue come one after the other. Each split therefore says where each of its queues
begins and ends; a queue that does not go on where the split before left it, or jumps inside one, is `ordered`: written
again by one task that sees all of it (`rebuild_queues.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.jobs.log_scan import LogSplit, load_kernels, scan_split
from pipeline.jobs.rebuild_files import KeySpill, QueueFiles
from store.builders.queue_order import can_be
from store.builders.queue_runs import UnitRun, place_runs
from store.dispatch_columns import DispatchColumns
from store.errors import InvalidArgumentError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.paths import queue_dir
from store.format.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit

# Records that are made into units together: enough for long runs in each of hundreds of queues, 10 MB of columns.
BATCH_RECORD_COUNT = 1 << 17

QueueId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """What one task of the first step does.

    Attributes:
        split: what to read.
        out: the root to write to; None to write nothing.
        queue_file_size_bytes: of queue files.
        spill: path of the key spill without endings; None to keep no keys.
        is_flushed: whether queue files must be on the disk afterwards.
    """

    split: LogSplit
    out: str | None
    queue_file_size_bytes: int
    spill: str | None
    is_flushed: bool = True


@dataclass(slots=True)
class QueueSpan:
    """The messages of one queue in one split.

    Attributes:
        first: position of the first.
        end: the position behind the last.
        first_offset: commit-log offset of the first record (bytes).
        is_broken: the positions in between do not follow one another.
    """

    first: int
    end: int
    first_offset: int
    is_broken: bool = False


@dataclass(slots=True)
class ScanResult:
    """What one task found.

    Attributes:
        begin, end: what the split covers (bytes of the log).
        end_offset: where the walk ended; `end` when nothing was wrong.
        why: what is wrong there, in words; empty for zeros.
        record_count, key_count, unit_count: of the records seen.
        last_record_offset: where the last record starts; -1 without one.
        last_key_offset: where the last record with a key starts; -1 without one.
        last_store_time_millis: of the last record; 0 without one.
        queues: by topic and queue id.
        refused: topics and queue ids for which no folder can be made.
        paths: files written, below the root.
        memory_bytes_max: the most that the worker process has taken so far.
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
    memory_bytes_max: int = 0


class Batches:
    """Joins small runs of columns to larger ones.

    Args:
        record_count: how many to wait for.
    """

    def __init__(self, record_count: int = BATCH_RECORD_COUNT) -> None:
        self._wanted = record_count
        self._parts: list[DispatchColumns] = []
        self._count = 0

    def add(self, columns: DispatchColumns) -> Iterator[DispatchColumns]:
        """Takes some more; a batch when there are enough."""
        self._parts.append(columns)
        self._count += len(columns)
        if self._count >= self._wanted:
            yield from self.rest()

    def rest(self) -> Iterator[DispatchColumns]:
        """What is left as a batch."""
        if self._count:
            parts, self._parts, self._count = self._parts, [], 0
            yield DispatchColumns.joined(parts)


def scan(task: ScanTask) -> ScanResult:
    """One task of the first step; pure but for the files that it writes."""
    load_kernels()
    return _Scan(RealFileSystem(), task).run()


class _Scan:
    def __init__(self, fs: FileSystem, task: ScanTask) -> None:
        self._fs = fs
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
            end = scan_split(self._task.split, see, fs=self._fs)
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
        for topic, queue_id, runs in place_runs(columns):
            self._place((topic, queue_id), runs)

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
            is_broken = not can_be(position, offset, None, 0)
            span = self._result.queues[queue] = QueueSpan(position, position, offset, is_broken)
        for position, units in runs:
            self._result.unit_count += len(units) // UNIT_SIZE_BYTES
            if position != span.end:
                span.is_broken = True
            if span.is_broken:
                continue  # another task will write all of the queue
            if self._files is not None:
                self._files.write(*queue, position, units)
            span.end = position + len(units) // UNIT_SIZE_BYTES


def is_rolled(results: list[ScanResult]) -> bool:
    """Whether the log has a message behind the last one with a key, or messages and no key: it makes an index file."""
    last_record = max((result.last_record_offset for result in results), default=-1)
    return last_record > max((result.last_key_offset for result in results), default=-1)


def memory_bytes_max() -> int:
    """The most memory that this process has had resident, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
