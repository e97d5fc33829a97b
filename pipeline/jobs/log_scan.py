"""One pass over a piece of the log: every record checked as recovery checks it, and shown as columns.

The checking is `store/readers/log_walk.py` itself (sizes, magic, place, body CRC, whole-record CRC, torn tails); what it
has let through is decoded right behind it, while the bytes are still in the CPU's cache:

    walk_log      |--- 1 MiB checked ---|--- 1 MiB checked ---|--- ...
    walk_columns                        |--- the same, decoded ---|

A split begins at a record and ends at one, in one file. Where records begin is never guessed: a file begins with one, and
places inside it are found by going from record to record from there. That every split ends where the next one begins is
checked again by whoever joins them.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from store.audit.findings import Findings
from store.audit.log_files import LogFileRun, LogFiles
from store.dispatch_columns import DispatchColumns
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_file import MappedFile
from store.format.paths import commit_log_dir, log_file_name, own_state_dir
from store.format.record import BLANK_SIZE_BYTES, MAGIC_V1, MAGIC_V2
from store.kernels import loading
from store.kernels.dispatch_walk import walk_columns
from store.readers.log_walk import HEADER_BYTES_MAX, TEAR_WINDOW_BYTES, WalkEnd, find_record_behind, walk_log

KERNELS = ("dispatch_kernel", "log_walk_kernel", "index_fill_kernel")
HOP_BYTES = 1 << 20
RECORD_COUNT_MAX = 1 << 40
_MAGICS = (MAGIC_V1, MAGIC_V2)


@dataclass(frozen=True, slots=True)
class LogSplit:
    """A piece of one log file; offsets in bytes of the log.

    Attributes:
        root: the store root.
        file_offset: the file's first byte.
        file_size_bytes: of each file.
        begin: a record's start.
        end: the file's end, or the next split's begin; nothing behind it is looked at.
    """

    root: str
    file_offset: int
    file_size_bytes: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogOutline:
    """What is known of a log before it is read.

    Attributes:
        file_size_bytes: of each file; 0 without files.
        file_offsets: the first byte of each file, rising, without a gap.
        end_bound: nothing from here on is read: the files' end, or how far a live store is flushed.
        is_live: somebody may be writing.
    """

    file_size_bytes: int
    file_offsets: tuple[int, ...]
    end_bound: int
    is_live: bool

    @property
    def first_offset(self) -> int:
        """The first byte there is; 0 without files."""
        return self.file_offsets[0] if self.file_offsets else 0

    @property
    def total_bytes(self) -> int:
        """From the first byte to the bound."""
        return self.end_bound - self.first_offset


def load_kernels() -> None:
    """Loads what a scan needs, and waits for it: at the start of a task."""
    for name in KERNELS:
        loading.load(name)


def outline_log(fs: FileSystem, root: Path, *, durable_offset: int | None, is_live: bool) -> LogOutline:
    """The files of a log.

    Args:
        fs: the door to the disk.
        root: the store root.
        durable_offset: what a running owner last said to be flushed (bytes); None when it says nothing.
        is_live: somebody has the store open for writing.

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
        raise StoreCorruptedError(f"{path} is missing between its neighbours: bring it back", file=path, offset=missing)
    offsets = tuple(files.sizes)
    end = offsets[-1] + files.file_size_bytes if offsets else 0
    if is_live and durable_offset is not None:
        end = max(min(end, durable_offset), offsets[0] if offsets else 0)
    return LogOutline(files.file_size_bytes, offsets, end, is_live)


def durable_offset_of(fs: FileSystem, root: Path) -> int | None:
    """How far the owner of a log last said that it is flushed (bytes); None when it says nothing."""
    from store.audit.state_audit import StateAudit

    if not fs.is_dir(own_state_dir(str(root), "commitlog")):
        return None
    return StateAudit(fs, root, Findings(root)).durable_offset


def plan_splits(fs: FileSystem, root: Path, outline: LogOutline, split_bytes: int) -> list[LogSplit]:
    """Splits of about that many bytes; one for each file when that is not less."""
    splits = []
    for file_offset in outline.file_offsets:
        end = min(file_offset + outline.file_size_bytes, outline.end_bound)
        if end <= file_offset:
            continue
        begins = [file_offset]
        if split_bytes < end - file_offset:
            begins += record_starts(fs, root, file_offset, end, split_bytes)
        splits += [
            LogSplit(str(root), file_offset, outline.file_size_bytes, begin, behind)
            for begin, behind in zip(begins, [*begins[1:], end], strict=True)
        ]
    return splits


