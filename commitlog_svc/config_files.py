"""The files of RocketMQ in `config/` that services send, so that a broker can take over. Only this service writes there.

    consumerOffset.json  subscriptionGroup.json  consumerFilter.json  consumerOrderInfo.json     of the consumer service
    lmqConsumerOffset.json, if a broker with `enableLmq` wrote one                               of the consumer service
    messageRequestMode.json, if a group has a mode                                               of the consumer service
    delayOffset.json     transactionMetrics      timermetrics         timercheck                 of the schedule service

Sources: `BrokerPathConfigHelper` and `ConfigManager` of RocketMQ 5.3.3. `ConfigManager.persist` moves the file to its `.bak`
and writes a new one; `load` reads the `.bak` when the file is missing or damaged: `store/files/config_file.py`. Here the `.bak`
is a copy, so that there is a whole file at any moment. `timercheck` is not written by a ConfigManager and has no `.bak`.

`timerlog`, a directory of the store root, can be written in the same way, in whole units: TimerLogFiles.

ConfigShare: the files of `config/` that go with the log. The leader sends each one that has changed, followers write it.

The topic table is on the leader's disk before a message of a new topic is; a follower gets it before that message, too.
`timerlog` is not sent: the next leader's schedule service writes it anew.

TimerLogFiles: RocketMQ's `timerlog/`, written anew so that a real broker can take over the timers that wait.

The schedule service sends the units; what they need to know of each other and of the files is filled in here. A broker believes
the last unit of the last file, whatever is missing before it, so the directory is replaced as one: after a crash it is the old
one, the new one, or there is none. Then a broker begins with the position in `config/timercheck`; it may deliver again, and
skips nothing. `timerwheel` is removed: a broker makes it from the units. Moved aside are snapshots of the wheel
(`timerwheel.OFFSET`, RocketMQ 5.5 with `timerWheelSnapshotFlush`), which would count more than the units, and files of the
directory with unknown names, which are not ours.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import structlog

from commitlog_svc.append.topics.topics import TopicTable
from store.errors import InvalidArgumentError
from store.files.aside import Aside, builder_folder
from store.files.config_file import ConfigFile, RememberedCheck, check_json, read_config_file, replace_config_file, tell
from store.files.file_system import FileSystem
from store.format.delivery.config_rows import unreadable_rows, with_rows_of
from store.format.delivery.timer_files import UNIT_SIZE_BYTES, UnitChain, blank, check_timer_page, unit_count_of_file
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


# 1,000 groups with 1,000 queues each make a consumerOffset.json of 12 MB.
CONFIG_FILE_BYTES_MAX = 16 << 20
BACKED_UP_NAMES = frozenset(
    (
        "consumerOffset.json",
        "lmqConsumerOffset.json",
        "subscriptionGroup.json",
        "consumerFilter.json",
        "consumerOrderInfo.json",
        "messageRequestMode.json",
        "delayOffset.json",
        "transactionMetrics",
        "timermetrics",
    )
)
TIMER_CHECK = "timercheck"
NAMES = BACKED_UP_NAMES | {TIMER_CHECK}
# Of one problem.
ROWS_SHOWN_MAX = 3
ROW_SHOWN = 120
TIMER_LOG = "timerlog"


def _nobody(_name: str) -> None:
    """For a store without replicas."""


class ConfigFiles:
    """Reads and replaces the files; thread-safe.

    Args:
        fs: the disk port.
        directory: `config` of the store root.
        refuse: raises when nothing may be written.
        timer_log: writes `timerlog`; None: it cannot be written.

    Attributes:
        on_written: called with the name of a file that was replaced.
        problems: by name: why a file could not be used as it is, and what was used instead, in the life of this object.
    """

    def __init__(
        self, fs: FileSystem, directory: Path, refuse: Callable[[], None], timer_log: TimerLogFiles | None = None
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._refuse = refuse
        self.timer_log = timer_log
        self.on_written: Callable[[str], None] = _nobody
        self.problems: dict[str, str] = {}
        self._check = RememberedCheck(_check_content)
        self._rows_sound: dict[str, int] = {}  # hashes of contents whose rows need not be looked at again
        self._lock = threading.Lock()  # two writers of a file would share its temporary file

    def look(self) -> None:
        """Reads all files once, so that what is wrong with one is known from the start."""
        for name in sorted(NAMES):
            self.read(name)

    def read(self, name: str) -> ConfigFile:
        """What is used of a file: the file, or its `.bak` where it is missing or damaged, or what can be read of them.

        A position that cannot be read is taken from the `.bak`.

        Raises:
            InvalidArgumentError: the name is not allowed.
        """
        _check_name(name)
        found, row_words = self._with_rows_of_backup(name, self._read(name))
        problem = "; ".join(filter(None, (found.problem, row_words)))
        if problem and problem != self.problems.get(name):
            self.problems[name] = problem  # stays: a file that was replaced meanwhile is told until the end
            tell(self._directory / name, problem)
        return found

    def writing(self) -> "ConfigFileWriting":
        """Begins to take the content of a file."""
        return ConfigFileWriting(self)

    def check(self, name: str) -> None:
        """Raises the reason why this file cannot be written; see `write`."""
        _check_name(name)
        self._refuse()

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file and keeps the one before as `.bak`; both are on the disk when this returns. Nothing is written when
        the file has this content already.

        Raises:
            InvalidArgumentError: the name is not allowed, or the content is empty or too large.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: the file is unchanged.
            FlushFailedError: the file is the old or the new one.
        """
        self.check(name)
        self.copy(name, content)

    def copy(self, name: str, content: bytes) -> None:
        """`write`, also where services may not: the content comes from the leader, or from the broker that is mirrored."""
        _check_name(name)
        _check_size(len(content))
        if not content:  # a broker would take the `.bak` instead
            raise InvalidArgumentError(f"the content of {name} is empty: send what it is to hold", field="content")
        self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> None:
        path, has_backup = self._directory / name, name in BACKED_UP_NAMES
        with self._lock:
            self._check.trust(content, name)
            if not replace_config_file(self._fs, path, content, self._check, has_backup=has_backup):
                return
        self.on_written(name)

    def _read(self, name: str) -> ConfigFile:
        has_backup = name in BACKED_UP_NAMES
        path = self._directory / name
        is_json = name != TIMER_CHECK
        return read_config_file(self._fs, path, self._check, has_backup=has_backup, is_json=is_json)

    def _with_rows_of_backup(self, name: str, found: ConfigFile) -> tuple[ConfigFile, str]:
        """What is used of a file when rows of it cannot be read, and words about these rows if the file is used as it is."""
        if found.content is None or self._rows_sound.get(name) == hash(found.content):
            return found, ""
        rows = unreadable_rows(name, found.content)
        if not rows:
            self._rows_sound[name] = hash(found.content)
            return found, ""
        shown = ", ".join(f"{row[:ROW_SHOWN]!r} ({why})" for row, why in list(rows.items())[:ROWS_SHOWN_MAX])
        words = f"config/{name} has rows that cannot be read ({len(rows)}: {shown})"
        backup = read_config_file(self._fs, self._directory / f"{name}.bak", has_backup=False).content
        content, taken = with_rows_of(name, found.content, backup, rows)
        if not taken:
            return (
                found,
                f"{words}; the others are used",
            )  # a service that follows a broker waits while a file is damaged
        words = "; ".join(filter(None, (found.problem, f"{words}; {taken} of them are taken from {name}.bak")))
        return ConfigFile(content, words, found.is_backup), ""


