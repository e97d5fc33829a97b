"""Where a rebuild writes: into a directory beside its goal, which is renamed to the goal in one step.

    OUT.tmp/consumequeue/ index/     written here
    OUT.tmp/scratch/                 files for later tasks; removed before the end
    OUT.tmp/rebuild.lock             held while a rebuild runs; marks the directory as a rebuild's
    OUT                              OUT.tmp renamed: all of it, or nothing

The directory of a killed rebuild is recognised by its lock file, and made anew.

Sizes of the files of a rebuild: those of the store's own files, or those of the settings if the store has none.

Where a rebuild writes in an object store: directly to the final names. Its last object marks it as complete.

    OUT/rebuild.begun.json           first: marks OUT as a rebuild, with the id of the run that owns it
    OUT/consumequeue/... index/...   each object by one task, whole or not at all
    OUT/rebuild.json                 last: every file with its size; without it, OUT is an unfinished rebuild

An object store has no rename and no locks. A killed run leaves objects without `rebuild.json`; the next run writes the
same names again (index files are named after the begin of the first run) and removes all other objects. Of two runs at
once, the later one writes its id into `rebuild.begun.json`, and the tasks of the other see that and fail. A repeated or
speculative attempt at a task uploads the same bytes under the same name.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.object_root import TEMPORARY_SUFFIX, ObjectRoot
from pipeline.target import MadeFiles, ObjectTarget, encode_marker
from store.audit.index_files import find_index_layout
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreLockedError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state
from store.files.locks import OwnerLock
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.paths import consume_queue_dir, index_dir, index_file_name, own_state_dir
from store.readers.index_reader import IndexLayout
from store.readers.queue_reader import detect_queue_file_size
from store.readers.tag_entries import has_tag_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE_FILE_SIZE_BYTES = 6_000_000
INDEX_HASH_SLOT_COUNT = 5_000_000
INDEX_ENTRY_COUNT_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Sizes of derived files.

    Attributes:
        queue_file_size_bytes: size of queue files; a multiple of the unit size.
        index: slots and entries of index files.
        has_tags: whether the index has an entry for the tags of each record, as RocketMQ 5.5 writes it; None: as the store's
            own has them.
    """

    queue_file_size_bytes: int = QUEUE_FILE_SIZE_BYTES
    index: IndexLayout = field(default_factory=lambda: IndexLayout(INDEX_HASH_SLOT_COUNT, INDEX_ENTRY_COUNT_MAX))
    has_tags: bool | None = None

    def __post_init__(self) -> None:
        assert self.queue_file_size_bytes >= UNIT_SIZE_BYTES, self
        assert self.queue_file_size_bytes % UNIT_SIZE_BYTES == 0, self
        assert self.index.slot_count > 0, self
        assert self.index.entry_count_max > 1, self


def find_layout(fs: FileSystem, root: Path, wanted: StoreLayout) -> tuple[StoreLayout, list[str]]:
    """The layout for a store's queues and indexes, and notes for the report.

    Args:
        fs: the port to the disk.
        root: the store root.
        wanted: the settings; existing files override them.
    """
    notes = []
    queue_file_size = detect_queue_file_size(fs, root) or wanted.queue_file_size_bytes
    if queue_file_size != wanted.queue_file_size_bytes:
        notes.append(
            f"queue files have {queue_file_size} bytes, as in the store; the setting is {wanted.queue_file_size_bytes}"
        )
    index = find_index_layout(fs, root, saved_index_layout(fs, root)) or wanted.index
    if index != wanted.index:
        notes.append(
            f"index files have {index.slot_count} slots and {index.entry_count_max} entries, as in the store; "
            f"the settings are {wanted.index.slot_count} and {wanted.index.entry_count_max}"
        )
    has_tags = has_tag_entries(fs, root, index) if wanted.has_tags is None else wanted.has_tags
    if has_tags:
        why = "the store" if wanted.has_tags is None else "REPUT_INDEX_TAGS"
        notes.append(f"the index gets an entry for the tags of each message, as RocketMQ 5.5 writes it; {why} says so")
    return StoreLayout(queue_file_size, index, has_tags), notes


def saved_index_layout(fs: FileSystem, root: Path) -> IndexLayout | None:
    """The layout in the state file of the index's owner; None if there is no such file."""
    state = read_json_state(fs, Path(own_state_dir(str(root), "index")) / "checkpoint.json") or {}
    slot_count, entry_count_max = state.get("slot_count"), state.get("entry_count_max")
    if not isinstance(slot_count, int) or not isinstance(entry_count_max, int):
        return None
    return IndexLayout(slot_count, entry_count_max) if slot_count > 0 and entry_count_max > 1 else None


