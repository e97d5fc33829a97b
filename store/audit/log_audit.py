"""Audits the log: every record, the bytes between records, and where it ends.

The cursor of `store/walk/cursor.py` walks the log with recovery's check, and continues behind damage at the next record that
states its own offset. So the sound part, before the first damage, is checked as recovery checks it; good records behind it are
counted. Observers get every good record and every lost range, in log order.

LogFiles: the log's files as they are: files that are missing, short, long or misnamed are reported and worked around.

Files whose offsets differ by multiples of the file size belong to the log. Each run of them without a gap is a
`MappedFileQueue` of its own, so the audit uses the same walk as recovery.
"""

import contextlib
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from store.audit.findings import Findings
from store.derive.dispatch import DispatchRequest
from store.derive.queue_placement import NO_UNIT_BITS, is_batch
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile, MappedFileQueue, file_size_of
from store.format.derived.queue_unit import tags_code
from store.format.paths import commit_log_dir, has_log_file_form, log_file_name, parse_log_file_name
from store.format.properties import dispatched_to
from store.format.record import Record
from store.walk.checks import FullCheck
from store.walk.cursor import Gap, RecordCursor
from store.walk.record_reader import read_record_at
from store.walk.record_runs import light_places_of

OFFSET_MAX = (1 << 62) - 1


