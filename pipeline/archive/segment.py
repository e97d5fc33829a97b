"""Archives one log file: walks it, checks it, and makes the columns from which a segment is written.

It does not need Spark: `archive.py` calls it in a Spark task for each log file, tests call it directly.
"""

import mmap
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.archive.columns import archive_table, load
from pipeline.object_files import ObjectFileSystem
from store.archive.manifest import Segment
from store.archive.segment_writer import SegmentRecords, write_segment
from store.compiled import loading
from store.derive.dispatch_columns import DispatchColumns
from store.derive.dispatch_walk import KERNEL as DISPATCH_KERNEL
from store.derive.dispatch_walk import walk_columns
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir, log_file_name
from store.format.record import BLANK_SIZE_BYTES, decode_header, decode_record
from store.format.record_layout import HEADS
from store.walk.checks import FullCheck
from store.walk.record_runs import KERNEL as WALK_KERNEL
from store.walk.record_runs import RunCheck

RECORD_COUNT_MAX = (1 << 31) - 1
# More would make the report too long to read.
DAMAGED_RECORD_COUNT_MAX = 100
COPY_BYTES = 4 << 20  # of an object, at a time


@dataclass(slots=True)
class LogFileInArchive:
    """The outcome for one log file.

    Attributes:
        first_offset: its first commit-log offset, in bytes.
        segment: the segment to publish; None if the file is not archived (yet).
        why_not: why the file is not archived; empty otherwise.
        is_damaged: whether damage is the reason.
        record_count: count of records in the file.
        log_size_bytes: size of the log file.
        archive_size_bytes: size of the segment's files.
        damaged_offsets: commit-log offsets of records that were damaged before (bytes); they are archived unchanged.
    """

    first_offset: int
    segment: Segment | None = None
    why_not: str = ""
    is_damaged: bool = False
    record_count: int = 0
    log_size_bytes: int = 0
    archive_size_bytes: int = 0
    damaged_offsets: list[int] = field(default_factory=list)


class NotSealedError(Exception):
    """The log file still grows, or has no record yet."""


def log_path(store: Path, first_offset: int) -> Path:
    """The path of the log file that begins at this offset."""
    return Path(commit_log_dir(str(store))) / log_file_name(first_offset)


def archive_log_file(
    fs: FileSystem,
    store: Path,
    archive: Path,
    broker_name: str,
    first_offset: int,
    *,
    log_end_offset: int,
    include_active: bool = False,
    is_dry_run: bool = False,
    store_fs: FileSystem | None = None,
) -> LogFileInArchive:
    """Writes the segment of a log file, except its manifest.

    Args:
        fs: the port to the archive's disk.
        store: the store root.
        archive: the archive.
        broker_name: the shard.
        first_offset: first commit-log offset of the log file (bytes).
        log_end_offset: of `ReadableLog` (commit-log offset).
        include_active: also archive a file that still grows, up to its last whole record.
        is_dry_run: check the file, write nothing.
        store_fs: the port to the store's disk; None for the same as the archive's.

    Raises:
        StoreError, OSError: writing to the archive failed.
    """
    path = log_path(store, first_offset)
    outcome = LogFileInArchive(first_offset)
    try:
        log_file = map_log_file(store_fs or fs, path)
    except FileNotFoundError:
        outcome.why_not = f"{path} does not exist any more: retention removed it before it was archived"
        outcome.is_damaged = True
        return outcome
    if not len(log_file):
        outcome.why_not = f"{path} is empty"
        return outcome
    try:
        records, is_sealed = read_log_file(log_file, first_offset, path, log_end_offset)
        if not is_sealed and not include_active:
            raise NotSealedError(f"{path} is still written to")
        if not is_sealed and not len(records):
            raise NotSealedError(f"{path} has no record yet")
    except NotSealedError as reason:
        outcome.why_not = str(reason)
        return outcome
    except StoreCorruptedError as error:
        outcome.why_not = error.message
        outcome.is_damaged = True
        return outcome
    outcome.damaged_offsets = damaged_records(log_file[: records.end_position], first_offset)
    outcome.record_count, outcome.log_size_bytes = len(records), len(log_file)
    if not is_dry_run:
        segment = write_segment(
            fs, archive, broker_name, first_offset, log_file, records, is_sealed=is_sealed,
            read_size_bytes=log_end_offset - first_offset,
        )  # fmt: skip
        outcome.segment = segment
        outcome.archive_size_bytes = sum(os.path.getsize(archive / path) for path in segment.paths())
    return outcome


def map_file(path: Path) -> memoryview:
    """A file's bytes as a memory map; they stay readable after the file is removed."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def map_log_file(fs: FileSystem, path: Path) -> memoryview:
    """As `map_file`; an object is first copied to an unnamed file of this machine, in Spark's spill directory in a task."""
    if not isinstance(fs, ObjectFileSystem):
        return map_file(path)
    size_bytes = fs.stat_size(path)
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    handle = fs.open(path, os.O_RDONLY)
    try:
        fs.will_read(handle, 0, size_bytes)
        with tempfile.TemporaryFile(prefix="reput-log-", dir=local if os.path.isdir(local) else None) as copy:
            for at in range(0, size_bytes, COPY_BYTES):
                copy.write(fs.pread(handle, COPY_BYTES, at))
            copy.flush()
            if not copy.tell():
                return memoryview(b"")
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))
    finally:
        fs.close(handle)


