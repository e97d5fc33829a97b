"""`reput restore`: the log up to a moment, byte for byte, never part of an atomic request; whole or not at all."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cli.main
from cli.backup.manifest import Backup, KeptFile, encode_backup
from cli.backup.places import DirectoryPlace, read_backups
from cli.backup.restoring import Moment, restore_store, topics_at
from cli.backup.taking import take_backup
from store.errors import InvalidArgumentError, OffsetOutOfRangeError, StoreCorruptedError
from store.format.record import decode_record
from store.format.request_mark import TAIL_SIZE_BYTES, decode_request_mark
from store.format.topic import TopicConfig, decode_deleted_topics, decode_topic_table, encode_topic_table
from tests.cli.backup.made import BROKER, FILE_BYTES, log_bytes, log_end, mark, messages, prefix, stopped_store
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import append, new_message, open_log, read_tree
from tests.support.archives import BEGIN_MILLIS, write_log
from tests.support.fixture_stores import walk_frames

SMALL_INDEX = {"REPUT_INDEX_HASH_SLOT_COUNT": "100", "REPUT_INDEX_ENTRY_COUNT_MAX": "400"}


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    return DirectoryPlace(tmp_path / "place" / BROKER)


@pytest.fixture
def store(tmp_path: Path, place: DirectoryPlace) -> Path:
    """A store that is backed up."""
    root = stopped_store(tmp_path / "store")
    take_backup(root, place, BROKER)
    return root


def request_ends(root: Path) -> list[int]:
    """Where each request of a log ends, by the marks of its records."""
    ends = []
    for offset, frame in walk_frames(root):
        found = decode_request_mark(frame[-TAIL_SIZE_BYTES:])
        if found is None or found.behind_bytes == 0:
            ends.append(offset + len(frame))
    return ends


def behind(frames: list[int], offset: int) -> int:
    """Where the next record begins."""
    return min((each for each in frames if each >= offset), default=offset)


def test_any_offset_gives_the_requests_that_end_before_it(tmp_path: Path, place: DirectoryPlace) -> None:
    root = tmp_path / "store"
    with open_log(root, file_size_bytes=FILE_BYTES) as log:
        for number in range(12):
            append(log, new_message(b"x" * 150))
            append_internal(log, *(internal_record(b"y" * 90) for _ in range(number % 4 + 1)))
    take_backup(root, place, BROKER)
    frames = [offset for offset, _ in walk_frames(root)]
    ends = request_ends(root)
    assert len(frames) > len(ends) > 20
    assert len(log_bytes(root)) > 2
    for near in [*frames[1:], ends[-1]]:
        for offset in (near - 1, near, near + 1):
            if not ends[0] <= offset <= ends[-1]:
                continue
            out = tmp_path / f"out{offset}"
            report = restore_store(place, out, Moment(offset=offset), log_only=True)
            end = report.counts["end_offset"]
            last = max(each for each in ends if each <= offset)
            # Behind the last record of a file lies its closing blank, which is there or not.
            assert end == last or (end % FILE_BYTES == 0 and last < end <= behind(frames, last))
            assert log_bytes(out) == prefix(root, end), offset


def test_any_time_gives_what_was_stored_until_then(tmp_path: Path, store: Path, place: DirectoryPlace) -> None:
    records = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(store)]
    for number in (0, 1, 20, 37, len(records) - 2):
        out = tmp_path / f"out{number}"
        report = restore_store(place, out, Moment(time_millis=BEGIN_MILLIS + number), log_only=True)
        assert report.counts["end_offset"] == records[number].commit_log_offset + records[number].store_size_bytes
        assert log_bytes(out) == prefix(store, report.counts["end_offset"])


def test_a_time_between_falling_store_times_gives_all_that_was_written_before(
    tmp_path: Path, place: DirectoryPlace
) -> None:
    root = write_log(
        tmp_path / "store", messages(60), file_bytes=FILE_BYTES,
        time_of=lambda number: BEGIN_MILLIS + (number if number != 7 else 9_000_000),
    )  # fmt: skip
    mark(root, log_end(root))
    take_backup(root, place, BROKER)
    records = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(root)]
    report = restore_store(place, tmp_path / "out", Moment(time_millis=BEGIN_MILLIS + 30), log_only=True)
    assert report.counts["end_offset"] == records[30].commit_log_offset + records[30].store_size_bytes


def test_without_a_moment_all_of_the_newest_backup_is_there_with_queues_and_index(
    tmp_path: Path, store: Path, place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, value in SMALL_INDEX.items():
        monkeypatch.setenv(name, value)
    assert cli.main.main(["restore", "--from", str(place.directory.parent), "--out", str(tmp_path / "out")]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["record_count"], counts["queue_count"], counts["end_offset"]) == (60, 2, log_end(store))
    assert log_bytes(tmp_path / "out") == log_bytes(store)
    # fsck compares each unit and entry with the log.
    assert cli.main.main(["fsck", str(tmp_path / "out"), "-o", "json"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert (audit["queues"]["unit_count"], audit["index"]["key_count"]) == (60, 120)
    assert set(audit["counts"]) == {"CHECKPOINT_MISSING"}


def test_the_oldest_backup_that_reaches_the_moment_has_more_of_the_log(tmp_path: Path, place: DirectoryPlace) -> None:
    root = stopped_store(tmp_path / "store", 30)
    end = log_end(root)
    take_backup(root, place, BROKER, clock=lambda: 2e9)
    whole = log_bytes(root)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    (root / "commitlog").rmdir()
    write_log(root, messages(60), file_bytes=FILE_BYTES)
    mark(root, log_end(root))
    (root / "commitlog" / f"{0:020d}").unlink()
    take_backup(root, place, BROKER, clock=lambda: 3e9)
    first = restore_store(place, tmp_path / "a", Moment(offset=end), log_only=True)
    assert first.counts["begin_offset"] == 0
    assert log_bytes(tmp_path / "a") == whole
    second = restore_store(place, tmp_path / "b", Moment(offset=end + 1), log_only=True)
    assert (second.counts["begin_offset"], second.counts["end_offset"]) == (FILE_BYTES, end)
    third = restore_store(place, tmp_path / "c", Moment(time_millis=2_000_000_000_001), log_only=True)
    assert third.counts["begin_offset"] == FILE_BYTES


def moments(store: Path) -> list[Moment]:
    return [
        Moment(offset=log_end(store) + 1),
        Moment(offset=0),
        Moment(offset=10),
        Moment(time_millis=1 << 45),
        Moment(time_millis=BEGIN_MILLIS - 1),
    ]


def test_a_moment_that_no_backup_has_is_refused(tmp_path: Path, store: Path, place: DirectoryPlace) -> None:
    for moment in moments(store):
        with pytest.raises(OffsetOutOfRangeError, match="--to"):
            restore_store(place, tmp_path / "out", moment, log_only=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "store"]


def test_nothing_is_restored_where_there_is_no_backup_or_something_else(
    tmp_path: Path, store: Path, place: DirectoryPlace
) -> None:
    with pytest.raises(InvalidArgumentError, match="no whole backup"):
        restore_store(DirectoryPlace(tmp_path / "nowhere"), tmp_path / "out")
    before = read_tree(store)
    with pytest.raises(InvalidArgumentError, match="not empty"):
        restore_store(place, store)
    assert read_tree(store) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "store"]


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def stretch(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize("harm", [spoil, cut, stretch, Path.unlink])
@pytest.mark.parametrize("kind", ["piece", "file"])
def test_a_damaged_object_is_named_and_nothing_is_made(
    tmp_path: Path, place: DirectoryPlace, harm: Callable[[Path], None], kind: str
) -> None:
    root = stopped_store(tmp_path / "store")
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{}}')
    take_backup(root, place, BROKER)
    backup: Backup = read_backups(place)[0][0]
    damaged = backup.pieces[2] if kind == "piece" else backup.files[0]
    harm(place.directory / damaged.name)
    with pytest.raises(StoreCorruptedError, match=damaged.name):
        restore_store(place, tmp_path / "out", log_only=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "store"]


def test_a_damaged_manifest_is_passed_over_and_named(tmp_path: Path, store: Path, place: DirectoryPlace) -> None:
    take_backup(store, place, BROKER)
    spoil(place.directory / read_backups(place)[0][1].name)
    report = restore_store(place, tmp_path / "out", log_only=True)
    assert "no whole backup" in report.notes[0]
    assert log_bytes(tmp_path / "out") == log_bytes(store)


def test_damage_of_the_log_is_restored_as_it_was_and_told(
    tmp_path: Path, place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SMALL_INDEX.items():
        monkeypatch.setenv(name, value)
    root = stopped_store(tmp_path / "store")
    path = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    at = data.index(b"xxxx")
    data[at] ^= 1
    path.write_bytes(data)
    take_backup(root, place, BROKER)
    report = restore_store(place, tmp_path / "out")
    assert "LOG_DAMAGED" in [row["kind"] for row in report.findings]
    assert log_bytes(tmp_path / "out") == log_bytes(root)
    with pytest.raises(StoreCorruptedError, match="was damaged"):
        restore_store(place, tmp_path / "cut", Moment(offset=int(path.name) + FILE_BYTES - 100), log_only=True)
    restore_store(place, tmp_path / "before", Moment(offset=int(path.name)), log_only=True)


def test_a_queue_whose_messages_expired_goes_on_where_it_was(tmp_path: Path, place: DirectoryPlace) -> None:
    root = tmp_path / "store"
    with open_log(root, file_size_bytes=FILE_BYTES) as log:
        for _ in range(3):
            append(log, new_message(topic="old", queue_id=0))
        for _ in range(40):
            append(log, new_message(b"x" * 200, topic="new"))
    (root / "commitlog" / f"{0:020d}").unlink()
    take_backup(root, place, BROKER)
    restore_store(place, tmp_path / "out", log_only=True)
    with open_log(tmp_path / "out", file_size_bytes=FILE_BYTES) as log:
        assert append(log, new_message(topic="old", queue_id=0))[0].queue_offset == 3
        assert log.status.first_offset == FILE_BYTES


def table(*names: str, deleted: dict[str, int] | None = None) -> bytes:
    topics = {name: TopicConfig(name, read_queue_count=3, write_queue_count=5) for name in names}
    return encode_topic_table(topics, None, time_millis=1, deleted=deleted)


def test_a_deletion_behind_the_end_is_undone_with_the_row_of_before() -> None:
    later = table("a", deleted={"b": 500, "c": 900, "d": 900})
    found = topics_at(later, table("a", "b", "c"), 500)
    assert decode_deleted_topics(found) == {"b": 500}
    assert sorted(decode_topic_table(found)) == ["a", "c"]
    assert decode_topic_table(found)["c"].write_queue_count == 5
    assert decode_deleted_topics(topics_at(later, None, 600)) == {"b": 500}
    assert topics_at(later, None, 900) == later


@pytest.mark.parametrize("is_at_file_end", [False, True])
def test_a_time_behind_the_end_of_a_backup_whose_clock_was_ahead_is_taken_from_the_next_one(
    tmp_path: Path, place: DirectoryPlace, is_at_file_end: bool
) -> None:
    root = stopped_store(tmp_path / "store")
    records = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(root)]
    mark(root, 2 * FILE_BYTES if is_at_file_end else records[30].commit_log_offset)
    take_backup(root, place, BROKER, clock=lambda: 2e9)
    mark(root, log_end(root))
    take_backup(root, place, BROKER, clock=lambda: BEGIN_MILLIS / 1000 + 1)
    for number in (10, 45, 59):
        moment = Moment(time_millis=BEGIN_MILLIS + number)
        report = restore_store(place, tmp_path / f"out{number}", moment, log_only=True)
        end = records[number].commit_log_offset + records[number].store_size_bytes
        assert report.counts["end_offset"] == end
        assert log_bytes(tmp_path / f"out{number}") == prefix(root, end)


@pytest.mark.parametrize("path", ["config/topics.json", "reput/commitlog/epochs.json"])
def test_a_file_beside_the_log_that_is_damaged_keeps_no_log_from_being_restored(
    tmp_path: Path, place: DirectoryPlace, path: str
) -> None:
    root = stopped_store(tmp_path / "store")
    (root / path).parent.mkdir(exist_ok=True, parents=True)
    (root / path).write_bytes(b"{}")
    take_backup(root, place, BROKER)
    backup = read_backups(place)[0][0]
    damaged = KeptFile(path, 9, hashlib.sha256(b'{"topicCo').hexdigest())  # an earlier release kept it as it was
    place.put_bytes(damaged.name, b'{"topicCo')
    place.put_bytes(backup.name, encode_backup(dataclasses.replace(backup, files=(damaged,))))
    report = restore_store(place, tmp_path / "out", log_only=True)
    assert any(path in note for note in report.notes)
    assert log_bytes(tmp_path / "out") == log_bytes(root)


@pytest.mark.parametrize("is_behind", [False, True])
def test_positions_that_do_not_fit_the_log_are_a_note(tmp_path: Path, place: DirectoryPlace, is_behind: bool) -> None:
    root = stopped_store(tmp_path / "store")
    offset = log_end(root) + 1 if is_behind else 10
    (root / "reput" / "commitlog" / "snapshot.json").write_text(json.dumps({"commit_log_offset": offset}))
    (root / "commitlog" / f"{0:020d}").unlink()
    take_backup(root, place, BROKER)
    report = restore_store(place, tmp_path / "out", log_only=True)
    assert ["begin at 0" in note for note in report.notes] == [True]


def test_a_deletion_before_an_undone_one_stays() -> None:
    later = table(deleted={"b": 900, "c": 900})
    found = topics_at(later, table("b", "c", deleted={"b": 300, "c": 700}), 600)
    assert decode_deleted_topics(found) == {"b": 300}


def test_a_store_of_an_earlier_moment_is_told_to_be_another_log(
    tmp_path: Path, store: Path, place: DirectoryPlace
) -> None:
    report = restore_store(place, tmp_path / "out", Moment(offset=FILE_BYTES), log_only=True)
    assert "ship-cold" in report.notes[-1]
    assert not any("ship-cold" in note for note in restore_store(place, tmp_path / "all", log_only=True).notes)


def test_a_moment_inside_the_head_of_a_closing_blank_ends_before_it(
    tmp_path: Path, store: Path, place: DirectoryPlace
) -> None:
    before = [offset + len(frame) for offset, frame in walk_frames(store) if offset < FILE_BYTES]
    assert before[-1] < FILE_BYTES - 8  # a blank closes the file
    for more in (1, 7):
        out = tmp_path / f"out{more}"
        report = restore_store(place, out, Moment(offset=before[-1] + more), log_only=True)
        assert report.counts["end_offset"] == before[-1]
        assert log_bytes(out) == prefix(store, before[-1])


def test_a_link_is_refused_as_the_goal_before_anything_is_copied(
    tmp_path: Path, store: Path, place: DirectoryPlace
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "empty")
    steps: list[str] = []
    with pytest.raises(InvalidArgumentError, match="link"):
        restore_store(place, tmp_path / "out", log_only=True, on_progress=lambda step, done, total: steps.append(step))
    assert steps == []


def test_a_backup_behind_a_gap_that_may_have_the_time_is_a_note(tmp_path: Path, place: DirectoryPlace) -> None:
    root = stopped_store(tmp_path / "store")
    mark(root, FILE_BYTES)
    take_backup(root, place, BROKER, clock=lambda: 2e9)
    mark(root, log_end(root))
    (root / "commitlog" / f"{0:020d}").unlink()
    take_backup(root, place, BROKER, allow_gap=True, clock=lambda: 3e9)
    report = restore_store(place, tmp_path / "out", Moment(time_millis=BEGIN_MILLIS + 50), log_only=True)
    assert report.counts["end_offset"] == FILE_BYTES
    assert str(FILE_BYTES) in report.notes[0]


class Removing(DirectoryPlace):
    """Another run removes the backups while one is restored."""

    def parts(self, name: str) -> Iterator[bytes]:
        for path in (self.directory / "backups").iterdir():
            path.unlink()
        (self.directory / name).unlink()
        return super().parts(name)


def test_a_backup_that_is_removed_while_it_is_restored_is_not_told_to_be_damaged(
    tmp_path: Path, store: Path, place: DirectoryPlace
) -> None:
    with pytest.raises(StoreCorruptedError, match="was removed while"):
        restore_store(Removing(place.directory), tmp_path / "out", log_only=True)
    assert not (tmp_path / "out").exists()
