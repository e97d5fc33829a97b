"""The logs of the replicas that an audit of a cluster reads, compared with one another and with the archive.

The replicas that an audit of a cluster reads: their names, their roots, and the ends of their logs, fixed once.

Compares the logs of the replicas of one shard: ranges by their SHA-256, then byte by byte where these differ.

Compares the logs of one shard with its archive.

The manifest of a segment has the SHA-256 of the log file that a restore makes from it. So a log file with that SHA-256 is in
the archive byte for byte, if the segment is what its manifest says: that is what `verify_one` reads.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.archive.restore import restore_log_file
from pipeline.log_scan import LogSplit, durable_offset_of, load_kernels, scan_split, sound_stretches
from pipeline.scan.log_files import list_log_files
from store.archive import layout
from store.archive.manifest import Segment, read_segment, segment_offsets
from store.derive.dispatch_columns import DispatchColumns
from store.errors import InvalidArgumentError, StoreCorruptedError, StoreError, UnsupportedStoreError
from store.features.table import refuse_features
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import file_size_of
from store.format.paths import commit_log_dir, log_file_name


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a shard.

    Attributes:
        broker_name: the shard.
        name: the replica.
        parts: its store root; several where log, queues and index lie on volumes of their own.
    """

    broker_name: str
    name: str
    parts: tuple[Path, ...]

    @property
    def key(self) -> str:
        """SHARD@REPLICA."""
        return f"{self.broker_name}@{self.name}"


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of a replica. Offsets are commit-log offsets in bytes.

    Attributes:
        replica: the replica's name.
        root: its store root.
        file_size_bytes: of each file; 0 without files.
        sizes: the length of each file by its first offset.
        first_offset, end_offset: the part that is compared; what is behind may still change.
    """

    replica: str
    root: str
    file_size_bytes: int
    sizes: dict[int, int]
    first_offset: int
    end_offset: int

    def file_at(self, offset: int) -> int | None:
        """First offset of the file that has this byte; None if there is none."""
        return next((first for first, size in self.sizes.items() if first <= offset < first + size), None)

    def path_of(self, first_offset: int) -> Path:
        """The file with this first offset."""
        return Path(commit_log_dir(self.root)) / log_file_name(first_offset)


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of the log that lie in one file of each holder.

    Attributes:
        begin, end: commit-log offsets (bytes).
        holders: replicas whose log goes over it.
        file_offset: first offset of a file that is this range as a whole; None for a part of a file.
    """

    begin: int
    end: int
    holders: tuple[str, ...]
    file_offset: int | None


def parse_replicas(texts: Iterable[str]) -> list[Replica]:
    """Replicas from `SHARD[@REPLICA]=ROOT[+ROOT...]`; without a name the first of a shard is r1, the next r2.

    Raises:
        InvalidArgumentError: a text has another form, or a replica is named twice.
    """
    found: list[Replica] = []
    for text in texts:
        name, _, roots = text.partition("=")
        broker_name, at, replica = name.partition("@")
        parts = tuple(Path(root) for root in roots.split("+"))
        if not broker_name or not roots or (at and not replica) or not all(map(str.strip, roots.split("+"))):
            raise InvalidArgumentError(f"{text!r} is not SHARD[@REPLICA]=ROOT[+ROOT...]", field="shard")
        number = 1 + sum(other.broker_name == broker_name for other in found)
        made = Replica(broker_name, replica or f"r{number}", parts)
        if any(other.key == made.key for other in found):
            raise InvalidArgumentError(f"{made.key} is named twice: give each replica a name of its own", field="shard")
        found.append(made)
    if not found:
        raise InvalidArgumentError("no shard is named: give --shard SHARD[@REPLICA]=ROOT", field="shard")
    return found


def joined_root(replica: Replica, place: Path) -> Path:
    """The replica's store root; of several parts a directory of links to what they have, the first that has it counts.

    Raises:
        UnsupportedStoreError: no part has a commitlog/.
    """
    if len(replica.parts) == 1:
        root = replica.parts[0]
    else:
        root = place / replica.broker_name.replace("/", "_") / replica.name.replace("/", "_")
        (root / "reput").mkdir(parents=True)
        for part in replica.parts:
            for path in [*_entries(part), *_entries(part / "reput")]:
                link = root / path.relative_to(part)
                if path != part / "reput" and not link.is_symlink():
                    link.symlink_to(path.absolute())
    if not (root / "commitlog").is_dir():
        raise UnsupportedStoreError(
            f"{'+'.join(map(str, replica.parts))} has no commitlog/: name the root of a store", directory=root
        )
    refuse_features(RealFileSystem(), root)
    return root


