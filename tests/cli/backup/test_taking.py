"""`reput backup`: whole or not at all, each byte of the log once, and never of another log."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cli.main
from cli.backup.manifest import decode_backup
from cli.backup.places import DirectoryPlace, read_backups
from cli.backup.taking import take_backup, verify_backups
from store.errors import (
    DiskFullError,
    FlushFailedError,
    ServiceUnavailableError,
    StoreLockedError,
    UnsupportedStoreError,
)
from store.files.file_system import RealFileSystem
from store.files.locks import OwnerLock
from tests.cli.backup.made import BROKER, FILE_BYTES, log_end, mark, messages, stopped_store
from tests.commitlog_svc.support import read_tree
from tests.support.archives import make_file_ahead, write_log, written_to
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.fixture_stores import walk_frames


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return stopped_store(tmp_path / "store")


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    return DirectoryPlace(tmp_path / "place")


def content(place: DirectoryPlace) -> dict[str, bytes]:
    """What is kept; without the lock file."""
    return {name: data for name, data in read_tree(place.directory).items() if name != "lock"}


def whole(place: DirectoryPlace) -> list[int]:
    """Where each whole backup ends; all objects of all of them are sound."""
    assert verify_backups(place).findings == []
    return [backup.end_offset for backup in read_backups(place)[0]]


def grow(store: Path, count: int) -> None:
    """The log as it is with so many messages."""
    for path in (store / "commitlog").iterdir():
        path.unlink()
    (store / "commitlog").rmdir()
    write_log(store, messages(count), file_bytes=FILE_BYTES)
    mark(store, log_end(store))


def test_a_log_that_is_written_to_is_backed_up_to_its_mark_and_not_changed(store: Path, place: DirectoryPlace) -> None:
    end = log_end(store)
    make_file_ahead(store, file_bytes=FILE_BYTES)
    with written_to(store, end - 100):
        before = read_tree(store)
        report = take_backup(store, place, BROKER)
        assert read_tree(store) == before
    assert report.counts["end_offset"] == end - 100
    backup = read_backups(place)[0][0]
    data = b"".join(b"".join(place.parts(piece.name)) for piece in backup.pieces)
    assert data == b"".join(log for _, log in sorted(read_tree(store / "commitlog").items()))[: end - 100]


def test_each_byte_of_the_log_is_copied_once(store: Path, place: DirectoryPlace) -> None:
    ends = []
    copied = 0
    for count in (10, 11, 40, 40, 200):
        grow(store, count)
        report = take_backup(store, place, BROKER)
        ends.append(log_end(store))
        copied += report.counts["copied_bytes"]
        assert copied == ends[-1] == report.counts["log_bytes"]
    assert whole(place) == ends
    pieces = [size for name, size in place.sizes("log").items()]
    assert sum(pieces) == ends[-1]


def test_files_beside_the_log_are_kept_and_nothing_else(store: Path, place: DirectoryPlace) -> None:
    wanted = {"config/topics.json": b"{}", "config/any": b"1", "config/a.bak": b"5", "reput/commitlog/epochs.json": b"2",
              "reput/commitlog/snapshot.json": b"3", "reput/commitlog/light-positions.7": b"4"}  # fmt: skip
    others = {"config/a.tmp": b"", "config/sub/x": b"", "checkpoint": b"", "index/1": b"",
              "reput/commitlog/store_id.json": b"", "reput/index/checkpoint.json": b""}  # fmt: skip
    for path, data in {**wanted, **others}.items():
        (store / path).parent.mkdir(parents=True, exist_ok=True)
        (store / path).write_bytes(data)
    take_backup(store, place, BROKER)
    backup = read_backups(place)[0][0]
    assert {file.path: b"".join(place.parts(file.name)) for file in backup.files} == wanted


def test_another_log_is_refused_and_the_place_stays_as_it_was(
    store: Path, place: DirectoryPlace, tmp_path: Path
) -> None:
    take_backup(store, place, BROKER)
    before = content(place)
    for count in (61, 20):
        other = stopped_store(tmp_path / f"other{count}", count=count, first=5)
        with pytest.raises(UnsupportedStoreError, match="another log"):
            take_backup(other, place, BROKER)
    assert content(place) == before


def test_a_log_that_was_restored_to_an_earlier_moment_is_another_log(store: Path, place: DirectoryPlace) -> None:
    take_backup(store, place, BROKER)
    last = max((store / "commitlog").iterdir())
    data = bytearray(last.read_bytes())
    at = data.index(b"U00000059")  # in the last record
    data[at : at + 9] = b"U99999999"
    last.write_bytes(data)
    with pytest.raises(UnsupportedStoreError, match="differ"):
        take_backup(store, place, BROKER)


def test_a_backup_goes_on_behind_what_retention_removed(store: Path, place: DirectoryPlace) -> None:
    take_backup(store, place, BROKER)
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    (store / "commitlog" / names[0]).unlink()
    report = take_backup(store, place, BROKER)
    assert report.counts["begin_offset"] == int(names[1])
    assert report.counts["copied_bytes"] == 0
    assert len(whole(place)) == 2
    assert not report.notes


def test_a_gap_between_backups_is_told(store: Path, place: DirectoryPlace) -> None:
    grow(store, 10)
    take_backup(store, place, BROKER)
    grow(store, 60)
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    for name in names[:2]:
        (store / "commitlog" / name).unlink()
    with pytest.raises(UnsupportedStoreError, match="--allow-gap"):
        take_backup(store, place, BROKER)
    report = take_backup(store, place, BROKER, allow_gap=True)
    assert "is in no backup" in report.notes[0]
    assert len(whole(place)) == 2


class Retiring(RealFileSystem):
    """Retention removes the first log file after the files were listed, before they are copied."""

    def open(self, path: Any, flags: int, mode: int = 0o644) -> int:
        if Path(path).name == f"{0:020d}":
            Path(path).unlink(missing_ok=True)
        return super().open(path, flags, mode)


def test_a_file_that_expires_meanwhile_is_left_out(store: Path, place: DirectoryPlace) -> None:
    report = take_backup(store, place, BROKER, fs=Retiring())
    assert report.counts["begin_offset"] == FILE_BYTES
    assert "retention removed" in report.notes[0]
    assert whole(place) == [log_end(store)]


class KilledError(BaseException):
    """Stands for a kill: nothing handles it."""


class Killing(RealFileSystem):
    """Dies at one of the calls that change something."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _pass(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError

    def pwrite(self, fd: int, data: Any, position: int) -> None:
        if self.left == 0:
            super().pwrite(fd, data[: len(data) // 2], position)
        self._pass()
        super().pwrite(fd, data, position)

    def rename(self, source: Any, target: Any) -> None:
        self._pass()
        super().rename(source, target)

    def unlink(self, path: Any) -> None:
        self._pass()
        super().unlink(path)


def test_a_kill_at_any_step_leaves_whole_backups_and_the_next_run_cleans_up(store: Path, tmp_path: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_bytes(b"{}")
    for at in range(100):
        place = DirectoryPlace(tmp_path / f"place{at}")
        grow(store, 20)
        take_backup(store, place, BROKER, clock=lambda: 1.0)
        first = log_end(store)
        grow(store, 60)
        last = log_end(store)
        try:
            take_backup(store, DirectoryPlace(place.directory, Killing(at)), BROKER, keep=1, clock=lambda: 2.0)
        except KilledError:
            assert whole(place) in ([first], [first, last], [last])
        else:
            assert at >= 8  # each step was killed once
            return
        take_backup(store, place, BROKER, keep=1, clock=lambda: 3.0)
        assert whole(place) == [last]
        backup = read_backups(place)[0][0]
        assert set(content(place)) == {backup.name, *backup.sizes}
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("kind", ["pwrite", "fdatasync", "rename"])
def test_a_full_or_broken_disk_leaves_the_backups_as_they_were(store: Path, tmp_path: Path, kind: str) -> None:
    fs = FaultyFileSystem()
    place = DirectoryPlace(tmp_path / "place", fs)
    grow(store, 20)
    take_backup(store, place, BROKER)
    end = log_end(store)
    grow(store, 60)
    fs.fail(kind, errno.ENOSPC, lasting=True)
    with pytest.raises((DiskFullError, FlushFailedError, OSError)):
        take_backup(store, place, BROKER)
    fs.clear()
    assert whole(place) == [end]
    take_backup(store, place, BROKER)
    assert whole(place) == [end, log_end(store)]


def test_a_store_that_is_none_left_a_lock_at_the_place(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError):
        take_backup(tmp_path / "mistyped", DirectoryPlace(tmp_path / "to" / "broker-a"), "broker-a")
    assert list(tmp_path.iterdir()) == []


def test_two_backups_at_once_are_refused(store: Path, place: DirectoryPlace) -> None:
    lock = OwnerLock(place.directory / "lock")
    lock.acquire()
    try:
        with pytest.raises(StoreLockedError):
            take_backup(store, place, BROKER)
    finally:
        lock.release()
    take_backup(store, place, BROKER)


def test_old_backups_and_what_only_they_need_are_removed(store: Path, place: DirectoryPlace) -> None:
    for count in (10, 20, 30, 40):
        grow(store, count)
        report = take_backup(store, place, BROKER, keep=2)
    assert report.counts["backup_count"] == 2
    assert len(whole(place)) == 2
    backups = read_backups(place)[0]
    assert set(content(place)) == {name for each in backups for name in (each.name, *each.sizes)}
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    take_backup(store, place, BROKER, keep=1)
    assert [each.begin_offset for each in read_backups(place)[0]] == [
        int(min(path.name for path in (store / "commitlog").iterdir()))
    ]
    assert sum(place.sizes("log").values()) == log_end(store) - read_backups(place)[0][0].begin_offset


def test_files_of_others_in_the_folders_of_a_place_were_removed(store: Path, place: DirectoryPlace) -> None:
    """A program of the shard's name may have folders `log` and `files` there, too."""
    grow(store, 10)
    take_backup(store, place, BROKER)
    others = {
        "log/app.log": b"1",
        "log/app.log.tmp": b"2",
        f"log/{0:020d}/notes": b"3",
        "files/photo.jpg": b"4",
        f"files/{'a' * 64}.orig": b"5",
        "backups/draft.tmp": b"6",
    }
    for name, data in others.items():
        (place.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (place.directory / name).write_bytes(data)
    grow(store, 40)
    take_backup(store, place, BROKER, keep=1)
    assert len(whole(place)) == 1
    assert {name: data for name, data in content(place).items() if name in others} == others


def test_what_a_file_system_puts_among_the_manifests_was_a_damaged_backup(store: Path, place: DirectoryPlace) -> None:
    """Then each run had a finding, and no old backup was ever removed."""
    grow(store, 10)
    take_backup(store, place, BROKER)
    for name in (".DS_Store", "@eaDir/SYNO@.fileindexdb", ".nfs000000000000001a00000002", "Thumbs.db"):
        (place.directory / "backups" / name).parent.mkdir(exist_ok=True)
        (place.directory / "backups" / name).write_bytes(b"\0")
    grow(store, 40)
    assert take_backup(store, place, BROKER, keep=1).findings == []
    assert len(whole(place)) == 1


class SmallDisk(RealFileSystem):
    """A disk that takes so many bytes below a directory."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        super().__init__()
        self.directory = directory
        self.size_bytes = size_bytes

    def pwrite(self, fd: int, data: Any, position: int) -> None:
        used = sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())
        room = self.size_bytes - used
        super().pwrite(fd, data[: max(room, 0)], position)
        if room < len(data):
            raise DiskFullError("no space left on the device")


def test_a_copy_for_which_there_was_no_room_kept_the_room_from_the_next_run(store: Path, tmp_path: Path) -> None:
    grow(store, 10)
    place = DirectoryPlace(tmp_path / "place")
    take_backup(store, place, BROKER)
    room = sum(len(data) for data in content(place).values()) + 2000
    small = DirectoryPlace(place.directory, SmallDisk(place.directory, room))
    before = content(place)
    for count in (30, 40):
        grow(store, count)
        with pytest.raises(DiskFullError):
            take_backup(store, small, BROKER)
        assert {name for name in content(place) if name.endswith(".tmp")} == set()
    assert before.items() <= content(place).items()


def test_a_full_disk_of_backups_stayed_full_because_old_ones_were_removed_behind_the_new_one(
    store: Path, tmp_path: Path
) -> None:
    place = DirectoryPlace(tmp_path / "place")
    take_backup(store, place, BROKER)
    grow(store, 120)
    for path in sorted((store / "commitlog").iterdir())[:3]:  # retention; only the first backup has these files then
        path.unlink()
    room = sum(place.sizes().values())
    small = DirectoryPlace(place.directory, SmallDisk(place.directory, room + 20_000))
    take_backup(store, small, BROKER)
    ends = whole(place)
    grow(store, 160)
    for path in sorted((store / "commitlog").iterdir())[:3]:
        path.unlink()
    with pytest.raises(DiskFullError):
        take_backup(store, small, BROKER)
    assert whole(place) == ends
    with pytest.raises(DiskFullError, match="run it again"):
        take_backup(store, small, BROKER, keep=1)
    assert whole(place) == ends[1:]
    assert sum(place.sizes("log").values()) == read_backups(place)[0][0].end_offset - 3 * FILE_BYTES
    take_backup(store, small, BROKER, keep=1)
    assert whole(place) == [log_end(store)]


def test_a_damaged_manifest_is_a_finding_and_nothing_is_removed(store: Path, place: DirectoryPlace) -> None:
    grow(store, 10)
    take_backup(store, place, BROKER)
    grow(store, 20)
    take_backup(store, place, BROKER)
    name = read_backups(place)[0][1].name
    path = place.directory / name
    path.write_bytes(path.read_bytes()[:-5])
    before = content(place)
    report = take_backup(store, place, BROKER, keep=1)
    assert [row["kind"] for row in report.findings] == ["backup_damaged"]
    assert before.items() <= content(place).items()


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [spoil, cut, Path.unlink])
def test_verify_names_each_object_that_is_not_what_its_manifest_says(
    store: Path, place: DirectoryPlace, harm: Callable[[Path], None]
) -> None:
    take_backup(store, place, BROKER)
    backup = read_backups(place)[0][0]
    harm(place.directory / backup.pieces[3].name)
    assert [row["object"] for row in verify_backups(place).findings] == [backup.pieces[3].name]
    assert verify_backups(place).findings[0]["backups"] == [backup.name]


@pytest.mark.parametrize("harm", [cut, Path.unlink])
def test_an_object_that_is_missing_or_short_is_copied_again(
    store: Path, place: DirectoryPlace, harm: Callable[[Path], None]
) -> None:
    take_backup(store, place, BROKER)
    backup = read_backups(place)[0][0]
    harm(place.directory / backup.pieces[3].name)
    report = take_backup(store, place, BROKER)
    assert report.counts["copied_bytes"] == backup.pieces[3].size_bytes
    assert verify_backups(place).findings == []


def test_a_damaged_record_is_a_finding_and_is_backed_up_as_it_is(store: Path, place: DirectoryPlace) -> None:
    path = sorted((store / "commitlog").iterdir())[2]
    data = bytearray(path.read_bytes())
    data[data.index(b"xxxx")] ^= 1
    path.write_bytes(data)
    report = take_backup(store, place, BROKER)
    assert [row["kind"] for row in report.findings] == ["log_damaged"]
    piece = read_backups(place)[0][0].pieces[2]
    assert b"".join(place.parts(piece.name)) == data


def test_records_behind_the_mark_of_a_stopped_store_are_a_finding(store: Path, place: DirectoryPlace) -> None:
    mark(store, FILE_BYTES)
    report = take_backup(store, place, BROKER)
    assert [row["kind"] for row in report.findings] == ["log_not_whole"]
    assert whole(place) == [FILE_BYTES]


def test_a_store_without_a_mark_and_an_empty_one_are_refused(tmp_path: Path, place: DirectoryPlace) -> None:
    root = write_log(tmp_path / "foreign", messages(3), file_bytes=FILE_BYTES)
    with pytest.raises(UnsupportedStoreError, match="never served"):
        take_backup(root, place, BROKER)
    mark(root, 0)
    with pytest.raises(UnsupportedStoreError, match="empty"):
        take_backup(root, place, BROKER)
    assert content(place) == {}


def test_the_command_backs_up_lists_and_verifies(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    to = str(tmp_path / "place")
    assert cli.main.main(["backup", "--to", to, "--list"]) == 1
    assert cli.main.main(["backup", "--to", to]) == 2
    assert cli.main.main(["backup", "--store", str(store), "--to", to, "--broker-name", "a/b"]) == 2
    capsys.readouterr()
    assert cli.main.main(["backup", "--store", str(store), "--to", to]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["end_offset"] == log_end(store)
    assert cli.main.main(["backup", "--to", to, "--list"]) == 0
    listed = capsys.readouterr().out
    name = next((tmp_path / "place" / BROKER / "backups").iterdir()).name
    assert name in listed
    assert cli.main.main(["backup", "--to", to, "--verify"]) == 0
    path = tmp_path / "place" / BROKER / "backups" / name
    assert decode_backup(path.read_bytes(), f"backups/{name}").broker_name == BROKER
    cut(path)
    assert cli.main.main(["backup", "--to", to, "--verify"]) == 1
    assert cli.main.main(["backup", "--to", to, "--list"]) == 1


def test_what_was_stored_before_the_time_of_a_backup_is_in_it(store: Path, place: DirectoryPlace) -> None:
    mark(store, FILE_BYTES)

    def clock() -> float:
        mark(store, log_end(store))  # the log grows until this moment
        return 5.0

    assert take_backup(store, place, BROKER, clock=clock).counts["end_offset"] == log_end(store)


def test_a_folder_that_cannot_be_listed_is_an_error_and_nothing_is_removed(
    store: Path, place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(store, 20)
    take_backup(store, place, BROKER)
    grow(store, 60)
    before, scan = content(place), os.scandir

    def failing(path: Any = ".") -> Any:
        if str(path).endswith("backups"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        for run in (lambda: take_backup(store, place, BROKER), lambda: verify_backups(place)):
            with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
                run()
    assert content(place) == before


def test_where_pieces_are_there_and_no_backup_nothing_is_removed(
    store: Path, place: DirectoryPlace, tmp_path: Path
) -> None:
    grow(store, 20)
    take_backup(store, place, BROKER)
    folder = place.directory / "backups"
    folder.rename(tmp_path / "aside")
    grow(store, 60)
    report = take_backup(store, place, BROKER, keep=1)
    assert "no backup" in report.notes[0]
    for path in (tmp_path / "aside").iterdir():
        path.rename(folder / path.name)
    assert len(whole(place)) == 2


def test_a_first_copy_that_was_killed_goes_on_where_it_was(store: Path, tmp_path: Path) -> None:
    for at in range(4, 9):
        place = DirectoryPlace(tmp_path / f"place{at}")
        with pytest.raises(KilledError):
            take_backup(store, DirectoryPlace(place.directory, Killing(at)), BROKER)
        there = sum(size for name, size in place.sizes("log").items() if not name.endswith(".tmp"))
        assert there > 0
        report = take_backup(store, place, BROKER)
        assert report.counts["copied_bytes"] == report.counts["log_bytes"] - there
        assert whole(place) == [log_end(store)]


def test_a_damaged_object_that_is_removed_is_copied_again_and_heals_all_backups(
    store: Path, place: DirectoryPlace
) -> None:
    take_backup(store, place, BROKER)
    take_backup(store, place, BROKER)
    path = place.directory / read_backups(place)[0][0].pieces[3].name
    spoil(path)
    assert "remove the object" in verify_backups(place).findings[0]["what"]
    path.unlink()
    take_backup(store, place, BROKER)
    assert len(whole(place)) == 3


@pytest.mark.parametrize("number", [2, -1])
def test_damage_is_told_by_each_run_until_the_file_is_whole_which_is_copied_again(
    store: Path, place: DirectoryPlace, number: int
) -> None:
    path = sorted((store / "commitlog").iterdir())[number]
    before = path.read_bytes()
    *_, (last, _) = walk_frames(store)
    mark(store, last)
    path.write_bytes(before.replace(b"xxxx", b"xyxx", 1))
    for now in range(2):
        report = take_backup(store, place, BROKER, clock=iter([now, now]).__next__)
        assert "log_damaged" in [row["kind"] for row in report.findings]
    assert report.counts["copied_bytes"] == 0
    path.write_bytes(before)
    mark(store, log_end(store))
    assert take_backup(store, place, BROKER, clock=lambda: 3.0).findings == []
    newest = read_backups(place)[0][-1]
    data = b"".join(b"".join(place.parts(piece.name)) for piece in newest.pieces)
    assert data == b"".join(log for _, log in sorted(read_tree(store / "commitlog").items()))[: log_end(store)]


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 100)])
def test_a_log_with_a_gap_is_refused_and_nothing_is_copied(
    store: Path, place: DirectoryPlace, harm: Callable[[Path], None]
) -> None:
    harm(sorted((store / "commitlog").iterdir())[2])
    with pytest.raises(UnsupportedStoreError, match=f"{3 * FILE_BYTES:020d}"):
        take_backup(store, place, BROKER)
    assert content(place) == {}


def test_a_file_that_was_not_finished_is_copied_again_once_it_is(store: Path, place: DirectoryPlace) -> None:
    path = max((store / "commitlog").iterdir())
    before = path.read_bytes()
    *_, (end, _) = walk_frames(store)
    mark(store, end)
    os.truncate(path, end - int(path.name))
    take_backup(store, place, BROKER)
    path.write_bytes(before)
    mark(store, log_end(store))
    take_backup(store, place, BROKER)
    assert whole(place) == [end, log_end(store)]
    assert read_backups(place)[1] == []


@pytest.mark.parametrize("is_missing", [False, True])
def test_of_a_damaged_table_of_topics_the_sound_copy_is_kept(
    store: Path, place: DirectoryPlace, is_missing: bool
) -> None:
    (store / "config").mkdir()
    sound = b'{"topicConfigTable":{}}'
    (store / "config" / "topics.json.bak").write_bytes(sound)
    if not is_missing:
        (store / "config" / "topics.json").write_bytes(b'{"topicConfig')
    report = take_backup(store, place, BROKER)
    file = read_backups(place)[0][0].file("config/topics.json")
    assert file is not None
    assert b"".join(place.parts(file.name)) == sound
    assert any("topics.json" in note for note in report.notes) is not is_missing


class Replacing(RealFileSystem):
    """A file of `config/` is replaced by a shorter one after it was opened, once."""

    is_done = False

    def stat_size(self, path: Any) -> int:
        if not self.is_done and Path(path).parent.name == "config":
            self.is_done = True
            Path(path).with_name("new").write_bytes(b"{}")
            Path(path).with_name("new").rename(path)
        return super().stat_size(path)


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_file_that_is_replaced_while_it_is_read_is_not_cut(store: Path, place: DirectoryPlace, name: str) -> None:
    (store / "config").mkdir()
    before = b'{"a":{},"b":{},"c":{}}'
    (store / "config" / name).write_bytes(before)
    take_backup(store, place, BROKER, fs=Replacing())
    file = read_backups(place)[0][0].file(f"config/{name}")
    assert file is not None
    assert b"".join(place.parts(file.name)) in (before, b"{}")


def test_a_log_that_cannot_be_compared_with_the_newest_backup_is_refused(
    store: Path, place: DirectoryPlace, tmp_path: Path
) -> None:
    take_backup(store, place, BROKER)
    before = content(place)
    other = stopped_store(tmp_path / "other", count=200, first=5)
    for path in (other / "commitlog").iterdir():
        if int(path.name) < log_end(store):
            path.unlink()
    with pytest.raises(UnsupportedStoreError, match="--allow-gap"):
        take_backup(other, place, BROKER)
    assert content(place) == before


def test_a_replica_that_is_behind_is_told_so_and_not_another_log(
    store: Path, place: DirectoryPlace, tmp_path: Path
) -> None:
    take_backup(store, place, BROKER)
    before = content(place)
    for count in (59, 20):
        replica = stopped_store(tmp_path / f"replica{count}", count=count)
        with pytest.raises(ServiceUnavailableError, match=f"{log_end(replica)}.*{log_end(store)}") as raised:
            take_backup(replica, place, BROKER)
        assert "another place" not in raised.value.message
    assert content(place) == before


def test_verify_of_a_place_without_backups_is_no_success(
    store: Path, place: DirectoryPlace, capsys: pytest.CaptureFixture
) -> None:
    assert [row["kind"] for row in verify_backups(place).findings] == ["no_backup"]
    take_backup(store, place, BROKER)
    where = str(place.directory.parent)
    assert cli.main.main(["backup", "--verify", "--to", where, "--broker-name", "place"]) == 0
    assert cli.main.main(["backup", "--verify", "--to", where, "--broker-name", "plaice"]) == 1
    assert "plaice" in capsys.readouterr().out


class Removing(DirectoryPlace):
    """Another run removes the backup while it is read."""

    def parts(self, name: str) -> Iterator[bytes]:
        for path in (self.directory / "backups").iterdir():
            path.unlink()
        (self.directory / name).unlink()
        return super().parts(name)


def test_verify_tells_no_damage_of_a_backup_that_is_removed_meanwhile(store: Path, place: DirectoryPlace) -> None:
    take_backup(store, place, BROKER)
    assert verify_backups(Removing(place.directory)).findings == []


def test_positions_that_say_more_than_the_log_are_a_note(store: Path, place: DirectoryPlace) -> None:
    snapshot = store / "reput" / "commitlog" / "snapshot.json"
    for offset, count in ((log_end(store), 0), (log_end(store) + 1, 1)):
        snapshot.write_text(json.dumps({"commit_log_offset": offset}))
        assert len(take_backup(store, place, BROKER).notes) == count


def test_a_clock_that_goes_back_does_not_remove_the_backup_just_made(store: Path, place: DirectoryPlace) -> None:
    for now in (2e9, 1e9):
        report = take_backup(store, place, BROKER, keep=1, clock=iter([now, now]).__next__)
        assert Path(report.outputs["backup"]).exists()
    assert len(whole(place)) == 1


def test_a_file_whose_name_is_no_text_is_left_out_and_told(store: Path, place: DirectoryPlace) -> None:
    (store / "config").mkdir()
    (store / "config" / "a\udcff").write_bytes(b"1")
    (store / "config" / "b").write_bytes(b"2")
    report = take_backup(store, place, BROKER)
    assert "\\udcff" in report.notes[0]
    assert [file.path for file in read_backups(place)[0][0].files] == ["config/b"]
