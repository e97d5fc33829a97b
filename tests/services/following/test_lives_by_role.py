"""Lives of a follower that appends: one for each role that its commit log has among the replicas of the shard."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from services.calling.commitlog import ReputBatch, ReputStream
from services.following import reput_tail
from services.following.follower_process import (
    ROLE_SECONDS,
    SHOW_SECONDS,
    FollowerProcess,
    FollowerState,
    LifeOverError,
)
from services.following.follower_progress import FollowerProgress
from services.following.shared_stream import Giver, Meeting, Taking
from services.replica_role import ReplicaRole
from store.errors import DiskFullError, ServiceUnavailableError
from tests.support.calls import Answers
from tests.support.waiting import WAIT_SECONDS_MAX

FOLLOWS = ReplicaRole(leads=False)


class Log(Answers):
    """A commit log with a role; its stream has heartbeats only. Also its client."""

    def __init__(self, role: str = "", epoch: int = 0) -> None:
        self.role, self.epoch = role, epoch
        self.is_reachable = True
        self.wanted_count = 0  # how often it was asked to show at once what it has

    def GetStatus(self, request: log_pb.GetStatusRequest) -> log_pb.GetStatusResponse:
        self.wanted_count += request.flush_soon
        if not self.is_reachable:
            raise ServiceUnavailableError("commitlog is not there")
        return log_pb.GetStatusResponse(state="serving", role=self.role, epoch=self.epoch)

    def reput(self, start_offset: int, batch_bytes_max: int = 0, **_options: object) -> "Log":
        return self

    def __iter__(self) -> Iterator[ReputBatch]:
        while True:
            yield ReputBatch(None, 0, 0, 0)

    def ReportProgress(self, _request: object) -> log_pb.ReportProgressResponse:
        return log_pb.ReportProgressResponse()

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


class LogOfStreams(Log):
    """The same with the streams of a client, which followers can share."""

    target = "unix:/log"

    def reput(self, start_offset: int, batch_bytes_max: int = 0, **_options: object) -> ReputStream:
        return ReputStream(self)

    def __iter__(self) -> Iterator[log_pb.ReputResponse]:
        while True:
            yield log_pb.ReputResponse()


class Life:
    """A follower that does nothing with the log."""

    def __init__(self, part: "Part") -> None:
        self.part = part

    def begin(self) -> None:
        pass

    def start_offset(self) -> int:
        return 0

    def apply(self, records: object, next_offset: int, log_first_offset: int, log_end_offset: int) -> bool:
        self.part.applied.release()
        if self.part.fails.is_set():
            self.part.fails.clear()
            raise DiskFullError("no space left for the log", file="commitlog")
        if self.part.ends_life.is_set():
            self.part.ends_life.clear()
            raise LifeOverError
        self.part.seconds += ROLE_SECONDS
        return True

    def stop(self) -> None:
        self.part.ended.append("stopped")

    def abandon(self) -> None:
        self.part.ended.append("abandoned")


class Part:
    """Notes the role for which each life was opened."""

    def __init__(self) -> None:
        self.roles: list[ReplicaRole] = []
        self.ended: list[str] = []
        self.opened, self.applied = threading.Semaphore(0), threading.Semaphore(0)
        self.ends_life, self.fails = threading.Event(), threading.Event()
        self.serving: list[bool] = []
        self.seconds = 0.0

    def check(self) -> None:
        pass

    def is_unbuilt(self) -> bool:
        return False

    def shut(self) -> None:
        pass

    def open(self, log, *, drop_cache: bool) -> Life:
        self.roles.append(log.role)
        self.opened.release()
        return Life(self)

    def wait_until_opened(self) -> ReplicaRole:
        assert self.opened.acquire(timeout=WAIT_SECONDS_MAX)
        return self.roles[-1]

    def wait_until_applied(self, count: int) -> None:
        while self.applied.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.applied.acquire(timeout=WAIT_SECONDS_MAX)


@pytest.fixture
def start(tmp_path: Path):
    started = []

    def start(log: Log, *, follows_role: bool = True) -> Part:
        part = Part()
        part.progress = FollowerProgress()
        process = FollowerProcess(
            "consumer", tmp_path, part, log, part.progress, part.serving.append, threading.Event(),
            follows_role=follows_role, clock=lambda: part.seconds, wait=lambda _: None,
        )  # fmt: skip
        thread = threading.Thread(target=process.run, daemon=True)
        thread.start()
        started.append((process, thread))
        part.process = process
        return part

    yield start
    for process, thread in started:
        process.stop()
        thread.join(WAIT_SECONDS_MAX)
        assert not thread.is_alive()


def test_a_log_without_replicas_leads_and_its_life_goes_on(start) -> None:
    part = start(Log())

    assert part.wait_until_opened() == ReplicaRole(leads=True, epoch=0)
    part.wait_until_applied(5)
    assert (len(part.roles), part.ended) == (1, [])


def test_a_life_that_reads_ends_when_the_log_begins_to_lead(start) -> None:
    log = Log("unknown")
    part = start(log)
    assert part.wait_until_opened() == FOLLOWS

    log.role, log.epoch = "follower", 3
    part.wait_until_applied(5)
    assert part.ended == [], "still nothing to append to"
    log.role, log.epoch = "leader", 4

    assert part.wait_until_opened() == ReplicaRole(leads=True, epoch=4)
    assert part.ended == ["abandoned"]
    assert part.process.state().failure_count == 0


@pytest.mark.parametrize(("role", "epoch"), [("follower", 6), ("leader", 7)])
def test_a_life_of_a_leader_ends_with_its_epoch(start, role: str, epoch: int) -> None:
    """Also when the same replica leads again: another one may have changed the state meanwhile."""
    log = Log("leader", 5)
    part = start(log)
    part.wait_until_opened()

    log.role, log.epoch = role, epoch

    assert part.wait_until_opened() == ReplicaRole(role == "leader", epoch if role == "leader" else 0)


def test_a_life_goes_on_while_the_log_does_not_say_what_it_is(start) -> None:
    log = Log("leader", 5)
    part = start(log)
    part.wait_until_opened()

    log.is_reachable = False
    part.wait_until_applied(5)

    assert (len(part.roles), part.ended) == (1, [])


def test_a_builder_has_one_life_whatever_the_role_is(start) -> None:
    log = Log("follower")
    part = start(log, follows_role=False)
    part.wait_until_opened()

    log.role, log.epoch = "leader", 1
    part.wait_until_applied(5)

    assert (len(part.roles), part.ended) == (1, [])


def test_a_life_that_ends_itself_is_followed_by_the_next_one_without_a_failure(start) -> None:
    part = start(Log("follower"))
    part.wait_until_opened()

    part.ends_life.set()

    part.wait_until_opened()
    assert part.ended == ["abandoned"]
    assert part.process.state().failure_count == 0


def test_a_life_that_goes_on_after_a_full_disk_serves_though_old_records_are_still_needed(start) -> None:
    """It said `retrying`, and NOT_SERVING, until the log had grown by as much as a start may read."""
    part = start(Log())
    part.wait_until_opened()
    part.wait_until_applied(5)
    progress = part.process.progress
    progress.see_log(0, 1_000)
    progress.advance(1_000, None)

    part.fails.set()
    part.wait_until_opened()
    progress.see_log(0, 1_100)
    progress.advance(1_100, None)  # the record with which a life begins
    part.process.flushed(10, None)  # a start would read again from there
    part.wait_until_applied(5)

    assert part.ended == ["abandoned"]
    assert part.process.state() == FollowerState("serving", 0, "")
    assert part.serving[-1] is True


@pytest.mark.parametrize(("role", "counts"), [("follower", [1, 1, 2]), ("", [0, 0, 0])])
def test_a_replicas_log_is_told_now_and_then_that_somebody_waits_and_one_without_replicas_never(
    start, role: str, counts: list[int]
) -> None:
    log = Log(role)
    part = start(log, follows_role=False)
    part.wait_until_opened()
    part.wait_until_applied(1)
    seen = []
    for seconds in (0.0, SHOW_SECONDS - 0.1, SHOW_SECONDS):
        part.process._clock = lambda seconds=seconds: 1_000_000 + seconds
        part.progress.wait_past(1 << 40, 0)
        part.progress.wait_past(-1, 0)  # what is applied is not waited for
        seen.append(log.wanted_count)
    assert seen == counts


@pytest.mark.parametrize("follows_role", [True, False])
def test_a_part_that_appends_gives_no_other_what_it_reads_and_a_builder_does(
    start, monkeypatch: pytest.MonkeyPatch, follows_role: bool
) -> None:
    """It does what comes with time behind each batch, for a second or more, and whoever takes from it would wait."""
    meeting = Meeting()
    monkeypatch.setattr(reput_tail, "MEETING", meeting)
    part = start(LogOfStreams(), follows_role=follows_role)

    part.wait_until_applied(3)

    met = meeting.meet(LogOfStreams.target, 0, clock=lambda: part.seconds)
    assert isinstance(met, Giver if follows_role else Taking)
