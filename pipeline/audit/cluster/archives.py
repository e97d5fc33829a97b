"""Compares the logs of one shard with its archive.

The manifest of a segment has the SHA-256 of the log file that a restore makes from it. So a log file with that SHA-256 is in
the archive byte for byte, if the segment is what its manifest says: that is what `verify_one` reads.
"""

from collections.abc import Iterator
from pathlib import Path

from pipeline.archive.restore_segment import restore_log_file
from pipeline.audit.cluster.logs import CompareTask, Side, compare
from pipeline.audit.cluster.replicas import ReplicaLog
from store.archive import layout
from store.archive.manifest import Segment, read_segment, segment_offsets
from store.errors import StoreCorruptedError, StoreError
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir, log_file_name

# Kind, file, commit-log offset (bytes), what.
ArchiveFinding = tuple[str, str, int, str]


def read_segments(
    fs: FileSystem, archive: Path, broker_name: str
) -> tuple[dict[int, Segment], dict[int, ArchiveFinding]]:
    """The segments of a shard by first offset (bytes), and a finding in place of each whose manifest cannot be read."""
    segments: dict[int, Segment] = {}
    damaged: dict[int, ArchiveFinding] = {}
    for offset in segment_offsets(fs, archive, broker_name):
        try:
            segments[offset] = read_segment(fs, archive, broker_name, offset)
        except StoreCorruptedError as error:
            file = layout.segment_file("", broker_name, offset)
            damaged[offset] = ("ARCHIVE_DAMAGED", file, offset, error.message)
    return segments, damaged


def missing_files(fs: FileSystem, archive: Path, segment: Segment) -> Iterator[ArchiveFinding]:
    """Files that a manifest names and that are not there."""
    for path in segment.paths():
        if not fs.exists(archive / path):
            what = f"the segment of the log file {segment.first_offset} needs it, and it is missing"
            yield "ARCHIVE_DAMAGED", path, segment.first_offset, what


def missing_segments(
    segments: dict[int, Segment], damaged: set[int], logs: list[ReplicaLog]
) -> Iterator[ArchiveFinding]:
    """Log files that an archive lacks although it has later ones, or that the log does not have any more."""
    if not segments or not logs:
        return
    sizes = [log.file_size_bytes for log in logs if log.file_size_bytes]
    spans = [(offset, segment.end_offset) for offset, segment in segments.items()]
    spans += [(offset, offset + size) for offset in damaged for size in sizes[:1]]
    log_first = min(log.first_offset for log in logs)
    at = min(log_first, *segments)
    for begin, end in sorted(spans):
        if at < begin:
            yield _lacks(at, begin, "it has what is behind")
        at = max(at, end)
    if at < log_first:
        yield _lacks(at, log_first, "the log does not have it any more: it was removed before it was archived")


def _lacks(begin: int, end: int, why: str) -> ArchiveFinding:
    what = f"the archive lacks the log from {begin} to {end}; {why}"
    return "ARCHIVE_FILE_MISSING", f"commitlog/{log_file_name(begin)}", begin, what


def difference_of(
    fs: FileSystem, archive: Path, segment: Segment, log: ReplicaLog, scratch: Path
) -> ArchiveFinding | None:
    """Where a segment's log file differs from that of a replica; None if the segment cannot be restored.

    Args:
        fs: the disk port.
        archive: the archive.
        segment: one whose SHA-256 is not that of the replica's file.
        log: the replica's log.
        scratch: an empty directory, for a file of the size of a log file.
    """
    try:
        size = restore_log_file(fs, archive, segment, scratch)
    except StoreError:
        return None  # the segment is damaged, which its verification says
    name, first = log_file_name(segment.first_offset), segment.first_offset
    restored = Path(commit_log_dir(str(scratch))) / name
    one = Side(log.root, str(log.path_of(first)), first, size)
    found = compare(CompareTask(first, first + size, one, Side(str(scratch), str(restored), first, size)))
    fs.unlink(restored)
    if found is None:
        return None  # the log file is as it was archived, and was not when its hash was made
    which = "the archive's record is not sound" if found.one and not found.other else "both records are sound"
    which = which if found.one else "the log's record is not sound"
    what = f"{found.count} bytes differ from {log.replica}, from {found.first} to {found.last}; {which}"
    return "ARCHIVE_DIFFERS", f"commitlog/{name}", found.first, what
