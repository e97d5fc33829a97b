"""Mode `shuffle` makes the same bytes; its functions on Arrow tables here, Spark's grouping played by a dictionary."""

from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.jobs import rebuild_shuffle
from pipeline.jobs.progress import run_here
from pipeline.jobs.rebuild import Rebuild, make_plan
from pipeline.jobs.rebuild_layout import StoreLayout
from pipeline.jobs.report import JobReport
from store.files.file_system import RealFileSystem
from store.readers.index_reader import IndexLayout
from tests.pipeline.jobs.rebuilding import assert_same_store, rebuild_here


class _Frame:
    """As much of a DataFrame as the job uses; groups come in no particular order, nor do their rows."""

    def __init__(self, batches: list[pa.RecordBatch], keys: tuple[str, ...] = ()) -> None:
        self._batches, self._keys = batches, keys

    def mapInArrow(self, work, schema) -> "_Frame":
        return _Frame([batch for number in self._batches for batch in work(iter([number]))])

    def groupBy(self, *keys) -> "_Frame":
        return _Frame(self._batches, keys)

    def applyInArrow(self, work, schema) -> "_Frame":
        if not self._batches:
            return _Frame([])
        rows = pa.Table.from_batches(self._batches).to_pylist()[::-1]
        groups: dict[tuple, list] = {}
        for row in rows:
            groups.setdefault(tuple(row[key] for key in self._keys), []).append(row)
        tables = [work(pa.Table.from_pylist(group, schema=self._batches[0].schema)) for group in groups.values()]
        return _Frame([batch for table in tables for batch in table.to_batches()])

    def distinct(self) -> "_Frame":
        return self

    def count(self) -> int:
        return len({row["path"] for batch in self._batches for row in batch.to_pylist()})

    def collect(self) -> list:
        class Row:
            def __init__(self, row) -> None:
                self.__dict__.update(row)

        return [Row(row) for batch in self._batches for row in batch.to_pylist()]


class _Spark:
    def range(self, begin: int, end: int, step: int, partitions: int) -> _Frame:
        return _Frame([pa.record_batch({"id": [number]}) for number in range(begin, end, step)])


def shuffle_here(store: Path, out: Path, layout: StoreLayout, split_bytes: int) -> JobReport:
    fs, report = RealFileSystem(), JobReport.begin("rebuild")
    plan, _ = make_plan(fs, store, out, layout, split_bytes=split_bytes, is_flushed=False)

    def make_all(*arguments):
        return rebuild_shuffle.make_all(_Spark(), *arguments)

    Rebuild(fs, plan, run_here(), report, make_all=make_all).run(dry_run=False)
    return report.end()


@pytest.mark.parametrize("split_bytes", [70_000, 1 << 30])
@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_shuffle_equals_the_files_that_rocketmq_wrote(store, split_bytes, request, tmp_path):
    root = request.getfixturevalue(store)
    report = shuffle_here(root, tmp_path / "out", StoreLayout(), split_bytes)
    assert_same_store(tmp_path / "out", root)
    scattered = rebuild_here(root, tmp_path / "scattered", split_bytes=split_bytes)
    names = ("queue_file_count", "index_file_count", "index_entry_count", "record_count")
    assert [report.counts[name] for name in names] == [scattered.counts[name] for name in names]


def test_shuffle_writes_queues_that_jump_as_scatter_does(engine_store, tmp_path):
    import random
    from dataclasses import replace

    from store.format.record import decode_record
    from tests.pipeline.jobs.test_rebuild import write_log
    from tests.support.fixture_stores import walk_frames

    number = random.Random(7)
    model = decode_record(next(walk_frames(engine_store))[1])
    positions = [3, 4, 9, 10, 4, 11, 0, 1, 2, 7, 1 << 40, 8, 0, 1]
    records = [replace(model, topic="jumps", queue_id=1, queue_offset=position) for position in positions]
    records += [replace(model, topic="even", queue_id=0, queue_offset=17 + n) for n in range(20)]
    records += [replace(model, topic="../escapes", queue_id=0, queue_offset=number.randrange(9))]
    write_log(tmp_path / "store", records, 16_384)
    layout = StoreLayout(100, IndexLayout(10, 8))
    rebuild_here(tmp_path / "store", tmp_path / "scattered", layout=layout, split_bytes=1_000)

    shuffle_here(tmp_path / "store", tmp_path / "out", layout, 1_000)

    assert_same_store(tmp_path / "out", tmp_path / "scattered")
