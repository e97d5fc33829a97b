"""The root directory of a commit log: checked, and its locks held."""

from pathlib import Path

from store.features.table import FoundFeature, refuse_unsupported
from store.files.aside import aside_words
from store.files.file_system import FileSystem
from store.files.locks import (
    LOCK_WAIT_SECONDS,
    BrokerLock,
    OwnerLock,
    create_abort_marker,
    has_abort_marker,
    remove_abort_marker,
)
from store.format import paths


class StoreRoot:
    """A store root and, when it may be written, the locks of its commit log.

    Args:
        fs: the disk port.
        directory: the root.
        read_only: write nothing and take no lock.
        may_be_empty: whether a store may begin there later.
        lock_wait_seconds: how long to wait for another process that holds a lock.

    Attributes:
        features: what of `store/features/table.py` the store uses, as seen by `acquire`.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        *,
        read_only: bool,
        may_be_empty: bool,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    ) -> None:
        self.directory = directory
        self.read_only = read_only
        self._may_be_empty = may_be_empty
        self.was_aborted = False
        self.features: tuple[FoundFeature, ...] = ()
        self._fs = fs
        self._is_held = False
        self._owner_lock = OwnerLock(
            Path(paths.own_state_dir(str(directory), "commitlog")) / "lock", wait_seconds=lock_wait_seconds
        )
        self._broker_lock = BrokerLock(Path(paths.lock_file(str(directory))), wait_seconds=lock_wait_seconds)

    @property
    def aside_words(self) -> str:
        """What the status says about files of `timerlog/` that were moved aside; empty when nothing is kept."""
        return aside_words(self._fs, Path(self.directory), "commitlog")

    def acquire(self) -> None:
        """Takes both locks, unless they are held already, and reads whether there is an abort marker.

        Raises:
            UnsupportedStoreError: the directory is not a store that we can serve; nothing was written.
            StoreLockedError: another process holds a lock.
        """
        if self._is_held:
            return
        self.features = refuse_unsupported(
            self._fs, self.directory, writes=not self.read_only, may_be_empty=self._may_be_empty
        )
        self.was_aborted = has_abort_marker(self._fs, self.directory)
        if self.read_only:
            return
        self._fs.mkdirs(self.directory)
        self._owner_lock.acquire()
        try:
            self._broker_lock.acquire()
        except BaseException:
            self._owner_lock.release()
            raise
        self._is_held = True
        # With the locks held no other process runs on the root, so an existing marker was left behind.
        self.was_aborted = has_abort_marker(self._fs, self.directory)

    def mark_open(self) -> None:
        """Creates the abort marker."""
        create_abort_marker(self._fs, self.directory)

    def release(self, *, clean: bool) -> None:
        """Releases the locks; after a clean end it removes the abort marker first."""
        if self.read_only:
            return
        try:
            if clean:
                remove_abort_marker(self._fs, self.directory)
        finally:
            self._broker_lock.release()
            self._owner_lock.release()
            self._is_held = False
