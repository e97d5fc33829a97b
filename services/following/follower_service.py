"""The wiring that all followers share: from a server, settings and files to a running FollowerProcess.

A `__main__` gives what differs: its name, its servicer and its files (`FollowedFiles`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from services.calling.commitlog import CommitLogClient
from services.following.file_check import CheckedFile, FileChecker
from services.following.follower_process import FollowerPart, FollowerProcess, FollowerState, LogRange
from services.following.follower_progress import FollowerProgress
from services.following.following_builder import FollowingBuilder
from services.observing.meters import Meters, show_moved_aside
from services.serving.server import ServiceServer
from services.settings.service_settings import StoreSettings
from store.features.table import refuse_features, refuse_unsupported
from store.files.aside import Aside, aside_words, builder_folder
from store.files.checksums import ChecksumTable
from store.files.file_system import FileSystem, RealFileSystem
from store.files.locks import has_abort_marker
from store.files.overlay_file_system import OverlayFileSystem
from store.format.paths import own_state_dir

# Foreign names in a store that are reported by name at a start.
STRANGER_COUNT_SHOWN = 10
Files = TypeVar("Files")
Files_contra = TypeVar("Files_contra", contravariant=True)
_log = structlog.get_logger("reput.following")


class StatefulServicer(Protocol):
    """A servicer that tells the state of its follower.

    Attributes:
        state: reads the state of the follower, for GetStatus.
    """

    state: Callable[[], FollowerState]


class FollowerServicer(StatefulServicer, Protocol[Files_contra]):
    """The servicer of a follower with files."""

    def open(self, files: Files_contra) -> None:
        """Serve these files from now on."""

    def shut(self) -> None:
        """Serve no files: they are being recovered."""


class FollowedPart(FollowerPart, Protocol):
    """A part whose followers say how far they are on the disk.

    Attributes:
        on_flushed: given to them; see FollowingBuilder.
    """

    on_flushed: Callable[[int, int | None], None] | None


class FollowedFiles(ABC, Generic[Files]):
    """A FollowerPart for files with a checkpoint of our own and a servicer that answers from them.

    Args:
        name: of the follower and of its part of the root.
        fs: the disk port.
        root: the store root.
        servicer: answers from the files.

    Attributes:
        on_flushed: given to builders; see FollowingBuilder.
    """

    def __init__(self, name: str, fs: FileSystem, root: Path, servicer: FollowerServicer[Files]) -> None:
        self._name = name
        self._fs = fs
        self._root = root
        self._servicer = servicer
        self._checkpoint = Path(own_state_dir(str(root), name)) / "checkpoint.json"
        self._aside_folder = builder_folder(root, name)
        self._aside: Aside | None = None
        # A running commit log has the marker as its own, and may have started before: it says what it found.
        self._has_no_marker = not has_abort_marker(fs, root)
        self.on_flushed: Callable[[int, int | None], None] | None = None

    @abstractmethod
    def has_files(self) -> bool:
        """Whether there are files of this kind, without their checkpoint."""

    @abstractmethod
    def recover(self, log: LogRange, *, drop_cache: bool) -> tuple[FollowingBuilder, Files]:
        """Open and recover the files; after an error nothing stays open. See FollowerPart.open."""

    def strangers(self) -> Iterable[tuple[Path, str]]:
        """Files in the folders that do not belong to the builder, each with the reason."""
        return ()

    def is_clean_store(self, log: LogRange) -> bool:
        """Whether the store was stopped cleanly before it was opened now."""
        return self._has_no_marker or log.stopped_cleanly

    def aside(self) -> Aside:
        """Where the builder keeps what the log does not explain: a folder for each start. Each move is logged."""

        def tell(path: Path, kept: Path, why: str) -> None:
            names = (str(each.relative_to(self._root)) for each in (path, kept))
            moved, kept_in = (name.encode(errors="backslashreplace").decode() for name in names)
            _log.warning("store.moved_aside", follower=self._name, path=moved, kept_in=kept_in, reason=why)

        if self._aside is None:
            self._aside = Aside(self._fs, self._root, self._aside_folder, tell=tell)
        return self._aside

    def aside_words(self) -> str:
        """What the status says about what was moved aside; empty when nothing is kept."""
        return aside_words(self._fs, self._root, self._name)

    def show_aside(self, meters: Meters) -> None:
        """Shows on the metrics page what is kept aside."""
        show_moved_aside(meters, self._fs, self._root, self._name)

    def check(self) -> None:
        """See FollowerPart."""
        refuse_features(self._fs, self._root)

    def is_unbuilt(self) -> bool:
        """See FollowerPart."""
        return not self._fs.exists(self._checkpoint) and not self.has_files()

    def open(self, log: LogRange, *, drop_cache: bool) -> FollowingBuilder:
        """See FollowerPart."""
        self._tell_strangers()
        builder, files = self.recover(log, drop_cache=drop_cache)
        self._servicer.open(files)
        return builder

    def shut(self) -> None:
        """See FollowerPart."""
        self._servicer.shut()

    def checksums(self) -> ChecksumTable:
        """The checksums of the files, as they were saved."""
        return ChecksumTable(self._fs, self._checkpoint.with_name("checksums.json"))

    def check_files(
        self,
        builder: FollowingBuilder,
        files: Callable[[], Sequence[CheckedFile]],
        checksums: ChecksumTable,
        bytes_per_second_max: int,
    ) -> None:
        """Check the files from the builder's begin on; those that another program changed are doubtful at once."""
        builder.checker = FileChecker(
            self._name, self._fs, files, checksums, builder.hand_over, bytes_per_second_max=bytes_per_second_max
        )
        builder.checker.look(files())

    def _tell_strangers(self) -> None:
        names: list[str] = []
        count = 0
        for path, what in self.strangers():
            count += 1
            if len(names) < STRANGER_COUNT_SHOWN:
                # The name of a foreign file need not be UTF-8.
                name = str(path.relative_to(self._root)).encode(errors="backslashreplace").decode()
                names.append(f"{name}: {what}")
        if count:
            _log.warning("store.strangers_skipped", follower=self._name, count=count, first=names)


def file_system_of(settings: StoreSettings) -> FileSystem:
    """The disk port: a read-only store gets one that keeps all changes in memory."""
    return OverlayFileSystem() if settings.read_only else RealFileSystem()


def follow(
    name: str,
    server: ServiceServer,
    settings: StoreSettings,
    client: CommitLogClient,
    progress: FollowerProgress,
    part: FollowedPart,
    servicer: StatefulServicer,
    *,
    follows_role: bool = False,
    gather_millis: int = 0,
    open_unbuilt: Callable[[], None] | None = None,
) -> None:
    """Follow the log from the server's start to its stop; see FollowerProcess for the parameters.

    Call it before a socket of the service is made.

    Raises:
        UnsupportedStoreError, StoreLockedError: the files cannot be served, or another process has them.
    """
    process = FollowerProcess(
        name,
        settings.derived_root,
        part,
        client,
        progress,
        server.set_serving,
        server.stopping,
        read_only=settings.read_only,
        follows_role=follows_role,
        gather_millis=gather_millis,
        on_settled=server.note_ready,
        open_unbuilt=open_unbuilt,
    )
    if not settings.read_only:
        refuse_unsupported(RealFileSystem(), settings.derived_root, writes=True)
        part.check()
    process.hold_part()
    part.on_flushed = process.flushed
    servicer.state = process.state
    process.lag.show(name, server.meters)
    server.on_stop(process.stop)
    server.in_background(process.run)
