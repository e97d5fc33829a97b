"""One pass over a split of the log: checks every record as recovery does, and hands the records over as columns.

The walk is the cursor of `store/walk/cursor.py` with recovery's check (sizes, magic, place, CRC of the body and of the record,
torn tails). The bytes that it has passed are decoded at once, while they are still in the CPU's cache:

    cursor        |--- 1 MiB checked ---|--- 1 MiB checked ---|--- ...
    walk_columns                        |--- the same, decoded ---|

A split lies in one file; it begins at a record and ends at one. Record starts are never guessed: a file begins with a
record, and starts inside it are found by walking from record to record from there. The caller that joins the splits checks
again that each one ends where the next one begins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.object_files import open_root
from store.audit.findings import Findings
from store.audit.log_audit import LogFileRun, LogFiles
from store.compiled import loading
from store.derive.dispatch_columns import DispatchColumns
from store.derive.dispatch_walk import walk_columns
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile
from store.format.delivery.delay_levels import delay_levels_in_use, use_delay_levels
from store.format.paths import commit_log_dir, log_file_name, own_state_dir
from store.walk.checks import FullCheck, SizeCheck
from store.walk.cursor import Gap, OneFile, RecordCursor
from store.walk.record_runs import RunCheck

KERNELS = ("store.derive.dispatch_kernel", "store.walk.log_walk_kernel", "store.derive.index_fill_kernel")
RECORD_COUNT_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class LogSplit:
    """A part of one log file; offsets are commit-log offsets in bytes.

    Attributes:
        root: the store root, or its URI.
        file_offset: the file's first byte.
        file_size_bytes: of each file.
        begin: a record's start.
        end: the file's end, or the next split's begin; exclusive.
        delay_levels_millis: the store's list, as the process has it that makes the split.
    """

    root: str
    file_offset: int
    file_size_bytes: int
    begin: int
    end: int
    delay_levels_millis: tuple[int, ...] = field(default_factory=delay_levels_in_use)


@dataclass(frozen=True, slots=True)
class LogOutline:
    """The files and bounds of a log, known before it is read.

    Attributes:
        file_size_bytes: of each file; 0 without files.
        file_offsets: the first byte of each file, ascending, without a gap.
        end_bound: the scan reads up to here, exclusive: the files' end, or how far a live store is flushed.
        is_live: a process may be writing to it.
    """

    file_size_bytes: int
    file_offsets: tuple[int, ...]
    end_bound: int
    is_live: bool

    @property
    def first_offset(self) -> int:
        """The log's first byte (commit-log offset); 0 without files."""
        return self.file_offsets[0] if self.file_offsets else 0

    @property
    def total_bytes(self) -> int:
        """Bytes from the first offset to the bound."""
        return self.end_bound - self.first_offset


def load_kernels() -> None:
    """Loads the kernels that a scan needs, and waits for them; called at the start of a task."""
    for name in KERNELS:
        loading.load(name)


def outline_log(fs: FileSystem, root: Path, *, durable_offset: int | None, is_live: bool) -> LogOutline:
    """The files of a log.

    Args:
        fs: the port to the disk.
        root: the store root.
        durable_offset: how far the running owner last reported the log as flushed (bytes); None without a report.
        is_live: a process has the store open for writing.

    Raises:
        StoreCorruptedError: a file is missing, or has a wrong length or name.
    """
    findings = Findings(root)
    files = LogFiles(fs, root, findings)
    files.close()
    for finding in findings.kept:
        if finding.code in ("LOG_FILE_NAME", "LOG_FILE_SIZE"):
            raise StoreCorruptedError(
                f"{finding.file}: {finding.what}; {finding.what_to_do}", file=finding.file, offset=finding.byte
            )
    if len(files.runs) > 1:
        missing = files.runs[0].last_offset
        path = files.directory / log_file_name(missing)
        raise StoreCorruptedError(
            f"{path} is missing between two other log files: restore it", file=path, offset=missing
        )
    offsets = tuple(files.sizes)
    end = offsets[-1] + files.file_size_bytes if offsets else 0
    if is_live and durable_offset is not None:
        end = max(min(end, durable_offset), offsets[0] if offsets else 0)
    return LogOutline(files.file_size_bytes, offsets, end, is_live)


def durable_offset_of(fs: FileSystem, root: Path) -> int | None:
    """How far the owner of a log last reported it as flushed (bytes); None without a report."""
    from store.audit.state_audit import StateAudit

    if not fs.is_dir(own_state_dir(str(root), "commitlog")):
        return None
    return StateAudit(fs, root, Findings(root)).durable_offset


