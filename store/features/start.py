"""Whether a directory may be served as a store root, and which features its store uses.

A root may be missing, empty, RocketMQ's, or ours (which is RocketMQ's with `reput/` in it). Anything else that has content
is refused before a byte is written: it may be a home directory, or a store with a feature that the table refuses.
"""

from pathlib import Path

from store.errors import UnsupportedStoreError
from store.features.signs import read_signs
from store.features.table import FoundFeature, Verdict, found_features
from store.files.file_system import FileSystem

# Names that a file system or a volume creates in an empty directory.
IGNORED_NAMES = frozenset(("lost+found", ".snapshot", ".DS_Store"))
STORE_NAMES = frozenset(
    ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "reput", "compaction", "timerwheel")
)


def refuse_unsupported(
    fs: FileSystem, directory: Path, *, writes: bool = False, may_be_empty: bool = True
) -> tuple[FoundFeature, ...]:
    """The features that the store uses; UnsupportedStoreError when the directory is not a store, or one that is refused.

    Args:
        fs: the disk port.
        directory: the root.
        writes: whether anything of the store is going to be written.
        may_be_empty: whether a store may begin there later.
    """
    if fs.exists(directory) and not fs.is_dir(directory):
        raise _unsupported(directory, "is not a directory")
    found = refuse_features(fs, directory, writes=writes)
    names = [name for name in fs.listdir(directory) if name not in IGNORED_NAMES]
    if not may_be_empty and not names:
        raise _unsupported(directory, "is empty, so there is nothing to serve read-only")
    if names and "commitlog" not in names and not STORE_NAMES.issuperset(names):
        strangers = ", ".join(name for name in names if name not in STORE_NAMES)[:200]
        raise _unsupported(directory, f"is not a RocketMQ store: it has no commitlog/ but {strangers}")
    return found


def refuse_features(fs: FileSystem, directory: Path, *, writes: bool = False) -> tuple[FoundFeature, ...]:
    """The features that a store uses; UnsupportedStoreError naming the first one that is refused (metadata `feature`)."""
    found = found_features(read_signs(fs, directory))
    for each in found:
        verdict = each.feature.verdict
        if verdict is Verdict.REFUSED or (writes and verdict is Verdict.ONLY_READ):
            read_only = "" if verdict is Verdict.REFUSED else ", or serve it with --read-only"
            raise UnsupportedStoreError(
                f"{directory} uses {each.text}{read_only}", directory=directory, feature=each.feature.name
            )
    return found


def _unsupported(directory: Path, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"{directory} {why}: name the root of a RocketMQ store", directory=directory)