def record_starts(fs: FileSystem, root: Path, file_offset: int, end: int, every_bytes: int) -> list[int]:
    """The first record behind each multiple of `every_bytes` in a file, found by going from record to record.

    It ends where a head is not in order: what lies behind belongs to the last split, whose scan says what is wrong.
    """
    fd = fs.open(Path(commit_log_dir(str(root))) / log_file_name(file_offset), os.O_RDONLY)
    starts: list[int] = []
    position, limit, wanted = 0, end - file_offset, every_bytes
    chunk, base = b"", 0
    try:
        while position + BLANK_SIZE_BYTES <= limit:
            at = position - base
            if at + BLANK_SIZE_BYTES > len(chunk):
                chunk, base, at = fs.pread(fd, HOP_BYTES, position), position, 0
                if len(chunk) < BLANK_SIZE_BYTES:
                    break
            size_bytes = int.from_bytes(chunk[at : at + 4], "big", signed=True)
            if size_bytes <= 0 or int.from_bytes(chunk[at + 4 : at + 8], "big", signed=True) not in _MAGICS:
                break
            if position >= wanted:
                starts.append(file_offset + position)
                wanted = position - position % every_bytes + every_bytes
            position += size_bytes
    finally:
        fs.close(fd)
    return starts


class _SplitEndError(Exception):
    """The walk has come to the split's end."""


def scan_split(
    split: LogSplit,
    see: Callable[[DispatchColumns], None],
    *,
    begin: int | None = None,
    fs: FileSystem | None = None,
) -> WalkEnd:
    """Shows every good record of a split, in order, up to the first place that is no record.

    Args:
        split: what to read.
        see: takes records, about a thousand at a time.
        begin: a record's start to begin at instead of the split's (bytes).
        fs: the door to the disk; None for the real one.

    Returns:
        Where the walk ended; `end_offset` is the split's end when nothing is wrong.
    """
    run = _SplitRun(fs or RealFileSystem(), split)
    file = run.files[0]
    begin = decoded = split.begin if begin is None else begin
    buffer = bytearray()
    reached = WalkEnd(begin)

    def decode(end: WalkEnd) -> None:
        nonlocal decoded, buffer
        stop = min(sum(end.last_record), split.end) if end.last_record is not None else decoded
        size_bytes = stop - decoded
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

    def pulse(end: WalkEnd) -> None:
        nonlocal reached
        reached = end
        decode(end)
        if end.end_offset >= split.end:
            raise _SplitEndError

    try:
        reached = walk_log(run, begin, lambda record: None, pulse, lambda queues: None)
        decode(reached)
    except _SplitEndError:
        pass
    finally:
        run.close()
    if reached.end_offset >= split.end:
        reached.end_offset, reached.why = split.end, None
    return reached


class _SplitFile(MappedFile):
    """A log file of which no more is read at once than belongs to the split, and what tells a torn record."""

    read_end = 0

    def read(self, offset: int, size_bytes: int) -> bytes:
        """See MappedFile."""
        return super().read(offset, max(min(size_bytes, self.read_end - offset), 0))


class _SplitRun(LogFileRun):
    """The split's file, and the one behind it where there is one: a torn last record is told by what follows."""

    def __init__(self, fs: FileSystem, split: LogSplit) -> None:
        directory = Path(commit_log_dir(split.root))
        behind = split.file_offset + split.file_size_bytes
        has_next = split.end == behind and fs.exists(directory / log_file_name(behind))
        super().__init__(fs, directory, split.file_size_bytes, [behind] if has_next else [])
        path = directory / log_file_name(split.file_offset)
        file = _SplitFile(fs, path, split.file_offset, split.file_size_bytes, writable=False)
        file.read_end = split.end + TEAR_WINDOW_BYTES + HEADER_BYTES_MAX
        self._files = (file, *self._files)


def sound_stretches(split: LogSplit, see: Callable[[DispatchColumns], None]) -> Iterator[WalkEnd]:
    """Scans a split, and again behind each place that is no record, from the next record that knows its place on."""
    begin: int | None = split.begin
    fs = RealFileSystem()
    while begin is not None:
        end = scan_split(split, see, begin=begin, fs=fs)
        yield end
        begin = None
        if end.end_offset < split.end:
            run = _SplitRun(fs, split)
            try:
                behind = find_record_behind(run, end.end_offset)
            finally:
                run.close()
            begin = behind if behind is not None and behind < split.end else None


def damage_at(end: WalkEnd) -> RecordCorruptedError:
    """What is wrong where a walk ended, as an error that names the byte."""
    if end.why is not None:
        return end.why
    return RecordCorruptedError(f"zeros where the record at {end.end_offset} should be", commitLogOffset=end.end_offset)
