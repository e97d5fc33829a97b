"""Whether a directory may be served as a store root.

A root may be missing, empty, RocketMQ's, or ours (which is RocketMQ's with `reput/` in it). Anything else that has content
is refused before a byte is written: it may be a home directory, or a store of a kind that we cannot read.
"""

from pathlib import Path

from store.errors import UnsupportedStoreError
from store.files.file_system import FileSystem

# Names that a file system or a volume creates in an empty directory.
IGNORED_NAMES = frozenset(("lost+found", ".snapshot", ".DS_Store"))
STORE_NAMES = frozenset(
    ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "reput", "compaction", "timerwheel")
)
ROCKSDB_NAMES = ("consumequeue_r", "rocksdb")
# What RocketMQ 5.3.3 keeps in RocksDB where `config/*.json` would be old or missing: positions with `configManagerVersion=v2`
# (rdb) or `storeType=defaultRocksDB` (the others).
ROCKSDB_CONFIG_NAMES = ("rdb", "consumerOffsets", "subscriptionGroups", "topics")
# What is in flight by POP, with `popConsumerKVServiceInit=true`.
ROCKSDB_POP_NAME = "kvStore"


def refuse_unsupported(fs: FileSystem, directory: Path, *, may_be_empty: bool = True) -> None:
    """UnsupportedStoreError when the directory is not a store, or one of a kind that we cannot read."""
    if fs.exists(directory) and not fs.is_dir(directory):
        raise _unsupported(directory, "is not a directory")
    names = [name for name in fs.listdir(directory) if name not in IGNORED_NAMES]
    for name in ROCKSDB_NAMES:
        if name in names:
            raise _unsupported(directory, f"keeps its queues in RocksDB ({name}), which cannot be read")
    for name in ROCKSDB_CONFIG_NAMES:
        if fs.is_dir(directory / "config" / name):
            raise _unsupported(directory, f"keeps its configuration in RocksDB (config/{name}), which cannot be read")
    if ROCKSDB_POP_NAME in names:
        raise UnsupportedStoreError(
            f"{directory} keeps what is in flight in RocksDB ({ROCKSDB_POP_NAME}), which cannot be read: send its broker the "
            f"request POP_ROLLBACK, stop it, and remove {ROCKSDB_POP_NAME}",
            directory=directory,
        )
    if not may_be_empty and not names:
        raise _unsupported(directory, "is empty, so there is nothing to serve read-only")
    if names and "commitlog" not in names and not STORE_NAMES.issuperset(names):
        strangers = ", ".join(name for name in names if name not in STORE_NAMES)[:200]
        raise _unsupported(directory, f"is not a RocketMQ store: it has no commitlog/ but {strangers}")


def _unsupported(directory: Path, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"{directory} {why}: name the root of a RocketMQ store", directory=directory)
