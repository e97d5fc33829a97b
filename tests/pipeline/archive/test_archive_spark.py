"""Archive and restore on Spark's executors, and the archive as Spark reads it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.archive import archive, restore
from pipeline.archive.view import read_archive, union_view
from pipeline.rebuild.out import StoreLayout
from store.readers.index_reader import IndexLayout
from tests.pipeline.archive.test_archive import assert_same_log, files_of
from tests.support.archives import Archived, archived, message, write_log


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    root = tmp_path_factory.mktemp("spark")
    topics = ("orders", "123", "%RETRY%" + "g" * 247, "支付")  # one that looks like a number, one too long for a folder
    messages = [message(n, topic=topics[n % 4], queue_id=n % 3, keys=f"k{n % 9}") for n in range(1500)]
    return archived(write_log(root / "store", messages, millis_between=60_000), root / "archive")


def test_spark_archives_and_restores_the_same_bytes(spark: SparkSession, made: Archived, tmp_path: Path):
    told: list[tuple[str, int, int]] = []

    report = archive.run(
        spark, made.store, tmp_path / "archive", include_active=True, progress=lambda *step: told.append(step)
    )
    assert files_of(made.archive) == files_of(tmp_path / "archive")
    assert len(made.records) == report.counts["record_count"]
    assert ("archive", report.counts["log_file_count"], report.counts["log_file_count"]) == told[-1]

    restore.run(spark, tmp_path / "archive", tmp_path / "out", layout=StoreLayout(4000, IndexLayout(500, 1000)))
    assert_same_log(made.store, tmp_path / "out")


def test_an_archive_reads_as_the_log_pruned_and_whole(spark: SparkSession, made: Archived, tmp_path: Path):
    shutil.copytree(made.archive, tmp_path / "archive")
    leftover = next((tmp_path / "archive").rglob("*.parquet"))
    shutil.copy(leftover, leftover.with_name("left-by-a-killed-run.parquet"))
    frame = read_archive(spark, tmp_path / "archive")

    counted = {
        (row["topic"], row["queueId"]): row["count"] for row in frame.groupBy("topic", "queueId").count().collect()
    }
    assert Counter((record.topic, record.queue_id) for record in made.records) == counted

    rows = (
        frame.where("topic = '支付' and queueId = 1").select("physicalOffset", "head", "body", "tail", "keys").collect()
    )
    by_offset = {record.commit_log_offset: record for record in made.records}
    expected = {r.commit_log_offset for r in made.records if (r.topic, r.queue_id) == ("支付", 1)}
    assert expected == {row["physicalOffset"] for row in rows}
    for row in rows[:50]:
        record = by_offset[row["physicalOffset"]]
        assert record.body == bytes(row["body"])
        assert list(record.keys) == row["keys"]
        assert record.store_size_bytes == sum(len(row[part]) for part in ("head", "body", "tail"))
    wanted = made.records[1234]
    (found,) = frame.where(f"uniqKey = '{wanted.unique_key}'").select("physicalOffset").collect()
    assert wanted.commit_log_offset == found["physicalOffset"]


def test_archive_and_store_are_one_view_with_each_message_once(spark: SparkSession, made: Archived, tmp_path: Path):
    archive.run(None, made.store, tmp_path / "archive")  # without the file that is still written to
    store = tmp_path / "store"
    shutil.copytree(made.store, store)
    files = sorted((store / "commitlog").iterdir())
    for path in files[:2]:
        path.unlink()

    rows = union_view(spark, tmp_path / "archive", store).select("physicalOffset", "source").collect()

    assert sorted(r.commit_log_offset for r in made.records) == sorted(row["physicalOffset"] for row in rows)
    assert {
        (offset, "live") for offset in (row["physicalOffset"] for row in rows) if offset >= int(files[-1].name)
    } == {(row["physicalOffset"], row["source"]) for row in rows if row["source"] == "live"}
