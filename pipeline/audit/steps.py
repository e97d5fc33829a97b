"""The steps of an audit, in the order in which they run.

First, `scan_file` derives from one log file, record by record, what the queues and the index must hold.

A task writes runs of units of each queue, and the keys of the index, to scratch files. The driver receives only what it
needs to join files: ranges of sound records, where each queue begins and ends in them, and the state of the queues at the
watched offsets, which checkpoints refer to.

The driver joins the log files: `LogAudit` itself, with the results of the scan tasks in place of records.

Second, `QueueAudit` compares a group of queues with the units that follow from the log.

Third, each index file is compared with the keys that it must hold.

A sound file equals the file that a rebuild would write. A task for each file compares the two. If a file differs, or the
log no longer has the first file's records, `IndexAudit` compares all keys with all entries and reports what is wrong.
"""

import os
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.audit.scratch import Scratch
from pipeline.log_scan import LogSplit, load_kernels, sound_stretches
from pipeline.object_files import open_root
from pipeline.rebuild.files import FILL_KEY_COUNT, IndexFilePlan, KeyPart, KeySpill, read_keys
from pipeline.rebuild.scan import Batches, memory_bytes_max
from store.audit.findings import Findings
from store.audit.index_audit import IndexAudit
from store.audit.log_audit import LogAudit, LogFileRun, LogFiles
from store.audit.queue_audit import QueueAudit
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_fill import IndexFiller
from store.derive.index_keys import NO_TAGS
from store.derive.index_state import IndexFileState
from store.derive.queue_placement import UnitRun
from store.derive.queue_runs import inner_batches, place_runs
from store.files.file_system import FileSystem, RealFileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, encode_index_header, entry_position
from store.format.derived.queue_unit import UNIT_SIZE_BYTES, QueueUnit, decode_queue_unit
from store.format.paths import commit_log_dir, log_file_name
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES
from store.readers.index_reader import IndexLayout

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
        has_tags: whether the index has entries of tags: then they stand among the keys in scratch, with inverted hashes.
    """

    split: LogSplit
    scratch: Scratch
    spill: str
    watched: tuple[int, ...]
    has_tags: bool = False


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
        tag_count: how many of them are of tags.
        unguarded_count: count of records without `__CRC32#`.
        first_unguarded: offset of the first of them (bytes); None without one.
        memory_bytes_max: peak resident memory of the worker process so far.
        batch_topics: topics that have an inner batch.
    """

    stretches: list[tuple[list[Segment], int, str]] = field(default_factory=list)
    key_count: int = 0
    tag_count: int = 0
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
        keys, hashes = columns, columns.key_hashes
        if self._task.has_tags:
            keys = columns.with_tags()
            is_tag = np.ones(len(keys.key_hashes), dtype=bool)
            is_tag[np.arange(len(hashes)) + _tags_before(columns)] = False
            hashes = np.where(is_tag, ~keys.key_hashes, keys.key_hashes)
            self._result.tag_count += int(np.count_nonzero(is_tag))
        self._keys.append(
            np.ascontiguousarray(hashes),
            keys.commit_log_offsets[keys.key_records],
            keys.store_times_millis[keys.key_records],
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


def _tags_before(columns: DispatchColumns) -> npt.NDArray[np.int64]:
    """For each key, how many entries of tags stand before it: those of the records before."""
    counts = np.cumsum(columns.tags_hashes != NO_TAGS, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), counts])[columns.key_records]


