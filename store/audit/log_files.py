"""The log's files as they are, for an audit: files that are missing, short, long or misnamed are reported and worked around.

Files whose offsets differ by multiples of the file size belong to the log. Each run of them without a gap is a
`MappedFileQueue` of its own, so the audit uses the same walk as recovery.
"""

import contextlib
from collections import Counter
from pathlib import Path

from store.audit.findings import Findings
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue, file_size_of
from store.format.paths import commit_log_dir, log_file_name, parse_log_file_name
from store.format.properties import dispatched_to
from store.format.record import Record
from store.walk.record_reader import read_record_at

OFFSET_MAX = (1 << 62) - 1


class LogFileRun(MappedFileQueue):
    """Log files without a gap between them, opened for reading.

    Args:
        fs: the disk port.
        directory: `commitlog/`.
        file_size_bytes: of each file.
        offsets: their first addresses.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size_bytes: int, offsets: list[int]) -> None:
        super().__init__(fs, directory, file_size_bytes, writable=False)
        self._files = tuple(
            MappedFile(fs, directory / log_file_name(offset), offset, file_size_bytes, writable=False)
            for offset in offsets
        )


class LogFiles:
    """All log files of a root.

    Args:
        fs: the disk port.
        root: the store root.
        findings: gets what is wrong with names and sizes.

    Attributes:
        file_size_bytes: the size of most files; 0 without files.
        runs: files without a gap, by address.
        sizes: the length on the disk of each file by its first address.
        misplaced: files with a log file's name whose offset does not fit to the others.
    """

    def __init__(self, fs: FileSystem, root: Path, findings: Findings) -> None:
        self.directory = Path(commit_log_dir(str(root)))
        self.runs: list[LogFileRun] = []
        self.sizes: dict[int, int] = {}
        self.misplaced: list[Path] = []
        self._fs = fs
        found: dict[int, int] = {}
        for name in fs.listdir(self.directory):
            offset = parse_log_file_name(name)
            if offset is None:
                findings.add("LOG_FOREIGN_FILE", self.directory / name, 0, "this is not the name of a log file")
            elif not fs.is_file(self.directory / name) or offset > OFFSET_MAX:
                findings.add(
                    "LOG_FILE_NAME", self.directory / name, 0, "it is no regular file, or its offset is too large"
                )
                self.misplaced.append(self.directory / name)
            else:
                found[offset] = fs.stat_size(self.directory / name)
        self.file_size_bytes = file_size_of(found)
        if self.file_size_bytes:
            self._open(found, findings)

    def record_at(self, commit_log_offset: int) -> Record | None:
        """The record that begins at an offset (bytes); None where no whole one begins."""
        for run in self.runs:
            if run.first_offset <= commit_log_offset < run.last_offset:
                with contextlib.suppress(RecordCorruptedError):
                    return read_record_at(run.read, commit_log_offset, run.last_offset - commit_log_offset)
        return None

    def dispatched_to(self, commit_log_offset: int) -> frozenset[str]:
        """The further queues that the record at an offset (bytes) names."""
        record = self.record_at(commit_log_offset)
        return dispatched_to(record.properties) if record is not None else frozenset()

    @property
    def first_offset(self) -> int:
        """The first address; 0 without files."""
        return min(self.sizes, default=0)

    @property
    def total_bytes(self) -> int:
        """Length of all files."""
        return sum(self.sizes.values())

    def path_of(self, offset: int) -> tuple[Path, int]:
        """The file that an address belongs to, which may be missing, and the byte in it."""
        base = self.first_offset
        size = self.file_size_bytes or 1
        # The end of a full last file is reported as that file's end, not as the start of a file that does not exist.
        first = base + (offset - base) // size * size
        if first not in self.sizes and first == offset and offset - size in self.sizes:
            first = offset - size
        return self.directory / log_file_name(first), offset - first

    def close(self) -> None:
        """Closes all files."""
        for run in self.runs:
            run.close()

    def _open(self, found: dict[int, int], findings: Findings) -> None:
        size = self.file_size_bytes
        grid = Counter(offset % size for offset in found).most_common(1)[0][0]
        for offset, length in sorted(found.items()):
            if offset % size == grid:
                self.sizes[offset] = length
            else:
                path = self.directory / log_file_name(offset)
                self.misplaced.append(path)
                findings.add("LOG_FILE_NAME", path, 0, f"log files have {size} bytes each: none can begin at {offset}")
        offsets = list(self.sizes)
        start = 0
        for at in range(1, len(offsets) + 1):
            if at == len(offsets) or offsets[at] - offsets[at - 1] != size:
                self.runs.append(LogFileRun(self._fs, self.directory, size, offsets[start:at]))
                start = at
        for offset, length in self.sizes.items():
            if length == size:
                continue
            is_last = offset == offsets[-1] and length < size
            findings.add(
                "LOG_FILE_UNFINISHED" if is_last else "LOG_FILE_SIZE",
                self.directory / log_file_name(offset),
                min(length, size),
                f"it has {length} bytes, a log file has {size}",
                commit_log_offset=offset + min(length, size),
            )
