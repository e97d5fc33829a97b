"""The two builders of derived files, queues and index, with what differs between them, for suites that run over both."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from consumequeue_svc.queue_checks import QueueChecks
from index_svc.index_checks import IndexChecks
from index_svc.index_file_set import search_key
from services.following.file_check import FileChecker
from services.following.following_builder import FollowingBuilder
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.errors import RecordNotFoundError
from store.files.checksums import ChecksumTable
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import HEADER_SIZE, SLOT_SIZE, entry_position
from store.readers.index_reader import list_index_files
from tests.support.builders import (
    LAYOUT,
    QUEUE_FILE_SIZE,
    Clock,
    follow,
    index_bytes,
    open_index,
    open_queues,
    queue_bytes,
)
from tests.support.dispatches import make_request

FS = RealFileSystem()
Damage = Callable[[Path], object]
# Queue 0 has three files of which the last is not full, queue 1 has one.
QUEUE_REQUESTS = [
    make_request(n, queue_id=int(n % 5 == 4), queue_offset=n // 5 if n % 5 == 4 else n - n // 5) for n in range(70)
]
QUEUE_FILES = {"first": f"orders/0/{0:020d}", "middle": f"orders/0/{400:020d}", "open": f"orders/0/{800:020d}"}
# 3 keys each, every sixth record without any: 750 keys in 8 files, and records whose keys lie in two files.
INDEX_REQUESTS = [
    make_request(n, keys=["all", f"b{n % 17}"] if n % 6 else [], unique_key=f"u{n}" if n % 6 else "")
    for n in range(300)
]
INDEX_MATCH_COUNT = 250
INDEX_FILES = {"first": 0, "middle": 3, "last sealed": 6, "open": 7}
SLOTS = HEADER_SIZE, LAYOUT.slot_count * SLOT_SIZE
ENTRIES = entry_position(1, LAYOUT.slot_count), 100 * 20


def zero(position: int, size_bytes: int) -> Damage:
    def damage(path: Path) -> None:
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(bytes(size_bytes))

    return damage


def replace_by_another(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    zero(*SLOTS)(copy)
    os.replace(copy, path)


# What has the name of a file and is none.
NO_FILES: dict[str, Damage] = {
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("/nowhere/at/all")),
}
QUEUE_DAMAGES: dict[str, Damage] = {
    "zeroed units": zero(40, 60),
    "a unit that looks like a filler": lambda path: path.write_bytes(
        path.read_bytes()[:60] + (0).to_bytes(8) + (0x7FFFFFFF).to_bytes(4) + bytes(8) + path.read_bytes()[80:]
    ),
    "a zeroed file": zero(0, QUEUE_FILE_SIZE),
    "an empty file": lambda path: os.truncate(path, 0),
    "no file": lambda path: path.unlink(),
    **NO_FILES,
}
INDEX_DAMAGES: dict[str, Damage] = {
    "zeroed slots": zero(*SLOTS),
    "zeroed entries": zero(*ENTRIES),
    "zeroed header": zero(0, HEADER_SIZE),
    "a zeroed file": zero(0, LAYOUT.file_size_bytes),
    "a truncated header": lambda path: os.truncate(path, 20),
    "an empty file": lambda path: os.truncate(path, 0),
    "no file": lambda path: path.unlink(),
    "another file": replace_by_another,
    **NO_FILES,
}


class CheckedBuilder(ABC):
    """A builder and the checks of its files over one root, all in the calling thread.

    Attributes:
        read_from: the offsets from which the log was read, to make files again.
    """

    builder: FollowingBuilder
    checks: Any

    def __init__(self, root: Path, requests: Sequence[DispatchRequest], log_first_offset: int) -> None:
        self.root, self.requests, self.log_first_offset = root, requests, log_first_offset
        self.clock = Clock()
        self.read_from: list[int] = []

    def _begin(self, name: str, fs: RealFileSystem, checksums: ChecksumTable) -> None:
        self.checker = FileChecker(
            name,
            fs,
            self.checks.files,
            checksums,
            self.builder.hand_over,
            bytes_per_second_max=1 << 40,
            clock=self.clock,
        )
        self.builder.checker = self.checker
        self.checker.look(self.checks.files())

    @contextmanager
    def read_log(self, offset: int) -> Iterator[Iterator[SimpleNamespace]]:
        self.read_from.append(offset)
        if offset >= 0 and offset not in {request.commit_log_offset for request in self.requests}:
            raise RecordNotFoundError(f"no record starts at {offset}")
        start = max(offset, self.log_first_offset)
        wanted = [request for request in self.requests if request.commit_log_offset >= start]
        parts = (wanted[at : at + 7] for at in range(0, len(wanted), 7))
        yield (SimpleNamespace(columns=DispatchColumns.of(part), next_offset=part[-1].next_offset) for part in parts)

    def follow(self) -> None:
        follow(self.builder, self.requests, log_first_offset=self.log_first_offset)

    def check_for(self, seconds: float) -> None:
        """What the thread of the checks does in some seconds."""
        self.clock.seconds += seconds
        while self.checker.step():
            pass

    def check(self, seconds: float = 1.0) -> None:
        """As `check_for`, and then the builder's next heartbeat."""
        self.check_for(seconds)
        end = self.requests[-1].next_offset
        if not self.builder.apply([], end, self.log_first_offset, end):
            self.follow()

    def settle(self) -> None:
        for _ in range(4):
            self.check(20)

    @abstractmethod
    def is_partial(self) -> bool:
        """Whether an answer says that something may be missing."""

    @abstractmethod
    def path(self, which: str) -> Path:
        """A file, as its kind names it."""


