"""Archiving: exactly once, whatever kills it; nothing that is damaged goes in unsaid. Restored it is the log again."""

import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.archive import archive, restore
from pipeline.archive import verify as archive_verify
from pipeline.job import JobReport
from pipeline.rebuild.out import StoreLayout
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import check_archive, create_archive
from store.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    StoreCorruptedError,
    StoreLockedError,
    UnsupportedStoreError,
)
from store.files.file_system import RealFileSystem
from store.files.locks import OwnerLock
from store.format.properties import parse_properties
from store.readers.index_reader import IndexLayout
from tests.support.archives import BROKER, Archived, archived, message, write_log
from tests.support.fixture_stores import STORE_NAMES, walk_frames
from tests.torture.amount import amount

SMALL_LAYOUT = StoreLayout(4000, IndexLayout(500, 1000))
KILLED_RUN = """
import sys
from pipeline.archive import archive
print("started", flush=True)
archive.run(None, sys.argv[1], sys.argv[2], include_active=True)
"""


def files_of(root: Path) -> dict[str, bytes]:
    """Every file by its name relative to a root; locks are nobody's content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of many files, some topics and hours."""
    rng = random.Random(3)
    messages = [
        message(
            n,
            topic=("orders", "支付", "%RETRY%group")[n % 3],
            queue_id=n % 4,
            keys=f"k{n % 50} 订单{n % 7}",
            body=rng.randbytes(rng.randrange(400)),
            sys_flag=rng.choice((0, 0, 0, 4, 8, 12)),
        )
        for n in range(3000)
    ]
    return write_log(tmp_path_factory.mktemp("made") / "store", messages, millis_between=60_000)


