"""Mode `shuffle` makes the same bytes; its functions on Arrow batches here, without Spark."""

import json
import random
from dataclasses import replace
from zlib import crc32

import pytest

from pipeline.job import JobReport
from pipeline.log_scan import outline_log, plan_splits
from pipeline.rebuild.out import StoreLayout
from pipeline.rebuild.shuffle import batches_of
from store.errors import RecordCorruptedError
from store.files.file_system import RealFileSystem
from store.format.record import decode_record
from store.format.sys_flag import INNER_BATCH
from store.readers.index_reader import IndexLayout
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.rebuild.shuffling import shuffle_here
from tests.pipeline.rebuild.test_rebuild import write_log
from tests.support.dispatches import requests_of
from tests.support.fixture_stores import walk_frames


def counts_of(report: JobReport) -> list[int]:
    names = ("queue_file_count", "index_file_count", "index_entry_count", "record_count", "unit_count")
    return [report.counts[name] for name in names]


@pytest.mark.parametrize("split_bytes", [70_000, 1 << 30])
@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_shuffle_equals_the_files_that_rocketmq_wrote(store, split_bytes, request, tmp_path):
    root = request.getfixturevalue(store)
    report = shuffle_here(root, tmp_path / "out", StoreLayout(), split_bytes)
    assert_same_store(tmp_path / "out", root)
    scattered = rebuild_here(root, tmp_path / "scattered", split_bytes=split_bytes)
    assert counts_of(report) == counts_of(scattered)
    assert report.notes == scattered.notes


def test_shuffle_writes_queues_that_jump_as_scatter_does(engine_store, tmp_path):
    number = random.Random(7)
    model = decode_record(next(walk_frames(engine_store))[1])
    positions = [3, 4, 9, 10, 4, 11, 0, 1, 2, 7, 1 << 40, 8, 0, 1]
    records = [replace(model, topic="jumps", queue_id=1, queue_offset=position) for position in positions]
    records += [replace(model, topic="even", queue_id=0, queue_offset=17 + n) for n in range(20)]
    records += [replace(model, topic="../escapes", queue_id=0, queue_offset=number.randrange(9))]
    # Seconds between messages: the first entry of an index file counts from the end of the file before.
    records = [replace(record, store_time_millis=1_700_000_000_000 + 7000 * n) for n, record in enumerate(records)]
    write_log(tmp_path / "store", records, 16_384)
    layout = StoreLayout(100, IndexLayout(10, 8))
    scattered = rebuild_here(tmp_path / "store", tmp_path / "scattered", layout=layout, split_bytes=1_000)

    report = shuffle_here(tmp_path / "store", tmp_path / "out", layout, 1_000)

    assert_same_store(tmp_path / "out", tmp_path / "scattered")
    assert counts_of(report) == counts_of(scattered)
    assert sorted(report.notes) == sorted(scattered.notes)
    assert any("left out" in note for note in report.notes)


@pytest.mark.parametrize("shown_by", ["config", "record"])
def test_no_plain_queue_is_made_for_single_messages_of_a_batch_topic(engine_store, tmp_path, shown_by):
    """A broker with both kinds of queues of one topic does not start. Its row and folder may be lost: then its log tells."""
    model = decode_record(next(walk_frames(engine_store))[1])
    topics = ["batches", "plain", "batches", "%LMQ%light", "plain"]
    records = [replace(model, topic=topic, queue_id=0, queue_offset=n // 2) for n, topic in enumerate(topics)]
    records = [replace(record, store_time_millis=1_700_000_000_000 + n) for n, record in enumerate(records)]
    store = tmp_path / "store"
    if shown_by == "record":
        records[2] = replace(records[2], sys_flag=records[2].sys_flag | INNER_BATCH)
    write_log(store, records, 16_384)
    rows = {"batches": {"topicName": "batches", "attributes": {"queue.type": "BatchCQ"}}}
    (store / "config").mkdir()
    if shown_by == "config":
        (store / "config/topics.json").write_text(json.dumps({"topicConfigTable": rows}))
    layout = StoreLayout(100, IndexLayout(10, 8))
    scattered = rebuild_here(store, tmp_path / "scattered", layout=layout)

    report = shuffle_here(store, tmp_path / "out", layout, 1_000)

    for root in ("scattered", "out"):
        assert [path.name for path in (tmp_path / root / "consumequeue").iterdir()] == ["plain"]
    for each in (scattered, report):
        assert any("topic batches uses batch queues" in note for note in each.notes)
        assert each.counts["unit_count"] == 2


def test_what_is_appended_between_the_passes_is_left_out(copy_of_broker_store, tmp_path):
    """A foreign broker may be writing, and nothing says how far."""
    requests = requests_of(copy_of_broker_store)
    cut = requests[-40].commit_log_offset
    path = [path for path in sorted((copy_of_broker_store / "commitlog").iterdir()) if int(path.name) <= cut][-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: cut - int(path.name)].ljust(len(whole), b"\0"))
    rebuild_here(copy_of_broker_store, tmp_path / "scattered")

    report = shuffle_here(
        copy_of_broker_store, tmp_path / "out", split_bytes=300_000, between_passes=lambda: path.write_bytes(whole)
    )

    assert report.counts["record_count"] == len(requests) - 40
    assert_same_store(tmp_path / "out", tmp_path / "scattered")


@pytest.mark.parametrize("bytes_there", [bytes(8), b"\x7f"], ids=["zeros", "no record"])
def test_a_log_that_is_damaged_between_the_passes_stops_the_rebuild(copy_of_broker_store, tmp_path, bytes_there):
    victim = requests_of(copy_of_broker_store)[-40].commit_log_offset
    path = [path for path in sorted((copy_of_broker_store / "commitlog").iterdir()) if int(path.name) <= victim][-1]

    def damage() -> None:
        with open(path, "r+b") as file:
            file.seek(victim - int(path.name))
            file.write(bytes_there)

    with pytest.raises(RecordCorruptedError, match=str(victim)):
        shuffle_here(copy_of_broker_store, tmp_path / "out", split_bytes=300_000, between_passes=damage)

    assert list(tmp_path.glob("out*")) == []


@pytest.mark.parametrize("record_count", [1, 1000, 1 << 20])
def test_a_split_is_read_in_batches_that_leave_nothing_out(engine_store, tmp_path, record_count):
    """Of a log that a scan shows in several pieces: of a MiB each."""
    model = decode_record(next(walk_frames(engine_store))[1])
    body = b"b" * 2000
    model = replace(model, body=body, body_crc=crc32(body) & 0x7FFFFFFF)
    write_log(tmp_path / "store", [replace(model, queue_offset=n) for n in range(2500)], 4 << 20)
    fs = RealFileSystem()
    outline = outline_log(fs, tmp_path / "store", durable_offset=None, is_live=False)
    requests = requests_of(tmp_path / "store")
    end = requests[-1].commit_log_offset + requests[-1].record_size_bytes
    splits = [
        replace(split, end=min(split.end, end)) for split in plan_splits(fs, tmp_path / "store", outline, 1 << 30)
    ]

    batches = [
        [int(offset) for offset in batch.commit_log_offsets]
        for split in splits
        for batch in batches_of(split, record_count)
    ]

    assert [offset for batch in batches for offset in batch] == [request.commit_log_offset for request in requests]
    assert (len(batches) > len(splits)) == (record_count < 2500), "the test wants splits of several batches"
