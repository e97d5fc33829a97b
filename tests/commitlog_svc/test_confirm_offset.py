"""What may be shown of a log: on one replica all that is flushed, with replicas no more than they have."""

import threading
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.waiting import WAIT_SECONDS_MAX


class Flushes:
    """A disk in the test's hands."""

    def __init__(self, flushed_offset: int = 0) -> None:
        self.flushed_offset = flushed_offset
        self._moved = threading.Condition()
        self.waiting = threading.Event()

    def flush(self, offset: int) -> None:
        with self._moved:
            self.flushed_offset = offset
            self._moved.notify_all()

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        with self._moved:
            self.waiting.set()
            self._moved.wait_for(lambda: self.flushed_offset > offset, timeout_seconds)
            return self.flushed_offset


def test_on_one_replica_it_is_the_flushed_offset_and_single_records_are_read_as_soon_as_they_are_written() -> None:
    flushes = Flushes(100)
    confirm = ConfirmOffset(flushes)

    assert (confirm.is_limited, confirm.confirm_offset, confirm.readable_offset(150)) == (False, 100, 150)
    flushes.flush(150)
    assert confirm.confirm_offset == confirm.wait_beyond(100, WAIT_SECONDS_MAX) == 150


@pytest.mark.parametrize(("flushed_offset", "limit_offset", "confirm_offset"), [(100, 60, 60), (60, 100, 60)])
def test_with_replicas_it_is_what_all_of_them_have_for_followers_and_readers(
    flushed_offset: int, limit_offset: int, confirm_offset: int
) -> None:
    confirm = ConfirmOffset(Flushes(flushed_offset))
    confirm.limit(limit_offset)

    assert confirm.confirm_offset == confirm.readable_offset(200) == confirm_offset


def test_it_never_goes_back() -> None:
    confirm = ConfirmOffset(Flushes(100))
    confirm.limit(60)

    with pytest.raises(ValueError, match="cannot go back"):
        confirm.limit(59)
    assert confirm.confirm_offset == 60


@pytest.mark.parametrize("first", ["limit", "flush"])
def test_who_waits_is_woken_once_replicas_and_disk_have_the_record(first: str) -> None:
    flushes = Flushes(50)
    confirm = ConfirmOffset(flushes)
    confirm.limit(50)
    woken: list[int] = []
    waiter = threading.Thread(target=lambda: woken.append(confirm.wait_beyond(50, WAIT_SECONDS_MAX)))
    waiter.start()

    steps = [lambda: confirm.limit(80), lambda: flushes.flush(90)]
    for step in steps if first == "limit" else reversed(steps):
        assert not woken
        step()
    waiter.join(WAIT_SECONDS_MAX)

    assert woken == [80]


def test_a_wait_ends_with_its_time() -> None:
    confirm = ConfirmOffset(Flushes(100))
    confirm.limit(50)

    assert confirm.wait_beyond(50, 0.0) == 50


def limited_log(root: Path) -> tuple[CommitLog, CommitLogServicer]:
    """A log whose replicas have nothing yet."""
    log = make_log(root)
    log.confirm.limit(0)
    log.recover()
    return log, CommitLogServicer(log, "broker-a", "127.0.0.1:10911")


def test_followers_and_readers_are_shown_nothing_that_a_replica_lacks(tmp_path: Path) -> None:
    log, service = limited_log(tmp_path)
    try:
        first, second = (append(log, new_message(body))[0] for body in (b"first", b"second"))
        assert log.status.flushed_offset == second.end_offset
        status = service.GetStatus(pb.GetStatusRequest(), None)  # type: ignore[arg-type]  # no context is needed
        assert (status.confirm_offset, status.log_flushed_offset) == (0, second.end_offset)
        with pytest.raises(OffsetOutOfRangeError):
            log.opened.reads.get(first.commit_log_offset)
        follower = log.following.follow(-1, 0)
        shown = next(follower)
        assert (shown.requests, shown.log_end_offset) == ([], 0)

        log.confirm.limit(first.end_offset)

        shown = next(follower)
        assert [request.commit_log_offset for request in shown.requests] == [first.commit_log_offset]
        assert shown.log_end_offset == first.end_offset
        assert log.opened.reads.get(first.commit_log_offset).body == b"first"
        request = pb.BatchGetMessagesRequest(commit_log_offsets=[first.commit_log_offset, second.commit_log_offset])
        outcomes = service.BatchGetMessages(request, None).outcomes  # type: ignore[arg-type]  # no context is needed
        assert [outcome.WhichOneof("outcome") for outcome in outcomes] == ["message", "error"]
        handed_over = service.open_log_file(pb.GetMessageRequest(commit_log_offset=first.commit_log_offset), None)
        with open(handed_over.fd, "rb"):
            handed_over_status = pb.GetStatusResponse.FromString(handed_over.payload)
        assert handed_over_status.log_end_offset == first.end_offset
        with pytest.raises(OffsetOutOfRangeError):
            service.open_log_file(pb.GetMessageRequest(commit_log_offset=second.commit_log_offset), None)
        with pytest.raises(OffsetOutOfRangeError):
            log.following.follow(second.end_offset, 0)
        with pytest.raises(InvalidArgumentError):
            log.followers.report("index", second.end_offset, 0, log.following.confirm_offset)
    finally:
        log.close()


def test_a_request_is_shown_whole_or_not_at_all(tmp_path: Path) -> None:
    """The confirm offset moves from one end of a request to the next: between two it shows what was there before."""
    with open_log(tmp_path) as log:
        ends = {append(log, *[new_message(b"%d" % number) for number in range(3)])[-1].end_offset for _ in range(5)}
        follower = log.following.follow(-1, 0)
        shown = 0
        while shown < max(ends):
            batch = next(follower)
            assert batch.log_end_offset in ends
            shown = batch.next_offset


def test_a_recovery_with_replicas_shows_nothing_before_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(tmp_path) as log:
        for _ in range(50):
            append(log, new_message(b"x" * 900))
    (tmp_path / "reput" / "commitlog" / "snapshot.json").unlink()
    monkeypatch.setattr("commitlog_svc.recovery.recovery.LONG_LOG_BYTES_MIN", 1)
    log, _ = limited_log(tmp_path)
    try:
        assert log.opened.found.record_count == 50
        assert log.following.feed is None
    finally:
        log.close()
