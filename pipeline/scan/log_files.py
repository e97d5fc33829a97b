"""The log files of a store root as a scan sees them: which files exist, and up to which offset they may be read.

If a process writes to the log, a scan ends at the log's durable mark. A RocketMQ broker writes none; then the scan ends
where a walk of the last file ends.
"""

from dataclasses import dataclass
from pathlib import Path

from pipeline.object_files import ObjectFileSystem, refuse_held
from services.object_uri import named
from store.errors import RecordCorruptedError, StoreLockedError, UnsupportedStoreError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.files.mapped_file import MappedFile
from store.format.durable_mark import DURABLE_MARK_NAME, decode_durable_mark
from store.format.paths import commit_log_dir, log_file_name, own_state_dir, parse_log_file_name
from store.walk.record_search import find_record_in

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


def list_log_files(fs: FileSystem, root: Path) -> list[LogFile]:
    """The files by ascending offset, without unwritten files at the end.

    Raises:
        UnsupportedStoreError: the directory is not a store root.
    """
    directory = Path(commit_log_dir(str(root)))
    if not fs.is_dir(directory):
        what = "has no commitlog/ in it" if fs.is_dir(root) else "is not a directory"
        raise UnsupportedStoreError(
            f"{named(root)} {what}: set option path to a store root, the directory that contains commitlog/.",
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
    """Whether a process has the store open for writing; nobody writes to a log in an object store."""
    try:
        refuse_held(fs, root)
    except StoreLockedError:
        return True
    except OSError:  # the locks cannot be read
        return False
    return False


def durable_offset(fs: FileSystem, root: Path) -> int | None:
    """The commit log's durable mark: the offset up to which the log is on the disk; None without a mark."""
    data = read_bytes(fs, Path(own_state_dir(str(root), "commitlog")) / DURABLE_MARK_NAME)
    return None if data is None else decode_durable_mark(data)
