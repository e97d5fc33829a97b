"""What followers of the log are shown, and what they make the log keep: nothing."""

import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlog_svc.reput.reput import (
    ANSWER_BYTES_MAX,
    BATCH_BYTES_MAX,
    COPY_GATHER_SECONDS,
    GATHER_BYTES_MIN,
    GATHER_SECONDS,
    HEARTBEAT_SECONDS,
    READ_COPY_GATHER_SECONDS,
    READ_SECONDS,
    SMALL_GATHER_SECONDS,
    CopyPauses,
    Gathering,
    LogFollower,
    follow_log,
    gather_seconds,
    read_batch,
)
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import WAIT_SECONDS_MAX


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


def test_followers_get_the_columns_of_their_own_place_whoever_else_asks(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        offsets = [receipt.commit_log_offset for receipt in append(log, *[new_message(b"x" * 400)] * 12)]
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        starts = (offsets[0], offsets[0], offsets[1], offsets[5])
        streams = [
            servicer.Reput(pb.ReputRequest(start_offset=start, batch_bytes_max=1_200, columns=True), None)
            for start in starts
        ]
        shown: list[list[int]] = [[] for _ in streams]
        for number in (0, 1, 2, 0, 1, 3, 2, 3, 0, 2, 1, 3) * 6:
            if len(shown[number]) < len(offsets) - offsets.index(starts[number]):
                shown[number] += np.frombuffer(next(streams[number]).columns.commit_log_offsets, "<i8").tolist()

        assert shown == [[offset for offset in offsets if offset >= start] for start in starts]


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


class Pauses:
    """A clock that stands still but for pauses, in which something may happen."""

    def __init__(self) -> None:
        self.now = 100.0
        self.taken: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.now += seconds
        self.meanwhile()


class LongPauses(CopyPauses):
    """Pauses that no test outlives, unless they end."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = WAIT_SECONDS_MAX
        self.begins: Callable[[], object] = lambda: None
        self.ended: list[bool] = []

    def take(self, seconds: float, offset: int) -> bool:
        self.begins()
        self.ended.append(super().take(self.seconds, offset))
        assert self.ended[-1] or not self.seconds, "the pause ended"
        return self.ended[-1]


def test_what_comes_soon_after_a_large_batch_is_one_batch_and_what_comes_after_a_pause_is_shown_at_once(
    tmp_path: Path,
) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = Pauses()
        gathering = Gathering(clock=lambda: pauses.now, sleep=pauses.sleep)
        follower = follow_log(log._files, log.confirm, 0, BATCH_BYTES_MAX, gathering=gathering)
        next(follower)  # the log is empty
        append(log, new_message(b"x" * GATHER_BYTES_MIN))
        assert len(next(follower).requests) == 1
        assert pauses.taken == []
        append(log, new_message(b"x" * GATHER_BYTES_MIN))
        pauses.meanwhile = lambda: append(log, new_message(b"soon"))
        assert len(next(follower).requests) == 2
        assert pauses.taken == [pytest.approx(GATHER_SECONDS)]

        pauses.now += GATHER_SECONDS
        append(log, new_message(b"x"))
        assert len(next(follower).requests) == 1
        assert len(pauses.taken) == 1


@pytest.mark.parametrize(("is_copy", "pause_seconds"), [(False, SMALL_GATHER_SECONDS), (True, COPY_GATHER_SECONDS)])
def test_messages_that_are_flushed_one_by_one_are_gathered_and_at_a_low_rate_shown_at_once(
    tmp_path: Path, is_copy: bool, pause_seconds: float
) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = Pauses()
        gathering = Gathering(lambda: is_copy, lambda: pauses.now, pauses.sleep)
        follower = follow_log(log._files, log.confirm, 0, BATCH_BYTES_MAX, gathering=gathering)
        next(follower)  # the log is empty
        for _ in range(2):
            append(log, new_message(b"x"))
            assert len(next(follower).requests) == 1
        assert pauses.taken == [pytest.approx(pause_seconds)]
        for _ in range(2):
            pauses.now += pause_seconds
            append(log, new_message(b"x"))
            assert len(next(follower).requests) == 1
        assert len(pauses.taken) == 1


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_follower_that_asks_for_a_pause_gets_what_comes_within_it_as_one_batch(tmp_path: Path, is_copy: bool) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = Pauses()
        gathering = log.following.gathering = Gathering(lambda: is_copy, lambda: pauses.now, pauses.sleep)
        follower = log.following.follow(-1, 0, gather_millis=50)
        next(follower)  # the log is empty
        append(log, new_message(b"x"))
        assert len(next(follower).requests) == 1
        assert pauses.taken == []
        append(log, new_message(b"x"))
        pauses.meanwhile = lambda: append(log, new_message(b"soon"))
        assert len(next(follower).requests) == 2
        pause_seconds = COPY_GATHER_SECONDS if is_copy else 0.05  # the longer one
        assert pauses.taken == [pytest.approx(pause_seconds)]

        pauses.now += pause_seconds
        append(log, new_message(b"x"))
        assert len(next(follower).requests) == 1
        assert len(pauses.taken) == 1
        assert log.following.gathering is gathering, "other followers did not ask for it"


def test_a_replica_gathers_for_longer_while_nobody_waits_for_its_followers() -> None:
    now = [100.0]
    pauses = CopyPauses(lambda: now[0])

    def seconds() -> float:
        return gather_seconds(1, is_copy=True, is_read=pauses.is_read)

    assert seconds() == COPY_GATHER_SECONDS
    pauses.end(0, is_read=False)  # it began to lead, and nobody has read it
    assert seconds() == COPY_GATHER_SECONDS
    pauses.end(0, is_read=True)
    assert seconds() == READ_COPY_GATHER_SECONDS < COPY_GATHER_SECONDS
    now[0] += READ_SECONDS
    assert seconds() == COPY_GATHER_SECONDS


def test_a_pause_of_a_replicas_follower_ends_when_somebody_wants_what_it_lacks(tmp_path: Path) -> None:
    """Also one that had not begun yet; a follower that has all goes on with its pause."""
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = LongPauses()
        log.following.gathering = Gathering(is_copy=lambda: True, pauses=pauses)
        follower = log.following.follow(-1, 0)
        next(follower)  # the log is empty
        append(log, new_message(b"x"))
        assert len(next(follower).requests) == 1
        append(log, new_message(b"x"))
        thread = threading.Thread(target=log.following.show_now, kwargs={"is_read": True})
        pauses.begins = thread.start

        assert len(next(follower).requests) == 1

        append(log, new_message(b"x"))
        log.following.show_now(is_read=True)
        pauses.begins = lambda: None
        assert len(next(follower).requests) == 1
        pauses.begins = lambda: pauses.end(log.status.flushed_offset, is_read=False)
        pauses.seconds = 0.0
        assert next(follower).requests == [], "the pause went on to its end"
        thread.join()


def test_a_pause_of_a_log_that_leads_goes_on_although_somebody_reads(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = LongPauses()
        log.following.gathering = Gathering(is_copy=lambda: False, pauses=pauses)
        append(log, new_message(b"x"))

        log.following.show_now(is_read=True)
        assert not pauses.is_read
        pauses.seconds = 0.0
        pauses.take(1.0, 0)
        assert pauses.ended == [False]

        log.following.show_now(is_read=False)  # it begins to lead
        pauses.take(1.0, 0)
        assert pauses.ended == [False, True]


def test_a_pause_is_no_longer_than_a_heartbeat_and_not_negative(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        pauses = Pauses()
        log.following.gathering = Gathering(clock=lambda: pauses.now, sleep=pauses.sleep)
        follower = log.following.follow(-1, 0, gather_millis=1 << 30)
        for _ in range(2):
            append(log, new_message(b"x"))
            assert len(next(follower).requests) == 1
        assert pauses.taken == [pytest.approx(HEARTBEAT_SECONDS)]

        with pytest.raises(InvalidArgumentError, match="gather_millis is -1"):
            log.following.follow(-1, 0, gather_millis=-1)


def test_a_follower_that_is_behind_is_given_batch_after_batch(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        for _ in range(10):
            append(log, new_message(b"x" * GATHER_BYTES_MIN))
        pauses = Pauses()
        gathering = Gathering(lambda: True, lambda: pauses.now, pauses.sleep)
        follower = follow_log(log._files, log.confirm, 0, GATHER_BYTES_MIN, gathering=gathering)

        count = 0
        while count < 10:
            count += len(next(follower).requests)
        assert pauses.taken == []
