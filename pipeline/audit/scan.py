"""The first step of an audit: derives from one log file, record by record, what the queues and the index must hold.

A task writes runs of units of each queue, and the keys of the index, to scratch files. The driver receives only what it
needs to join files: ranges of sound records, where each queue begins and ends in them, and the state of the queues at the
watched offsets, which checkpoints refer to.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.audit.scratch import Scratch
from pipeline.log_scan import LogSplit, load_kernels, sound_stretches
from pipeline.object_files import open_root
from pipeline.rebuild.files import KeySpill
from pipeline.rebuild.scan import Batches, memory_bytes_max
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_runs import inner_batches, place_runs
from store.files.file_system import RealFileSystem
from store.format.derived.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit
from store.format.paths import commit_log_dir, log_file_name
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES

UNGUARDED_RECORD_COUNT = 1024  # read at a time, so that the data stays in the CPU cache

QueueId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AuditScanTask:
    """The input of one task.

    Attributes:
        split: a whole log file.
        scratch: where its scratch files go.
        spill: name of these files without endings.
        watched: offsets that checkpoints refer to (bytes), ascending.
    """

    split: LogSplit
    scratch: Scratch
    spill: str
    watched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitSpan:
    """Units of one queue at consecutive positions, in log order.

    Attributes:
        topic, queue_id: the queue.
        position: queue position of the first unit.
        count: count of units.
        first_offset: commit-log offset of the first record (bytes).
        end_offset: where the last record ends (bytes).
        spill_at: byte of the first unit in the scratch file.
    """

    topic: str
    queue_id: int
    position: int
    count: int
    first_offset: int
    end_offset: int
    spill_at: int


@dataclass(slots=True)
class Segment:
    """Adjacent records, up to a watched offset, a damaged place or the file's end.

    Attributes:
        begin_offset: start of the first record (bytes).
        end_offset: end of the last record (bytes).
        record_count: count of records.
        last_record: offset and size of the last record (bytes); None without records.
        last_store_time_millis: the greatest store time.
        spans: the units that the queues must hold, in the order of their first records.
    """

    begin_offset: int
    end_offset: int
    record_count: int = 0
    last_record: tuple[int, int] | None = None
    last_store_time_millis: int = 0
    spans: list[UnitSpan] = field(default_factory=list)


@dataclass(slots=True)
class FileScan:
    """The result for one log file.

    Attributes:
        stretches: ranges of sound records: segments, the offset at which the walk ended (bytes), and why (empty for zeros).
        key_count: count of keys in scratch.
        unguarded_count: count of records without `__CRC32#`.
        first_unguarded: offset of the first of them (bytes); None without one.
        memory_bytes_max: peak resident memory of the worker process so far.
        batch_topics: topics that have an inner batch.
    """

    stretches: list[tuple[list[Segment], int, str]] = field(default_factory=list)
    key_count: int = 0
    unguarded_count: int = 0
    first_unguarded: int | None = None
    memory_bytes_max: int = 0
    batch_topics: set[str] = field(default_factory=set)


def scan_file(task: AuditScanTask) -> FileScan:
    """Runs one task of the first step."""
    load_kernels()
    with task.scratch.writing() as folder:
        return _FileScan(task, folder).run()


class _FileScan:
    def __init__(self, task: AuditScanTask, folder: Path) -> None:
        self._task = task
        self._result = FileScan()
        self._keys = KeySpill(RealFileSystem(), folder / task.spill)
        self._units = open(folder / f"{task.spill}.units", "wb")  # noqa: SIM115 - closed by run
        self._log_fs, root = open_root(task.split.root)
        path = Path(commit_log_dir(str(root))) / log_file_name(task.split.file_offset)
        self._log = self._log_fs.open(path, os.O_RDONLY)
        self._log_fs.will_read(self._log, 0, task.split.file_size_bytes)
        self._units_at = 0
        self._segments: list[Segment] = []
        self._batches = Batches()

    def run(self) -> FileScan:
        try:
            for end in sound_stretches(self._task.split, self._see):
                self._take_rest()
                why = end.why.message if end.why is not None else ""
                self._result.stretches.append((self._segments, end.end_offset, why))
                self._segments = []
        finally:
            self._keys.close()
            self._units.close()
            self._log_fs.close(self._log)
        self._result.key_count = self._keys.key_count
        self._result.memory_bytes_max = memory_bytes_max()
        return self._result

    def _see(self, columns: DispatchColumns) -> None:
        for batch in self._batches.add(columns):
            self._take_all(batch)

    def _take_rest(self) -> None:
        for batch in self._batches.rest():
            self._take_all(batch)

    def _take_all(self, columns: DispatchColumns) -> None:
        """Takes a batch in parts that end at watched offsets."""
        self._count_unguarded(columns)
        ends = columns.commit_log_offsets + columns.record_sizes_bytes
        for watched in self._task.watched:
            at = int(np.searchsorted(ends, watched))
            if at < len(ends) and int(ends[at]) == watched:
                rest = columns.behind(watched)
                before = _first(columns, len(columns) - len(rest))
                self._take(before)
                self._segments.append(Segment(watched, watched))
                columns, ends = rest, rest.commit_log_offsets + rest.record_sizes_bytes
        if len(columns):
            self._take(columns)

    def _take(self, columns: DispatchColumns) -> None:
        if not len(columns):
            return
        first, last = int(columns.commit_log_offsets[0]), int(columns.commit_log_offsets[-1])
        if not self._segments or (self._segments[-1].record_count == 0 and self._segments[-1].begin_offset != first):
            self._segments.append(Segment(first, first))
        segment = self._segments[-1]
        segment.record_count += len(columns)
        segment.last_record = (last, int(columns.record_sizes_bytes[-1]))
        segment.end_offset = sum(segment.last_record)
        segment.last_store_time_millis = max(segment.last_store_time_millis, int(columns.store_times_millis.max()))
        self._keys.append(
            np.ascontiguousarray(columns.key_hashes),
            columns.commit_log_offsets[columns.key_records],
            columns.store_times_millis[columns.key_records],
        )
        self._result.batch_topics |= {batch.topic for batch in inner_batches(columns)}
        spans = []
        for topic, queue_id, runs in place_runs(columns):
            for position, units in runs:
                last_unit = decode_queue_unit(units, len(units) - UNIT_SIZE_BYTES)
                spans.append(
                    UnitSpan(
                        topic, queue_id, position, len(units) // UNIT_SIZE_BYTES,
                        decode_queue_unit(units).commit_log_offset, last_unit.next_offset, self._units_at,
                    )
                )  # fmt: skip
                self._units.write(units)
                self._units_at += len(units)
        segment.spans += sorted(spans, key=lambda span: span.first_offset)

    def _count_unguarded(self, columns: DispatchColumns) -> None:
        """Counts records that do not end with `__CRC32#`, from the bytes of the log at its position."""
        ends = columns.commit_log_offsets + columns.record_sizes_bytes
        marker = np.frombuffer(CRC_MARKER, dtype=np.uint8)
        for first in range(0, len(ends), UNGUARDED_RECORD_COUNT):
            part = ends[first : first + UNGUARDED_RECORD_COUNT]
            begin = int(columns.commit_log_offsets[first])
            read = self._log_fs.pread(self._log, int(part[-1]) - begin, begin - self._task.split.file_offset)
            data = np.frombuffer(read, dtype=np.uint8)
            places = (part - begin - CRC_PROPERTY_SIZE_BYTES)[:, None] + np.arange(len(marker))
            unguarded = np.flatnonzero(~(data[places] == marker).all(axis=1))
            self._result.unguarded_count += len(unguarded)
            if len(unguarded) and self._result.first_unguarded is None:
                self._result.first_unguarded = int(columns.commit_log_offsets[first + unguarded[0]])


def _first(columns: DispatchColumns, count: int) -> DispatchColumns:
    """The first `count` records."""
    key_count = int(np.searchsorted(columns.key_records, count))
    return DispatchColumns(
        columns.topics,
        columns.topic_numbers[:count],
        columns.queue_ids[:count],
        columns.queue_offsets[:count],
        columns.commit_log_offsets[:count],
        columns.record_sizes_bytes[:count],
        columns.tags_codes[:count],
        columns.store_times_millis[:count],
        columns.sys_flags[:count],
        columns.key_records[:key_count],
        columns.key_hashes[:key_count],
        columns.first,
        None,
    )
