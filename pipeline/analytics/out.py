"""Where analytics writes: a directory that all machines share, or a place in an object store.

directory      OUT/analytics.lock               held while a run writes; then the manifest of the run before is removed
               OUT/.analytics-N/TABLE/part-*    Spark's own files; those of killed runs are removed under the lock
               OUT/.analytics-N/out/            one file of each table, and the pages
               OUT/TABLE.parquet, .csv, pages   from there by rename, all at the end
               OUT/analytics.json               last: every file with its size; without it OUT is not complete
object store   OUT/analytics.begun.json         first: the run that owns OUT; the manifest of the run before is removed
               OUT/.analytics/RUN/TABLE/part-*  each by its task; the driver makes one file of them, on its own disk
               OUT/TABLE.parquet, .csv, pages   whole or not at all
               OUT/analytics.json               last: every file with its size; without it OUT is not complete

Writes each table as one Parquet file and one CSV file.

Parquet has the values unchanged. CSV files are opened in spreadsheets, which evaluate a text that begins with `=` or
similar as a formula. Topics and keys are chosen by producers, so such a text gets an apostrophe before it.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.object_root import ObjectRoot
from pipeline.target import ObjectTarget, Target, encode_marker, scratch_root
from store.errors import StoreLockedError
from store.files.file_system import RealFileSystem
from store.files.json_state import write_bytes_atomic
from store.files.locks import OwnerLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMULA = r"^[=+\-@\t\r]"
PARQUET_COMPRESSION = "zstd"


def publish(parts: Path, out: Path, name: str) -> int:
    """Makes `name.parquet` and `name.csv` in `out` from Spark's part files; returns the count of rows.

    Args:
        parts: the directory with Spark's part files, whose names follow the order of the rows.
        out: the directory for the files, of this run alone: a failure may leave half a file.
        name: name of the table.
    """
    files = sorted(parts.glob("part-*.parquet"))
    if not files:
        raise FileNotFoundError(f"{parts} holds no part file: name an --out on a disk that driver and executors share")
    schema = _plain_schema(pq.read_schema(files[0]))
    row_count = 0
    with (
        pq.ParquetWriter(out / f"{name}.parquet", schema, compression=PARQUET_COMPRESSION) as parquet,
        pyarrow.csv.CSVWriter(out / f"{name}.csv", schema) as csv,
    ):
        for batch in _batches(files):
            rows = pa.Table.from_batches([batch]).cast(schema)
            parquet.write_table(rows)
            csv.write_table(spreadsheet_safe(rows))
            row_count += rows.num_rows
    return row_count


def spreadsheet_safe(rows: pa.Table) -> pa.Table:
    """The rows with an apostrophe before each text that a spreadsheet would evaluate as a formula."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            texts = rows.column(number)
            marked = pc.binary_join_element_wise("'", texts, "")
            safe = pc.if_else(pc.match_substring_regex(texts, FORMULA), marked, texts)
            rows = rows.set_column(number, field, safe)
    return rows


def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without Spark's metadata, with times in microseconds."""
    fields = [
        pa.field(field.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)
        for field in schema
    ]
    return pa.schema(fields)


BEGUN_NAME = "analytics.begun.json"
MANIFEST_NAME = "analytics.json"
LOCK_NAME = "analytics.lock"
PARTS_FOLDER = ".analytics"
COUNT_SCHEMA = pa.schema([("row_count", pa.int64())])


class AnalyticsOut(Protocol):
    """The output of one run; a context manager.

    Attributes:
        folder: a directory of this machine in which the driver makes the files; of this run alone.
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
        """Delivers what lies in `folder`, then the manifest of it."""


def analytics_out(out: Path | str, started_at_millis: int) -> AnalyticsOut:
    """The output that a path or a URI names; `file://` is a directory."""
    goal = ObjectRoot.place(out)
    if isinstance(goal, Path):
        return DirectoryOut(goal.absolute(), started_at_millis)
    return ObjectOut(goal, started_at_millis)


class DirectoryOut:
    """See AnalyticsOut. Raises StoreLockedError while another run writes to the directory."""

    def __init__(self, out: Path, started_at_millis: int) -> None:
        self._out = out
        # Not one name for all runs: tasks of a killed run may still write to theirs.
        self._staging = out / f"{PARTS_FOLDER}-{started_at_millis}"
        self.folder = self._staging / "out"
        self._fs = RealFileSystem()
        self._lock = OwnerLock(out / LOCK_NAME, wait_seconds=0)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._lock.acquire()
        except StoreLockedError as error:
            raise StoreLockedError(
                f"another analytics run to {self._out} is running: wait for its end, or name another directory",
                file=self._out / LOCK_NAME,
            ) from error
        with ExitStack() as stack:
            stack.callback(self._lock.release)
            (self._out / MANIFEST_NAME).unlink(missing_ok=True)
            for killed in self._out.glob(f"{PARTS_FOLDER}-[0-9]*"):
                shutil.rmtree(killed, ignore_errors=True)  # what cannot be removed harms no table
            stack.callback(shutil.rmtree, self._staging, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

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
        """See AnalyticsOut; flushed, so that the manifest names no file that a power cut takes."""
        sizes = {}
        for file in sorted(self.folder.iterdir()):
            fd = self._fs.open(file, os.O_RDONLY)
            try:
                self._fs.fdatasync(fd)
            finally:
                self._fs.close(fd)
            sizes[file.name] = file.stat().st_size
        for name in sizes:
            self._fs.rename(self.folder / name, self._out / name)
        write_bytes_atomic(self._fs, self._out / MANIFEST_NAME, _manifest(uuid.uuid4().hex, sizes))


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
        self._target.put(MANIFEST_NAME, _manifest(self._target.run, sizes))

    def _folder_of(self, name: str) -> str:
        return f"{PARTS_FOLDER}/{self._target.run}/{name}"


def _manifest(run: str, sizes: Mapping[str, int]) -> bytes:
    """The manifest of a run; sizes of its files in bytes, by name."""
    files = [{"path": name, "size_bytes": size_bytes} for name, size_bytes in sizes.items()]
    return encode_marker({"version": 1, "run": run, "files": files})


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
