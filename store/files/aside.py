"""Aside: the folder where what must leave its place is kept. Nothing is deleted, and nothing kept before is overwritten.

    reput/fsck/<n>/PATH               what `reput fsck --repair` replaced
    reput/aside/<component>/<n>/PATH  what a builder found and the log does not explain

Each repair, and each process of a builder, has a number of its own. A file keeps its path below that folder. Each move is on
the disk, in both directories, before the next step. RocketMQ does not read `reput/`. docs/fsck.md says how to bring a file
back.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from store.errors import DiskFullError, StoreError
from store.files.file_system import FileSystem

COPY_BYTES = 4 << 20
# Folders of one kind: each stands for a start that found something. So many ask for a person, not for more room.
FOLDER_COUNT_MAX = 100
# Files that one folder takes. More of them are no leftovers: somebody put another store into this one.
FILE_COUNT_MAX = 100_000
# The room that all folders of a component may take before nothing more is moved: 80 index files of RocketMQ, or the queues of
# 1.7 billion messages. A move takes no room, but what is built in its place does; so both could fill the disk of the log.
BYTES_MAX = 32 << 30


def repair_folder(root: Path) -> Path:
    """The folder in which repairs keep what they replace."""
    return root / "reput" / "fsck"


def builder_folder(root: Path, component: str) -> Path:
    """The folder in which a builder keeps what the log does not explain."""
    return root / "reput" / "aside" / component


def _nobody(_path: Path, _kept: Path, _why: str) -> None:
    """For a repair, which reports by itself."""


class Aside:
    """The folder of one repair or one process, made when it is first needed.

    Args:
        fs: the file system.
        root: the store root.
        base: the folder that has the numbers; None: that of repairs.
        tell: called with each path, where it is kept, and why.
        bytes_max: nothing more is kept once all folders of `base` take so much room. Repairs have no such limit: somebody asked
            for them, and they keep what they replace.

    Attributes:
        moved: what was put there, as paths inside the root.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        base: Path | None = None,
        *,
        tell: Callable[[Path, Path, str], None] = _nobody,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max if base is not None else None
        self._kept_bytes: int | None = None  # read with the first move
        self.moved: list[str] = []
        self._fs = fs
        self._root = root
        self._base = repair_folder(root) if base is None else base
        self._tell = tell
        self._directory: Path | None = None

    @property
    def directory(self) -> Path:
        """The folder.

        Raises:
            DiskFullError: there are as many as may be.
        """
        if self._directory is None:
            used = _numbers(self._fs, self._base)
            last = max(used, default=0)
            # One that a full disk left empty is used, so that tries do not use up the numbers.
            is_free = last and _holds_nothing(self._fs, self._base / str(last))
            if not is_free and len(used) >= FOLDER_COUNT_MAX:
                raise self._full(f"it has {len(used)} folders")
            self._directory = self._base / str(last if is_free else last + 1)
            self._fs.mkdirs(self._directory)
        return self._directory

    @property
    def is_used(self) -> bool:
        """Whether anything was put there."""
        return bool(self.moved)

    def move(self, path: Path, why: str = "") -> None:
        """Moves a file or folder out of the store; does nothing when it does not exist.

        Raises:
            DiskFullError: nothing more may be kept; the file stays.
        """
        if not self._fs.exists(path):
            return
        self._look_for_room()
        target = self._target(path)
        try:
            self._fs.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV or not self._fs.is_file(path):
                raise
            self._copy(path, target, 0, None, is_whole=True)  # its folder lies on another disk than `reput/`
            self._fs.fsync_dir(target.parent)
            self._fs.unlink(path)
        self._fs.fsync_dir(target.parent)
        self._fs.fsync_dir(path.parent)
        self._note(target)
        self._tell(path, target, why)

    def copy(self, path: Path, *, begin: int = 0, end: int | None = None, suffix: str = "", why: str = "") -> None:
        """Copies the bytes `[begin, end)` of a file, up to the last one that is not zero; end None: to the end of the file.

        Raises:
            DiskFullError: nothing more may be kept, or the disk is full.
        """
        self._look_for_room()
        target = self._target(path, suffix)
        self._copy(path, target, begin, end)
        self._fs.fsync_dir(target.parent)
        self._note(target)
        self._tell(path, target, why)

    def _look_for_room(self) -> None:
        if self._bytes_max is None:
            return
        if self._kept_bytes is None or self._kept_bytes >= self._bytes_max:  # somebody may have made room meanwhile
            self._kept_bytes = kept_bytes(self._fs, self._base)
        if self._kept_bytes >= self._bytes_max:
            raise self._full(f"its files take {self._kept_bytes} of {self._bytes_max} bytes")

    def _note(self, target: Path) -> None:
        if self._kept_bytes is not None:
            self._kept_bytes += kept_bytes(self._fs, target)
        self.moved.append(str(target.relative_to(self.directory)))

    def _copy(self, path: Path, target: Path, begin: int, end: int | None, *, is_whole: bool = False) -> None:
        source = self._fs.open(path, os.O_RDONLY)
        try:
            stop = self._fs.stat_size(path) if end is None else end
            fd = self._fs.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            is_done = False
            try:
                for position in range(begin, stop, COPY_BYTES):
                    data = self._fs.pread(source, min(COPY_BYTES, stop - position), position).rstrip(b"\0")
                    if data:
                        self._fs.pwrite(fd, data, position - begin)
                if is_whole:
                    self._fs.ftruncate(fd, stop)
                self._fs.fdatasync(fd)
                is_done = True
            finally:
                self._fs.close(fd)
                if not is_done:  # the next try must find room, and no half of a file
                    self._fs.unlink(target)
        finally:
            self._fs.close(source)

    def _target(self, path: Path, suffix: str = "") -> Path:
        if len(self.moved) >= FILE_COUNT_MAX:
            raise self._full(f"{self.directory.name} has {len(self.moved)} files")
        inside = path.relative_to(self._root)
        target = self.directory / inside
        target = target.with_name(target.name + suffix)
        number = 0
        while self._fs.exists(target):  # the same place was cut twice
            number += 1
            target = target.with_name(f"{inside.name}{suffix}.{number}")
        self._fs.mkdirs(target.parent)
        return target

    def _full(self, what: str) -> DiskFullError:
        return DiskFullError(
            f"{self._base} keeps what was moved aside, and {what}: look at them, then remove or move them out of the store; "
            "until then nothing more is moved aside, and what is not explained stays where it is",
            directory=self._base,
        )


