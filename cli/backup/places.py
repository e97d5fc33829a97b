"""Where backups are kept: a directory, or a place in an object store (`pipeline/object_root.py`).

PLACE/BROKER/lock            held while a backup is made, in a directory
PLACE/BROKER/running.json    the same in an object store, which has no locks: names the run that owns the place
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from cli.backup.manifest import BACKUPS_FOLDER, Backup, decode_backup, is_manifest_name
from pipeline.object_root import ObjectRoot
from pipeline.target import ObjectTarget
from store.errors import InvalidArgumentError, StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_bytes
from store.files.locks import OwnerLock

PIECE_BYTES = 4 << 20  # memory of a copy
LOCK_NAME = "lock"
RUNNING_NAME = "running.json"
TEMPORARY_SUFFIX = ".tmp"


class Place(Protocol):
    """Objects by name."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Name and size in bytes of every object below a folder, or of all."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object; None if it does not exist."""

    def parts(self, name: str) -> Iterator[bytes]:
        """The bytes of an object, in parts. FileNotFoundError if it does not exist."""

    def put_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Writes an object, whole or not at all."""

    def delete(self, name: str) -> None:
        """Removes an object; it may be missing."""


class DirectoryPlace:
    """A directory; what was put is on the disk.

    Args:
        directory: it need not exist.
        fs: the disk port.
    """

    def __init__(self, directory: Path, fs: FileSystem | None = None) -> None:
        self.directory = directory
        self._fs = fs or RealFileSystem()

    def __str__(self) -> str:
        return str(self.directory)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """See Place."""
        found = {}
        for at, _, names in os.walk(self.directory / folder, onerror=_refuse, followlinks=True):
            for name in names:
                path = Path(at) / name
                with contextlib.suppress(FileNotFoundError):
                    found[path.relative_to(self.directory).as_posix()] = path.stat().st_size
        return found

    def read(self, name: str) -> bytes | None:
        """See Place."""
        return read_bytes(self._fs, self.directory / name)

    def parts(self, name: str) -> Iterator[bytes]:
        """See Place."""
        fd = self._fs.open(self.directory / name, os.O_RDONLY)
        try:
            at = 0
            while part := self._fs.pread(fd, PIECE_BYTES, at):
                yield part
                at += len(part)
        finally:
            self._fs.close(fd)

    def put_bytes(self, name: str, data: bytes | memoryview) -> None:
        """See Place."""
        fs, path = self._fs, self.directory / name
        fs.mkdirs(path.parent)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        fd = fs.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for at in range(0, len(data), PIECE_BYTES):
                fs.pwrite(fd, data[at : at + PIECE_BYTES], at)
            fs.fdatasync(fd)
        except Exception:
            with contextlib.suppress(OSError):
                fs.unlink(temporary)  # the room that it takes may be all that is missing
            raise
        finally:
            fs.close(fd)
        fs.rename(temporary, path)
        fs.fsync_dir(path.parent)

    def delete(self, name: str) -> None:
        """See Place."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(self.directory / name)


def _refuse(error: OSError) -> None:
    """Raises it, unless the folder does not exist: one that cannot be listed is not an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error


def open_place(where: str, broker_name: str, field: str) -> DirectoryPlace | ObjectRoot:
    """The place of a shard's backups.

    Args:
        where: a directory, or a URI that pyarrow knows, such as `s3://BUCKET/PREFIX`.
        broker_name: the shard.
        field: the argument that named the place, for errors.

    Raises:
        InvalidArgumentError: the name or the URI is not valid.
    """
    if not broker_name or "/" in broker_name or broker_name in (".", ".."):
        raise InvalidArgumentError(
            f"{broker_name!r} is no name of a shard: it names a folder of the place", field="broker_name"
        )
    root = ObjectRoot.place(where, field)
    return DirectoryPlace(root / broker_name) if isinstance(root, Path) else root.below(broker_name)


@contextlib.contextmanager
def alone(place: DirectoryPlace | ObjectRoot, clock: Callable[[], float] = time.time) -> Iterator[Callable[[], None]]:
    """Holds a place for one run that writes. Yields a function that raises StoreLockedError once another run has taken it.

    Raises:
        StoreLockedError: another process makes a backup there.
    """
    if isinstance(place, DirectoryPlace):
        lock = OwnerLock(place.directory / LOCK_NAME, wait_seconds=0)
        lock.acquire()
        try:
            yield lambda: None
        finally:
            lock.release()
        return
    target = ObjectTarget(place, uuid.uuid4().hex, RUNNING_NAME, "backup")
    target.take(int(clock() * 1000))
    yield target.refuse_other_run
    target.refuse_other_run()
    place.delete(RUNNING_NAME)


def read_backups(place: Place) -> tuple[list[Backup], list[StoreCorruptedError]]:
    """The backups of a place in the order of the log, and what is wrong with manifests that are no whole backup."""
    backups, damages = [], []
    if isinstance(place, ObjectRoot):
        place.top_names()  # where there is no bucket, `sizes` is empty
    for name in sorted(filter(is_manifest_name, place.sizes(BACKUPS_FOLDER))):
        data = place.read(name)
        if data is None:  # removed meanwhile
            continue
        try:
            backups.append(decode_backup(data, name))
        except StoreCorruptedError as error:
            damages.append(error)
    return backups, damages
