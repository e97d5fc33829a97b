"""The log files of another process, which appends to them, adds new ones and removes old ones while they are read.

Nothing is written. `refresh` looks at the directory again:

- Files that are gone at the front were removed by the owner's retention.
- A file that is gone behind a file that is still there, or that became another file, means that the owner cut its log or began
  another one: `refresh` names it, the reader decides.
- A new file may be short for a moment, because its owner makes it and then gives it its size. Reads of it end early.
- The size of a file is what most lengths and names agree on, looked at again each time: a log of a single file may be a copy
  that still grows.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile, MappedFileQueue, file_size_of
from store.format.paths import parse_log_file_name

# The newest files: each refresh looks whether their names still mean them. Its owner replaces no older file and keeps these.
CHECKED_FILE_COUNT = 2


@dataclass(frozen=True, slots=True)
class FilesChange:
    """The changes that `refresh` found.

    Attributes:
        removed: files that are gone at the front, oldest first.
        vanished: files that are gone or replaced behind the first file of the log.
    """

    removed: Sequence[MappedFile] = ()
    vanished: Sequence[MappedFile] = ()


class OwnersFile(MappedFile):
    """A file that another process writes; its pages in the cache are that process's."""

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        """All from address `offset` on, in one range: to find holes would mean to drop the owner's pages from the cache."""
        return [(offset, self.last_offset)] if offset < self.last_offset else []


class OwnersFiles(MappedFileQueue):
    """The files of one directory, opened for reading; one thread calls `load` and `refresh`.

    Args:
        fs: the disk port.
        directory: where the files lie; it may appear later.
        file_size_bytes: size of a file while there is none.

    Attributes:
        gap_offset: where a file is missing between two others (address); None without a gap. Files behind it are not opened.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size_bytes: int) -> None:
        super().__init__(fs, directory, file_size_bytes, writable=False)
        self.gap_offset: int | None = None

    def load(self) -> None:
        """Opens what is there."""
        self.close()
        self.refresh()

    def refresh(self) -> FilesChange:
        """Looks for new and removed files; OSError when the directory cannot be read."""
        before = self._files
        known = {file.first_offset: file for file in before}
        lengths = self._lengths(known)
        file_size_bytes = file_size_of(lengths) or self.file_size_bytes
        files: list[MappedFile] = []
        kept: set[int] = set()
        self.gap_offset = None
        for offset in sorted(lengths):
            if files and offset != files[-1].last_offset:
                self.gap_offset = files[-1].last_offset
                break
            file = known.get(offset)
            is_known = file is not None and (file not in before[-CHECKED_FILE_COUNT:] or file.is_in_place())
            if file is None or not is_known or file.size_bytes != file_size_bytes:
                try:
                    file = OwnersFile(self._fs, self.path_of(offset), offset, file_size_bytes, writable=False)
                except FileNotFoundError:
                    break  # its owner removed it just now
            if is_known:
                kept.add(offset)
            files.append(file)
        gone = [file for offset, file in known.items() if offset not in kept]
        removed = [file for file in gone if files and file.first_offset < files[0].first_offset]
        with self._list_lock:
            self._files = tuple(files)
            self.file_size_bytes = file_size_bytes
        for file in before:
            if known[file.first_offset] is not self.find(file.first_offset):  # a reader may still use its descriptor
                weakref.finalize(file, self._fs.close, file.fd)
        return FilesChange(removed, [file for file in gone if file not in removed])

    def _lengths(self, known: Mapping[int, MappedFile]) -> dict[int, int]:
        """The length of each file (bytes). Of the known files only the newest may change its length."""
        newest = max(known, default=-1)
        lengths: dict[int, int] = {}
        for name in self._fs.listdir(self.directory):
            offset = parse_log_file_name(name)
            if offset is None:
                continue
            if offset in known and offset != newest:
                lengths[offset] = self.file_size_bytes
                continue
            try:
                if self._fs.is_file(self.directory / name):
                    lengths[offset] = self._fs.stat_size(self.directory / name)
            except FileNotFoundError:
                continue  # its owner removed it just now
        return lengths
