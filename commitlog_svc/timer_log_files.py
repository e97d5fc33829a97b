"""TimerLogFiles: RocketMQ's `timerlog/`, written anew so that a real broker can take over the timers that wait.

The schedule service sends the units; what they need to know of each other and of the files is filled in here. A broker believes
the last unit of the last file, whatever is missing before it, so the directory is replaced as one: after a crash it is the old
one, the new one, or there is none. Then a broker begins with the position in `config/timercheck`; it may deliver again, and
skips nothing. `timerwheel` is removed: a broker makes it from the units. Moved aside are snapshots of the wheel
(`timerwheel.OFFSET`, RocketMQ 5.5 with `timerWheelSnapshotFlush`), which would count more than the units, and files of the
directory with unknown names, which are not ours.
"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from store.errors import InvalidArgumentError
from store.files.aside import Aside, builder_folder
from store.files.file_system import FileSystem
from store.format.delivery.timer_files import UNIT_SIZE_BYTES, UnitChain, blank, unit_count_of_file
from store.format.paths import log_file_name, parse_log_file_name

NOT_OURS = "it is no file of timerlog"
OLD_WHEEL = "this snapshot of the timer wheel is older than timerlog"
_log = structlog.get_logger("reput.commitlog")


class TimerLogFiles:
    """Replaces the files; thread-safe.

    Args:
        fs: the disk port.
        root: the store root.
        own_directory: where new files are written, in the same file system.
        file_size_bytes: of new files where there are none; files that a broker made say it themselves.
        refuse: raises when nothing may be written.
    """

    def __init__(
        self, fs: FileSystem, root: Path, own_directory: Path, file_size_bytes: int, refuse: Callable[[], None]
    ) -> None:
        self._fs = fs
        self._directory = root / "timerlog"
        self._wheel = root / "timerwheel"
        self._new = own_directory / "timerlog.new"
        self._old = own_directory / "timerlog.old"
        self._file_size_bytes = file_size_bytes
        self._refuse = refuse
        self._lock = threading.Lock()
        self._root = root
        self._aside = Aside(fs, root, builder_folder(root, "commitlog"), tell=self._tell)

    def writing(self) -> "TimerLogWriting":
        """Begins to take units; another writing that has not finished is over.

        Raises:
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing may be written.
        """
        self._refuse()
        with self._lock:
            self._empty(self._new)
            return TimerLogWriting(self._fs, self._new, self._size_now(), self._replace)

    def _size_now(self) -> int:
        for directory in (self._directory, self._old):  # a crash may have left them there
            names = [name for name in self._fs.listdir(directory) if parse_log_file_name(name) is not None]
            sizes = {self._fs.stat_size(directory / name) for name in names} - {0}
            if sizes:
                return min(sizes)
        return self._file_size_bytes

    def _replace(self, names: Sequence[str]) -> None:
        fs = self._fs
        with self._lock:
            if names and fs.listdir(self._new) != sorted(names):
                raise InvalidArgumentError("another call writes timerlog: call again", field="name")
            self._empty(self._old)
            for name in fs.listdir(self._directory):
                if parse_log_file_name(name) is None:
                    self._aside.move(self._directory / name, NOT_OURS)
            for name in fs.listdir(self._root):
                if name.startswith(f"{self._wheel.name}."):
                    self._aside.move(self._root / name, OLD_WHEEL)
            if fs.exists(self._directory):
                fs.rename(self._directory, self._old)
                fs.fsync_dir(self._directory.parent)
            if fs.exists(self._wheel):
                fs.unlink(self._wheel)
                fs.fsync_dir(self._wheel.parent)
            if names:
                fs.rename(self._new, self._directory)
                fs.fsync_dir(self._directory.parent)
            self._empty(self._old)

    def _tell(self, path: Path, kept: Path, why: str) -> None:
        moved, kept_in = (str(each.relative_to(self._root)) for each in (path, kept))
        _log.warning("store.moved_aside", follower="commitlog", path=moved, kept_in=kept_in, reason=why)

    def _empty(self, directory: Path) -> None:
        for name in self._fs.listdir(directory):
            self._fs.unlink(directory / name)


class TimerLogWriting:
    """The units as they come.

    Args:
        fs: the disk port.
        directory: where new files are written.
        file_size_bytes: of each.
        replace: has the files of these names take the place of the others.
    """

    def __init__(
        self, fs: FileSystem, directory: Path, file_size_bytes: int, replace: Callable[[Sequence[str]], None]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._file_size_bytes = file_size_bytes
        self._replace = replace
        self._chain = UnitChain(file_size_bytes)
        self._count = 0
        self._names: list[str] = []

    def take(self, part: bytes) -> None:
        """Takes the next units.

        Raises:
            InvalidArgumentError: these are no whole units.
            DiskFullError, FlushFailedError: the files that were there are unchanged.
        """
        if len(part) % UNIT_SIZE_BYTES:
            raise InvalidArgumentError(
                f"the content has {len(part)} bytes: send whole units of {UNIT_SIZE_BYTES}", field="content"
            )
        data = memoryview(self._chain.link(part).tobytes())
        per_file = unit_count_of_file(self._file_size_bytes)
        while data:
            place = self._count % per_file
            if place == 0:
                self._begin_file()
            count = min(len(data) // UNIT_SIZE_BYTES, per_file - place)
            self._write(data[: count * UNIT_SIZE_BYTES], place * UNIT_SIZE_BYTES)
            self._count += count
            data = data[count * UNIT_SIZE_BYTES :]

    def finish(self) -> None:
        """Has the new files take the place of the others; they are on the disk when this returns."""
        if self._names:
            self._fs.fsync_dir(self._directory)
        self._replace(self._names)

    def _begin_file(self) -> None:
        if self._names:
            position = unit_count_of_file(self._file_size_bytes) * UNIT_SIZE_BYTES
            self._write(blank(self._file_size_bytes), position)
        self._fs.mkdirs(self._directory)
        name = log_file_name(len(self._names) * self._file_size_bytes)
        fd = self._fs.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self._fs.ftruncate(fd, self._file_size_bytes)
        finally:
            self._fs.close(fd)
        self._names.append(name)

    def _write(self, data: memoryview | bytes, position: int) -> None:
        fd = self._fs.open(self._directory / self._names[-1], os.O_WRONLY)
        try:
            self._fs.pwrite(fd, data, position)
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
