"""A log of RocketMQ that grows in a directory, written from a fixture as a broker writes: files of full size, any order."""

from functools import lru_cache
from pathlib import Path

from tests.support.fixture_stores import unpack_store, walk_frames

FILE_SIZE_BYTES = 1 << 20  # of the fixture `broker`


class SourceLog:
    """The log of the fixture `broker`.

    Attributes:
        root: of the fixture.
        frames: offset and bytes of each record.
        ends: the offsets at which a record ends, and 0.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.frames = list(walk_frames(root))
        self.ends = {0, *(offset + len(frame) for offset, frame in self.frames)}
        self.files = {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}

    def read(self, begin: int, end: int) -> bytes:
        """The bytes `[begin, end)`, which lie in one file."""
        first = begin // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        return self.files[first][begin - first : end - first]


@lru_cache
def source_log(directory: Path) -> SourceLog:
    """The fixture, unpacked once into a directory."""
    root = directory / "source"
    return SourceLog(root if root.exists() else unpack_store("broker", root))


class GrowingLog:
    """The log files of a store root, written in pieces.

    Args:
        root: the store root.
    """

    def __init__(self, root: Path) -> None:
        self.directory = root / "commitlog"
        self.directory.mkdir(parents=True, exist_ok=True)

    def path_of(self, offset: int) -> Path:
        """The file that holds an offset."""
        return self.directory / f"{offset // FILE_SIZE_BYTES * FILE_SIZE_BYTES:020d}"

    def make_file(self, offset: int, size_bytes: int = FILE_SIZE_BYTES) -> None:
        """Make the file that holds an offset, of a size."""
        with open(self.path_of(offset), "ab") as file:
            file.truncate(size_bytes)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset, in one file; it is made when it is missing."""
        if not self.path_of(offset).exists():
            self.make_file(offset)
        with open(self.path_of(offset), "r+b") as file:
            file.seek(offset % FILE_SIZE_BYTES)
            file.write(data)

    def read(self, begin: int, end: int) -> bytes:
        """The bytes `[begin, end)`, which lie in one file."""
        first = begin // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        return self.path_of(begin).read_bytes()[begin - first : end - first]
