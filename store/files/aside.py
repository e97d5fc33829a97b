"""The folder that keeps what a repair removes: `reput/fsck/<n>/`, a new number for each repair. Nothing is deleted.

A file keeps its path below that folder. Each move is on the disk, in both directories, before the next step.
"""

import os
from pathlib import Path

from store.files.file_system import FileSystem

COPY_BYTES = 4 << 20


class Aside:
    """The folder of one repair, made when it is first needed.

    Args:
        fs: the file system.
        root: the store root.

    Attributes:
        moved: what was put there, as paths inside the root.
    """

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self.moved: list[str] = []
        self._fs = fs
        self._root = root
        self._directory: Path | None = None

    @property
    def directory(self) -> Path:
        """The folder."""
        if self._directory is None:
            base = self._root / "reput" / "fsck"
            used = [int(name) for name in self._fs.listdir(base) if name.isascii() and name.isdigit()]
            self._directory = base / str(max(used, default=0) + 1)
            self._fs.mkdirs(self._directory)
        return self._directory

    @property
    def is_used(self) -> bool:
        """Whether anything was put there."""
        return bool(self.moved)

    def move(self, path: Path) -> None:
        """Move a file or folder out of the store; does nothing when it does not exist."""
        if not self._fs.exists(path):
            return
        target = self._target(path)
        self._fs.rename(path, target)
        self._fs.fsync_dir(target.parent)
        self._fs.fsync_dir(path.parent)

    def copy(self, path: Path, *, begin: int = 0, end: int | None = None, suffix: str = "") -> None:
        """Copy the bytes `[begin, end)` of a file, up to the last one that is not zero; end None: to the end of the file."""
        target = self._target(path, suffix)
        source = self._fs.open(path, os.O_RDONLY)
        try:
            stop = self._fs.stat_size(path) if end is None else end
            fd = self._fs.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                for position in range(begin, stop, COPY_BYTES):
                    data = self._fs.pread(source, min(COPY_BYTES, stop - position), position).rstrip(b"\0")
                    if data:
                        self._fs.pwrite(fd, data, position - begin)
                self._fs.fdatasync(fd)
            finally:
                self._fs.close(fd)
        finally:
            self._fs.close(source)
        self._fs.fsync_dir(target.parent)

    def _target(self, path: Path, suffix: str = "") -> Path:
        inside = path.relative_to(self._root)
        target = self.directory / inside
        target = target.with_name(target.name + suffix)
        self._fs.mkdirs(target.parent)
        self.moved.append(str(inside) + suffix)
        return target
