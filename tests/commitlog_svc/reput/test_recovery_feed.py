"""What a long recovery shows before it is over: each record once, checked, and no end before it is known."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.recovery import recovery
from commitlog_svc.recovery.recovery import recover_log
from commitlog_svc.reput import column_batches, recovery_feed
from commitlog_svc.reput.column_batches import ColumnBatches
from commitlog_svc.reput.recovery_feed import RecoveryFeed
from commitlog_svc.reput.reput import BATCH_BYTES_MAX, LogFollower, ReputBatch
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.following.follower_progress import END_UNKNOWN
from store.errors import StoreCorruptedError, StoreRecoveringError
from store.files.file_system import RealFileSystem
from store.files.mapped_files import MappedFileQueue
from store.walk.cursor import RecordCursor
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.reput.test_column_batches import rows, varied_messages
from tests.commitlog_svc.support import append, make_log, open_log
from tests.support.fixture_stores import walk_frames
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = pytest.mark.usefixtures("kernel_mode")

FILE_BYTES = 32_768
MESSAGE_COUNT = 600
BATCH_COUNT_MAX = 10 * MESSAGE_COUNT


@pytest.fixture(autouse=True)
def _any_log_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LONG_LOG_BYTES_MIN", 1)
    monkeypatch.setattr(column_batches, "COLUMN_BYTES_MAX", 2_000)
    monkeypatch.setattr(recovery_feed, "COLUMN_BYTES_MAX", 2_000)


def make_store(root: Path) -> list[object]:
    """A log of many small files without any memory of its end; its records, as a running log shows them."""
    with open_log(root, file_size_bytes=FILE_BYTES) as log:
        for begin in range(0, MESSAGE_COUNT, 50):
            append(log, *varied_messages(MESSAGE_COUNT)[begin : begin + 50])
        followed = all_rows(log.following.follow(-1, 0, columns=True), log.status.end_offset)
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    (root / "abort").touch()
    return followed


def all_rows(batches: Iterator[ReputBatch], end_offset: int) -> list[object]:
    found: list[object] = []
    for batch, _ in zip(batches, range(BATCH_COUNT_MAX), strict=False):
        if batch.columns is not None:
            found += rows(batch.columns)
        if batch.next_offset >= end_offset:
            return found
        if batch.columns is None:
            raise AssertionError(f"a heartbeat at {batch.next_offset}, before {end_offset}")
    raise AssertionError(f"{end_offset} is never reached")


class Watched(RecoveryFeed):
    """Never shows more than the walk has let through."""

    def see_stretch(self, chunk: bytes, at: int, end: int, commit_log_offset: int) -> None:
        super().see_stretch(chunk, at, end, commit_log_offset)
        assert self.confirm_offset <= commit_log_offset + end - at

    def _show(self, offset: int) -> None:
        assert offset >= self._shown_offset
        super()._show(offset)


class Recovered:
    """The files of a store, recovered with a feed that is not over."""

    def __init__(self, root: Path) -> None:
        self.files = MappedFileQueue(RealFileSystem(), root / "commitlog", FILE_BYTES)
        self.files.load()
        self.batches = ColumnBatches(self.files)
        self.feed: RecoveryFeed | None = None
        self.make_feed: type[RecoveryFeed] = Watched
        self.root = root

    def recover(self) -> int:
        found = recover_log(
            RealFileSystem(), self.root, self.files, was_aborted=True, read_only=False, open_feed=self._open
        )
        return found.end_offset

    def follow(self, begin_offset: int = 0) -> LogFollower:
        return LogFollower(self.files, NeverAsked(), begin_offset, BATCH_BYTES_MAX, self.batches.read, self.feed)

    def _open(self, begin_offset: int) -> RecoveryFeed:
        self.feed = self.make_feed(self.batches, begin_offset)
        return self.feed


class NeverAsked:
    """A flusher that is not at work yet."""

    confirm_offset = 0

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        raise AssertionError("the recovery is not over")


class Flusher:
    """One that is at work, and would wait for ever."""

    def __init__(self, confirm_offset: int) -> None:
        self.confirm_offset = confirm_offset

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        raise AssertionError("that the end is known is not told at once")


def test_everything_is_shown_as_a_running_log_shows_it_and_the_end_stays_unknown(tmp_path: Path) -> None:
    expected = make_store(tmp_path / "s")
    recovered = Recovered(tmp_path / "s")
    end_offset = recovered.recover()
    seen: list[ReputBatch] = []

    def noted(batches: Iterator[ReputBatch]) -> Iterator[ReputBatch]:
        for batch in batches:
            seen.append(batch)
            yield batch

    assert recovered.feed is not None
    assert recovered.feed.confirm_offset == end_offset
    assert all_rows(noted(recovered.follow()), end_offset) == expected
    assert {batch.log_end_offset for batch in seen} == {END_UNKNOWN}
    recovered.files.close()


def test_who_comes_late_reads_the_log_and_joins_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_batches, "AHEAD_BYTES_MAX", 8_000)
    expected = make_store(tmp_path / "s")
    recovered = Recovered(tmp_path / "s")
    end_offset = recovered.recover()
    kept = {offset for offset, _ in recovered.batches._batches}
    offsets = [offset for offset, _ in walk_frames(tmp_path / "s")]
    # The record before the first batch that is kept: one that is read from there on would end inside that batch.
    begin = max(offsets.index(min(kept)) - 1, 0) if kept else 0  # without the kernel the walk leaves none
    follower, asked = recovered.follow(offsets[begin]), []
    read = recovered.batches.read

    def asking(offset: int, end_offset: int, batch_bytes_max: int) -> object:
        asked.append(offset)
        return read(offset, end_offset, batch_bytes_max)

    monkeypatch.setattr(follower, "_read_columns", asking)
    assert all_rows(follower, end_offset) == expected[begin:]
    assert kept <= set(asked)
    recovered.files.close()


def test_when_it_is_over_the_end_is_told_without_waiting(tmp_path: Path) -> None:
    make_store(tmp_path / "s")
    recovered = Recovered(tmp_path / "s")
    end_offset = recovered.recover()
    follower = recovered.follow()
    all_rows(follower, end_offset)
    assert recovered.feed is not None
    recovered.feed.end()
    follower._confirm = Flusher(end_offset)
    assert next(follower).log_end_offset == end_offset
    recovered.files.close()


def test_nothing_is_shown_from_damage_on(tmp_path: Path) -> None:
    root = tmp_path / "s"
    make_store(root)
    frames = list(walk_frames(root))
    damaged_offset, frame = frames[len(frames) // 2]
    path = root / "commitlog" / f"{damaged_offset // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(damaged_offset % FILE_BYTES + len(frame) // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes((byte[0] ^ 1,)))
    recovered = Recovered(root)
    with pytest.raises(StoreCorruptedError):
        recovered.recover()
    assert recovered.feed is not None
    assert recovered.feed.confirm_offset <= damaged_offset
    follower = recovered.follow()
    recovered.feed.fail()
    with pytest.raises(StoreRecoveringError):
        next(follower)
    recovered.files.close()


def test_what_is_shown_ends_with_a_whole_request_and_never_holds_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = partial(RecordCursor, piece_bytes=3000)  # so that pieces end in the middle of requests
    monkeypatch.setattr(recovery, "RecordCursor", pieces)
    root = tmp_path / "s"
    ends = {0}
    with open_log(root, file_size_bytes=FILE_BYTES) as log:
        for number in range(120):
            records = [internal_record(b"x" * 100, f"t{each}") for each in range(1 + number % 7)]
            receipts = append_internal(log, *records, sync=False)
            ends |= {receipts[-1].end_offset, -(-receipts[-1].end_offset // FILE_BYTES) * FILE_BYTES}
        append_internal(log, *[internal_record(b"torn" * 20) for _ in range(5)])
        begin, end_offset = receipts[-1].end_offset, log.status.end_offset
        expected = all_rows(log.following.follow(-1, 0, columns=True), end_offset)[:-5]
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    (root / "reput" / "commitlog" / "durable").unlink()
    (root / "abort").touch()
    path = root / "commitlog" / f"{begin // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(end_offset % FILE_BYTES - 1)
        file.write(b"\0")
    shown: list[int] = []

    class Noting(Watched):
        def _show(self, offset: int) -> None:
            super()._show(offset)
            shown.append(offset)

    recovered = Recovered(root)
    recovered.make_feed = Noting
    assert begin == recovered.recover()
    assert recovered.feed is not None
    assert set(shown) <= ends, sorted(set(shown) - ends)
    assert begin == recovered.feed.confirm_offset
    assert expected == all_rows(recovered.follow(), begin)
    recovered.files.close()


class Halting(RecoveryFeed):
    """Stops the walk behind an offset until told to go on."""

    def __init__(self, batches: ColumnBatches, begin_offset: int, halt_offset: int) -> None:
        super().__init__(batches, begin_offset)
        self.halt_offset = halt_offset
        self.halted, self.may_go_on = threading.Event(), threading.Event()

    def see_walked(self, offset: int) -> None:
        super().see_walked(offset)
        if offset >= self.halt_offset and not self.halted.is_set():
            self.halted.set()
            assert self.may_go_on.wait(WAIT_SECONDS_MAX)


def test_a_log_that_recovers_is_followed_by_those_who_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make_store(tmp_path / "s")
    log: CommitLog = make_log(tmp_path / "s", file_size_bytes=FILE_BYTES)
    opened = threading.Event()

    following = log.following

    def open_feed(begin_offset: int) -> Halting:
        following.feed = Halting(following._batches(), begin_offset, FILE_BYTES)
        opened.set()
        return following.feed

    monkeypatch.setattr(following, "open_feed", open_feed)
    service = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
    thread = threading.Thread(target=log.recover)
    thread.start()
    try:
        assert opened.wait(WAIT_SECONDS_MAX)
        feed = following.feed
        assert isinstance(feed, Halting)
        assert feed.halted.wait(WAIT_SECONDS_MAX)
        status = service.GetStatus(pb.GetStatusRequest(), None)
        assert (status.state, status.recovery.is_followable) == ("recovering", True)
        with pytest.raises(StoreRecoveringError):
            service.ListTopics(pb.ListTopicsRequest(), None)
        with pytest.raises(StoreRecoveringError):
            log.following.follow(-1, 0, columns=True)
        with pytest.raises(StoreRecoveringError):
            log.following.follow(feed.confirm_offset + 1, 0, columns=True, while_recovering=True)
        answers = service.Reput(pb.ReputRequest(start_offset=-1, columns=True, while_recovering=True), None)
        first = next(iter(answers))
        assert first.log_end_offset == END_UNKNOWN
        assert 0 < first.next_offset <= feed.confirm_offset
        follower = log.following.follow(-1, 0, columns=True, while_recovering=True)
        shown = all_rows(follower, feed.confirm_offset)
        assert shown == expected[: len(shown)]
        feed.may_go_on.set()
        thread.join(WAIT_SECONDS_MAX)
        assert not service.GetStatus(pb.GetStatusRequest(), None).recovery.is_followable
        assert shown + all_rows(follower, log.status.end_offset) == expected
        assert next(follower).log_end_offset == log.status.end_offset
    finally:
        feed.may_go_on.set()
        thread.join(WAIT_SECONDS_MAX)
        log.close()