LOCK_NAME = "rebuild.lock"
SPECULATION_SETTING = "spark.speculation"


def index_names(begin_millis: int) -> Iterator[str]:
    """Names of index files, one for each millisecond from a time on.

    Args:
        begin_millis: the time of the first name, milliseconds since 1970 UTC.
    """
    name = index_file_name(begin_millis)
    while True:
        yield name
        moment = datetime.strptime(name[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(name[14:]) + 1)
        name = f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def refuse_out(source: Path, out: Path) -> None:
    """InvalidArgumentError if a rebuild of `source` cannot write to `out`."""
    refuse_inside(source, out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidArgumentError(
            f"{out} holds other data: name a directory that is empty or does not exist.", field="out", file=out
        )


def refuse_inside(source: Path, out: Path) -> None:
    """InvalidArgumentError if one of two directories lies in the other."""
    inside, outside = out.resolve(), source.resolve()
    if inside == outside or inside.is_relative_to(outside) or outside.is_relative_to(inside):
        raise InvalidArgumentError(
            f"{out} lies in the store {source}, or the store in it: a rebuild never writes into its source; name another one.",
            field="out",
            file=out,
        )


def refuse_speculation(spark: "SparkSession") -> None:
    """InvalidArgumentError if Spark may run a task twice at once: in a directory, both attempts write the same files.

    One attempt could remove files of a queue that begins anew, and truncate scratch files of keys, while the other one
    uses them. An attempt after a failed one runs alone, and writes all files again.
    """
    if spark.sparkContext.getConf().get(SPECULATION_SETTING, "false").lower() == "true":
        raise InvalidArgumentError(
            f"{SPECULATION_SETTING} is on: two attempts at a task would write the same files of a directory; set it to "
            "false, or rebuild into an object store.",
            field=SPECULATION_SETTING,
        )


class Staging:
    """The directory that becomes `out`; a context manager that leaves nothing behind after an error.

    Args:
        fs: the port to the disk.
        out: the goal.

    Attributes:
        root: the store root being written.
        scratch: for files that only tasks need.
    """

    def __init__(self, fs: FileSystem, out: Path) -> None:
        self.root = out.with_name(out.name + ".tmp")
        self.scratch = self.root / "scratch"
        self._fs = fs
        self._out = out
        self._lock = OwnerLock(self.root / LOCK_NAME, wait_seconds=0)

    def __enter__(self) -> "Staging":
        if (
            self.root.exists()
            and not (self.root / LOCK_NAME).exists()
            and (not self.root.is_dir() or any(self.root.iterdir()))
        ):
            raise InvalidArgumentError(
                f"{self.root} holds other data: a rebuild writes there before it renames; move the data away.",
                field="out",
                file=self.root,
            )
        self._fs.mkdirs(self.root)
        try:
            self._lock.acquire()
        except StoreLockedError as error:
            raise StoreLockedError(
                f"another rebuild to {self._out} is running ({error.message})", file=self.root
            ) from error
        for path in self.root.iterdir():
            if path.name != LOCK_NAME:
                shutil.rmtree(path)
        self._fs.mkdirs(consume_queue_dir(str(self.root)))
        self._fs.mkdirs(index_dir(str(self.root)))
        self._fs.mkdirs(self.scratch)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self.root.exists():
                shutil.rmtree(self.root)
        finally:
            self._lock.release()

    def publish(self, *, is_flushed: bool) -> None:
        """Renames the directory to `out`.

        Args:
            is_flushed: whether all folders must be flushed before.
        """
        shutil.rmtree(self.scratch)
        if is_flushed:
            for directory, _, _ in os.walk(self.root, topdown=False):
                self._fs.fsync_dir(directory)
        (self.root / LOCK_NAME).unlink()
        self._fs.rename(self.root, self._out)
        if is_flushed:
            self._fs.fsync_dir(self._out.parent)


BEGUN_NAME = "rebuild.begun.json"
MANIFEST_NAME = "rebuild.json"
MANIFEST_VERSION = 1
FOLDERS = ("consumequeue", "index")


def refuse_objects(source: Path, root: ObjectRoot) -> None:
    """Refuses a place that a rebuild of `source` cannot use.

    Raises:
        InvalidArgumentError: it holds a finished rebuild or other data, or the bucket does not exist.
        PermissionDeniedError, ServiceUnavailableError: the object store refuses, or does not answer.
    """
    refuse_inside(source, root.local_path or Path(str(root)))
    names = root.top_names()
    _refuse_finished(root, names)
    ours = {BEGUN_NAME, *FOLDERS} if BEGUN_NAME in names else set()
    others = sorted(name for name in names - ours if not _is_leftover(name))
    if others:
        raise InvalidArgumentError(
            f"{root} holds other data ({others[0]}): name a prefix without objects.", field="out"
        )


def _refuse_finished(root: ObjectRoot, names: set[str]) -> None:
    if MANIFEST_NAME in names:
        raise InvalidArgumentError(
            f"{root} holds a finished rebuild ({MANIFEST_NAME}): name another place, or remove it first.", field="out"
        )


class ObjectOut:
    """One run, from its first object to its last; a context manager.

    Args:
        source: the store root.
        root: the place in the object store.
        clock: seconds since 1970.

    Attributes:
        target: the output as tasks see it.
    """

    def __init__(self, source: Path, root: ObjectRoot, clock: Callable[[], float] = time.time) -> None:
        self.target = ObjectTarget(root, uuid.uuid4().hex, BEGUN_NAME, "rebuild")
        self._source = source
        self._root = root
        self._clock = clock
        self._first_begun_millis = 0

    def __enter__(self) -> "ObjectOut":
        refuse_objects(self._source, self._root)
        self._first_begun_millis = self.target.take(int(self._clock() * 1000))
        # Another run may have completed before it could see this run's id.
        _refuse_finished(self._root, self._root.top_names())
        return self

    def __exit__(self, *error: object) -> None:
        """Does nothing: without `rebuild.json`, the objects count as an unfinished rebuild."""

    def index_names(self) -> Iterator[str]:
        """Names of index files, the same in every run until one has completed."""
        return index_names(self._first_begun_millis)

    def publish(self, made: MadeFiles, layout: StoreLayout, counts: dict[str, int]) -> None:
        """Completes the rebuild: removes what a killed run left, checks that all objects exist, writes `rebuild.json`.

        Args:
            made: the files.
            layout: their sizes.
            counts: those of the report.

        Raises:
            StoreLockedError: another run has taken over the place.
            ServiceUnavailableError: an object that was written is missing or has another size.
        """
        settle(self.target, FOLDERS, dict(made.sizes()))
        self._root.put_bytes(MANIFEST_NAME, encode_marker(self._manifest(made, layout, counts)))

    def _manifest(self, made: MadeFiles, layout: StoreLayout, counts: dict[str, int]) -> dict[str, Any]:
        return {
            "version": MANIFEST_VERSION,
            "run": self.target.run,
            "finished_millis": int(self._clock() * 1000),
            "queue_file_size_bytes": layout.queue_file_size_bytes,
            "index_hash_slot_count": layout.index.slot_count,
            "index_entry_count_max": layout.index.entry_count_max,
            "counts": {name: count for name, count in counts.items() if name != "worker_memory_bytes_max"},
            "queue_files": made.queue_files.select(["path", "size_bytes", "unit_count"]).to_pylist(),
            "index_files": [
                {"path": path, "size_bytes": size_bytes, "entry_count": max(header.entry_count - 1, 0)}
                for path, size_bytes, header in made.index_files
            ],
        }


def settle(target: ObjectTarget, folders: Sequence[str], wanted: dict[str, int]) -> None:
    """Removes objects that a killed run left, and checks that all wanted ones exist.

    Args:
        target: the place.
        folders: all objects below these belong to the run.
        wanted: name and size in bytes of each object that must exist; `target.begun_name` stays.

    Raises:
        StoreLockedError: another run has taken over the place.
        ServiceUnavailableError: an object that was written is missing or has another size.
    """
    target.refuse_other_run()
    root, missing = target.root, dict(wanted)
    for folder in folders:
        for name, size_bytes in root.sizes(folder).items():
            if missing.get(name) == size_bytes:
                del missing[name]
            elif name not in missing and name != target.begun_name:
                root.delete(name)
    for name, size_bytes in missing.items():
        raise ServiceUnavailableError(
            f"{root}/{name} was written and is now missing, or no longer has {size_bytes} bytes: stop what else writes "
            "there, and run the same again",
            service=str(root),
        )
    target.refuse_other_run()  # again: listing a hundred thousand names takes time


def _is_leftover(name: str) -> bool:
    """Whether a killed run left this temporary file; only stores that write beside the goal and rename have them."""
    return name.startswith((BEGUN_NAME, MANIFEST_NAME)) and name.endswith(TEMPORARY_SUFFIX)
