"""Archive, verify, query and restore with inputs and outputs in an object store do what they do with directories.

The object store is moto's S3 in a process of its own.
"""

import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.archive import archive as archive_job
from pipeline.archive import restore as restore_job
from pipeline.archive import verify as verify_job
from pipeline.archive.query import UnionReader
from pipeline.archive.restore import restore_to_objects
from pipeline.job import JobReport, run_here
from pipeline.object_files import open_root
from pipeline.object_root import ObjectRoot
from pipeline.rebuild import shuffle
from pipeline.rebuild.out import StoreLayout
from pipeline.scan.log_files import list_log_files
from store.archive.manifest import may_publish, read_segment, segment_offsets
from store.archive.topic_table import read_topic_table
from store.audit.findings import Findings
from store.audit.log_audit import LogFiles
from store.errors import (
    InvalidArgumentError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreLockedError,
    UnsupportedStoreError,
)
from store.files.file_system import FileSystem, RealFileSystem
from store.format.message_id import encode_offset_msg_id
from store.format.record import Record
from store.readers.index_reader import IndexLayout
from tests.pipeline.rebuild.rebuilding import assert_same_store
from tests.pipeline.rebuild.shuffling import FakeSpark
from tests.support.archives import BROKER, Archived, archived, message, write_log
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store

LAYOUT = StoreLayout(4000, IndexLayout(500, 1000))
STORES = ["broker_store", "engine_crc_store"]


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("stores")
        yield store


@pytest.fixture(scope="module")
def archive_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Archived]:
    """The archive of a store, made once and not to be written to."""
    return functools.cache(lambda store: archived(store, tmp_path_factory.mktemp("made") / "archive"))


@pytest.fixture(scope="module")
def restored_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """What a directory has after a restore of an archive, made once and not to be written to."""

    def restore(archive: Path) -> Path:
        target = tmp_path_factory.mktemp("restored") / "store"
        restore_job.run(None, archive, target, broker_name=BROKER, layout=LAYOUT)
        return target

    return functools.cache(restore)


@pytest.fixture(scope="module")
def uri_of(object_store: ObjectStore) -> Callable[[Path], str]:
    """Where the files of a directory are objects, put there once and not to be written to."""
    numbers = itertools.count()
    return functools.cache(lambda root: object_store.upload(root, f"stores/uploaded-{next(numbers)}"))


