"""Where tasks deliver their files: a directory, or an object store.

A task writes a file below the target's working root and passes it to the target when it is complete. In a directory, the
file is already in its place. For an object store, the file is sent and the local one removed.

An object store has no locks. An object that marks the place as begun names the run that owns it: of two runs at once, the
later one writes its id there, and the tasks of the other see that and fail. A repeated or speculative attempt at a task
sends the same bytes under the same name.
"""

import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.object_root import TEMPORARY_SUFFIX, ObjectRoot
from store.errors import StoreLockedError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexHeader

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

    def put(self, name: str, data: bytes) -> None:
        """Writes a small file, whole or not at all; one of that name is replaced."""


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

    def put(self, name: str, data: bytes) -> None:
        """See Target; flushed. Two attempts at a task may write it at once: each has a temporary file of its own."""
        fs, path = RealFileSystem(), Path(self.root) / name
        fs.mkdirs(path.parent)
        temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        fd = fs.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            fs.pwrite(fd, data, 0)
            fs.fdatasync(fd)
        finally:
            fs.close(fd)
        fs.rename(temporary, path)
        fs.fsync_dir(path.parent)


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """A place in an object store that belongs to one run.

    Attributes:
        root: the place.
        run: id of the run that the task belongs to.
        begun_name: the object that names the run that owns the place.
        job: what the run does, for errors.
    """

    root: ObjectRoot
    run: str
    begun_name: str
    job: str

    @property
    def is_flushed(self) -> bool:
        """False: a local file is removed once it is sent."""
        return False

    def working_root(self) -> AbstractContextManager[Path]:
        """A temporary directory of the executor; it holds the files that the task writes at a time."""
        return scratch_root()

    def keep(self, root: Path, file: Path) -> None:
        """Sends the file to the object store, and removes the local one.

        Raises:
            StoreLockedError: another run has taken over the place.
        """
        self.refuse_other_run()
        self.root.put_file(file.relative_to(root).as_posix(), file)
        file.unlink()

    def put(self, name: str, data: bytes) -> None:
        """See Target. StoreLockedError: another run has taken over the place."""
        self.refuse_other_run()
        self.root.put_bytes(name, data)

    def take(self, now_millis: int) -> int:
        """Makes the place this run's; returns when the first run to it began that has not completed.

        Args:
            now_millis: milliseconds since 1970.
        """
        before = decode_marker(self.root.read(self.begun_name)).get("first_begun_millis")
        first_begun_millis = before if isinstance(before, int) else now_millis
        marker = {"run": self.run, "begun_millis": now_millis, "first_begun_millis": first_begun_millis}
        self.root.put_bytes(self.begun_name, encode_marker(marker))
        return first_begun_millis

    def refuse_other_run(self) -> None:
        """StoreLockedError if another run has taken over the place."""
        begun = decode_marker(self.root.read(self.begun_name))
        if begun.get("run") != self.run:
            raise StoreLockedError(
                f"another {self.job} to {self.root} has begun since: wait for its end, or run this one again",
                file=f"{self.root}/{self.begun_name}",
            )


def encode_marker(document: dict[str, Any]) -> bytes:
    """The bytes of an object that marks a place, or that names what is in it."""
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def decode_marker(data: bytes | None) -> dict[str, Any]:
    """The content of a marker; empty if the marker is missing or damaged, so that it names no run."""
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@contextmanager
def scratch_root() -> Iterator[Path]:
    """A temporary directory of this machine; it is removed with its content when the context ends.

    In a task, it lies in Spark's spill directory, which Spark removes also after a killed task.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.TemporaryDirectory(prefix="reput-", dir=local if os.path.isdir(local) else None) as root:
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
