"""The log's files as they are, for an audit: whatever is missing, short, long or misnamed is reported and worked around.

Files that lie on one grid of sizes belong to the log. Each stretch of them without a gap is a `MappedFileQueue` of its
own, so that the walk over it is the very walk that recovery does.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

from store.audit.findings import Findings
from store.files.file_system import FileSystem
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.paths import commit_log_dir, log_file_name, parse_log_file_name

OFFSET_MAX = (1 << 62) - 1


class LogFileRun(MappedFileQueue):
    """Log files without a gap between them, opened for reading.

    Args:
        fs: the door to the disk.
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
        fs: the door to the disk.
        root: the store root.
        findings: takes what is wrong with names and sizes.

    Attributes:
        file_size_bytes: what most files say; 0 without files.
        runs: stretches without a gap, by address.
        sizes: the length on the disk of each file by its first address.
        misplaced: files with a log file's name that is not on the grid.
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
                findings.add("LOG_FOREIGN_FILE", self.directory / name, 0, "this name is none of a log file")
            elif fs.is_dir(self.directory / name) or offset > OFFSET_MAX:
                findings.add("LOG_FILE_NAME", self.directory / name, 0, "a directory, or an address that no log has")
                self.misplaced.append(self.directory / name)
            else:
                found[offset] = fs.stat_size(self.directory / name)
        self.file_size_bytes = _file_size(found)
        if self.file_size_bytes:
            self._open(found, findings)

    @property
    def first_offset(self) -> int:
        """The first address there is; 0 without files."""
        return min(self.sizes, default=0)

    @property
    def total_bytes(self) -> int:
        """Length of all files."""
        return sum(self.sizes.values())

    def path_of(self, offset: int) -> tuple[Path, int]:
        """The file that an address lies in, there or not, and the byte in it."""
        base = self.first_offset
        size = self.file_size_bytes or 1
        # The end of a full last file is told as that file's end, not as the start of one that is not there.
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
                findings.add("LOG_FILE_NAME", path, 0, f"files have {size} bytes each: none can begin at {offset}")
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


def _file_size(found: dict[int, int]) -> int:
    """The size that most files have or their names say; 0 when none says anything."""
    votes = Counter(size for size in found.values() if size > 0)
    votes.update(b - a for a, b in pairwise(sorted(found)))
    # Of two with equal votes the one that is told by names: lengths change easily, names hardly.
    told = {b - a for a, b in pairwise(sorted(found))}
    return max(votes, key=lambda size: (votes[size], size in told, -size)) if votes else 0