def read_log_file(
    log_file: memoryview, first_offset: int, path: Path, log_end_offset: int
) -> tuple[SegmentRecords, bool]:
    """The records of a log file, and whether the file is sealed (never appended to again).

    Args:
        log_file: its bytes.
        first_offset: its first commit-log offset, in bytes.
        path: its name, for errors.
        log_end_offset: of `ReadableLog` (commit-log offset).

    Raises:
        StoreCorruptedError: the records end before the file's end, without a blank and not at the log's end.
    """
    columns, end, is_sealed = walk_log_file(log_file, first_offset, path, log_end_offset)
    positions = columns.commit_log_offsets - first_offset
    data = np.frombuffer(log_file, dtype=np.uint8)
    body_positions, body_sizes = _bodies(data, positions, columns.sys_flags)
    records = SegmentRecords(
        topics=columns.topics,
        topic_numbers=columns.topic_numbers,
        queue_ids=columns.queue_ids,
        queue_offsets=columns.queue_offsets,
        positions=positions,
        body_positions=body_positions,
        body_sizes_bytes=body_sizes,
        store_times_millis=columns.store_times_millis,
        sys_flags=columns.sys_flags,
        key_records=columns.key_records,
        key_hashes=columns.key_hashes,
        end_position=end,
        table=archive_table(log_file, columns, positions, body_positions + body_sizes),
    )
    return records, is_sealed


def walk_log_file(
    log_file: memoryview, first_offset: int, path: Path, log_end_offset: int
) -> tuple[DispatchColumns, int, bool]:
    """The records of a log file as columns, the position at which they end (bytes), and whether the file is sealed.

    A file is sealed if its records, or its blank, go to its end, and all of it may be read. Arguments are those of
    `read_log_file`.

    Raises:
        StoreCorruptedError: as `read_log_file`.
    """
    loading.load(DISPATCH_KERNEL)
    readable = log_file[: max(log_end_offset - first_offset, 0)]
    walked = walk_columns(readable, 0, first_offset, RECORD_COUNT_MAX)
    end = walked.next_offset - first_offset
    is_whole = len(readable) == len(log_file)
    is_sealed = is_whole and (end == len(log_file) or is_blank_to_the_end(log_file, end))
    is_last = first_offset + len(log_file) >= log_end_offset
    if not is_sealed and (not is_last or _goes_on(readable, end, first_offset)):
        raise StoreCorruptedError(
            f"{path} has no valid record at byte {end} (commit-log offset {walked.next_offset}), and the log continues "
            f"after it: {walked.why.message if walked.why else 'zeros.'} Run `reput fsck` on the store",
            file=path,
            offset=end,
            commitLogOffset=walked.next_offset,
        )
    return walked.columns, end, is_sealed


def is_blank_to_the_end(log_file: memoryview, at: int) -> bool:
    """Whether the blank that closes a log file starts at this position (bytes)."""
    if len(log_file) - at < BLANK_SIZE_BYTES:
        return False
    try:
        header = decode_header(log_file, at)
    except RecordCorruptedError:
        return False
    return header.is_blank and at + header.size_bytes == len(log_file)


def damaged_records(log: memoryview, first_offset: int) -> list[int]:
    """Commit-log offsets of walked records whose body CRC or `__CRC32#` does not match (bytes)."""
    loading.load(WALK_KERNEL)
    check = RunCheck(FullCheck(None))
    damaged: list[int] = []
    at = 0
    while at < len(log):
        try:
            _, at = check.take(log, at, first_offset + at)
        except RecordCorruptedError:
            if len(damaged) < DAMAGED_RECORD_COUNT_MAX:
                damaged.append(first_offset + at)
            at += decode_header(log, at).size_bytes
    return damaged


_HEAD_SIZES = np.array([head.size for head in HEADS], dtype=np.int64)


def _bodies(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], sys_flags: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Position and size of each body, in bytes."""
    begins = positions + _HEAD_SIZES[(sys_flags >> 4) & 3]
    return begins, load(data, begins - 4, ">i4").astype(np.int64)


def _goes_on(log_file: memoryview, end: int, first_offset: int) -> bool:
    """Whether a valid record that states its own offset follows after `end`: then `end` is damage, not the log's end."""
    magic_prefix = b"\xda\xa3\x20"
    data = log_file.obj if isinstance(log_file.obj, mmap.mmap) else bytes(log_file)
    at = data.find(magic_prefix, end + 1, len(log_file))
    while at >= 0:
        try:
            decode_record(log_file, at=at - 4, commit_log_offset=first_offset + at - 4)
        except RecordCorruptedError:
            at = data.find(magic_prefix, at + 1, len(log_file))
        else:
            return True
    return False