def kept_count(fs: FileSystem, base: Path) -> int:
    """How many folders with something moved aside there are below `base`, which nobody has removed."""
    return len(_numbers(fs, base))


def kept_bytes(fs: FileSystem, path: Path) -> int:
    """The room that a file, or everything below a folder, takes on the disk."""
    if not fs.is_dir(path):
        return fs.allocated_bytes(path) if fs.exists(path) else 0
    return sum(kept_bytes(fs, path / name) for name in fs.listdir(path))


def aside_words(fs: FileSystem, root: Path, component: str) -> str:
    """What the status of a component says about what was moved aside; empty when nothing is kept.

    The folder may be on a disk that fails now: the status says so and is no error, because it is asked for just then.
    """
    base = builder_folder(root, component)
    try:
        count = kept_count(fs, base)
    except (OSError, StoreError) as error:
        return f"{base.relative_to(root)}/ cannot be read: {error}"
    return (
        f"{base.relative_to(root)}/ keeps what the log did not explain, of {count} starts: look at it, "
        "then remove it (docs/fsck.md)"
        if count
        else ""
    )


def _holds_nothing(fs: FileSystem, directory: Path) -> bool:
    return all(
        fs.is_dir(path) and _holds_nothing(fs, path) for path in (directory / name for name in fs.listdir(directory))
    )


def _numbers(fs: FileSystem, base: Path) -> list[int]:
    return [int(name) for name in fs.listdir(base) if name.isascii() and name.isdigit()]
