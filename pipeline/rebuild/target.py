"""Where a task of mode `shuffle` delivers its files: a directory, or an object store.

A task writes a file below the target's working root and passes it to the target when it is complete. In a directory, the
file is already in its place. For an object store, the file is sent and the local one removed.
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
    """Takes complete files; it is pickled and sent to executors with the task."""

    @property
    def is_flushed(self) -> bool:
        """Whether files must be flushed before they are passed to `keep`."""

    def working_root(self) -> AbstractContextManager[Path]:
        """The store root to write below; it exists until the context ends."""

    def keep(self, root: Path, file: Path) -> None:
        """Delivers a complete file, which lies below that root."""


@dataclass(frozen=True, slots=True)
class DirectoryTarget:
    """A directory that all tasks see.

    Attributes:
        root: the store root that is being made.
        is_flushed: whether files must be flushed before they are passed to `keep`.
    """

    root: str
    is_flushed: bool

    @contextmanager
    def working_root(self) -> Iterator[Path]:
        """The directory itself."""
        yield Path(self.root)

    def keep(self, root: Path, file: Path) -> None:
        """Does nothing: the file is already in its place."""


@contextmanager
def scratch_root() -> Iterator[Path]:
    """A temporary directory of this machine; it is removed with its content when the context ends.

    In a task, it lies in Spark's spill directory, which Spark removes also after a killed task.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.TemporaryDirectory(prefix="reput-rebuild-", dir=local if os.path.isdir(local) else None) as root:
        yield Path(root)


@dataclass(slots=True)
class MadeFiles:
    """The files that mode `shuffle` has made.

    Attributes:
        queue_files: columns `path` (below the root), `size_bytes`, `unit_count` (fillers included).
        index_files: path below the root, size in bytes and header of each, in order.
        notes: notes for the report.
    """

    queue_files: "pa.Table"
    index_files: list[tuple[str, int, IndexHeader]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Path and size in bytes of every file."""
        for batch in self.queue_files.to_batches():
            yield from zip(batch["path"].to_pylist(), batch["size_bytes"].to_pylist(), strict=True)
        yield from ((path, size_bytes) for path, size_bytes, _ in self.index_files)