@pytest.fixture(scope="module")
def clean(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    return archived(store, tmp_path_factory.mktemp("clean") / "archive")


def test_a_second_run_adds_nothing(store: Path, clean: Archived, tmp_path: Path):
    root = tmp_path / "archive"
    first = archive.run(None, store, root)
    before = files_of(root)
    second = archive.run(None, store, root)

    assert 1 == len(first.notes)  # the file that is still written to
    assert (
        first.counts["log_file_count"] - 1 == first.counts["archived_file_count"] == second.counts["known_file_count"]
    )
    assert 0 == second.counts["archived_file_count"]
    assert before == files_of(root)


def test_rows_in_parquet_are_each_record_once_with_its_columns(clean: Archived):
    rows = [row for path in clean.archive.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]

    assert len(clean.records) == len(rows)
    by_offset = {row["physicalOffset"]: row for row in rows}
    for record in clean.records:
        row = by_offset[record.commit_log_offset]
        assert (record.topic, record.queue_id, record.queue_offset, record.store_size_bytes) == (
            row["topic"],
            row["queueId"],
            row["queueOffset"],
            row["storeSize"],
        )
        assert parse_properties(record.properties_bytes) == dict(row["properties"])
        assert list(record.keys) == (row["keys"] or [])
        assert (record.unique_key, record.tags, record.body) == (row["uniqKey"] or "", row["tags"] or "", row["body"])
        assert record.store_time_millis == round(row["storeTimestamp"].timestamp() * 1000)
        assert (str(record.born_host), str(record.store_host)) == (row["bornHost"], row["storeHost"])
        assert (record.flag, record.sys_flag, record.reconsume_times, record.prepared_transaction_offset) == (
            row["flag"],
            row["sysFlag"],
            row["reconsumeTimes"],
            row["preparedTransactionOffset"],
        )


def test_files_have_what_engines_prune_by(clean: Archived):
    path = max(clean.archive.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    metadata = pq.ParquetFile(path).metadata
    columns = {
        metadata.row_group(0).column(n).path_in_schema: metadata.row_group(0).column(n)
        for n in range(metadata.num_columns)
    }

    assert columns["queueOffset"].statistics.has_min_max
    assert columns["storeTimestamp"].statistics.has_min_max
    assert not columns["body"].is_stats_set
    assert {"topic", "date"} == {part.partition("=")[0] for part in path.relative_to(clean.archive).parts[1:-1]}


def test_a_making_of_an_archive_that_was_killed_goes_on_and_other_files_are_refused(tmp_path: Path):
    root = tmp_path / "archive"
    root.mkdir()
    (root / "archive.json.tmp").write_bytes(b'{"for')
    create_archive(RealFileSystem(), root)
    check_archive(RealFileSystem(), root)
    assert [path.name for path in root.iterdir()] == ["archive.json"]
    (tmp_path / "other.tmp").write_bytes(b"")
    with pytest.raises(UnsupportedStoreError, match="holds files and is not an archive"):
        create_archive(RealFileSystem(), tmp_path)


def test_a_run_killed_anywhere_goes_on_to_the_same_archive(store: Path, clean: Archived, tmp_path: Path):
    rng = random.Random(os.getpid())
    count = amount(sample=6, change=20, full=100)
    kills = 0
    while kills < count:
        root = tmp_path / f"archive{kills}"
        finished = False
        while not finished and kills < count:
            process = subprocess.Popen(
                [sys.executable, "-c", KILLED_RUN, store, root], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            time.sleep(rng.uniform(0, 0.6))  # where it is then is for chance to say
            finished = process.poll() is not None
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            kills += not finished
            assert_whole_as_far_as_it_goes(root, clean)
        archive.run(None, store, root, include_active=True)
        assert files_of(clean.archive) == files_of(root)
        shutil.rmtree(root)
        kills += finished


def assert_whole_as_far_as_it_goes(root: Path, clean: Archived) -> None:
    """What is published is what a run without a kill publishes."""
    if not (root / "archive.json").exists():
        return
    reader = ArchiveReader(root, BROKER)
    whole = {segment.first_offset: segment for segment in ArchiveReader(clean.archive, BROKER).segments()}
    for segment in reader.segments():
        assert whole[segment.first_offset] == segment
        for path in segment.paths():
            assert filecmp.cmp(root / path, clean.archive / path, shallow=False)


def test_a_growing_file_is_archived_anew_and_counts_once(store: Path, clean: Archived, tmp_path: Path):
    grown = tmp_path / "store"
    shutil.copytree(store, grown)
    last = max((grown / "commitlog").iterdir())
    whole = last.read_bytes()
    offsets = [offset for offset, _ in walk_frames(grown) if offset >= int(last.name)]
    cut = offsets[len(offsets) // 2] - int(last.name)
    last.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
    archive.run(None, grown, tmp_path / "archive", include_active=True)
    assert len(clean.records) > len(
        ArchiveReader(tmp_path / "archive", BROKER).search("orders", "k0", count=10_000).commit_log_offsets
    )
    last.write_bytes(whole)

    archive.run(None, grown, tmp_path / "archive", include_active=True)

    assert files_of(clean.archive) == files_of(tmp_path / "archive")


def test_a_dry_run_writes_nothing_and_says_as_much(store: Path, clean: Archived, tmp_path: Path):
    report = archive.run(None, store, tmp_path / "archive", include_active=True, dry_run=True)

    assert len(clean.records) == report.counts["record_count"]
    assert report.is_dry_run
    assert not (tmp_path / "archive").exists()


def test_a_damaged_log_file_stays_out_and_the_report_names_the_byte(store: Path, tmp_path: Path):
    damaged = tmp_path / "store"
    shutil.copytree(store, damaged)
    offset = next(offset for offset, _ in walk_frames(store) if offset > 100_000)
    path = damaged / "commitlog" / f"{offset // 65536 * 65536:020d}"
    patch(path, offset % 65536 + 4, b"\0\0\0\0")

    report = archive.run(None, damaged, tmp_path / "archive")

    (finding,) = report.findings
    assert ("log_file_not_archived", int(path.name)) == (finding["kind"], finding["commit_log_offset"])
    assert str(path) in finding["what"]
    assert str(offset) in finding["what"]
    assert any("not in the archive" in note for note in report.notes)
    assert isinstance(ArchiveReader(tmp_path / "archive", BROKER).problem(), StoreCorruptedError)


def test_a_record_with_a_wrong_crc_is_kept_as_it_is_and_told(store: Path, tmp_path: Path):
    damaged = tmp_path / "store"
    shutil.copytree(store, damaged)
    offset, frame = next((o, f) for o, f in walk_frames(store) if o > 70_000 and len(f) > 300)
    patch(damaged / "commitlog" / f"{offset // 65536 * 65536:020d}", offset % 65536 + 100, bytes([frame[100] ^ 1]))

    report = archive.run(None, damaged, tmp_path / "archive")

    assert [("record_damaged", offset)] == [(f["kind"], f["commit_log_offset"]) for f in report.findings]
    restore.run(None, tmp_path / "archive", tmp_path / "out", to_offset=65536, layout=SMALL_LAYOUT)
    assert_same_log(damaged, tmp_path / "out", 1)


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_another_log_under_the_same_name_is_refused(clean: Archived, tmp_path: Path):
    other = write_log(tmp_path / "other", [message(n, topic="other") for n in range(1000)])

    with pytest.raises(UnsupportedStoreError, match="another log"):
        archive.run(None, other, clean.archive)


def test_two_shards_share_an_archive(store: Path, clean: Archived, tmp_path: Path):
    other = write_log(tmp_path / "other", [message(n, topic="other", keys="k") for n in range(500)])
    root = tmp_path / "archive"
    archive.run(None, store, root, include_active=True)
    archive.run(None, other, root, broker_name="broker/b", include_active=True)
    archive.run(None, store, root, include_active=True)

    assert 500 == len(ArchiveReader(root, "broker/b").search("other", "k", count=1000).commit_log_offsets)
    assert not ArchiveReader(root, BROKER).search("other", "k").commit_log_offsets
    assert clean.keyed("orders", "k0") == list(
        ArchiveReader(root, BROKER).search("orders", "k0", count=1000).commit_log_offsets
    )


def test_what_is_no_store_or_no_archive_is_refused(store: Path, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    with pytest.raises(UnsupportedStoreError, match="has no commitlog"):
        archive.run(None, tmp_path, tmp_path / "archive")
    with pytest.raises(UnsupportedStoreError, match="not an archive"):
        archive.run(None, store, tmp_path / "full")


def test_two_runs_at_once_are_refused(store: Path, clean: Archived, monkeypatch: pytest.MonkeyPatch):
    held = OwnerLock(clean.archive / "lock")
    held.acquire()
    monkeypatch.setattr("store.files.locks.LOCK_WAIT_SECONDS", 0)
    monkeypatch.setattr(OwnerLock.__init__, "__kwdefaults__", {"wait_seconds": 0.0})
    try:
        with pytest.raises(StoreLockedError):
            archive.run(None, store, clean.archive)
    finally:
        held.release()


# -- restore


def assert_same_log(store: Path, out: Path, file_count: int | None = None) -> None:
    names = sorted(path.name for path in (store / "commitlog").iterdir())[:file_count]
    assert names == sorted(path.name for path in (out / "commitlog").iterdir())
    for name in names:
        assert filecmp.cmp(store / "commitlog" / name, out / "commitlog" / name, shallow=False), name


@pytest.mark.parametrize("name", STORE_NAMES)
def test_a_fixture_comes_back_byte_by_byte(name: str, request: pytest.FixtureRequest, tmp_path: Path):
    fixture: Path = request.getfixturevalue(f"{name}_store")
    archived(fixture, tmp_path / "archive")

    restore.run(None, tmp_path / "archive", tmp_path / "out", layout=SMALL_LAYOUT)

    assert_same_log(fixture, tmp_path / "out")
    topics = fixture / "config" / "topics.json"
    folders = {"commitlog", "consumequeue", "index", *(["config"] if topics.exists() else [])}
    assert folders == {path.name for path in (tmp_path / "out").iterdir()}
    if topics.exists():
        assert (tmp_path / "out/config/topics.json").read_bytes() == topics.read_bytes()


def test_what_stands_behind_the_last_record_comes_back_too(tmp_path: Path):
    made = write_log(tmp_path / "store", [message(n) for n in range(700)])
    first, last = min((made / "commitlog").iterdir()), max((made / "commitlog").iterdir())
    end = max(o + len(f) for o, f in walk_frames(made) if o < int(first.name) + 65536) - int(first.name)
    patch(first, end + 8, random.Random(1).randbytes(65536 - end - 8))  # behind a blank anything may stand
    end = max(offset + len(frame) for offset, frame in walk_frames(made)) - int(last.name)
    patch(last, end, b"a torn write of no sense")
    archive.run(None, made, tmp_path / "archive", include_active=True)

    restore.run(None, tmp_path / "archive", tmp_path / "out", layout=SMALL_LAYOUT)

    assert_same_log(made, tmp_path / "out")


def test_a_part_comes_back_in_whole_files(store: Path, clean: Archived, tmp_path: Path):
    report = restore.run(
        None, clean.archive, tmp_path / "out", from_offset=70_000, to_offset=131_073, layout=SMALL_LAYOUT
    )
    assert ["00000000000000065536", "00000000000000131072"] == sorted(os.listdir(tmp_path / "out" / "commitlog"))
    assert 2 == report.counts["log_file_count"]

    wanted = clean.records[1500].store_time_millis
    restore.run(None, clean.archive, tmp_path / "timed", from_millis=wanted, to_millis=wanted, layout=SMALL_LAYOUT)
    (name,) = os.listdir(tmp_path / "timed" / "commitlog")
    assert int(name) == clean.records[1500].commit_log_offset // 65536 * 65536

    with pytest.raises(OffsetOutOfRangeError):
        restore.run(None, clean.archive, tmp_path / "none", from_offset=1 << 40)
    with pytest.raises(InvalidArgumentError):
        restore.run(None, clean.archive, tmp_path / "out")
    dry = restore.run(None, clean.archive, tmp_path / "dry", dry_run=True)
    assert (len(clean.records), False) == (dry.counts["record_count"], (tmp_path / "dry").exists())


def test_a_hole_or_damage_in_the_archive_stops_a_restore_and_is_named(clean: Archived, tmp_path: Path):
    root = tmp_path / "archive"
    shutil.copytree(clean.archive, root)
    manifests = sorted((root / "segments" / BROKER).iterdir())
    segment = json.loads(manifests[0].read_text())["segment"]
    parquet = root / max(segment["files"], key=lambda file: file["size_bytes"])["path"]
    patch(parquet, parquet.stat().st_size // 3, b"damage")
    with pytest.raises(StoreCorruptedError) as caught:
        restore.run(None, root, tmp_path / "out", layout=SMALL_LAYOUT)
    assert str(parquet) in caught.value.message
    assert not (tmp_path / "out").exists()

    manifests[2].unlink()
    with pytest.raises(StoreCorruptedError, match="from 131072 to 196608"):
        restore.run(None, root, tmp_path / "out", layout=SMALL_LAYOUT)


# -- topics

TABLE = b'{"dataVersion":{"counter":3},"topicConfigTable":{"orders":{"writeQueueNums":9,"perm":4,"\xe6\x94\xaf":1}}}'


def with_topics(store: Path, root: Path, table: bytes) -> Path:
    """The log of a store, and a topic table."""
    (root / "config").mkdir(parents=True)
    (root / "commitlog").symlink_to(store / "commitlog")
    (root / "config/topics.json").write_bytes(table)
    return root


def test_the_newest_topic_table_comes_back_as_it_was(store: Path, tmp_path: Path):
    made = with_topics(store, tmp_path / "store", b"{}")
    archive.run(None, made, tmp_path / "archive")
    (made / "config/topics.json").write_bytes(TABLE)
    report = archive.run(None, made, tmp_path / "archive")

    restore.run(None, tmp_path / "archive", tmp_path / "out", to_offset=65536, layout=SMALL_LAYOUT)

    assert (tmp_path / "out/config/topics.json").read_bytes() == TABLE
    assert report.counts["topic_count"] == 1
    assert archive_verify.run(None, tmp_path / "archive").findings == []


def test_an_archive_without_a_topic_table_is_restored_without_one(clean: Archived, tmp_path: Path):
    report = restore.run(None, clean.archive, tmp_path / "out", to_offset=65536, layout=SMALL_LAYOUT)

    assert not (tmp_path / "out/config").exists()
    assert any("no topic table" in note for note in report.notes)


@pytest.mark.parametrize("table", [b"", b"[]", b"{\xff}", TABLE[:-9]])
def test_a_store_whose_topic_table_is_damaged_says_so_and_the_archive_keeps_its_own(
    store: Path, tmp_path: Path, table: bytes
):
    made = with_topics(store, tmp_path / "store", TABLE)
    archive.run(None, made, tmp_path / "archive")
    before = files_of(tmp_path / "archive")
    (made / "config/topics.json").write_bytes(table)

    report = archive.run(None, made, tmp_path / "archive")

    assert [finding["kind"] for finding in report.findings] == ["topics_not_archived"]
    assert files_of(tmp_path / "archive") == before


def test_a_damaged_topic_table_in_the_archive_is_named(store: Path, tmp_path: Path):
    archive.run(None, with_topics(store, tmp_path / "store", TABLE), tmp_path / "archive")
    kept = tmp_path / "archive" / "segments" / BROKER / "topics.json"
    kept.write_bytes(kept.read_bytes().replace(b"orders", b"orderz"))

    verified = archive_verify.run(None, tmp_path / "archive")

    assert [(finding["kind"], finding["file"]) for finding in verified.findings] == [("topics_damaged", str(kept))]
    with pytest.raises(StoreCorruptedError, match=r"topics\.json of the archive is damaged"):
        restore.run(None, tmp_path / "archive", tmp_path / "out", layout=SMALL_LAYOUT)
    assert not (tmp_path / "out").exists()


def test_a_report_is_json(store: Path, tmp_path: Path):
    report: JobReport = archive.run(None, store, tmp_path / "archive")
    assert "archive" == json.loads(report.to_json())["job"]
