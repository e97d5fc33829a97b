"""Where `archive` writes: a directory, which one run locks, or a place in an object store.

In an object store, `segments/BROKER/run.json` names the run that owns a shard's part of the archive, so that shards may be
archived at the same time. Of two runs for one shard, the later one owns it, and the tasks of the other fail. Both would
write the same bytes under the same names. Objects without a manifest are removed only at the end of a run, when no task
of an earlier run can publish a segment that names them.
"""

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from pipeline.object_files import open_root
from pipeline.rebuild.object_root import TEMPORARY_SUFFIX, ObjectRoot
from pipeline.rebuild.target import DirectoryTarget, ObjectTarget, Target
from store.archive import layout
from store.archive.manifest import Segment, create_archive, decode_segment, encode_archive, is_new_archive, read_segment
from store.archive.manifest import segment_offsets as offsets_of
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_bytes
from store.files.locks import OwnerLock

OWN_FOLDERS = ("messages", "keys", "tails")
_MESSAGES_NAME = re.compile(r"(?P<broker>.*)-[0-9]{20}-[0-9]{20}\.parquet")


class ArchiveGoal(Protocol):
    """Where an archive is written."""

    @property
    def target(self) -> Target:
        """Where tasks deliver files."""

    def opened(self) -> tuple[FileSystem, Path]:
        """A port that shows the archive as it is now, and its root there."""

    def take(self) -> None:
        """Makes it an archive, and this run the only one that writes to it; UnsupportedStoreError if it holds other data."""

    def remove_leftovers(self) -> int:
        """Before the first task: removes files that no manifest names, if that is safe then; returns their count."""

    def remove_replaced(self) -> int:
        """After the last task: the same, with those of replaced segments."""

    def release(self) -> None:
        """Lets other runs write to it."""


def archive_goal(archive: Path | str, broker_name: str, clock: Callable[[], float] = time.time) -> ArchiveGoal:
    """The goal that a path or a URI names; `file://` is a directory.

    Args:
        archive: the archive.
        broker_name: the shard that is archived.
        clock: seconds since 1970.
    """
    place = ObjectRoot.place(archive, "archive")
    return DirectoryGoal(place) if isinstance(place, Path) else ObjectGoal(place, broker_name, clock)


class DirectoryGoal:
    """A directory; see ArchiveGoal."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fs = RealFileSystem()
        self._lock = OwnerLock(root / "lock")

    def __str__(self) -> str:
        return str(self._root)

    @property
    def target(self) -> Target:
        """See ArchiveGoal."""
        return DirectoryTarget(str(self._root), is_flushed=True)

    def opened(self) -> tuple[FileSystem, Path]:
        """See ArchiveGoal."""
        return self._fs, self._root

    def take(self) -> None:
        """See ArchiveGoal. StoreLockedError: another run has it."""
        self._fs.mkdirs(self._root)
        create_archive(self._fs, self._root)
        self._lock.acquire()

    def remove_leftovers(self) -> int:
        """See ArchiveGoal: nobody else writes, because of the lock."""
        named = {str(self._root / path) for segment in self._all_segments() for path in segment.paths()}
        segments = layout.segments_dir(str(self._root))
        count = 0
        for temporary in Path(segments).glob(f"*/.*{TEMPORARY_SUFFIX}"):  # of manifests
            self._fs.unlink(temporary)
            count += 1
        for folder in OWN_FOLDERS:
            for directory, _, names in os.walk(self._root / folder):
                for path in (os.path.join(directory, name) for name in names):
                    if path not in named:
                        self._fs.unlink(path)
                        count += 1
        return count

    def remove_replaced(self) -> int:
        """See ArchiveGoal; they do not count as left over."""
        self.remove_leftovers()
        return 0

    def release(self) -> None:
        """See ArchiveGoal."""
        self._lock.release()

    def _all_segments(self) -> Iterator[Segment]:
        for folder in self._fs.listdir(layout.segments_dir(str(self._root))):
            directory = Path(layout.segments_dir(str(self._root))) / folder
            for name in self._fs.listdir(directory):
                if layout.parse_segment_name(name) is not None:
                    yield decode_segment(read_bytes(self._fs, directory / name) or b"", directory / name)


class ObjectGoal:
    """A place in an object store; see ArchiveGoal."""

    def __init__(self, root: ObjectRoot, broker_name: str, clock: Callable[[], float]) -> None:
        self._root = root
        self._broker_name = broker_name
        self._clock = clock
        self._target = ObjectTarget(root, uuid.uuid4().hex, layout.run_file("", broker_name), "archive run")

    def __str__(self) -> str:
        return str(self._root)

    @property
    def target(self) -> Target:
        """See ArchiveGoal."""
        return self._target

    def opened(self) -> tuple[FileSystem, Path]:
        """See ArchiveGoal."""
        return open_root(self._root)

    def take(self) -> None:
        """See ArchiveGoal. InvalidArgumentError: the bucket does not exist."""
        fs, root = self.opened()
        fs.is_dir(root)  # raises if the bucket does not exist
        if is_new_archive(fs, root):
            self._root.put_bytes(layout.archive_file(""), encode_archive())
        self._target.take(int(self._clock() * 1000))

    def remove_leftovers(self) -> int:
        """See ArchiveGoal: tasks of an earlier run may be about to publish them, so none is removed."""
        return 0

    def remove_replaced(self) -> int:
        """See ArchiveGoal; of this shard alone. StoreLockedError: another run has taken over the place."""
        fs, root = self.opened()
        named = {
            path
            for offset in offsets_of(fs, root, self._broker_name)
            for path in read_segment(fs, root, self._broker_name, offset).paths()
        }
        self._target.refuse_other_run()
        left = [name for name in self._names_of_shard() if name not in named]
        for name in left:
            self._root.delete(name)
        return len(left)

    def release(self) -> None:
        """Does nothing: the next run takes the place over."""

    def _names_of_shard(self) -> Iterator[str]:
        shard = layout.escape(self._broker_name)
        for name in self._root.sizes("messages"):
            found = _MESSAGES_NAME.fullmatch(name.rpartition("/")[2])
            if found is not None and found["broker"] == shard:
                yield name
        for folder in ("keys", "tails"):
            yield from self._root.sizes(f"{folder}/{shard}")
