"""Where a task of mode `shuffle` brings the files that it has made: a directory, or an object store.

A task makes a file with the code that writes it anywhere, below a directory of the target's, and hands it over when it is
whole: a directory is already its place; into an object store it is sent, and gone from here.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from store.format.index_layout import IndexHeader

if TYPE_CHECKING:
    import pyarrow as pa


class Target(Protocol):
    """Goes to executors with the task."""

    @property
    def is_flushed(self) -> bool:
        """Whether files must be on the disk when they are handed over."""

    def working_root(self) -> AbstractContextManager[Path]:
        """The store root to write below, there until the context ends."""

    def keep(self, root: Path, file: Path) -> None:
        """Brings a whole file, which lies below that root, to its place."""


@dataclass(frozen=True, slots=True)
class DirectoryTarget:
    """A directory that all tasks see.

    Attributes:
        root: the store root that is being made.
        is_flushed: whether files must be on the disk when they are handed over.
    """

    root: str
    is_flushed: bool

    @contextmanager
    def working_root(self) -> Iterator[Path]:
        """See Target."""
        yield Path(self.root)

    def keep(self, root: Path, file: Path) -> None:
        """See Target: it is there already."""


@contextmanager
def scratch_root() -> Iterator[Path]:
    """A directory of this machine for files on their way elsewhere; gone afterwards, with all that is in it.

    It lies where Spark spills, if this is a task: Spark removes that also after a task that was killed.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.TemporaryDirectory(prefix="reput-rebuild-", dir=local if os.path.isdir(local) else None) as root:
        yield Path(root)


@dataclass(slots=True)
class MadeFiles:
    """What mode `shuffle` has made.

    Attributes:
        queue_files: columns `path` (below the root), `size_bytes`, `unit_count` (fillers included).
        index_files: path below the root, size in bytes and header of each, in order.
        notes: what a person should know.
    """

    queue_files: "pa.Table"
    index_files: list[tuple[str, int, IndexHeader]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Path and size in bytes of every file."""
        for batch in self.queue_files.to_batches():
            yield from zip(batch["path"].to_pylist(), batch["size_bytes"].to_pylist(), strict=True)
        yield from ((path, size_bytes) for path, size_bytes, _ in self.index_files)
