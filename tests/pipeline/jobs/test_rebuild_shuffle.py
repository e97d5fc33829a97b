"""Mode `shuffle` makes the same bytes; its functions on Arrow batches here, without Spark."""

import pytest

from pipeline.jobs.rebuild_layout import StoreLayout
from store.readers.index_reader import IndexLayout
from tests.pipeline.jobs.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.jobs.shuffling import shuffle_here


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
