"""The files of RocketMQ in `config/` that services send, so that a broker can take over. Only this service writes there.

    consumerOffset.json  subscriptionGroup.json  consumerFilter.json  consumerOrderInfo.json     of the consumer service
    delayOffset.json     transactionMetrics      timermetrics         timercheck                 of the schedule service

Sources: `BrokerPathConfigHelper` and `ConfigManager` of RocketMQ 5.3.3. `ConfigManager.persist` moves the file to its `.bak`
and writes a new one; `load` reads the `.bak` when the file is missing or empty. Here the `.bak` is a copy, so that there is a
whole file at any moment. `timercheck` is not written by a ConfigManager and has no `.bak`.

`timerlog`, a directory of the store root, can be written in the same way, in whole units; see timer_log_files.py.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from commitlog_svc.timer_log_files import TimerLogFiles, TimerLogWriting
from store.errors import InvalidArgumentError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic

# 1,000 groups with 1,000 queues each make a consumerOffset.json of 12 MB.
CONFIG_FILE_BYTES_MAX = 16 << 20
BACKED_UP_NAMES = frozenset(
    (
        "consumerOffset.json",
        "subscriptionGroup.json",
        "consumerFilter.json",
        "consumerOrderInfo.json",
        "delayOffset.json",
        "transactionMetrics",
        "timermetrics",
    )
)
NAMES = BACKED_UP_NAMES | {"timercheck"}
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
    """

    def __init__(
        self, fs: FileSystem, directory: Path, refuse: Callable[[], None], timer_log: TimerLogFiles | None = None
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._refuse = refuse
        self.timer_log = timer_log
        self.on_written: Callable[[str], None] = _nobody
        self._lock = threading.Lock()  # two writers of a file would share its temporary file

    def read(self, name: str) -> bytes | None:
        """The file, or its `.bak` where the file is missing or empty; None when there is neither.

        Raises:
            InvalidArgumentError: the name is not allowed.
        """
        _check_name(name)
        return self._read(name) or (self._read(f"{name}.bak") if name in BACKED_UP_NAMES else None) or None

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
        with self._lock:
            before = self._read(name)
            if before == content:
                return
            if before and name in BACKED_UP_NAMES:
                write_bytes_atomic(self._fs, self._directory / f"{name}.bak", before)
            write_bytes_atomic(self._fs, self._directory / name, content)
        self.on_written(name)

    def _read(self, name: str) -> bytes | None:
        return read_bytes(self._fs, self._directory / name)


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