class CheckedQueues(CheckedBuilder):
    """The builder of queues."""

    def __init__(
        self,
        root: Path,
        requests: Sequence[DispatchRequest] = QUEUE_REQUESTS,
        *,
        log_first_offset: int = 0,
        ext_file_size_bytes: int = 0,
    ) -> None:
        super().__init__(root, requests, log_first_offset)
        self.ext_file_size_bytes = ext_file_size_bytes
        checksums = ChecksumTable(FS, root / "reput/consumequeue/checksums.json")
        builder = open_queues(
            root, requests, log_first_offset=log_first_offset, ext_file_size_bytes=ext_file_size_bytes
        )
        self.builder, self.table = builder, builder._table
        self.checks = QueueChecks(
            self.table, checksums, self.read_log, builder.progress, lambda: builder.is_replay, builder.replay_all
        )
        self._begin("consumequeue", FS, checksums)

    def is_partial(self) -> bool:
        return self.table.queue("orders", 0).is_doubtful

    def path(self, which: str) -> Path:
        return self.root / "consumequeue" / QUEUE_FILES[which]


class CheckedIndex(CheckedBuilder):
    """The builder of index files."""

    def __init__(
        self, root: Path, requests: Sequence[DispatchRequest] = INDEX_REQUESTS, *, log_first_offset: int = 0
    ) -> None:
        super().__init__(root, requests, log_first_offset)
        checksums = ChecksumTable(FS, root / "reput/index/checksums.json")
        builder = open_index(root, requests, checksums=checksums, log_first_offset=log_first_offset)
        self.builder, self.set = builder, builder._files
        self.checks = IndexChecks(
            self.set, checksums, self.read_log, builder.progress, builder.rebuild_live, builder.rebuild_all
        )
        self._begin("index", FS, checksums)

    def search(self) -> tuple[int, bool]:
        page = search_key(self.set, "orders", "all", page_size=1000)
        return len(page.commit_log_offsets), page.damaged_chain_count > 0

    def is_partial(self) -> bool:
        return self.search()[1]

    def paths(self) -> list[Path]:
        return list_index_files(FS, self.root)

    def path(self, which: str) -> Path:
        return self.paths()[INDEX_FILES[which]]


@dataclass(frozen=True, eq=False)
class BuilderKind:
    """What differs between the builders in behaviour that both have.

    Attributes:
        open: a builder over a list of requests.
        service: a builder with its checks.
        files: all files of a root, by name or in their order.
        folder: of the files; its name is that of the service, too.
        saved_count: how many requests a builder that is killed has saved.
        unsaved_bytes: what the others wrote to the newest file.
        path: a file of a root.
        lengths: at the edges of what a file is made of.
        changed: a stop, and how far before the end of the newest file a byte is changed.
        damages: of a file; those with no bytes of a file are NO_FILES.
        sealed: files that are full.
        damages_at_start: those that are found before the first answer; `damages_unseen`: those that are found although
            the time of the file is what it was.
        comes_back_as_written: whether a file that was replaced by no file has the bytes that it had, in the same place.
    """

    open: Callable[..., Any]
    service: Callable[..., CheckedBuilder]
    files: Callable[[Path], Any]
    folder: str
    requests: Sequence[DispatchRequest]
    saved_count: int
    unsaved_bytes: int
    path: Callable[[Path, str], Path]
    lengths: Sequence[int]
    changed: Sequence[tuple[str, int]]
    damages: Mapping[str, Damage]
    sealed: Sequence[str]
    damages_at_start: Sequence[str]
    damages_unseen: Sequence[str]
    comes_back_as_written: bool

    def __str__(self) -> str:
        return self.folder


QUEUES = BuilderKind(
    open=open_queues,
    service=CheckedQueues,
    files=queue_bytes,
    folder="consumequeue",
    requests=QUEUE_REQUESTS,
    saved_count=66,
    unsaved_bytes=80,
    path=lambda root, which: root / "consumequeue" / QUEUE_FILES[which],
    lengths=[*range(22), 39, 40, QUEUE_FILE_SIZE - 1, QUEUE_FILE_SIZE + 1, QUEUE_FILE_SIZE * 2],
    changed=[(stop, back) for stop in ("clean", "killed", "foreign") for back in (1, 20, 21, 100)],
    damages=QUEUE_DAMAGES,
    sealed=["first", "middle"],
    damages_at_start=["zeroed units", "a unit that looks like a filler", "a zeroed file"],
    damages_unseen=["zeroed units"],
    comes_back_as_written=True,
)
INDEX = BuilderKind(
    open=open_index,
    service=CheckedIndex,
    files=index_bytes,
    folder="index",
    requests=INDEX_REQUESTS,
    saved_count=280,
    unsaved_bytes=17 * 3 * 20,  # 17 of the records that were not saved have keys
    path=lambda root, which: list_index_files(FS, root)[INDEX_FILES[which]],
    lengths=[
        0,
        1,
        19,
        20,
        21,
        39,
        40,
        41,
        *(LAYOUT.file_size_bytes + more for more in (-1, 1, LAYOUT.file_size_bytes)),
    ],
    changed=[(stop, back) for stop in ("clean", "killed") for back in (1, 20, 21, 160)],
    damages=INDEX_DAMAGES,
    sealed=["first", "middle", "last sealed"],
    damages_at_start=list(INDEX_DAMAGES),
    damages_unseen=["zeroed slots", "zeroed entries", "a zeroed file", "zeroed header"],
    comes_back_as_written=False,
)
KINDS = (QUEUES, INDEX)
