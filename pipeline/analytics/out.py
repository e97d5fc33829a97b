"""Where analytics writes: a directory that all machines share, or a place in an object store.

directory      OUT/.analytics-N/TABLE/part-*     Spark's own files; OUT/TABLE.parquet and the pages by rename
object store   OUT/analytics.begun.json          first: the run that owns OUT; the manifest of the run before is removed
               OUT/.analytics/RUN/TABLE/part-*   each by its task; the driver makes one file of them, on its own disk
               OUT/TABLE.parquet, .csv, pages    whole or not at all
               OUT/analytics.json                last: every file with its size; without it OUT is not complete
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.rebuild.object_root import ObjectRoot
from pipeline.rebuild.target import ObjectTarget, Target, encode_marker, scratch_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BEGUN_NAME = "analytics.begun.json"
MANIFEST_NAME = "analytics.json"
PARTS_FOLDER = ".analytics"
COUNT_SCHEMA = pa.schema([("row_count", pa.int64())])


class AnalyticsOut(Protocol):
    """The output of one run; a context manager.

    Attributes:
        folder: a directory of this machine in which the driver makes the files.
    """

    folder: Path

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def write(self, name: str, rows: "DataFrame") -> None:
        """Spark's tasks write the parts of a table."""

    def write_table(self, name: str, rows: pa.Table) -> None:
        """The driver writes a table as its only part."""

    def parts(self, name: str) -> Path:
        """A directory of this machine with the parts of a table; their names follow the order of the rows."""

    def complete(self) -> None:
        """Delivers what lies in `folder`."""


def analytics_out(out: Path | str, started_at_millis: int) -> AnalyticsOut:
    """The output that a path or a URI names; `file://` is a directory."""
    goal = ObjectRoot.place(out)
    if isinstance(goal, Path):
        return DirectoryOut(goal.absolute(), started_at_millis)
    return ObjectOut(goal, started_at_millis)


class DirectoryOut:
    """See AnalyticsOut."""

    def __init__(self, out: Path, started_at_millis: int) -> None:
        self.folder = out
        self._staging = out / f".analytics-{started_at_millis}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)

    def write(self, name: str, rows: "DataFrame") -> None:
        """See AnalyticsOut."""
        rows.write.mode("overwrite").parquet(str(self._staging / name))

    def write_table(self, name: str, rows: pa.Table) -> None:
        """See AnalyticsOut."""
        _write_only_part(self._staging / name, rows)

    def parts(self, name: str) -> Path:
        """See AnalyticsOut."""
        return self._staging / name

    def complete(self) -> None:
        """Does nothing: the files were made in their places."""


class ObjectOut:
    """See AnalyticsOut. Raises what `services/object_uri.told` raises, and StoreLockedError for a run that took over."""

    def __init__(self, root: ObjectRoot, started_at_millis: int) -> None:
        self._root = root
        self._target = ObjectTarget(root, uuid.uuid4().hex, BEGUN_NAME, "analytics run")
        self._started_at_millis = started_at_millis
        self._stack = ExitStack()
        self._schemas: dict[str, pa.Schema] = {}

    def __enter__(self) -> Self:
        self._root.top_names()  # raises if the bucket does not exist
        self._root.delete(MANIFEST_NAME)
        self._target.take(self._started_at_millis)
        self._scratch = self._stack.enter_context(scratch_root())
        self.folder = self._scratch / "out"
        self.folder.mkdir()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, name: str, rows: "DataFrame") -> None:
        """See AnalyticsOut."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = self._schemas[name] = to_arrow_schema(rows.schema, timezone="UTC")
        rows.mapInArrow(_part_writer(self._target, self._folder_of(name), schema), "row_count bigint").collect()

    def write_table(self, name: str, rows: pa.Table) -> None:
        """See AnalyticsOut: the driver itself needs it, so it stays on its disk."""
        _write_only_part(self._scratch / name, rows)

    def parts(self, name: str) -> Path:
        """See AnalyticsOut; gets them from the object store."""
        folder = self._scratch / name
        if folder.is_dir():
            return folder
        folder.mkdir()
        for part in self._root.sizes(self._folder_of(name)):
            self._root.get_file(part, folder / Path(part).name)
        if not any(folder.iterdir()):  # a table without partitions
            _write_only_part(folder, self._schemas[name].empty_table())
        return folder

    def complete(self) -> None:
        """See AnalyticsOut; removes the parts, also those of killed runs."""
        sizes = {}
        for file in sorted(self.folder.iterdir()):
            self._target.refuse_other_run()
            sizes[file.name] = self._root.put_file(file.name, file)
        for part in self._root.sizes(PARTS_FOLDER):
            self._root.delete(part)
        files = [{"path": name, "size_bytes": size_bytes} for name, size_bytes in sizes.items()]
        self._target.put(MANIFEST_NAME, encode_marker({"version": 1, "run": self._target.run, "files": files}))

    def _folder_of(self, name: str) -> str:
        return f"{PARTS_FOLDER}/{self._target.run}/{name}"


def _write_only_part(folder: Path, rows: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "part-0.parquet")


def _part_writer(
    target: Target, folder: str, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task that writes its rows as one part of a table."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "not called inside a task of Spark"
        row_count = 0
        with target.working_root() as root:
            path = root / folder / f"part-{context.partitionId():05d}.parquet"
            path.parent.mkdir(parents=True)
            with pq.ParquetWriter(path, schema) as writer:
                for batch in batches:
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
                    row_count += batch.num_rows
            target.keep(root, path)
        yield pa.RecordBatch.from_pydict({"row_count": [row_count]}, schema=COUNT_SCHEMA)

    return work