def _entries(directory: Path) -> list[Path]:
    """The entries of a folder, without empty folders: a service makes the folders of others."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if not path.is_dir() or any(path.iterdir()))


def fix_log(fs: FileSystem, replica: str, root: Path) -> ReplicaLog:
    """The log as it is now: up to the durable mark, without one up to the end of a walk of the last file."""
    files = {file.first_offset: file.last_offset - file.first_offset for file in list_log_files(fs, root)}
    size = file_size_of(files)
    first = min(files, default=0)
    end = durable_offset_of(fs, root)
    if end is None and files:
        last = max(files)
        end = scan_split(LogSplit(str(root), last, size, last, last + size), lambda columns: None).end_offset
    behind = max((offset + size for offset in files), default=0)
    return ReplicaLog(replica, str(root), size, files, first, max(first, min(end or 0, behind)))


def ranges_of(logs: list[ReplicaLog], *, with_single: bool) -> list[Range]:
    """The ranges that are compared, ascending: each between two neighbouring ends of files or logs.

    Args:
        logs: those of one shard.
        with_single: also whole files that only one replica has, to compare them with an archive.
    """
    cuts = {offset for log in logs for offset in (log.first_offset, log.end_offset)}
    wholes = {(first, first + log.file_size_bytes) for log in logs for first in log.sizes}
    cuts |= {offset for whole in wholes for offset in whole}
    found = []
    for begin, end in pairwise(sorted(cuts)):
        holders = tuple(log.replica for log in logs if log.first_offset <= begin and end <= log.end_offset)
        is_whole = (begin, end) in wholes
        if len(holders) > 1 or (holders and with_single and is_whole):
            found.append(Range(begin, end, holders, begin if is_whole else None))
    return found


def without_removed(log: ReplicaLog) -> ReplicaLog:
    """The log without the files that retention removed since its ends were fixed."""
    first = min((offset for offset in log.sizes if log.path_of(offset).exists()), default=log.end_offset)
    sizes = {offset: size for offset, size in log.sizes.items() if offset >= first}
    return ReplicaLog(log.replica, log.root, log.file_size_bytes, sizes, max(first, log.first_offset), log.end_offset)


READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HashTask:
    """A range of a log file; `position` and `size_bytes` in bytes of the file."""

    path: str
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Hashed:
    """The result.

    Attributes:
        sha256: in hexadecimal digits; empty if the file could not be read.
        stamp: size (bytes), modification time (nanoseconds since 1970) and inode, as they were before the file was read.
        problem: why it could not be read; empty if the file does not exist.
    """

    sha256: str
    stamp: tuple[int, int, int] | None
    problem: str = ""


def stamp_of(path: Path | str) -> tuple[int, int, int] | None:
    """A value that changes when a program writes to a file; None without the file."""
    try:
        stamp = RealFileSystem().stamp(path)
    except OSError:
        return None
    return stamp.size_bytes, stamp.modified_nanos, stamp.inode


def hash_range(task: HashTask) -> Hashed:
    """The SHA-256 of a range; bytes behind the file's end count as zeros."""
    stamp, digest, left = stamp_of(task.path), hashlib.sha256(), task.size_bytes
    try:
        with open(task.path, "rb", buffering=0) as file:
            file.seek(task.position)
            while left:
                data = file.read(min(READ_BYTES, left)) or bytes(min(READ_BYTES, left))
                digest.update(data)
                left -= len(data)
    except FileNotFoundError:
        return Hashed("", None)
    except OSError as error:
        return Hashed("", stamp, str(error))
    return Hashed(digest.hexdigest(), stamp)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two logs; see LogSplit for `root`, `file_offset` and `file_size_bytes`."""

    root: str
    path: str
    file_offset: int
    file_size_bytes: int


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A range in which two logs differ; `begin` and `end` are commit-log offsets (bytes)."""

    begin: int
    end: int
    one: Side
    other: Side


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two logs differ. Offsets are commit-log offsets in bytes.

    Attributes:
        first, last: the first and the last byte that differ.
        count: bytes that differ.
        one, other: begin and end of the sound record that has the first byte; None where no sound record has it.
    """

    first: int
    last: int
    count: int
    one: tuple[int, int] | None
    other: tuple[int, int] | None


def compare(task: CompareTask) -> Difference | None:
    """Compares a range byte by byte; None if nothing differs."""
    first = last = -1
    count = 0
    with open(task.one.path, "rb") as one, open(task.other.path, "rb") as other:
        one.seek(task.begin - task.one.file_offset)
        other.seek(task.begin - task.other.file_offset)
        for at in range(task.begin, task.end, READ_BYTES):
            size = min(READ_BYTES, task.end - at)
            left, right = one.read(size).ljust(size, b"\0"), other.read(size).ljust(size, b"\0")
            if left != right:
                places = np.flatnonzero(np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8))
                first = at + int(places[0]) if first < 0 else first
                last, count = at + int(places[-1]), count + len(places)
    if first < 0:
        return None
    return Difference(first, last, count, sound_record(task.one, first), sound_record(task.other, first))


class _FoundError(Exception):
    """Ends a walk: the record is found."""


def sound_record(side: Side, offset: int) -> tuple[int, int] | None:
    """Begin and end of the record that has a byte of the log (bytes), if the record is sound; None otherwise."""
    load_kernels()
    found: list[tuple[int, int]] = []

    def see(columns: DispatchColumns) -> None:
        begins = columns.commit_log_offsets
        at = int(np.searchsorted(begins, offset, side="right")) - 1
        if at >= 0 and offset < int(begins[at]) + int(columns.record_sizes_bytes[at]):
            found.append((int(begins[at]), int(begins[at]) + int(columns.record_sizes_bytes[at])))
            raise _FoundError

    file_end = side.file_offset + side.file_size_bytes
    try:
        for end in sound_stretches(
            LogSplit(side.root, side.file_offset, side.file_size_bytes, side.file_offset, file_end), see
        ):
            if end.end_offset > offset:
                break
    except (_FoundError, StoreError, OSError):
        pass  # a log that cannot be walked has no sound record there
    return found[0] if found else None


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
