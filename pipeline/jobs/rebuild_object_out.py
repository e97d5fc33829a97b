"""Where a rebuild writes in an object store: at once in its place, which counts when its last object is there.

    OUT/rebuild.begun.json           first: whose place this is, and which run's
    OUT/consumequeue/... index/...   each object by one task, whole or not at all
    OUT/rebuild.json                 last: every file with its size; without it, OUT is an unfinished rebuild

Nothing can be renamed there, and nothing locked. A run that was killed leaves objects and no `rebuild.json`; the next one
writes the same names again (those of index files follow from the first begin) and removes what does not belong. Two runs
at once: the later one puts its name into `rebuild.begun.json`, and the tasks of the other see that and fail. An attempt at
a task that is run again, or a speculative one beside it, uploads the same bytes under the same name.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.rebuild_layout import StoreLayout
from pipeline.jobs.rebuild_object_root import TEMPORARY_SUFFIX, ObjectRoot
from pipeline.jobs.rebuild_out import index_names, refuse_inside
from pipeline.jobs.rebuild_target import MadeFiles, scratch_root
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreLockedError

BEGUN_NAME = "rebuild.begun.json"
MANIFEST_NAME = "rebuild.json"
MANIFEST_VERSION = 1
FOLDERS = ("consumequeue", "index")


def refuse_objects(source: Path, root: ObjectRoot) -> None:
    """Refuses a place that is none for a rebuild of `source`.

    Raises:
        InvalidArgumentError: it holds a finished rebuild or other data, or there is no such bucket.
        PermissionDeniedError, ServiceUnavailableError: the object store cannot be asked.
    """
    directory = root.local_path
    if directory is not None:
        refuse_inside(source, directory)
    names = root.top_names()
    _refuse_finished(root, names)
    ours = {BEGUN_NAME, *FOLDERS} if BEGUN_NAME in names else set()
    others = sorted(name for name in names - ours if not _is_leftover(name))
    if others:
        raise InvalidArgumentError(
            f"{root} holds other data ({others[0]}): name a place without any object below it.", field="out"
        )


def _refuse_finished(root: ObjectRoot, names: set[str]) -> None:
    if MANIFEST_NAME in names:
        raise InvalidArgumentError(
            f"{root} holds a finished rebuild ({MANIFEST_NAME}): name another place, or remove it first.", field="out"
        )


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """The place as tasks see it.

    Attributes:
        root: where.
        run: the run that the task belongs to.
    """

    root: ObjectRoot
    run: str

    @property
    def is_flushed(self) -> bool:
        """See Target: what is here is gone once it is sent."""
        return False

    def working_root(self) -> AbstractContextManager[Path]:
        """See Target: a directory of the executor's, as large as what one task makes at a time."""
        return scratch_root()

    def keep(self, root: Path, file: Path) -> None:
        """See Target: sends the file, and removes it here.

        Raises:
            StoreLockedError: another run has taken over since.
        """
        self.refuse_other_run()
        self.root.put_file(file.relative_to(root).as_posix(), file)
        file.unlink()

    def refuse_other_run(self) -> None:
        """StoreLockedError when the place is another run's."""
        begun = _decode(self.root.read(BEGUN_NAME))
        if begun.get("run") != self.run:
            raise StoreLockedError(
                f"another rebuild to {self.root} has begun since: let that one end, or run this one again",
                file=f"{self.root}/{BEGUN_NAME}",
            )


class ObjectOut:
    """One run's way from the first object to the last; a context manager.

    Args:
        source: the store root.
        root: where to.
        clock: seconds since 1970.

    Attributes:
        target: for tasks.
    """

    def __init__(self, source: Path, root: ObjectRoot, clock: Callable[[], float] = time.time) -> None:
        self.target = ObjectTarget(root, uuid.uuid4().hex)
        self._source = source
        self._root = root
        self._clock = clock
        self._first_begun_millis = 0

    def __enter__(self) -> "ObjectOut":
        refuse_objects(self._source, self._root)
        now_millis = int(self._clock() * 1000)
        before = _decode(self._root.read(BEGUN_NAME)).get("first_begun_millis")
        self._first_begun_millis = before if isinstance(before, int) else now_millis
        self._put_json(
            BEGUN_NAME,
            {"run": self.target.run, "begun_millis": now_millis, "first_begun_millis": self._first_begun_millis},
        )
        # Another run may have come to its end before it could see this one's name.
        _refuse_finished(self._root, self._root.top_names())
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing: what is there without `rebuild.json` is known as unfinished."""

    def index_names(self) -> Iterator[str]:
        """Names of index files, the same ones in every run until one has come to its end."""
        return index_names(self._first_begun_millis)

    def publish(self, made: MadeFiles, layout: StoreLayout, counts: dict[str, int]) -> None:
        """Makes it a rebuild: removes what a killed run left, looks whether all is there, and writes `rebuild.json`.

        Args:
            made: the files.
            layout: how they are divided.
            counts: of the report.

        Raises:
            StoreLockedError: another run has taken over since.
            ServiceUnavailableError: an object that was written is not there, or is not as it was written.
        """
        self.target.refuse_other_run()
        missing = dict(made.sizes())
        for folder in FOLDERS:
            for name, size_bytes in self._root.sizes(folder).items():
                if missing.get(name) == size_bytes:
                    del missing[name]
                elif name not in missing:
                    self._root.delete(name)
        for name, size_bytes in missing.items():
            raise ServiceUnavailableError(
                f"{self._root}/{name} was written and is not there with its {size_bytes} bytes: see who else writes "
                "there, and run the same again",
                service=str(self._root),
            )
        self.target.refuse_other_run()  # once more: there may be a hundred thousand names to list
        self._put_json(MANIFEST_NAME, self._manifest(made, layout, counts))

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

    def _put_json(self, name: str, document: dict[str, Any]) -> None:
        self._root.put_bytes(name, json.dumps(document, ensure_ascii=False).encode() + b"\n")


def _decode(data: bytes | None) -> dict[str, Any]:
    """A marker; empty when there is none or it is damaged: then it names no run."""
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _is_leftover(name: str) -> bool:
    """Whether a killed run left it where objects are files and are renamed into their place."""
    return name.startswith((BEGUN_NAME, MANIFEST_NAME)) and name.endswith(TEMPORARY_SUFFIX)
