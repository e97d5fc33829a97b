"""Backups in an object store: the same objects as in a directory; of two runs at once the earlier one ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.backup.places import RUNNING_NAME, DirectoryPlace, alone, open_place, read_backups
from cli.backup.restoring import restore_store
from cli.backup.taking import take_backup, verify_backups
from pipeline.object_root import ObjectRoot
from store.errors import InvalidArgumentError, PermissionDeniedError, StoreLockedError
from tests.cli.backup.made import BROKER, log_bytes, log_end, stopped_store
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store() as running:
        running.fs.create_dir("backups")
        yield running


@pytest.fixture
def place(server: ObjectStore) -> ObjectRoot:
    found = open_place(server.uri("backups/prod"), BROKER, "to")
    assert isinstance(found, ObjectRoot)
    return found


def test_a_store_goes_into_an_object_store_and_comes_back(tmp_path: Path, place: ObjectRoot) -> None:
    store = stopped_store(tmp_path / "store")
    beside = DirectoryPlace(tmp_path / "beside")
    take_backup(store, place, BROKER, clock=lambda: 1.0)
    take_backup(store, beside, BROKER, clock=lambda: 1.0)
    again = take_backup(store, place, BROKER, clock=lambda: 2.0)
    assert again.counts["copied_bytes"] == 0
    assert place.sizes("log") == beside.sizes("log")
    assert verify_backups(place).findings == []
    restore_store(place, tmp_path / "out", log_only=True)
    assert log_bytes(tmp_path / "out") == log_bytes(store)
    assert RUNNING_NAME not in place.sizes()


def test_a_refused_upload_leaves_no_backup_and_the_next_run_makes_one(
    tmp_path: Path, server: ObjectStore, place: ObjectRoot
) -> None:
    store = stopped_store(tmp_path / "store")
    server.tell("refuse", "/log/", 2)
    with pytest.raises(PermissionDeniedError):
        take_backup(store, place, BROKER)
    assert read_backups(place) == ([], [])
    take_backup(store, place, BROKER)
    assert verify_backups(place).findings == []
    assert [backup.end_offset for backup in read_backups(place)[0]] == [log_end(store)]


def test_a_missing_and_a_truncated_object_are_found(tmp_path: Path, place: ObjectRoot) -> None:
    store = stopped_store(tmp_path / "store")
    take_backup(store, place, BROKER)
    pieces = read_backups(place)[0][0].pieces
    place.delete(pieces[1].name)
    place.put_bytes(pieces[2].name, b"x")
    assert [row["object"] for row in verify_backups(place).findings] == [pieces[1].name, pieces[2].name]
    take_backup(store, place, BROKER)
    assert verify_backups(place).findings == []


def test_of_two_runs_at_once_the_earlier_one_ends(place: ObjectRoot) -> None:
    with pytest.raises(StoreLockedError, match="another backup"), alone(place) as refuse_other_run:
        refuse_other_run()
        with alone(place) as refuse_later:
            refuse_later()
            with pytest.raises(StoreLockedError, match="another backup"):
                refuse_other_run()


def test_a_bucket_that_does_not_exist_is_no_empty_place(tmp_path: Path, server: ObjectStore) -> None:
    place = open_place(server.uri("nowhere/prod"), BROKER, "to")
    for run in (lambda: read_backups(place), lambda: take_backup(stopped_store(tmp_path / "store"), place, BROKER)):
        with pytest.raises(InvalidArgumentError, match="nowhere"):
            run()