def _check_content(data: bytes, name: str) -> None:
    check_timer_page(data) if name == TIMER_CHECK else check_json(data, name)


class ConfigFileWriting:
    """The parts of a file as they come; the file is written with the last one."""

    def __init__(self, files: ConfigFiles) -> None:
        self._files = files
        self._name: str | None = None
        self._content = bytearray()
        self._timer_log: TimerLogWriting | None = None
        self._is_written = False

    def take(self, name: str, part: bytes, *, is_last: bool) -> None:
        """Takes the next part; errors as `ConfigFiles.write`, and InvalidArgumentError for a part of another file."""
        if self._name is None:
            if name == TIMER_LOG and self._files.timer_log is not None:
                self._timer_log = self._files.timer_log.writing()
            else:
                self._files.check(name)
            self._name = name
        if name != self._name or self._is_written:
            raise InvalidArgumentError(
                f"this call writes {self._name}, once: write {name[:80]!r} in a call of its own", field="name"
            )
        self._is_written = is_last
        if self._timer_log is not None:
            self._timer_log.take(part)
            if is_last:
                self._timer_log.finish()
            return
        _check_size(len(self._content) + len(part))
        self._content += part
        if is_last:
            self._files.write(name, bytes(self._content))


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise InvalidArgumentError(
            f"{name[:80]!r} is not a file that services write: use one of {', '.join(sorted(NAMES))}", field="name"
        )


def _check_size(size_bytes: int) -> None:
    if size_bytes > CONFIG_FILE_BYTES_MAX:
        raise InvalidArgumentError(
            f"the content has {size_bytes} bytes or more: at most {CONFIG_FILE_BYTES_MAX} are allowed",
            field="content",
            sizeBytes=size_bytes,
            sizeBytesMax=CONFIG_FILE_BYTES_MAX,
        )


TOPICS_NAME = "topics.json"


class ConfigShare:
    """Versions of the files; thread-safe.

    Args:
        topics: the topic table.
        config_files: the other files.
        forget_topics: must be called after the topic table has changed.
    """

    def __init__(self, topics: TopicTable, config_files: ConfigFiles, forget_topics: Callable[[], None]) -> None:
        self._topics = topics
        self._config_files = config_files
        self._forget_topics = forget_topics
        self._lock = threading.Lock()
        # Each file that there is has changed once: before the first follower came.
        self._versions = dict.fromkeys((TOPICS_NAME, *sorted(NAMES)), 1)
        self.version = 1
        topics.on_written.append(lambda: self._note(TOPICS_NAME))
        config_files.on_written = self._note

    def changed_since(self, version: int) -> Iterator[tuple[str, bytes, int]]:
        """Name, content and version of each file that changed behind a version, the oldest change first."""
        with self._lock:
            changed = sorted((at, name) for name, at in self._versions.items() if at > version)
        for at, name in changed:
            content = self._topics.read() if name == TOPICS_NAME else self._config_files.read(name).content
            if content:
                yield name, content, at

    def take(self, name: str, content: bytes) -> None:
        """Writes a file that the leader sent; it is on the disk when this returns.

        Raises:
            StoreCorruptedError, InvalidArgumentError: the content or the name is not one that a leader sends.
        """
        if name == TOPICS_NAME:
            self._topics.copy(content)
            self._forget_topics()
        else:
            self._config_files.copy(name, content)

    def _note(self, name: str) -> None:
        with self._lock:
            self.version += 1
            self._versions[name] = self.version
