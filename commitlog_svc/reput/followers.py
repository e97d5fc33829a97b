"""FollowerRegistry: which followers the log keeps its records for, and how far each of them is.

A follower reads the log over Reput and reports up to where its own state is durable. Retention waits for all of them.

    expected      named by the setting `followers`; removed only there
    registered    any other name, from its first report on; removed by RemoveFollower

A registered name is on the disk before its first report is answered, in `reput/commitlog/followers.json`:

    {"registered":["audit","schedule"]}

Offsets are not kept. After a start each follower needs the whole log until it has reported (ADR 0008, ADR 0037).
"""

import re
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from store.errors import FollowerNotFoundError, InvalidArgumentError, StoreCorruptedError, StoreRecoveringError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

FILE_NAME = "followers.json"
# A shard has about ten services. Each name can hold back retention, so the names that callers can add are limited.
FOLLOWER_COUNT_MAX = 32
NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")
SWITCHED_OFF = -1  # what a follower reports that needs nothing of the log


@dataclass(frozen=True, slots=True)
class Follower:
    """One follower, as of its last report.

    Attributes:
        name: of the follower.
        is_expected: whether the setting `followers` names it.
        next_offset: everything before it is applied and durable (bytes); SWITCHED_OFF: it needs nothing of the log;
            None: it has not reported since the log was opened.
        store_time_millis: of the newest record applied; 0 when there is none.
    """

    name: str
    is_expected: bool
    next_offset: int | None = None
    store_time_millis: int = 0


def parse_names(text: str) -> list[str]:
    """The names in the setting `followers`, such as `consumequeue,index`.

    Raises:
        InvalidArgumentError: a name is not valid or repeated, or there are too many.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        check_name(name)
    if len(set(names)) != len(names):
        raise InvalidArgumentError(f"{text!r} names a follower twice: name each once", field="followers")
    if len(names) > FOLLOWER_COUNT_MAX:
        raise InvalidArgumentError(
            f"{len(names)} followers are too many: name at most {FOLLOWER_COUNT_MAX}", field="followers"
        )
    return names


class FollowerRegistry:
    """See the top of this file; thread-safe.

    Args:
        fs: the disk port.
        directory: of our own state, `reput/commitlog`.
        expected: names from the settings.
        read_only: the file is neither read nor written; nothing is removed from such a log.
    """

    def __init__(self, fs: FileSystem, directory: Path, expected: Collection[str], *, read_only: bool = False) -> None:
        self._fs = fs
        self._path = directory / FILE_NAME
        self._read_only = read_only
        self._lock = threading.Lock()
        self._followers = {name: Follower(name, is_expected=True) for name in expected}
        self._is_loaded = False

    def load(self) -> None:
        """Reads the registered names.

        Raises:
            StoreCorruptedError: the file is damaged. Retention must not guess which followers it waits for.
        """
        with self._lock:
            for name in self._read_names():
                self._followers.setdefault(name, Follower(name, is_expected=False))
            self._is_loaded = True

    def report(self, name: str, next_offset: int, store_time_millis: int, confirm_offset: int) -> None:
        """Notes how far a follower is; registers a new name.

        Args:
            name: of the follower.
            next_offset: everything before it is applied and durable (bytes); SWITCHED_OFF: it needs nothing.
            store_time_millis: of the newest record applied; 0 when there is none.
            confirm_offset: up to where the log may be shown (bytes).

        Raises:
            InvalidArgumentError: the name is not valid, there are too many followers, or the offset is outside the log.
            StoreRecoveringError: the registered names are not read yet.
            DiskFullError, FlushFailedError: the name could not be made durable; it is not registered.
        """
        check_name(name)
        if next_offset != SWITCHED_OFF and not 0 <= next_offset <= confirm_offset:
            raise InvalidArgumentError(
                f"{name} cannot be at {next_offset}: the log may be shown up to {confirm_offset}",
                field="next_offset",
                nextOffset=next_offset,
                confirmOffset=confirm_offset,
            )
        with self._lock:
            known = self._followers.get(name)
            if known is None:
                self._register(name)
            is_expected = known is not None and known.is_expected
            self._followers[name] = Follower(name, is_expected, next_offset, store_time_millis)

    def remove(self, name: str) -> None:
        """Forgets a registered follower; retention no longer waits for it. A later report registers it again.

        Raises:
            FollowerNotFoundError: there is no such follower.
            InvalidArgumentError: the setting `followers` names it.
            StoreRecoveringError: the registered names are not read yet.
            DiskFullError, FlushFailedError: the change could not be made durable; the follower stays.
        """
        with self._lock:
            self._refuse_unloaded()
            follower = self._followers.get(name)
            if follower is None:
                names = ", ".join(sorted(self._followers)) or "none"
                raise FollowerNotFoundError(f"there is no follower {name[:80]!r}; there are: {names}", name=name[:80])
            if follower.is_expected:
                raise InvalidArgumentError(
                    f"{name} is expected: take it out of the commitlog's setting `followers` and restart", field="name"
                )
            self._write_names(self._registered_names() - {name})
            del self._followers[name]

    def all(self) -> list[Follower]:
        """Every follower, by name."""
        with self._lock:
            return sorted(self._followers.values(), key=lambda follower: follower.name)

    def find(self, name: str) -> Follower | None:
        """The follower of that name."""
        return self._followers.get(name)

    def needed_offsets(self) -> dict[str, int]:
        """The first offset that each follower needs (bytes); 0 until it has reported; without those that need nothing."""
        return {
            follower.name: follower.next_offset or 0 for follower in self.all() if follower.next_offset != SWITCHED_OFF
        }

    def _register(self, name: str) -> None:
        self._refuse_unloaded()
        if len(self._followers) >= FOLLOWER_COUNT_MAX:
            raise InvalidArgumentError(
                f"{name} cannot be registered: there are {len(self._followers)} followers, which is the most. "
                "`reput followers` lists them, and removes one that is gone",
                field="builder",
                followerCount=len(self._followers),
            )
        self._write_names(self._registered_names() | {name})

    def _refuse_unloaded(self) -> None:
        if not self._is_loaded:
            raise StoreRecoveringError(
                "the commit log is being opened: its followers are not known yet, try again soon"
            )

    def _registered_names(self) -> set[str]:
        return {follower.name for follower in self._followers.values() if not follower.is_expected}

    def _write_names(self, names: set[str]) -> None:
        if not self._read_only:
            write_json_state(self._fs, self._path, {"registered": sorted(names)})

    def _read_names(self) -> list[str]:
        if self._read_only or not self._fs.exists(self._path):
            return []
        state = read_json_state(self._fs, self._path) or {}
        names = state.get("registered")
        if (
            not isinstance(names, list)
            or len(names) > FOLLOWER_COUNT_MAX
            or not all(isinstance(name, str) and NAME_PATTERN.fullmatch(name) for name in names)
        ):
            raise StoreCorruptedError(
                f"{self._path} is damaged: it is not the list of registered followers that was written. Remove the file "
                "to go on; followers register again with their next report, and until then retention does not wait for them",
                file=self._path,
                offset=0,
            )
        return names


def check_name(name: str, field: str = "builder") -> None:
    """InvalidArgumentError unless this can be the name of a follower; `field` holds it."""
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidArgumentError(
            f"{name[:80]!r} is not a follower's name: use 1 to 63 of a-z, 0-9, '_' and '-', first a letter",
            field=field,
        )
