"""A commit log that follows the log of a broker: what it shows, what it refuses, where a restart goes on."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_svc.beside import log_watch, owners_log
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.settings import CommitLogSettings
from store.errors import FlushFailedError, StoreCorruptedError, StoreError, StoreLockedError, StoreReadOnlyError
from store.files import locks
from store.files.file_system import PathLike, RealFileSystem
from tests.commitlog_svc.beside.growing_log import GrowingLog, SourceLog, source_log
from tests.commitlog_svc.support import append, new_message, read_tree
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPICS = '{"dataVersion":{},"topicConfigTable":{"%s":{"perm":6,"readQueueNums":3,"topicName":"%s","writeQueueNums":3}}}'


class SickDisk(RealFileSystem):
    """A disk whose calls raise `error` from the moment it is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.refused = threading.Event()

    def _check(self) -> None:
        if self.error is not None:
            self.refused.set()
            raise self.error

    def listdir(self, path: PathLike) -> list[str]:
        self._check()
        return super().listdir(path)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._check()
        return super().pread(fd, size_bytes, position)


class UnflushableDisk(RealFileSystem):
    """A disk that refuses every flush while `is_sick`."""

    def __init__(self) -> None:
        self.is_sick = False
        self.refused = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self.is_sick:
            self.refused.set()
            raise FlushFailedError("the disk refused to flush a file: check the disk, then restart")
        super().fdatasync(fd)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceLog:
    return source_log(tmp_path_factory.mktemp("fixture"))


@pytest.fixture
def broker(tmp_path: Path, source: SourceLog) -> GrowingLog:
    """The log of a broker, with ten records."""
    log = GrowingLog(tmp_path / "store")
    log.write(0, source.read(0, source.frames[10][0]))
    return log


Follow = Callable[..., CommitLog]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    logs: list[CommitLog] = []

    def begin(**arguments: object) -> CommitLog:
        settings = CommitLogSettings(store=tmp_path / "store", follow=True, derived=tmp_path / "derived")
        log = CommitLog(tmp_path / "store", settings, **arguments)  # type: ignore[arg-type]
        logs.append(log)
        log.recover()
        return log

    yield begin
    for log in logs:
        log.close()


def test_a_broker_that_starts_later_in_an_empty_directory_is_followed(
    follow: Follow, source: SourceLog, tmp_path: Path
) -> None:
    """An empty directory was refused as one that is served read-only."""
    (tmp_path / "store").mkdir()
    log = follow()
    assert (log.status.state, log.status.end_offset, log.confirm.confirm_offset) == ("following", 0, 0)
    broker = GrowingLog(tmp_path / "store")
    end = source.frames[10][0]
    broker.write(0, source.read(0, end))
    wait_until(lambda: log.confirm.confirm_offset == end, lambda: log.status)
    assert log.opened.reads.get(source.frames[9][0]).store_size_bytes == len(source.frames[9][1])


def test_what_a_broker_appends_is_shown_and_nothing_is_written_beside_it(
    broker: GrowingLog, follow: Follow, source: SourceLog, tmp_path: Path
) -> None:
    log = follow()
    end = source.frames[10][0]
    assert (log.status.state, log.status.end_offset, log.confirm.confirm_offset) == ("following", end, end)
    batches = log.following.follow(-1, 0)
    assert [request.commit_log_offset for request in next(batches).requests] == [at for at, _ in source.frames[:10]]

    at, frame = source.frames[10]
    broker.write(at, frame)
    assert log.confirm.wait_beyond(at, 20.0) == at + len(frame)
    assert log.opened.reads.get(at).store_size_bytes == len(frame)
    shown = next(batch for batch in batches if batch.requests)
    assert [request.commit_log_offset for request in shown.requests] == [at]
    assert log.status.followed is not None
    assert (log.status.followed.lag_bytes, log.status.followed.lag_millis) == (0, 0)
    assert set(read_tree(tmp_path / "store")) == {"commitlog/00000000000000000000"}
    with pytest.raises(StoreReadOnlyError):
        append(log, new_message())


def test_a_restart_goes_on_where_the_last_one_ended(broker: GrowingLog, follow: Follow, source: SourceLog) -> None:
    follow().close()
    at, frame = source.frames[10]
    broker.write(at, frame)
    log = follow()
    assert log.opened.found.walked_from_offset == at
    assert log.confirm.confirm_offset == at + len(frame)


def test_a_snapshot_of_another_log_is_not_used(broker: GrowingLog, follow: Follow, source: SourceLog) -> None:
    follow().close()
    broker.path_of(0).unlink()
    broker.write(0, source.read(0, source.frames[7][0]))
    log = follow()
    assert (log.opened.found.walked_from_offset, log.confirm.confirm_offset) == (0, source.frames[7][0])


