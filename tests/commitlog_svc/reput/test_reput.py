"""What followers of the log are shown, and what they make the log keep: nothing."""

import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from commitlog_svc.reput.reput import ANSWER_BYTES_MAX, LogFollower, follow_log, read_batch
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import OffsetOutOfRangeError
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.support import append, new_message, open_log

WAIT_SECONDS_MAX = 30


class GatedFileSystem(RealFileSystem):
    """A disk whose flushes of log files wait for the test while the gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if "/commitlog/0000" in os.readlink(f"/proc/self/fd/{fd}") and not self.gate.is_set():
            self.is_waiting.set()
            assert self.gate.wait(WAIT_SECONDS_MAX)
        super().fdatasync(fd)


def test_rmq_8239_a_follower_is_never_shown_a_record_whose_flush_is_still_under_way(tmp_path: Path) -> None:
    """It was shown, the power went, and its consumer stood beyond the log's end for ever."""
    disk = GatedFileSystem()
    with open_log(tmp_path / "s", disk) as log:
        append(log, new_message(b"flushed"))
        follower = log.following.follow(-1, 0)
        assert len(next(follower).requests) == 1
        disk.gate.clear()
        [written] = append(log, new_message(b"written"), sync=False)
        assert disk.is_waiting.wait(WAIT_SECONDS_MAX)

        batches = [next(follower) for _ in range(2)]
        late_follower = log.following.follow(-1, 0)
        late_batch = next(late_follower)

        assert [batch.requests for batch in batches] == [[], []]
        assert {batch.next_offset for batch in batches} == {written.commit_log_offset}
        assert {batch.log_end_offset for batch in batches} == {written.commit_log_offset}
        assert len(late_batch.requests) == 1
        with pytest.raises(OffsetOutOfRangeError):
            log.following.follow(log.status.end_offset, 0)

        disk.gate.set()
        shown = next(follower).requests or next(follower).requests
        assert [request.commit_log_offset for request in shown] == [written.commit_log_offset]


def test_a_batch_is_small_however_wide_its_requests_are(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        for _ in range(4):
            append(log, *[new_message(keys=["k" * 2000]) for _ in range(100)])
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        answers = servicer.Reput(pb.ReputRequest(start_offset=-1), None)
        first = next(answers)

        assert ANSWER_BYTES_MAX // 2 < first.ByteSize() < ANSWER_BYTES_MAX * 1.1
        count = len(first.requests)
        while count < 400:
            count += len(next(answers).requests)
        assert count == 400


def test_a_follower_keeps_no_batch_from_one_to_the_next(tmp_path: Path) -> None:
    """A reader may sleep between two batches for half a minute: nobody else may remember the first one then."""
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        append(log, *[new_message(keys=["k" * 2000]) for _ in range(100)])
        answers = CommitLogServicer(log, "broker-a", "127.0.0.1:10911").Reput(pb.ReputRequest(start_offset=-1), None)
        tracemalloc.start()
        try:
            size_bytes = len(next(answers).SerializeToString())
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()

        # Other threads import meanwhile: only what our own lines made counts.
        ours = snapshot.filter_traces([tracemalloc.Filter(True, f"*/{name}/*") for name in ("commitlog_svc", "store")])
        kept_bytes = sum(trace.size for trace in ours.traces)
        assert size_bytes > 200_000
        assert kept_bytes < size_bytes // 4


def test_a_follower_whose_next_record_was_retired_is_told_where_the_log_begins_now(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        for _ in range(40):
            append(log, new_message(b"x" * 1000))
        follower = log.following.follow(-1, 2000)
        assert isinstance(follower, LogFollower)
        next(follower)
        log._files.retire(40_000)

        with pytest.raises(OffsetOutOfRangeError) as caught:
            while True:
                next(follower)

        assert caught.value.metadata["firstOffset"] == str(log.status.first_offset)
        assert log.status.first_offset > 0
        with pytest.raises(OffsetOutOfRangeError):
            read_batch(log._files, 0, log.status.confirm_offset, 1000)


class CountingFlushes:
    """The flushes of a log that is all flushed, and what was waited for."""

    def __init__(self, confirm_offset: int) -> None:
        self.confirm_offset = confirm_offset
        self.waits: list[int] = []

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        self.waits.append(offset)
        return self.confirm_offset


@pytest.mark.parametrize("message_count", [0, 3])
def test_a_follower_that_begins_at_the_end_hears_at_once_that_there_is_no_more(
    tmp_path: Path, message_count: int
) -> None:
    """A builder of an empty log, or one that had all of it, was "catching up" until the first heartbeat."""
    with open_log(tmp_path / "s") as log:
        for _ in range(message_count):
            append(log, new_message(b"x"))
        end = log.status.flushed_offset
        flushes = CountingFlushes(end)
        follower = follow_log(log._files, flushes, end, 0)

        first = next(follower)
        assert (first.requests, first.next_offset, first.log_end_offset) == ([], end, end)
        assert flushes.waits == []
        next(follower)
        assert flushes.waits == [end], "then it waits: no busy loop"
