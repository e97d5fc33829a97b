"""Where a rebuild writes in an object store: directly to the final names. Its last object marks it as complete.

    OUT/rebuild.begun.json           first: marks OUT as a rebuild, with the id of the run that owns it
    OUT/consumequeue/... index/...   each object by one task, whole or not at all
    OUT/rebuild.json                 last: every file with its size; without it, OUT is an unfinished rebuild

An object store has no rename and no locks. A killed run leaves objects without `rebuild.json`; the next run writes the
same names again (index files are named after the begin of the first run) and removes all other objects. Of two runs at
once, the later one writes its id into `rebuild.begun.json`, and the tasks of the other see that and fail. A repeated or
speculative attempt at a task uploads the same bytes under the same name.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.rebuild.layout import StoreLayout
from pipeline.rebuild.object_root import TEMPORARY_SUFFIX, ObjectRoot
from pipeline.rebuild.out import index_names, refuse_inside
from pipeline.rebuild.target import MadeFiles, ObjectTarget, encode_marker
from store.errors import InvalidArgumentError, ServiceUnavailableError

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
