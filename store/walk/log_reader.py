"""LogReader: the records of a store's log in log order, for builders and audits, from its files alone.

The log ends at the first place without a record in order: zeros, damage, or a record that states another offset.
"""

from collections.abc import Iterator
from pathlib import Path

from store.derive.dispatch import DispatchRequest
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import MappedFile
from store.files.open_files import OpenFiles
from store.format.paths import commit_log_dir, log_file_name, parse_log_file_name
from store.format.record import Record, decode_record
from store.walk.checks import DispatchCheck
from store.walk.cursor import OneFile, RecordCursor


class LogReader:
    """The log files of a store root, of any sizes and with files missing; opened for reading only.

    Args:
        root: the store root.
        fs: the port to the disk.
    """

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        self._directory = Path(commit_log_dir(str(root)))
        self._fs = fs or RealFileSystem()
        self._files = OpenFiles(self._fs)

    def file_offsets(self) -> list[int]:
        """First commit-log offsets of the log files, rising."""
        offsets = (parse_log_file_name(name) for name in self._fs.listdir(self._directory))
        return sorted(offset for offset in offsets if offset is not None)

    def record(self, commit_log_offset: int, size_bytes: int) -> Record:
        """The record at an offset.

        Args:
            commit_log_offset: where it starts.
            size_bytes: its size.

        Raises:
            RecordCorruptedError: no record stands there, or a damaged one.
        """
        first = max((o for o in self.file_offsets() if o <= commit_log_offset), default=0)
        data = self._files.get(self._directory / log_file_name(first)).read(commit_log_offset - first, size_bytes)
        return decode_record(data, commit_log_offset=commit_log_offset)

    def dispatch_requests(self, start_offset: int = -1, *, whole: bool = False) -> Iterator[DispatchRequest]:
        """What builders need of each record, from an offset on to the end of the log.

        Args:
            start_offset: a record's start (commit-log offset); -1: the first record.
            whole: an end at damage, or before the last file, is an error.

        Raises:
            StoreCorruptedError: with `whole`: the records behind a place cannot be reached.
        """
        next_first: int | None = None
        ended_at: int | None = None  # in front of an empty file, which is allocated ahead
        for first in self.file_offsets():
            path = self._directory / log_file_name(first)
            end = first + self._fs.stat_size(path)
            if start_offset >= end:
                continue
            if whole and next_first not in (None, first):
                raise self._broken(path, f"the bytes {next_first} to {first} of the log are missing")
            next_first = end
            file = MappedFile(self._fs, path, first, end - first, writable=False)
            try:
                cursor = RecordCursor(OneFile(file), max(start_offset, first), DispatchCheck())
                if ended_at is None:
                    yield from cursor
                elif next(iter(cursor), None) is not None or cursor.why is not None:
                    raise self._broken(path, f"the log has no record at byte {ended_at}, and something behind it")
            finally:
                file.close()
            if cursor.offset < end and ended_at is None:
                if not whole:
                    return
                if cursor.why is not None:
                    why = cursor.why.message
                    raise self._broken(path, f"the log cannot be read behind byte {cursor.offset}: {why}")
                ended_at = cursor.offset

    def _broken(self, path: Path, what: str) -> StoreCorruptedError:
        return StoreCorruptedError(what, file=path, offset=0)
