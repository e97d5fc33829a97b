"""The files of RocketMQ in `config/` that services send, so that a broker can take over. Only this service writes there.

    consumerOffset.json  subscriptionGroup.json  consumerFilter.json  consumerOrderInfo.json     of the consumer service
    lmqConsumerOffset.json, if a broker with `enableLmq` wrote one                               of the consumer service
    delayOffset.json     transactionMetrics      timermetrics         timercheck                 of the schedule service

Sources: `BrokerPathConfigHelper` and `ConfigManager` of RocketMQ 5.3.3. `ConfigManager.persist` moves the file to its `.bak`
and writes a new one; `load` reads the `.bak` when the file is missing or damaged: `store/files/config_file.py`. Here the `.bak`
is a copy, so that there is a whole file at any moment. `timercheck` is not written by a ConfigManager and has no `.bak`.

`timerlog`, a directory of the store root, can be written in the same way, in whole units; see timer_log_files.py.

The files of `config/` that go with the log: the leader sends each one that has changed, followers write it.

The topic table is on the leader's disk before a message of a new topic is; a follower gets it before that message, too.
`timerlog` is not sent: the next leader's schedule service writes it anew.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from commitlog_svc.append.topics.topics import TopicTable
from commitlog_svc.timer_log_files import TimerLogFiles, TimerLogWriting
from store.errors import InvalidArgumentError
from store.files.config_file import ConfigFile, RememberedCheck, check_json, read_config_file, replace_config_file, tell
from store.files.file_system import FileSystem
from store.format.delivery.config_rows import unreadable_rows, with_rows_of
from store.format.delivery.timer_files import check_timer_page

# 1,000 groups with 1,000 queues each make a consumerOffset.json of 12 MB.
CONFIG_FILE_BYTES_MAX = 16 << 20
BACKED_UP_NAMES = frozenset(
    (
        "consumerOffset.json",
        "lmqConsumerOffset.json",
        "subscriptionGroup.json",
        "consumerFilter.json",
        "consumerOrderInfo.json",
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
        topics.on_written = lambda: self._note(TOPICS_NAME)
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