def _hashes(spilled: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The hashes of keys from scratch, where those of tags are inverted."""
    return spilled ^ (spilled >> 31)


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
        columns.tags_hashes[:count],
        columns.key_records[:key_count],
        columns.key_hashes[:key_count],
        columns.first,
        None,
    )


def request_of(span: UnitSpan, number: int, unit: QueueUnit) -> DispatchRequest:
    """A dispatch request with the fields that a unit has; the others are empty."""
    return DispatchRequest(
        span.topic,
        span.queue_id,
        span.position + number,
        unit.commit_log_offset,
        unit.record_size_bytes,
        unit.tags_code,
        0,
        (),
        "",
        0,
        0,
    )


class JoinedLogAudit(LogAudit):
    """One pass over the scan results of the log files.

    Args:
        files: the log's files.
        findings: receives the findings.
        scans: the result for each file by its first offset (bytes), with the path of its units.
        units_fs: the port to these.
        durable_offset: see LogAudit.
        watched: see LogAudit.
    """

    def __init__(
        self,
        files: LogFiles,
        findings: Findings,
        scans: dict[int, tuple[FileScan, Path]],
        *,
        durable_offset: int | None,
        watched: set[int],
        units_fs: FileSystem,
    ) -> None:
        super().__init__(files, findings, [], durable_offset=durable_offset, watched=watched, pulse=lambda done: None)
        self._scans = scans
        self._units_fs = units_fs
        self.summary.unguarded_count = sum(scan.unguarded_count for scan, _ in scans.values())
        self.summary.batch_topics = set[str]().union(*(scan.batch_topics for scan, _ in scans.values()))
        firsts = [scan.first_unguarded for scan, _ in scans.values() if scan.first_unguarded is not None]
        self._first_unguarded = min(firsts, default=None)

    def _run(self, run: LogFileRun) -> tuple[int, str]:
        end, why = run.first_offset, ""
        for file in run.files:
            scan, path = self._scans[file.first_offset]
            units = self._units_fs.open(path, os.O_RDONLY)
            try:
                for segments, stretch_end, stretch_why in scan.stretches:
                    records = [segment for segment in segments if segment.record_count]
                    if records:
                        if records[0].begin_offset != end:
                            self._lose(end, records[0].begin_offset, why, run)
                        for segment in records:
                            self._take(segment, units)
                        end, why = stretch_end, stretch_why
                    elif end == file.first_offset:
                        end, why = stretch_end, stretch_why
            finally:
                self._units_fs.close(units)
        return end, why

    def _take(self, segment: Segment, units: int) -> None:
        summary = self.summary
        summary.record_count += segment.record_count
        if not self._is_sound:
            summary.records_behind_damage += segment.record_count
        summary.last_store_time_millis = max(summary.last_store_time_millis, segment.last_store_time_millis)
        for span in segment.spans:
            self._follow_span(span, units)
        if self._is_sound and segment.end_offset in self._watched:
            assert segment.last_record is not None
            self.boundaries[segment.end_offset] = (dict(self._next), segment.last_record)

    def _follow_span(self, span: UnitSpan, units: int) -> None:
        """Equals `_follow_queue` for each of its records: after the first record that continues the queue, all others do."""
        queue = (span.topic, span.queue_id)
        for number in range(span.count):
            unit = self._units_fs.pread(units, UNIT_SIZE_BYTES, span.spill_at + number * UNIT_SIZE_BYTES)
            request = request_of(span, number, decode_queue_unit(unit))
            self._follow_queue(request)
            if self._next.get(queue) == request.queue_offset + 1:
                self._next[queue] = span.position + span.count
                return


@dataclass(frozen=True, slots=True)
class QueueTask:
    """A group of queues to audit.

    Attributes:
        root: the store root, or its URI.
        scratch: where the units lie.
        queues: topic and queue id of each queue.
        spans: the units that they must hold, in log order, with the name of the units' scratch file.
        log_first_offset, log_end_offset: the range of the log (bytes).
        lost: begin and end of the damaged parts of the log (bytes).
        resumes_at: see QueueAudit.
        batch_topics: topics of which the log has an inner batch.
    """

    root: str
    scratch: Scratch
    queues: frozenset[QueueId]
    spans: tuple[tuple[str, UnitSpan], ...]
    log_first_offset: int
    log_end_offset: int
    lost: tuple[tuple[int, int], ...]
    resumes_at: int | None
    batch_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """The result of one task."""

    findings: Findings
    unit_count: int
    total_bytes: int
    wrong_queues: frozenset[QueueId]


def audit_queues(task: QueueTask) -> QueueOutcome:
    """Audits the queues of one task."""
    fs, root = open_root(task.root)
    findings = Findings(root)

    @cache
    def log_files() -> LogFiles:  # opened for a queue without a record of its own only
        return LogFiles(fs, root, Findings(root))

    audit = QueueAudit(
        fs, root, task.log_first_offset, findings,
        resumes_at=task.resumes_at, dispatched_to=lambda offset: log_files().dispatched_to(offset),
    )  # fmt: skip
    for topic in task.batch_topics:
        audit.hide(topic)
    for begin, end in task.lost:
        audit.lose(begin, end)
    units_fs, units_root = task.scratch.opened()
    # In log order: one file is read after the other.
    for name, spans in groupby(task.spans, lambda pair: pair[0]):
        file = units_fs.open(units_root / name, os.O_RDONLY)
        try:
            for _, span in spans:
                units = units_fs.pread(file, span.count * UNIT_SIZE_BYTES, span.spill_at)
                audit.see_units(span.topic, span.queue_id, UnitRun(span.position, units))
        finally:
            units_fs.close(file)
    audit.finish(task.log_end_offset, only=set(task.queues))
    return QueueOutcome(findings, audit.unit_count, audit.total_bytes, frozenset(audit.wrong_queues))


READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexTask:
    """The input of the audit of the whole index.

    Attributes:
        root: the store root, or its URI.
        scratch: where the keys lie.
        layout: slots and entries of its files; None if it is not known.
        parts: all keys, in log order.
        log_first_offset, log_end_offset: the range of the log (bytes).
        lost: begin and end of the damaged parts of the log (bytes).
        resumes_at, unflushed_from: see IndexAudit.
    """

    root: str
    scratch: Scratch
    layout: IndexLayout | None
    parts: tuple[KeyPart, ...]
    log_first_offset: int
    log_end_offset: int
    lost: tuple[tuple[int, int], ...]
    resumes_at: int | None
    unflushed_from: str | None


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """The result of the task."""

    findings: Findings
    entry_count: int
    key_count: int


def is_as_rebuilt(plan: IndexFilePlan, root: str, scratch: Scratch) -> bool:
    """Whether an index file equals, byte for byte, the file that a rebuild makes from its keys.

    Args:
        plan: the file's name and its keys.
        root: the store root, or its URI.
        scratch: where the keys lie.
    """
    load_kernels()
    fs, layout = open_root(root)[0], plan.layout
    if fs.stat_size(plan.path) != layout.file_size_bytes:
        return False
    state = IndexFileState.seeded(
        layout.slot_count,
        layout.entry_count_max,
        end_time_millis=plan.before_time_millis,
        end_commit_log_offset=plan.before_offset,
    )
    file = OpenFiles(fs).get(Path(plan.path))
    fs.will_read(file.fd, entry_position(0, layout.slot_count), layout.file_size_bytes)
    filler = IndexFiller(state, min(FILL_KEY_COUNT, sum(part.key_count for part in plan.parts)))
    for hashes, offsets, times_millis in read_keys(scratch.opened()[0], plan.parts):
        position = entry_position(state.header.entry_count, layout.slot_count)
        entries = filler.fill(_hashes(hashes), offsets, times_millis)
        if file.read(position, len(entries)) != entries:
            return False
    slots = file.read(HEADER_SIZE, layout.slot_count * SLOT_SIZE)
    if not np.array_equal(np.frombuffer(slots, dtype=">i4"), state.heads):
        return False
    if any(file.read(entry_position(0, layout.slot_count), ENTRY_SIZE)):
        return False
    if file.read(0, HEADER_SIZE) != encode_index_header(state.header):
        return False
    behind: int | None = entry_position(state.header.entry_count, layout.slot_count)
    while behind is not None and behind < layout.file_size_bytes:
        behind = fs.next_data(file.fd, behind)
        if behind is None or behind >= layout.file_size_bytes:
            break
        data = file.read(behind, READ_BYTES)
        if data.strip(b"\0"):
            return False
        behind += len(data)
    return True


def audit_index(task: IndexTask) -> IndexOutcome:
    """Audits the whole index, key by key."""
    fs, root = open_root(task.root)
    findings = Findings(root)
    audit = IndexAudit(
        fs, root, task.layout, task.log_first_offset, findings,
        resumes_at=task.resumes_at, unflushed_from=task.unflushed_from,
    )  # fmt: skip
    for begin, end in task.lost:
        audit.lose(begin, end)
    for hashes, offsets, times_millis in read_keys(task.scratch.opened()[0], task.parts):
        audit.see_keys(_hashes(hashes).astype(np.int64), offsets, times_millis, hashes < 0)
    audit.finish(task.log_end_offset)
    return IndexOutcome(findings, audit.entry_count, audit.key_count)