class LogFileRun(MappedFileQueue):
    """Log files without a gap between them, opened for reading.

    Args:
        fs: the disk port.
        directory: `commitlog/`.
        file_size_bytes: of each file.
        offsets: their first addresses.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size_bytes: int, offsets: list[int]) -> None:
        super().__init__(fs, directory, file_size_bytes, writable=False)
        self._files = tuple(
            MappedFile(fs, directory / log_file_name(offset), offset, file_size_bytes, writable=False)
            for offset in offsets
        )


class LogFiles:
    """All log files of a root.

    Args:
        fs: the disk port.
        root: the store root.
        findings: gets what is wrong with names and sizes.

    Attributes:
        file_size_bytes: the size of most files; 0 without files.
        runs: files without a gap, by address.
        sizes: the length on the disk of each file by its first address.
        misplaced: files with a log file's name whose offset does not fit to the others.
    """

    def __init__(self, fs: FileSystem, root: Path, findings: Findings) -> None:
        self.directory = Path(commit_log_dir(str(root)))
        self.runs: list[LogFileRun] = []
        self.sizes: dict[int, int] = {}
        self.misplaced: list[Path] = []
        self._fs = fs
        found: dict[int, int] = {}
        for name in fs.listdir(self.directory):
            offset = parse_log_file_name(name)
            if offset is None and not has_log_file_form(name):
                findings.add("LOG_FOREIGN_FILE", self.directory / name, 0, "this is not the name of a log file")
            elif offset is None or offset > OFFSET_MAX or not fs.is_file(self.directory / name):
                findings.add(
                    "LOG_FILE_NAME", self.directory / name, 0, "it is no regular file, or its offset is too large"
                )
                self.misplaced.append(self.directory / name)
            else:
                found[offset] = fs.stat_size(self.directory / name)
        self.file_size_bytes = file_size_of(found)
        if self.file_size_bytes:
            self._open(found, findings)

    def record_at(self, commit_log_offset: int) -> Record | None:
        """The record that begins at an offset (bytes); None where no whole one begins."""
        for run in self.runs:
            if run.first_offset <= commit_log_offset < run.last_offset:
                with contextlib.suppress(RecordCorruptedError):
                    return read_record_at(run.read, commit_log_offset, run.last_offset - commit_log_offset)
        return None

    def dispatched_to(self, commit_log_offset: int) -> frozenset[str]:
        """The further queues that the record at an offset (bytes) names."""
        record = self.record_at(commit_log_offset)
        return dispatched_to(record.properties) if record is not None else frozenset()

    @property
    def first_offset(self) -> int:
        """The first address; 0 without files."""
        return min(self.sizes, default=0)

    @property
    def total_bytes(self) -> int:
        """Length of all files."""
        return sum(self.sizes.values())

    def path_of(self, offset: int) -> tuple[Path, int]:
        """The file that an address belongs to, which may be missing, and the byte in it."""
        base = self.first_offset
        size = self.file_size_bytes or 1
        # The end of a full last file is reported as that file's end, not as the start of a file that does not exist.
        first = base + (offset - base) // size * size
        if first not in self.sizes and first == offset and offset - size in self.sizes:
            first = offset - size
        return self.directory / log_file_name(first), offset - first

    def close(self) -> None:
        """Closes all files."""
        for run in self.runs:
            run.close()

    def _open(self, found: dict[int, int], findings: Findings) -> None:
        size = self.file_size_bytes
        grid = Counter(offset % size for offset in found).most_common(1)[0][0]
        for offset, length in sorted(found.items()):
            if offset % size == grid:
                self.sizes[offset] = length
            else:
                path = self.directory / log_file_name(offset)
                self.misplaced.append(path)
                findings.add("LOG_FILE_NAME", path, 0, f"log files have {size} bytes each: none can begin at {offset}")
        offsets = list(self.sizes)
        start = 0
        for at in range(1, len(offsets) + 1):
            if at == len(offsets) or offsets[at] - offsets[at - 1] != size:
                self.runs.append(LogFileRun(self._fs, self.directory, size, offsets[start:at]))
                start = at
        for offset, length in self.sizes.items():
            if length == size:
                continue
            is_last = offset == offsets[-1] and length < size
            findings.add(
                "LOG_FILE_UNFINISHED" if is_last else "LOG_FILE_SIZE",
                self.directory / log_file_name(offset),
                min(length, size),
                f"it has {length} bytes, a log file has {size}",
                commit_log_offset=offset + min(length, size),
            )


SCAN_BYTES = 1 << 20
# 32 MB of hashes. Later records are not compared: repeats of one key are usually close together.
UNIQUE_KEY_COUNT_MAX = 4_000_000

QueueId = tuple[str, int]


class Observer(Protocol):
    """Compares files with the log."""

    def see(self, request: DispatchRequest) -> None:
        """The next good record."""

    def lose(self, begin_offset: int, end_offset: int) -> None:
        """The log has no good record in these bytes, where it should have some (offsets in bytes)."""


@dataclass(slots=True)
class LogSummary:
    """The log as the audit found it.

    Attributes:
        first_offset: its first byte.
        end_offset: the byte behind the last record of the sound part, where recovery would end.
        file_size_bytes: of each file; 0 without files.
        file_count: files that belong to the log.
        total_bytes: length of all files.
        record_count: good records.
        records_behind_damage: how many of them recovery cannot reach.
        unguarded_count: records without a `__CRC32#` of their own.
        last_store_time_millis: the greatest store time of a good record.
        lost: ranges with damage, `[begin, end)`.
        has_tail: the sound end is followed by bytes that a start would cut.
        queue_offsets: the next offset of each queue, from the sound part.
        batch_topics: topics of good records that are inner batches.
    """

    first_offset: int = 0
    end_offset: int = 0
    file_size_bytes: int = 0
    file_count: int = 0
    total_bytes: int = 0
    record_count: int = 0
    records_behind_damage: int = 0
    unguarded_count: int = 0
    last_store_time_millis: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    has_tail: bool = False
    queue_offsets: dict[QueueId, int] = field(default_factory=dict)
    batch_topics: set[str] = field(default_factory=set)

    @property
    def is_damaged(self) -> bool:
        """Whether good records lie behind a place that recovery cannot pass, or flushed ones are missing."""
        return bool(self.lost)


def dispatch_of(record: Record) -> DispatchRequest:
    """The part of a fully decoded record that builders need."""
    properties = record.properties
    return DispatchRequest(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.commit_log_offset,
        record.store_size_bytes,
        tags_code(record.topic, properties, record.store_time_millis),
        record.store_time_millis,
        record.keys,
        record.unique_key,
        record.sys_flag,
        record.prepared_transaction_offset,
        record.tags or "",
        light_places_of(record),
    )


def walk_sound_part(
    files: LogFiles, end_offset: int, see: Callable[[DispatchRequest], None], pulse: Callable[[int], None]
) -> None:
    """Calls back for the records before the sound end again, as builders need them; `pulse` gets the offset reached."""
    for run in files.runs[:1]:
        for record in RecordCursor(run, run.first_offset, FullCheck(run), end_offset=end_offset, on_piece=pulse):
            see(dispatch_of(record))


class LogAudit:
    """One pass over the log.

    Args:
        files: the log's files.
        findings: gets what is wrong.
        observers: get every record.
        durable_offset: the offset in the durable mark (bytes); None without one.
        watched: offsets that a state file names; see `boundaries`.
        pulse: gets the number of bytes of log read.

    Attributes:
        summary: filled by `run`.
        boundaries: of the watched offsets, those at which a record of the sound part ends, each with the next offsets
            of all queues there and the record before it (offset, size).
    """

    def __init__(
        self,
        files: LogFiles,
        findings: Findings,
        observers: list[Observer],
        *,
        durable_offset: int | None,
        watched: set[int],
        pulse: Callable[[int], None],
    ) -> None:
        self.summary = LogSummary(
            files.first_offset, files.first_offset, files.file_size_bytes, len(files.sizes), files.total_bytes
        )
        self.boundaries: dict[int, tuple[dict[QueueId, int], tuple[int, int]]] = {}
        self._files = files
        self._findings = findings
        self._observers = observers
        self._durable_offset = durable_offset
        self._watched = watched
        self._pulse = pulse
        self._next: dict[QueueId, int] = {}
        self._after_loss: set[QueueId] | None = None  # queues seen since the last lost range; None: there was none yet
        self._is_sound = True
        self._unique_keys = array("q")
        self._first_unguarded: int | None = None

    def run(self) -> LogSummary:
        """Reads the whole log."""
        summary = self.summary
        end_offset, tail_why, tail_run = summary.first_offset, "", None
        for number, run in enumerate(self._files.runs):
            if number:
                self._lose(end_offset, run.first_offset, tail_why, tail_run)
            end_offset, tail_why = self._run(run)
            tail_run = run
        self._judge_tail(end_offset, tail_why, tail_run)
        if self._is_sound:
            summary.end_offset = end_offset
            summary.queue_offsets = self._next
        self._say_counts()
        return summary

    def _run(self, run: LogFileRun) -> tuple[int, str]:
        """Walks one run of files; returns where its last good record ends, and what is wrong there (empty: zeros)."""
        summary = self.summary

        def lose(gap: Gap) -> None:
            self._lose(gap.begin, gap.end, _text(gap.why), run)

        def pulse(offset: int) -> None:
            self._pulse(offset - summary.first_offset)

        full = FullCheck(run)
        cursor = RecordCursor(run, run.first_offset, full, skip=lose, on_piece=pulse)
        for record in cursor:
            self._see(record)
        summary.last_store_time_millis = max(summary.last_store_time_millis, full.last_store_time_millis)
        return cursor.offset, _text(cursor.why)

    def _see(self, record: Record) -> None:
        summary = self.summary
        summary.record_count += 1
        if not self._is_sound:
            summary.records_behind_damage += 1
        request = dispatch_of(record)
        if not record.is_guarded:
            summary.unguarded_count += 1
            if self._first_unguarded is None:
                self._first_unguarded = request.commit_log_offset
        if request.unique_key and len(self._unique_keys) < UNIQUE_KEY_COUNT_MAX:
            self._unique_keys.append(hash((request.topic, request.unique_key)))
        if not request.sys_flag & NO_UNIT_BITS:
            self._follow_queue(request)
        elif is_batch(request.sys_flag):
            summary.batch_topics.add(request.topic)
        for observer in self._observers:
            observer.see(request)
        if self._is_sound and request.next_offset in self._watched:
            self.boundaries[request.next_offset] = (
                dict(self._next),
                (request.commit_log_offset, request.record_size_bytes),
            )

    def _follow_queue(self, request: DispatchRequest) -> None:
        """Queue offsets must have no gap: a gap is a message that was acknowledged and is missing."""
        queue_id, position = (request.topic, request.queue_id), request.queue_offset
        expected = self._next.get(queue_id)
        if request.topic in self.summary.batch_topics:
            expected = None  # a batch takes as many positions as it has messages
        if self._after_loss is not None and queue_id not in self._after_loss:
            self._after_loss.add(queue_id)
            if expected is not None and position >= expected:
                expected = position  # the gap is due to the lost bytes
        if expected is not None and position != expected:
            where, byte = self._files.path_of(request.commit_log_offset)
            name = f"{request.topic}/{request.queue_id}"
            offset = request.commit_log_offset
            if position == 0:
                self._findings.add(
                    "LOG_QUEUE_RESTARTED", where, byte, f"queue {name} begins again at 0 (it was at {expected})",
                    commit_log_offset=offset,
                )  # fmt: skip
            elif position > expected:
                self._findings.add(
                    "LOG_QUEUE_OFFSET_GAP", where, byte,
                    f"queue {name}: the record has queue offset {position}, the one before had {expected - 1}",
                    commit_log_offset=offset, count=position - expected,
                )  # fmt: skip
            else:
                self._findings.add(
                    "LOG_QUEUE_OFFSET_TAKEN", where, byte,
                    f"queue {name}: the record has queue offset {position}, which an earlier one has too",
                    commit_log_offset=offset,
                )  # fmt: skip
                return
        self._next[queue_id] = position + 1

    def _lose(self, begin: int, end: int, why: str, run: LogFileRun | None) -> None:
        """Reports a range that recovery cannot pass; the walk continues behind it."""
        summary = self.summary
        if self._is_sound:
            self._is_sound = False
            summary.end_offset = begin
            summary.queue_offsets = dict(self._next)
        summary.lost.append((begin, end))
        self._after_loss = set()
        where, byte = self._files.path_of(begin)
        if run is not None and begin >= run.last_offset:
            code, what = "LOG_FILE_MISSING", f"{end - begin} bytes of the log are missing here"
            where, byte = self._files.directory / f"{begin:020d}", 0
        elif why:
            code, what = "LOG_DAMAGED", f"{why}; the next whole record is at {end}"
        else:
            code, what = "LOG_HOLE", f"zeros where a record should be; the next whole record is at {end}"
        self._findings.add(code, where, byte, what, commit_log_offset=begin)
        for observer in self._observers:
            observer.lose(begin, end)

    def _judge_tail(self, end_offset: int, why: str, run: LogFileRun | None) -> None:
        where, byte = self._files.path_of(end_offset)
        durable = self._durable_offset
        if self._is_sound and durable is not None and end_offset < durable:
            self._findings.add(
                "LOG_SHORTER_THAN_FLUSHED", where, byte,
                f"{why or 'the log ends here'}; it was flushed up to {durable}", commit_log_offset=end_offset,
            )  # fmt: skip
            self.summary.has_tail = True
            self.summary.lost.append((end_offset, durable))
            self.summary.end_offset = end_offset
            self.summary.queue_offsets = dict(self._next)
            for observer in self._observers:
                observer.lose(end_offset, durable)
            return
        stale = _first_byte_behind(run, end_offset) if run is not None else None
        if why:
            self._findings.add("LOG_TORN_TAIL", where, byte, f"{why}; no record follows", commit_log_offset=end_offset)
        elif stale is not None:
            where, byte = self._files.path_of(stale)
            self._findings.add(
                "LOG_STALE_BYTES", where, byte,
                f"bytes that are not a record, behind the end of the log at {end_offset}", commit_log_offset=stale,
            )  # fmt: skip
        self.summary.has_tail = bool(why) or stale is not None

    def _say_counts(self) -> None:
        summary = self.summary
        if self._first_unguarded is not None:
            where, byte = self._files.path_of(self._first_unguarded)
            self._findings.add(
                "LOG_RECORD_UNGUARDED", where, byte,
                f"{summary.unguarded_count} of {summary.record_count} records have no __CRC32# of their own, this is the first",
                commit_log_offset=self._first_unguarded, count=summary.unguarded_count,
            )  # fmt: skip
        hashes = np.frombuffer(self._unique_keys, dtype=np.int64) if self._unique_keys else np.empty(0, dtype=np.int64)
        if len(hashes):
            hashes.sort()
            repeated = int(np.count_nonzero(hashes[1:] == hashes[:-1]))
            if repeated:
                self._findings.add(
                    "LOG_UNIQUE_KEY_REPEATED", self._files.directory, 0,
                    f"{repeated} records have the topic and unique key of another one (retries and batches do)",
                    count=repeated,
                )  # fmt: skip


def _text(why: RecordCorruptedError | None) -> str:
    return "" if why is None else why.message


def _first_byte_behind(run: LogFileRun, offset: int) -> int | None:
    """The first byte from `offset` on that is not zero."""
    file = run.find(offset)
    while file is not None:
        for begin, end in file.data_ranges(max(offset, file.first_offset)):
            for position in range(begin, end, SCAN_BYTES):
                data = file.read(position, min(SCAN_BYTES, end - position))
                stripped = data.lstrip(b"\0")
                if stripped:
                    return position + len(data) - len(stripped)
        file = run.find(file.last_offset)
    return None
