"""The replicas that an audit of a cluster reads: their names, their roots, and the ends of their logs, fixed once."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pipeline.log_scan import LogSplit, durable_offset_of, scan_split
from pipeline.scan.log_files import list_log_files
from store.errors import InvalidArgumentError, UnsupportedStoreError
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
    """What is there, without empty folders: a service makes the folders of others."""
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
