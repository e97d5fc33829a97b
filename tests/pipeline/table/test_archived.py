"""An archive's files as a table: they are added as they are, once, and the archive never waits for the table."""

import hashlib
import json
import random
import time
from pathlib import Path, PurePosixPath

import pytest
from pyiceberg.expressions import AlwaysTrue

from pipeline.archive import archive as archive_job
from pipeline.table import archived as job
from pipeline.table.iceberg import TopicTable, opened_catalog
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import SETTLED_NANOS
from store.archive.parquet_files import ParquetFiles
from store.errors import InvalidArgumentError, ServiceUnavailableError, UnsupportedStoreError
from tests.pipeline.table.lakes import (
    CountingFileIO,
    FaultyCatalog,
    catalog_flags,
    faulty,
    lake,
    rows,
    settings,
)
from tests.support.archives import (
    BEGIN_MILLIS,
    BROKER,
    Archived,
    CountingFileSystem,
    archived,
    message,
    write_log,
)
from tests.support.command import run_command
from tests.support.fixture_stores import walk_frames

TABLE = "shop.orders"
DAY_MILLIS = 86_400_000
# What retention leaves behind an archive of an older run: files of three days and four topics.
MESSAGE_COUNT = 1200
TOPICS = ("orders", "支付", "%RETRY%group", "orders")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    chance = random.Random(39)
    directory = tmp_path_factory.mktemp("archived")
    messages = [
        message(n, topic=TOPICS[n % 4], queue_id=n % 3, keys=f"k{n % 20}", body=chance.randbytes(chance.randrange(300)))
        for n in range(MESSAGE_COUNT)
    ]
    store = write_log(directory / "store", messages, millis_between=3 * DAY_MILLIS // MESSAGE_COUNT)
    return archived(store, directory / "archive")


def digests(archive: Path) -> dict[str, str]:
    files = (path for path in archive.rglob("*") if path.is_file())
    return {str(path.relative_to(archive)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("topic", sorted(set(TOPICS)))
def test_a_table_has_every_archived_message_of_its_topic(made: Archived, tmp_path: Path, topic: str) -> None:
    before = digests(made.archive)
    catalog = lake(tmp_path)

    report = job.run(made.archive, topic, catalog, TABLE, broker_name=BROKER)

    expected = {record.commit_log_offset: bytes(record.body) for record in made.records if record.topic == topic}
    assert {row["physicalOffset"]: row["body"] for row in rows(catalog)} == expected
    assert report.findings == []
    assert report.counts["row_count"] == len(expected) == catalog.load_table(TABLE).scan().count()
    assert digests(made.archive) == before, "the files of an archive are never written"
    assert not list((tmp_path / "warehouse").rglob("*.parquet")), "no byte is copied"


def test_days_are_partitions_that_a_query_prunes(made: Archived, tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    job.run(made.archive, "orders", catalog, TABLE, broker_name=BROKER)
    table = catalog.load_table(TABLE)
    files = list(table.scan().plan_files())
    days = {row["partition"]["day"] for row in table.inspect.partitions().to_pylist()}
    one = list(table.scan(f"storeTimestamp >= '{max(days)}T00:00:00+00:00'").plan_files())
    assert len(days) >= 3
    assert 0 < len(one) < len(files)


def test_a_second_run_adds_nothing_and_a_file_that_has_grown_is_replaced(tmp_path: Path) -> None:
    messages = [message(n, keys=f"k{n}") for n in range(900)]
    archive, catalog = tmp_path / "archive", lake(tmp_path / "lake")
    archived(write_log(tmp_path / "part", messages[:700]), archive)
    first = job.run(archive, "orders", catalog, TABLE, broker_name=BROKER).counts
    again = job.run(archive, "orders", catalog, TABLE, broker_name=BROKER).counts
    assert again["added_file_count"] == again["removed_file_count"] == 0
    assert len(catalog.load_table(TABLE).snapshots()) == 1

    whole = write_log(tmp_path / "whole", messages)
    archive_job.run(None, whole, archive, broker_name=BROKER, include_active=True)
    grown = job.run(archive, "orders", catalog, TABLE, broker_name=BROKER).counts

    assert grown["removed_file_count"] == 1
    assert grown["row_count"] > first["row_count"]
    assert sorted(row["physicalOffset"] for row in rows(catalog)) == [offset for offset, _ in walk_frames(whole)]


def test_a_file_with_a_text_that_has_no_upper_bound_is_added_too(tmp_path: Path) -> None:
    """See the test of this name in test_iceberg.py."""
    archive, catalog = tmp_path / "archive", lake(tmp_path / "lake")
    archived(write_log(tmp_path / "store", [message(0, tags="a" * 15 + "\ud7ff" + "b")]), archive)
    assert job.run(archive, "orders", catalog, TABLE, broker_name=BROKER).findings == []
    assert len(rows(catalog)) == 1


def test_an_archive_in_a_place_that_pyiceberg_cannot_name_was_a_failed_disk(tmp_path: Path) -> None:
    archive = tmp_path / "a#1"
    archived(write_log(tmp_path / "store", [message(0)]), archive)
    with pytest.raises(InvalidArgumentError, match="choose another place"):
        job.run(archive, "orders", lake(tmp_path / "lake"), TABLE, broker_name=BROKER)
    assert job._base("s3://bucket/my%20archive/?region=x") == "s3://bucket/my archive"  # the key has no escapes


def test_shards_share_a_table_and_leave_each_others_files_alone(tmp_path: Path) -> None:
    archive, catalog = tmp_path / "archive", lake(tmp_path / "lake")
    for name in ("broker", "broker-b"):
        store = write_log(tmp_path / name, [message(n) for n in range(10)])
        archive_job.run(None, store, archive, broker_name=name, include_active=True)
        assert job.run(archive, "orders", catalog, TABLE, broker_name=name).counts["removed_file_count"] == 0
    assert len(rows(catalog)) == 20


@pytest.mark.parametrize("fault", ["refused", "lost", "answer lost"])
def test_a_commit_that_fails_or_whose_answer_is_lost_adds_each_file_once(
    made: Archived, tmp_path: Path, fault: str
) -> None:
    catalog = faulty(tmp_path)
    catalog.create_namespace("shop")
    catalog.fault = lambda number: fault if number == 2 else ""  # the first one makes the table

    job.run(made.archive, "支付", catalog, TABLE, broker_name=BROKER)

    assert len(rows(catalog)) == MESSAGE_COUNT // 4


def test_a_catalog_that_is_away_changes_neither_archive_nor_point_lookups(made: Archived, tmp_path: Path) -> None:
    before = digests(made.archive)
    catalog: FaultyCatalog = faulty(tmp_path)
    catalog.create_namespace("shop")
    catalog.fault = lambda number: "lost"

    with pytest.raises(ServiceUnavailableError, match="'lake' or its files cannot be reached"):
        job.run(made.archive, "orders", catalog, TABLE, broker_name=BROKER)

    assert digests(made.archive) == before
    found = ArchiveReader(made.archive, BROKER).search("orders", "k3")
    assert list(found.commit_log_offsets) == made.keyed("orders", "k3")


def test_a_point_lookup_by_key_asks_as_little_with_a_table_as_without(made: Archived, tmp_path: Path) -> None:
    """The figures of docs/tables.md: what the archive's file system is asked, one after the other."""
    records = [record for record in made.records if record.topic == "orders"]
    newest, oldest = records[-1], records[0]

    def asked() -> list[int]:
        fs = CountingFileSystem()
        reader = ArchiveReader(made.archive, BROKER, fs, ParquetFiles(fs), lambda: time.time_ns() + SETTLED_NANOS * 2)
        reader.range()  # reads the manifests
        counts = []
        for record in (newest, newest, oldest, oldest):
            before = fs.request_count
            window = {"begin_millis": record.store_time_millis, "end_millis": record.store_time_millis}
            (offset,) = reader.search("orders", record.unique_key, **window).commit_log_offsets
            assert reader.record(offset) == record
            counts.append(fs.request_count - before)
        return counts

    without = asked()
    job.run(made.archive, "orders", lake(tmp_path), TABLE, broker_name=BROKER)
    print(without)
    assert asked() == without == [15, 7, 15, 7], "the first one in a segment opens its index and a Parquet file"


def test_an_engine_opens_one_of_the_data_files_for_a_unique_key(made: Archived, tmp_path: Path) -> None:
    """Bounds of each file are in the table's manifest, and unique keys rise with the time."""
    job.run(made.archive, "orders", lake(tmp_path), TABLE, broker_name=BROKER)
    counting = f"{CountingFileIO.__module__}.{CountingFileIO.__name__}"
    table = opened_catalog("lake", {**settings(tmp_path), "py-io-impl": counting}).load_table(TABLE)
    wanted = next(record for record in made.records[600:] if record.topic == "orders")
    assert len(list(table.scan().plan_files())) > 3
    CountingFileIO.opened.clear()

    found = table.scan(f"uniqKey = '{wanted.unique_key}'").to_arrow().to_pylist()

    assert [row["physicalOffset"] for row in found] == [wanted.commit_log_offset]
    opened = [PurePosixPath(location).suffix for location in CountingFileIO.opened]
    assert opened.count(".parquet") == 1
    assert len(opened) <= 3, "the list of manifests, the manifest and the file"


def test_rows_of_a_table_that_was_compacted_were_added_again(made: Archived, tmp_path: Path) -> None:
    """Also by Spark, in test_spark.py. A table of an older version then gets the property that keeps the archive's files."""
    catalog = lake(tmp_path)
    job.run(made.archive, "orders", catalog, TABLE, broker_name=BROKER)
    table = catalog.load_table(TABLE)
    with table.transaction() as transaction:
        transaction.remove_properties("gc.enabled")
    copies = TopicTable.existing(catalog, TABLE).write(table.scan().to_arrow())
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
        producer.delete_by_predicate(AlwaysTrue())
        for task in table.scan().plan_files():
            producer.delete_data_file(task.file)
        for file in copies:
            producer.append_data_file(file)

    with pytest.raises(InvalidArgumentError, match=f"The table {TABLE} has files that are not of the archive"):
        job.run(made.archive, "orders", catalog, TABLE, broker_name=BROKER)

    assert catalog.load_table(TABLE).scan().count() == MESSAGE_COUNT // 2
    assert catalog.load_table(TABLE).properties["gc.enabled"] == "false"


def test_what_is_no_archive_or_has_no_such_topic_is_refused(made: Archived, tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    with pytest.raises(UnsupportedStoreError, match="is not an archive"):
        job.run(tmp_path, "orders", catalog, TABLE)
    with pytest.raises(InvalidArgumentError, match="no message of topic 'nothing' in shard 'broker-a'"):
        job.run(made.archive, "nothing", catalog, TABLE)
    job.run(made.archive, "orders", catalog, TABLE, broker_name=BROKER)
    with pytest.raises(InvalidArgumentError, match=r"is of the topic 'orders' in the archive file://"):
        job.run(made.archive, "支付", catalog, TABLE, broker_name=BROKER)


def test_a_file_with_rows_of_several_days_is_a_finding_and_the_others_are_added(tmp_path: Path) -> None:
    """Days outside the years 1 to 9999 share the nearest date of the archive; Iceberg has a partition for each."""
    far = 253_402_300_800_000 + 5 * DAY_MILLIS

    def time_of(number: int) -> int:
        return BEGIN_MILLIS + number if number < 10 else far + number % 2 * DAY_MILLIS

    store = write_log(tmp_path / "store", [message(n) for n in range(14)], time_of=time_of)
    archive = archived(store, tmp_path / "archive").archive
    catalog = lake(tmp_path / "lake")

    report = job.run(archive, "orders", catalog, TABLE, broker_name=BROKER)

    assert [finding["kind"] for finding in report.findings] == ["file_not_added"]
    assert "date=9999-12-31" in report.findings[0]["file"]
    assert catalog.load_table(TABLE).scan().count() == 10


def test_the_command_adds_an_archive_and_deletes_nothing_from_it(made: Archived, tmp_path: Path) -> None:
    verb = ["pipeline", "table", "--table", TABLE, *catalog_flags(tmp_path)]
    done = run_command(*verb, "--topic", "orders", "--archive", str(made.archive))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["row_count"] == MESSAGE_COUNT // 2
    refused = run_command(*verb, "--delete-key", "k3")
    assert refused.returncode == 2
    assert "has the files of the archive" in " ".join(refused.stderr.split())