def plan_splits(
    fs: FileSystem, root: Path, outline: LogOutline, split_bytes: int, place: str | None = None
) -> list[LogSplit]:
    """Splits of about `split_bytes`; one for each file when a file is not larger than that.

    Args:
        fs: the port to the log.
        root: the store root as the port knows it.
        outline: the log's files and bounds.
        split_bytes: wanted size.
        place: the store root, or its URI, by which tasks open it; None for `root`.
    """
    splits = []
    for file_offset in outline.file_offsets:
        end = min(file_offset + outline.file_size_bytes, outline.end_bound)
        if end <= file_offset:
            continue
        begins = [file_offset]
        if split_bytes < end - file_offset:
            begins += record_starts(fs, root, file_offset, end, split_bytes)
        splits += [
            LogSplit(place or str(root), file_offset, outline.file_size_bytes, begin, behind)
            for begin, behind in zip(begins, [*begins[1:], end], strict=True)
        ]
    return splits


def record_starts(fs: FileSystem, root: Path, file_offset: int, end: int, every_bytes: int) -> list[int]:
    """The first record at or after each multiple of `every_bytes` in a file, found by walking from record to record.

    The walk ends at a damaged record head: the bytes from there on belong to the last split, whose scan reports the damage.
    """
    path = Path(commit_log_dir(str(root))) / log_file_name(file_offset)
    file = MappedFile(fs, path, file_offset, end - file_offset, writable=False)
    starts: list[int] = []
    wanted = file_offset + every_bytes
    try:
        for start, _ in RecordCursor(OneFile(file), file_offset, SizeCheck()):
            if start >= wanted:
                starts.append(start)
                wanted = start - (start - file_offset) % every_bytes + every_bytes
    finally:
        file.close()
    return starts


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan ended.

    Attributes:
        end_offset: the first byte after the last good record; the split's end when nothing is wrong.
        why: what is wrong with the bytes there; None for zeros, and at the split's end.
    """

    end_offset: int
    why: RecordCorruptedError | None = None


def scan_split(
    split: LogSplit,
    see: Callable[[DispatchColumns], None],
    *,
    begin: int | None = None,
    fs: FileSystem | None = None,
) -> ScanEnd:
    """Hands every good record of a split to `see`, in log order, up to the first damage.

    Args:
        split: what to read.
        see: called with about a thousand records at a time.
        begin: a record's start to begin at instead of the split's begin (commit-log offset).
        fs: the port to the disk; None for that of the split's root.
    """
    [end] = _scan(split, see, split.begin if begin is None else begin, fs, over_damage=False)
    return end


def sound_stretches(split: LogSplit, see: Callable[[DispatchColumns], None]) -> Iterator[ScanEnd]:
    """As `scan_split`, but after damage it goes on at the next record that states its own commit-log offset.

    Yields where each stretch of good records ended, before `see` gets the next stretch.
    """
    return _scan(split, see, split.begin, None, over_damage=True)


def damage_at(end: ScanEnd) -> RecordCorruptedError:
    """The damage where a scan ended, as an error that names the byte."""
    if end.why is not None:
        return end.why
    return RecordCorruptedError(
        f"zeros at commit-log offset {end.end_offset}, where a record should begin", commitLogOffset=end.end_offset
    )


def _scan(
    split: LogSplit, see: Callable[[DispatchColumns], None], begin: int, fs: FileSystem | None, *, over_damage: bool
) -> Iterator[ScanEnd]:
    use_delay_levels(split.delay_levels_millis)
    opened, root = open_root(split.root)
    files = _SplitRun(fs or opened, root, split)
    file = files.files[0]
    file.will_read(begin, split.end)
    full = FullCheck(files)
    decoded, buffer = begin, bytearray()
    gaps: list[Gap] = []

    def decode(_: int) -> None:
        """Decodes the records that were checked since the last call, and hands them to `see`."""
        nonlocal decoded, buffer
        size_bytes = sum(full.last_record) - decoded if full.last_record is not None else 0
        if size_bytes <= 0:
            return
        if len(buffer) < size_bytes:
            buffer = bytearray(size_bytes)
        view = memoryview(buffer)[:size_bytes]
        file.read_into(decoded, view)
        walked = walk_columns(view, 0, decoded, RECORD_COUNT_MAX)
        if walked.why is not None:
            raise walked.why
        decoded = walked.next_offset
        see(walked.columns)

    def skip(gap: Gap) -> None:
        nonlocal decoded
        decode(gap.begin)
        decoded = gap.end
        gaps.append(gap)

    cursor = RecordCursor(
        files, begin, RunCheck(full), end_offset=split.end, skip=skip if over_damage else None, on_piece=decode
    )
    try:
        for _ in cursor:
            while gaps:
                gap = gaps.pop(0)
                yield ScanEnd(gap.begin, gap.why)
        decode(cursor.offset)
    finally:
        files.close()
    for gap in gaps:
        yield ScanEnd(gap.begin, gap.why)
    yield ScanEnd(min(cursor.offset, split.end), cursor.why)


class _SplitRun(LogFileRun):
    """The split's file, and the next one: the bytes after the last record show whether it is torn."""

    def __init__(self, fs: FileSystem, root: Path, split: LogSplit) -> None:
        directory = Path(commit_log_dir(str(root)))
        behind = split.file_offset + split.file_size_bytes
        has_next = split.end == behind and fs.exists(directory / log_file_name(behind))
        super().__init__(fs, directory, split.file_size_bytes, [split.file_offset, *[behind][: int(has_next)]])