def bytes_below(root: Path, *, without: str = "lock") -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != without)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("store", STORES)
def test_a_store_behind_a_uri_gives_the_same_archive(
    store: str, uri_of: Callable[[Path], str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root: Path = request.getfixturevalue(store)
    uri = uri_of(root)

    here = archive_job.run(None, root, tmp_path / "here", include_active=True)
    there = archive_job.run(None, uri, tmp_path / "there", include_active=True)
    again = archive_job.run(None, uri, tmp_path / "there")

    assert bytes_below(tmp_path / "there") == bytes_below(tmp_path / "here")
    assert there.counts == here.counts
    assert again.counts["log_file_count"] == here.counts["log_file_count"]


@pytest.mark.parametrize("store", STORES)
def test_an_archive_behind_a_uri_is_verified_and_restored(
    store: str,
    archive_of: Callable[[Path], Archived],
    uri_of: Callable[[Path], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    made = archive_of(request.getfixturevalue(store))
    uri = uri_of(made.archive)

    report = verify_job.run(None, uri, broker_name=BROKER)
    restore_job.run(None, uri, tmp_path / "there", broker_name=BROKER)
    restore_job.run(None, made.archive, tmp_path / "here", broker_name=BROKER)

    assert (report.findings, report.counts["record_count"]) == ([], len(made.records))
    assert bytes_below(tmp_path / "there/commitlog") == bytes_below(tmp_path / "here/commitlog")
    assert bytes_below(tmp_path / "there/consumequeue") == bytes_below(tmp_path / "here/consumequeue")


def test_a_point_lookup_by_key_takes_a_bounded_number_of_requests(object_store: ObjectStore, tmp_path: Path) -> None:
    """Counted by the server. The figures of docs/tables.md; each request waits for the one before.

    The least of three readers counts: a client sends a request again that was not answered in time.
    """
    for message_count in (500, 1500):
        messages = [message(n, keys=f"k{n}") for n in range(message_count)]
        made = archived(write_log(tmp_path / f"{message_count}", messages), tmp_path / f"archive-{message_count}")
        uri = object_store.upload(made.archive, f"stores/lookups-{message_count}")
        segment_count = len(list((made.archive / "segments" / BROKER).glob("0*.json")))
        tries = [requests_of_lookups(object_store, uri, (message_count - 1, 0, 1)) for _ in range(3)]
        opened, newest, oldest, beside_it = (min(each) for each in zip(*tries, strict=True))
        assert opened == (7 + 2 * segment_count, 0)
        assert newest == (10 + 2 * segment_count, 7), "the first one opens all indexes"
        assert oldest == (10, 7), "a row group of another file"
        assert beside_it == (7, 7)


def requests_of_lookups(object_store: ObjectStore, uri: str, numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """Requests until an archive is open, and of each message's key: at any time, and in the millisecond of the message."""
    object_store.request_count()
    reader = UnionReader(uri, None, broker_name=BROKER)
    counts = [(object_store.request_count(), 0)]
    for number in numbers:
        (found,) = reader.by_key("orders", f"k{number}").messages
        at_any_time = object_store.request_count()
        millis = found.record.store_time_millis
        again = reader.by_key("orders", f"k{number}", begin_millis=millis, end_millis=millis)
        assert [each.record.keys for each in again.messages] == [(f"k{number}",)]
        counts.append((at_any_time, object_store.request_count()))
    return counts


def restore_there(archive: str, uri: str) -> None:
    """A restore into an object store, task by task in this process."""
    fs, root = open_root(archive, "archive")
    restore_to_objects(
        ObjectRoot(uri), archive, BROKER, segment_offsets(fs, root, BROKER), read_topic_table(fs, root, BROKER),
        run_tasks=run_here(), make_all=functools.partial(shuffle.make_all, FakeSpark()), layout=LAYOUT,
        report=JobReport.begin("restore"),
    )  # fmt: skip


@pytest.mark.parametrize("store", STORES)
def test_a_restore_to_a_uri_makes_the_objects_that_are_files_in_a_directory(
    store: str,
    archive_of: Callable[[Path], Archived],
    restored_of: Callable[[Path], Path],
    uri_of: Callable[[Path], str],
    object_store: ObjectStore,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    made = archive_of(request.getfixturevalue(store))
    here = restored_of(made.archive)

    restore_there(uri_of(made.archive), object_store.uri(f"stores/back-{store}"))

    down = object_store.download(f"stores/back-{store}", tmp_path / "down")
    manifest = json.loads((down / "restore.json").read_bytes())
    (down / "restore.json").unlink()
    assert {file["path"] for file in manifest["files"]} == set(bytes_below(down))
    assert_same_store(down, here)
    assert bytes_below(down / "commitlog") == bytes_below(here / "commitlog")
    assert bytes_below(down / "config") == bytes_below(here / "config")
    assert list_log_files(*open_root(object_store.uri(f"stores/back-{store}")))
    with pytest.raises(InvalidArgumentError, match="holds a finished restore"):
        restore_job.run(None, made.archive, object_store.uri(f"stores/back-{store}"), broker_name=BROKER)


def test_a_restore_to_a_uri_that_fails_anywhere_is_no_store_until_it_is_run_again(
    archive_of: Callable[[Path], Archived],
    restored_of: Callable[[Path], Path],
    object_store: ObjectStore,
    broker_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = archive_of(broker_store)
    here = restored_of(made.archive)
    uri, path, put_file, left = object_store.uri("stores/half"), "stores/half", ObjectRoot.put_file, [0]

    def fail(self: ObjectRoot, name: str, file: Path) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise ServiceUnavailableError("the network is gone", service="s3")
        return put_file(self, name, file)

    monkeypatch.setattr(ObjectRoot, "put_file", fail)
    for left[0] in (0, 1, 3, 8):
        with pytest.raises(ServiceUnavailableError):
            restore_there(str(made.archive), uri)
        for read in (list_log_files, refuse_unread):
            with pytest.raises(UnsupportedStoreError, match="s3://stores/half is a restore that is not complete"):
                read(*open_root(uri))
    ObjectRoot(uri).put_bytes("consumequeue/old/0/00000000000000000000", b"of a killed run")
    # Killed between its last two requests: both marks are there.
    ObjectRoot(uri).put_bytes("restore.json", b"{}")
    left[0] = 10_000

    restore_there(str(made.archive), uri)

    assert_same_store(object_store.download(path, tmp_path / "down"), here)
    assert not (tmp_path / "down/commitlog/restore.begun.json").exists()
    assert not (tmp_path / "down/consumequeue/old").exists()


def refuse_unread(fs: FileSystem, root: Path) -> None:
    LogFiles(fs, root, Findings(root)).close()


def test_a_restore_to_a_uri_that_another_has_taken_over_from_ends(
    archive_of: Callable[[Path], Archived],
    object_store: ObjectStore,
    broker_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = archive_of(broker_store)
    put_file = ObjectRoot.put_file

    def take_over(self: ObjectRoot, name: str, file: Path) -> int:
        size_bytes = put_file(self, name, file)
        self.put_bytes("commitlog/restore.begun.json", b'{"run": "another"}')
        return size_bytes

    monkeypatch.setattr(ObjectRoot, "put_file", take_over)
    with pytest.raises(StoreLockedError, match="another restore to s3://stores/lost has begun since"):
        restore_there(str(made.archive), object_store.uri("stores/lost"))
    assert "restore.json" not in object_store.sizes("stores/lost")
    object_store.upload(broker_store / "config", "stores/other")
    with pytest.raises(InvalidArgumentError, match="holds other data"):
        restore_there(str(made.archive), object_store.uri("stores/other"))


def test_damage_of_an_archive_behind_a_uri_is_named(
    archive_of: Callable[[Path], Archived], object_store: ObjectStore, broker_store: Path, tmp_path: Path
) -> None:
    archive = Path(shutil.copytree(archive_of(broker_store).archive, tmp_path / "archive"))
    victim = max(archive.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 255
    victim.write_bytes(data)
    uri = object_store.upload(archive, "stores/damaged")

    report = verify_job.run(None, uri, broker_name=BROKER)

    assert any(victim.name in str(finding["file"]) for finding in report.findings)
    with pytest.raises(StoreCorruptedError, match=victim.name):
        restore_job.run(None, uri, tmp_path / "out", broker_name=BROKER)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("where", ["archive alone", "store behind the archive", "store alone of the log"])
def test_queries_over_uris_find_what_brute_force_finds(
    where: str, object_store: ObjectStore, broker_store: Path, tmp_path: Path
) -> None:
    made = archived(broker_store, tmp_path / "archive")
    if where == "store behind the archive":
        archive_job.run(None, broker_store, tmp_path / "sealed")
    archive = tmp_path / ("sealed" if where == "store behind the archive" else "archive")
    prefix = f"stores/{where.replace(' ', '-')}"
    archive_uri = object_store.upload(archive, f"{prefix}/archive")
    store_uri = object_store.upload(broker_store, f"{prefix}/store") if where != "archive alone" else None
    union = UnionReader(archive_uri, store_uri)

    chosen = made.records[:: max(len(made.records) // 12, 1)]
    for record in chosen:
        assert union.by_id(encode_offset_msg_id(record.store_host, record.commit_log_offset)).record == record
        for key in record.keys[:1]:
            expected = [r.commit_log_offset for r in made.records if r.topic == record.topic and key in r.keys]
            answer = union.by_key(record.topic, key, count=len(expected) + 1)
            assert [f.record.commit_log_offset for f in answer.messages] == sorted(expected, reverse=True)
    ends: list[Record] = [made.records[-1]]
    behind = ends[0].commit_log_offset + ends[0].store_size_bytes + 4096 * 1024 * 1024
    with pytest.raises(RecordNotFoundError):
        union.by_id(encode_offset_msg_id(ends[0].store_host, behind))


@pytest.mark.parametrize("store", STORES)
def test_an_archive_written_to_a_uri_has_the_bytes_of_one_in_a_directory(
    store: str,
    uri_of: Callable[[Path], str],
    object_store: ObjectStore,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    root: Path = request.getfixturevalue(store)
    uri = object_store.uri(f"stores/written-{store}")

    here = archive_job.run(None, root, tmp_path / "here", include_active=True)
    there = archive_job.run(None, uri_of(root), uri, include_active=True)

    down = object_store.download(f"stores/written-{store}", tmp_path / "down")
    (down / f"segments/{BROKER}/run.json").unlink()
    assert bytes_below(down) == bytes_below(tmp_path / "here")
    assert there.counts == here.counts
    assert there.outputs == {"archive": f"s3://stores/written-{store}"}
    assert verify_job.run(None, uri, broker_name=BROKER).findings == []


def test_a_second_run_to_a_uri_adds_nothing_and_keeps_what_other_shards_have(
    object_store: ObjectStore, broker_store: Path, engine_crc_store: Path
) -> None:
    uri = object_store.uri("stores/shared")
    archive_job.run(None, broker_store, uri, broker_name="a", include_active=True)
    archive_job.run(None, engine_crc_store, uri, broker_name="a-b", include_active=True)
    before = object_store.sizes("stores/shared")

    again = archive_job.run(None, broker_store, uri, broker_name="a", include_active=True)

    assert again.counts["leftover_file_count"] == 0
    assert object_store.sizes("stores/shared") == before
    assert verify_job.run(None, uri, broker_name="a-b").findings == []
    with pytest.raises(UnsupportedStoreError, match="holds another log under the name 'a'"):
        archive_job.run(None, engine_crc_store, uri, broker_name="a")


def test_a_run_to_a_uri_that_fails_anywhere_leaves_whole_segments_and_the_next_one_completes_it(
    archive_of: Callable[[Path], Archived],
    object_store: ObjectStore,
    broker_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = archive_of(broker_store).archive
    uri = object_store.uri("stores/failing")
    root, put_file, left = ObjectRoot(uri), ObjectRoot.put_file, [0]

    def fail(self: ObjectRoot, name: str, file: Path) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise ServiceUnavailableError("the network is gone", service="s3")
        return put_file(self, name, file)

    monkeypatch.setattr(ObjectRoot, "put_file", fail)
    count = len([name for name in bytes_below(here) if not name.endswith(".json")])
    for left[0] in (0, 1, count // 2):
        with pytest.raises(ServiceUnavailableError):
            archive_job.run(None, broker_store, uri, include_active=True)
        found = verify_job.run(None, uri, broker_name=BROKER)
        assert [finding["kind"] for finding in found.findings] == []
    root.put_bytes(f"keys/{BROKER}/{0:020d}-{1:020d}.idx", b"of a killed run")
    left[0] = count

    report = archive_job.run(None, broker_store, uri, include_active=True)

    assert report.counts["leftover_file_count"] == 1
    down = object_store.download("stores/failing", tmp_path / "down")
    (down / f"segments/{BROKER}/run.json").unlink()
    assert bytes_below(down) == bytes_below(here)


def test_a_run_to_a_uri_that_another_has_taken_over_from_publishes_nothing_more(
    object_store: ObjectStore, broker_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_file = ObjectRoot.put_file

    def take_over(self: ObjectRoot, name: str, file: Path) -> int:
        size_bytes = put_file(self, name, file)
        self.put_bytes(f"segments/{BROKER}/run.json", b'{"run": "another"}')
        return size_bytes

    monkeypatch.setattr(ObjectRoot, "put_file", take_over)
    with pytest.raises(StoreLockedError, match="another archive run to s3://stores/taken has begun since"):
        archive_job.run(None, broker_store, object_store.uri("stores/taken"), include_active=True)
    assert [name for name in object_store.sizes("stores/taken") if name.startswith("segments/")] == [
        f"segments/{BROKER}/run.json"
    ]


def test_a_slow_attempt_does_not_take_records_of_a_growing_file_back(
    archive_of: Callable[[Path], Archived], broker_store: Path
) -> None:
    fs, root = RealFileSystem(), archive_of(broker_store).archive
    newest = read_segment(fs, root, BROKER, segment_offsets(fs, root, BROKER)[-1])

    assert may_publish(fs, root, newest)
    assert may_publish(fs, root, replace(newest, is_sealed=True))
    assert not may_publish(fs, root, replace(newest, records_end_offset=newest.records_end_offset - 1))


def test_a_file_uri_is_the_directory(broker_store: Path, tmp_path: Path) -> None:
    report = archive_job.run(None, broker_store, (tmp_path / "archive").as_uri(), include_active=True)

    assert report.outputs == {"archive": str(tmp_path / "archive")}
    assert (tmp_path / "archive/lock").exists(), "a directory is locked, not taken over"


def test_what_cannot_be_read_or_written_is_said(object_store: ObjectStore, broker_store: Path, tmp_path: Path) -> None:
    object_store.upload(broker_store / "config", "stores/no-archive")
    with pytest.raises(UnsupportedStoreError, match="holds files and is not an archive"):
        archive_job.run(None, broker_store, object_store.uri("stores/no-archive"))
    with pytest.raises(InvalidArgumentError, match="bucket 'nobodys' does not exist") as caught:
        archive_job.run(None, broker_store, object_store.uri("nobodys/archive"))
    assert caught.value.metadata["field"] == "archive"
    with pytest.raises(InvalidArgumentError, match="bucket 'nobodys' does not exist") as caught:
        archive_job.run(None, object_store.uri("nobodys/store"), tmp_path / "archive")
    assert caught.value.metadata["field"] == "store"
    with pytest.raises(UnsupportedStoreError, match="is not an archive"):
        verify_job.run(None, object_store.uri("stores/nothing"), broker_name=BROKER)
    from pipeline.archive.view import read_archive  # takes PySpark

    with pytest.raises(InvalidArgumentError, match="Spark reads the archive's Parquet files from a directory"):
        read_archive(None, object_store.uri("stores/archive"))  # type: ignore[arg-type]
