"""Archive, verify, query and restore with inputs in an object store do what they do with directories.

The object store is moto's S3 in a process of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.archive import archive as archive_job
from pipeline.archive import restore as restore_job
from pipeline.archive import verify as verify_job
from pipeline.archive.query import UnionReader
from store.errors import InvalidArgumentError, RecordNotFoundError, StoreCorruptedError, UnsupportedStoreError
from store.format.message_id import encode_offset_msg_id
from store.format.record import Record
from tests.support.archives import BROKER, archived
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store

STORES = ["broker_store", "engine_crc_store"]


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("stores")
        yield store


def bytes_below(root: Path, *, without: str = "lock") -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != without)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("store", STORES)
def test_a_store_behind_a_uri_gives_the_same_archive(
    store: str, object_store: ObjectStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root: Path = request.getfixturevalue(store)
    uri = object_store.upload(root, f"stores/{store}")

    here = archive_job.run(None, root, tmp_path / "here", include_active=True)
    there = archive_job.run(None, uri, tmp_path / "there", include_active=True)
    again = archive_job.run(None, uri, tmp_path / "there")

    assert bytes_below(tmp_path / "there") == bytes_below(tmp_path / "here")
    assert there.counts == here.counts
    assert again.counts["log_file_count"] == here.counts["log_file_count"]


@pytest.mark.parametrize("store", STORES)
def test_an_archive_behind_a_uri_is_verified_and_restored(
    store: str, object_store: ObjectStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made = archived(request.getfixturevalue(store), tmp_path / "archive")
    uri = object_store.upload(made.archive, f"stores/archive-{store}")

    report = verify_job.run(None, uri, broker_name=BROKER)
    restore_job.run(None, uri, tmp_path / "there", broker_name=BROKER)
    restore_job.run(None, made.archive, tmp_path / "here", broker_name=BROKER)

    assert (report.findings, report.counts["record_count"]) == ([], len(made.records))
    assert bytes_below(tmp_path / "there/commitlog") == bytes_below(tmp_path / "here/commitlog")
    assert bytes_below(tmp_path / "there/consumequeue") == bytes_below(tmp_path / "here/consumequeue")


def test_damage_of_an_archive_behind_a_uri_is_named(
    object_store: ObjectStore, broker_store: Path, tmp_path: Path
) -> None:
    made = archived(broker_store, tmp_path / "archive")
    victim = max(made.archive.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 255
    victim.write_bytes(data)
    uri = object_store.upload(made.archive, "stores/damaged")

    report = verify_job.run(None, uri, broker_name=BROKER)

    assert any(victim.name in str(finding["file"]) for finding in report.findings)
    with pytest.raises(StoreCorruptedError, match=victim.name):
        restore_job.run(None, uri, tmp_path / "out", broker_name=BROKER)
    assert not (tmp_path / "out").exists()


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


def test_what_cannot_be_read_or_written_is_said(object_store: ObjectStore, broker_store: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="an archive is written to a directory"):
        archive_job.run(None, broker_store, object_store.uri("stores/new"))
    with pytest.raises(InvalidArgumentError, match="bucket 'nobodys' does not exist"):
        archive_job.run(None, object_store.uri("nobodys/store"), tmp_path / "archive")
    with pytest.raises(UnsupportedStoreError, match="is not an archive"):
        verify_job.run(None, object_store.uri("stores/nothing"), broker_name=BROKER)
