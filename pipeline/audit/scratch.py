"""Scratch files of an audit: written by one task, read by later ones, in a directory that all machines share or a URI.

A task writes below a folder of its own and hands its files over whole when it ends. So a second attempt at a task, also one
at the same time, replaces them by the same bytes and never changes a file that a later task reads.
"""

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.object_files import open_root
from pipeline.object_root import ObjectRoot
from pipeline.target import scratch_root
from store.errors import StoreError
from store.files.file_system import FileSystem

FIELD = "scratch"
PREFIX = "reput-audit-"  # of the folder of a run


@dataclass(frozen=True, slots=True)
class Scratch:
    """The place of all scratch files of a run; it is pickled and sent to executors with each task.

    Attributes:
        place: a directory, or a URI.
    """

    place: str

    @classmethod
    def of_run(cls, place: Path | str | None) -> "Scratch":
        """A folder for one run, below a directory or URI that all machines share; None: on this machine.

        Raises:
            InvalidArgumentError: the bucket does not exist.
            PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
        """
        shared = None if place is None else ObjectRoot.place(place, FIELD)
        if isinstance(shared, ObjectRoot):
            shared.top_names()
            return cls(shared.below(f"{PREFIX}{uuid.uuid4().hex}").uri)
        return cls(tempfile.mkdtemp(prefix=PREFIX, dir=shared))

    def opened(self) -> tuple[FileSystem, Path]:
        """The port to read the files by, and their root there."""
        return open_root(self.place, FIELD)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A folder for one attempt at a task; its files are handed over when the block ends without an error."""
        root = ObjectRoot.place(self.place, FIELD)
        if isinstance(root, Path):
            with tempfile.TemporaryDirectory(prefix=".attempt-", dir=root, ignore_cleanup_errors=True) as folder:
                yield Path(folder)
                for file in Path(folder).iterdir():
                    file.rename(root / file.name)
            return
        with scratch_root() as folder:
            yield folder
            for file in folder.iterdir():
                root.put_file(file.name, file)

    def remove(self) -> None:
        """Removes the files, as far as the store lets it."""
        root = ObjectRoot.place(self.place, FIELD)
        if isinstance(root, Path):
            shutil.rmtree(root, ignore_errors=True)
            return
        with suppress(StoreError):
            for name in root.sizes():
                root.delete(name)
