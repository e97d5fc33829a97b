"""Mode `shuffle` without Spark: as much of a DataFrame as the job uses, in this process."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from pipeline.job import JobReport, run_here
from pipeline.object_root import ObjectRoot
from pipeline.rebuild import shuffle as rebuild_shuffle
from pipeline.rebuild.out import StoreLayout
from pipeline.rebuild.plan import make_plan
from pipeline.rebuild.rebuild import Rebuild
from store.files.file_system import RealFileSystem


class Frame:
    """As much of a DataFrame as the job uses: partitions of batches; what is not sorted comes in no particular order."""

    def __init__(self, partitions: list[list[pa.RecordBatch]]) -> None:
        self._partitions = partitions

    def mapInArrow(self, work, schema) -> "Frame":
        return Frame([list(work(iter(batches))) for batches in self._partitions])

    def repartition(self, count, *keys) -> "Frame":
        return self._spread(count, lambda row: hash(tuple(row[key] for key in keys)))

    def repartitionById(self, count, key) -> "Frame":
        return self._spread(count, lambda row: row[key])

    def sortWithinPartitions(self, *keys) -> "Frame":
        partitions = []
        for batches in self._partitions:
            rows = [row for batch in batches for row in batch.to_pylist()]
            rows.sort(key=lambda row: [row[key] for key in keys])
            # Batches end anywhere, also within a file's rows.
            partitions.append(
                [pa.RecordBatch.from_pylist(rows[at : at + 3], batches[0].schema) for at in range(0, len(rows), 3)]
            )
        return Frame(partitions)

    def toArrow(self) -> pa.Table:
        batches = [batch for batches in self._partitions for batch in batches]
        return pa.Table.from_batches(batches) if batches else rebuild_shuffle._MADE.empty_table()

    def _spread(self, count, place) -> "Frame":
        partitions: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for batch in [batch for batches in self._partitions for batch in batches][::-1]:
            for row in batch.to_pylist()[::-1]:
                partitions[place(row) % count].append(pa.RecordBatch.from_pylist([row], batch.schema))
        return Frame(partitions)


class FakeSpark:
    """As much of a session as the job uses."""

    class sparkContext:
        defaultParallelism = 3

    class conf:
        @staticmethod
        def set(name, value) -> None:
            assert name == rebuild_shuffle.BATCH_BYTES_SETTING

    def newSession(self) -> "FakeSpark":
        return self

    def range(self, begin: int, end: int, step: int, partitions: int) -> Frame:
        return Frame([[pa.record_batch({"id": [number]})] for number in range(begin, end, step)])


def shuffle_here(
    store: Path,
    out: Path | str,
    layout: StoreLayout | None = None,
    split_bytes: int | None = None,
    *,
    dry_run: bool = False,
    between_passes: Callable[[], object] = bool,
) -> JobReport:
    """One rebuild in mode `shuffle`, task by task in this process."""
    fs, report = RealFileSystem(), JobReport.begin("rebuild")
    plan, report.notes = make_plan(
        fs, store, ObjectRoot.of(out), layout or StoreLayout(), split_bytes=split_bytes, is_flushed=False
    )

    def make_all(*arguments):
        between_passes()
        return rebuild_shuffle.make_all(FakeSpark(), *arguments)

    Rebuild(fs, plan, run_here(), report, make_all=make_all).run(dry_run=dry_run)
    return report.end()
