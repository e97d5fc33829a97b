"""The root directory: checks that it is a store that we can serve, and holds its locks.

A root may be missing, empty, RocketMQ's, or ours (which is RocketMQ's with `reput/` in it). Anything else that has content
is refused before a byte is written: it may be a home directory, or a store of a kind that we cannot read.
"""

from pathlib import Path

from store.errors import UnsupportedStoreError
from store.files.abort import create_abort_marker, has_abort_marker, remove_abort_marker
from store.files.file_system import FileSystem
from store.files.locks import BrokerLock, OwnerLock
from store.format import paths

# Names that a file system or a volume creates in an empty directory.
IGNORED_NAMES = frozenset(("lost+found", ".snapshot", ".DS_Store"))
STORE_NAMES = frozenset(
    ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "reput", "compaction", "timerwheel")
)
ROCKSDB_NAMES = ("consumequeue_r", "rocksdb")


class StoreRoot:
    """A store root and, when it may be written, the locks of its commit log.

    Args:
        fs: the disk port.
        directory: the root.
        read_only: write nothing and take no lock.
    """

    def __init__(self, fs: FileSystem, directory: Path, *, read_only: bool) -> None:
        self.directory = directory
        self.read_only = read_only
        self.was_aborted = False
        self._fs = fs
        self._owner_lock = OwnerLock(Path(paths.own_state_dir(str(directory), "commitlog")) / "lock")
        self._broker_lock = BrokerLock(Path(paths.lock_file(str(directory))))

    def refuse_unsupported(self) -> None:
        """UnsupportedStoreError when the directory is not a store, or one of a kind that we cannot read."""
        fs, directory = self._fs, self.directory
        if fs.exists(directory) and not fs.is_dir(directory):
            raise _unsupported(directory, "is not a directory")
        names = [name for name in fs.listdir(directory) if name not in IGNORED_NAMES]
        for name in ROCKSDB_NAMES:
            if name in names:
                raise _unsupported(directory, f"keeps its queues in RocksDB ({name}), which cannot be read")
        if self.read_only and not names:
            raise _unsupported(directory, "is empty, so there is nothing to serve read-only")
        if names and "commitlog" not in names and not STORE_NAMES.issuperset(names):
            strangers = ", ".join(name for name in names if name not in STORE_NAMES)[:200]
            raise _unsupported(directory, f"is not a RocketMQ store: it has no commitlog/ but {strangers}")

    def acquire(self) -> None:
        """Takes both locks and reads whether there is an abort marker; StoreLockedError when another process holds one."""
        self.refuse_unsupported()
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


def _unsupported(directory: Path, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"{directory} {why}: name the root of a RocketMQ store", directory=directory)