def test_followers_hear_of_damage_that_stays(
    broker: GrowingLog, follow: Follow, source: SourceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "DAMAGE_SECONDS", 0.1)
    monkeypatch.setattr(log_watch, "SEARCH_SECONDS_MIN", 0.05)
    at, frame = source.frames[5]
    broker.write(at + 88, bytes(byte ^ 0x55 for byte in frame[88:100]))
    log = follow()
    wait_until(lambda: log.status.problem, "the damage is told")
    assert f"commit-log offset {at}" in log.status.problem
    with pytest.raises(StoreCorruptedError) as raised:
        list(log.following.follow(at, 0))
    assert raised.value.metadata["commitLogOffset"] == str(at)
    broker.write(at, frame)
    wait_until(lambda: log.confirm.confirm_offset == source.frames[10][0], "the rest is shown")
    wait_until(lambda: not log.status.problem, "the damage is gone")


def test_the_lag_is_the_half_record_and_the_age_of_the_one_before(
    broker: GrowingLog, follow: Follow, source: SourceLog
) -> None:
    log = follow()
    at, frame = source.frames[10]
    broker.write(at, frame[:60])
    followed = log.status.followed
    assert followed is not None
    wait_until(lambda: followed.lag_bytes == len(frame), "the head says how much is missing")
    assert followed.lag_millis > 0
    broker.write(at, frame)
    wait_until(lambda: (followed.lag_bytes, followed.lag_millis) == (0, 0), "all is shown")


def test_a_cut_ends_the_life_with_its_reason(broker: GrowingLog, follow: Follow, source: SourceLog) -> None:
    errors: list[StoreError] = []
    changed = threading.Event()

    def on_changed(error: StoreError) -> None:
        errors.append(error)
        changed.set()

    log = follow(on_changed=on_changed)
    at, frame = source.frames[9]
    broker.write(at, bytes(len(frame)))
    assert changed.wait(WAIT_SECONDS_MAX)
    assert [error.reason() for error in errors] == ["LOG_CHANGED"]
    assert log.status.problem == errors[0].message


def test_a_part_of_the_disk_that_could_not_be_read_for_a_while_did_end_the_thread_in_silence(
    broker: GrowingLog, follow: Follow, source: SourceLog
) -> None:
    disk = SickDisk()
    log = follow(fs=disk)
    disk.error = StoreCorruptedError("the disk cannot read a file at offset 0: check the disk")
    at, frame = source.frames[10]
    broker.write(at, frame)
    wait_until(lambda: "check the disk" in log.status.problem, "the status says why the log stands")
    disk.error = None
    assert log.confirm.wait_beyond(at, 20.0) == at + len(frame)
    wait_until(lambda: not log.status.problem, "the problem is gone")


def test_a_snapshot_that_could_not_be_flushed_did_end_the_thread_in_silence(
    broker: GrowingLog, follow: Follow, source: SourceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners_log, "SNAPSHOT_SECONDS", 0.0)
    disk = UnflushableDisk()
    log = follow(fs=disk)
    disk.is_sick = True
    for at, frame in source.frames[10:12]:
        disk.refused.clear()
        broker.write(at, frame)
        assert log.confirm.wait_beyond(at, 20.0) == at + len(frame)
        assert disk.refused.wait(WAIT_SECONDS_MAX)


def test_an_error_that_nobody_foresaw_ends_the_life_and_not_only_the_thread(broker: GrowingLog, follow: Follow) -> None:
    errors: list[StoreError] = []
    changed = threading.Event()

    def on_changed(error: StoreError) -> None:
        errors.append(error)
        changed.set()

    disk = SickDisk()
    log = follow(fs=disk, on_changed=on_changed)
    disk.error = RuntimeError("nobody foresaw this")
    assert changed.wait(WAIT_SECONDS_MAX)
    assert "nobody foresaw this" in errors[0].message
    assert log.status.problem == errors[0].message


def test_files_that_the_broker_removed_are_an_event(broker: GrowingLog, follow: Follow, source: SourceLog) -> None:
    for first, data in source.files.items():
        broker.write(first, data)
    log = follow()
    broker.path_of(0).unlink()
    wait_until(lambda: log.status.retention_events, "the removal is noticed")
    (event,) = log.status.retention_events
    assert (event.begin_offset, event.end_offset, event.file_count, event.reason) == (0, 1 << 20, 1, "owner")
    assert log.status.first_offset == 1 << 20


def test_topics_that_the_broker_makes_are_known(broker: GrowingLog, follow: Follow) -> None:
    config = broker.directory.parent / "config"
    config.mkdir()
    (config / "topics.json").write_text((TOPICS % ("late", "late"))[:-40])  # half written
    log = follow()
    (config / "topics.json").write_text(TOPICS % ("late", "late"))
    wait_until(lambda: log.topics.find("late") is not None, "the topic is read")


def test_derived_files_have_one_owner(
    broker: GrowingLog, follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks.OwnerLock.__init__, "__kwdefaults__", {"wait_seconds": 0.1})
    follow()
    with pytest.raises(StoreLockedError):
        follow()
