"""The log of a store root as scans and jobs see it: which files it has, and up to which offset they may be read.

    files   |-- sealed --|-- sealed --|-- written to ---|-- made ahead: zeros --|
    mark                                      ^ the log ends here while its owner writes

- The owner makes the next file before the last one is full. Such files, all zeros, are left out.
- While a process writes to the log, nothing behind the owner's mark is read: a crash may cut it. With replicas, nothing that
  is not confirmed: the next leader may cut it. A RocketMQ broker writes no mark; then the log ends where a walk of its last
  file ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.object_files import ObjectFileSystem, refuse_held
from services.object_uri import named
from store.errors import RecordCorruptedError, StoreCorruptedError, StoreLockedError, UnsupportedStoreError
from store.features.table import held_elsewhere, refuse_features
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.files.locks import is_held_by_other
from store.files.mapped_files import MappedFile
from store.format.checkpoint import CONFIRMED_MARK_NAME, DURABLE_MARK_NAME, decode_checkpoint, decode_durable_mark
from store.format.paths import checkpoint_file, commit_log_dir, log_file_name, own_state_dir, parse_log_file_name
from store.walk.record_search import find_record_in

# Of a thousand compacted topics a report names so many.
NOTED_TOPIC_COUNT_MAX = 8
EMPTY_HEAD = bytes(8)  # the first bytes of a file that was preallocated and not written


class LogFileGoneError(RecordCorruptedError):
    """A log file was deleted after the scan was planned."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log.

    Attributes:
        path: the file; of an object, its URI without options.
        first_offset: commit-log offset of its first byte.
        last_offset: commit-log offset after its last byte.
    """

    path: str
    first_offset: int
    last_offset: int

    def open(self, fs: FileSystem) -> MappedFile:
        """The file, opened for reading; it stays readable when it is deleted meanwhile, unless it is an object.

        Raises:
            LogFileGoneError: the file does not exist.
            UnsupportedStoreError: nor does its directory: this machine does not share it with the driver.
        """
        try:
            return MappedFile(
                fs, Path(self.path), self.first_offset, self.last_offset - self.first_offset, writable=False
            )
        except FileNotFoundError:
            directory = Path(self.path).parent
            if not isinstance(fs, ObjectFileSystem) and not fs.is_dir(directory):
                raise UnsupportedStoreError(
                    f"{directory} does not exist on this machine: driver and executors must see the store under one path. "
                    "Share the directory, or load the store from an object store, such as s3://BUCKET/STORE.",
                    directory=directory,
                ) from None
            raise self.gone() from None

    def gone(self) -> LogFileGoneError:
        """The error for a file that was listed and does not exist any more."""
        return LogFileGoneError(
            f"The log file {self.path} does not exist any more: retention has deleted it since the scan was planned, with "
            f"commit-log offsets {self.first_offset} to {self.last_offset}. Read again, or set "
            "failOnDataLoss=false to go on without it.",
            file=self.path,
            commitLogOffset=self.first_offset,
        )


@dataclass(frozen=True, slots=True)
class ReadableLog:
    """A log at one moment.

    Attributes:
        files: by ascending offset: those with a byte that may be read.
        end_offset: nothing is read from here on: the end of the last file, or the mark (commit-log offset).
        mark: see `safe_offset`; None if no process writes to the log.
        is_live: whether a process has the store open for writing.
        held: topics of which the store may have more messages than the log, where they are not read, as `held_elsewhere` of
            `store/features/table.py`.
    """

    files: list[LogFile]
    end_offset: int
    mark: int | None
    is_live: bool
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """A sentence for each feature of which messages may be missing from what is read of the log."""
        return held_notes(self.held)

    @property
    def first_offsets(self) -> list[int]:
        """First commit-log offsets of the files."""
        return [file.first_offset for file in self.files]


def readable_log(fs: FileSystem, root: Path) -> ReadableLog:
    """The part of a log that may be read.

    Raises:
        UnsupportedStoreError: the directory is not a store root.
    """
    is_live = is_written_to(fs, root)
    files = list_log_files(fs, root)
    features = refuse_features(fs, root)
    # Read after the listing: the mark covers listed files, or a file that is not seen.
    mark = safe_offset(fs, root) if is_live else None
    if mark is not None:
        files = [file for file in files if file.first_offset < mark]
    end_offset = files[-1].last_offset if files else 0
    readable_end = end_offset if mark is None else min(end_offset, mark)
    return ReadableLog(files, readable_end, mark, is_live, held_elsewhere(features))


def held_notes(held: Mapping[str, tuple[str, str]]) -> list[str]:
    """A sentence for each entry of `held_elsewhere`, NOTED_TOPIC_COUNT_MAX at most."""
    texts = [f"messages may be missing: {text}" for _, text in held.values()]
    more = len(texts) - NOTED_TOPIC_COUNT_MAX
    return texts[:NOTED_TOPIC_COUNT_MAX] + ([f"likewise of {more} more topics"] if more > 0 else [])


def list_log_files(fs: FileSystem, root: Path) -> list[LogFile]:
    """The files by ascending offset, without unwritten files at the end.

    Raises:
        UnsupportedStoreError: the directory is not a store root.
    """
    directory = Path(commit_log_dir(str(root)))
    if not fs.is_dir(directory):
        what = "has no commitlog/ in it" if fs.is_dir(root) else "is not a directory"
        raise UnsupportedStoreError(
            f"{named(root)} {what}: name the root of a store, the directory that contains commitlog/.",
            directory=root,
        )
    offsets = sorted(offset for name in fs.listdir(directory) if (offset := parse_log_file_name(name)) is not None)
    files: list[LogFile] = []
    for offset in offsets:
        path = directory / log_file_name(offset)
        try:
            size_bytes = fs.stat_size(path)
        except FileNotFoundError:  # retention deleted it before the scan was planned, so it is not part of the scan
            continue
        files.append(LogFile(named(path), offset, offset + size_bytes))
    while files and _is_empty(fs, files[-1]):
        files.pop()
    return files


def _is_empty(fs: FileSystem, file: LogFile) -> bool:
    """Whether nothing was written to the file: zeros at its begin can also be a hole before records."""
    if file.last_offset == file.first_offset:
        return True
    opened = file.open(fs)
    try:
        is_blank = opened.read(file.first_offset, len(EMPTY_HEAD)) == EMPTY_HEAD
        return is_blank and find_record_in(opened, file.first_offset) is None
    finally:
        opened.close()


def is_written_to(fs: FileSystem, root: Path) -> bool:
    """Whether a process has the store open for writing; a log in an object store is never written to."""
    try:
        refuse_held(fs, root)
    except StoreLockedError:
        return True
    except OSError:  # the locks cannot be read
        return False
    return False


def safe_offset(fs: FileSystem, root: Path) -> int | None:
    """Up to where the log of a running owner stays as it is: on the disk, and on its replicas; None without a mark (bytes)."""
    if is_held_by_other(root / "lock"):
        return None  # of a broker: a mark is from before, when the store was served by Reput
    durable_offset = _mark(fs, root, DURABLE_MARK_NAME)
    if durable_offset is None or not fs.exists(_mark_path(root, CONFIRMED_MARK_NAME)):
        return durable_offset
    # The checkpoint's may be the greater one, as for the owner: after a power cut, or if the log has no replicas any more.
    return min(durable_offset, max(_mark(fs, root, CONFIRMED_MARK_NAME) or 0, _checkpoint_offset(fs, root)))


def _mark_path(root: Path, name: str) -> Path:
    return Path(own_state_dir(str(root), "commitlog")) / name


def _mark(fs: FileSystem, root: Path, name: str) -> int | None:
    data = read_bytes(fs, _mark_path(root, name))
    return None if data is None else decode_durable_mark(data)


def _checkpoint_offset(fs: FileSystem, root: Path) -> int:
    """The confirmed offset in RocketMQ's checkpoint (bytes); 0 without one."""
    data = read_bytes(fs, Path(checkpoint_file(str(root))))
    try:
        return decode_checkpoint(data or b"").confirm_phy_offset
    except StoreCorruptedError:
        return 0
