"""The flush thread: who waits for what, how old and how much may be unflushed, and that a refused flush is the last."""

import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from commitlog_svc.append.group_commit import GroupCommit
from store.errors import FlushFailedError, StoreError
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

FAR_MILLIS = 3_600_000  # a flush that comes by age alone would never come within a test


class Disk:
    """Flushes that a test holds, counts and refuses."""

    def __init__(self) -> None:
        self.flushed: list[tuple[int, int]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def flush(self, begin: int, end: int) -> None:
        self.entered.release()
        assert self.gate.wait(WAIT_SECONDS_MAX)
        if self.error is not None:
            raise self.error
        self.flushed.append((begin, end))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def started(disk: Disk) -> Iterator[Callable[..., GroupCommit]]:
    made: list[GroupCommit] = []

    def start(interval_millis: int = FAR_MILLIS, unflushed_bytes_max: int = 1 << 20) -> GroupCommit:
        failures: list[StoreError] = []
        commits = GroupCommit(disk.flush, interval_millis, failures.append, unflushed_bytes_max)
        commits.start(0)
        made.append(commits)
        return commits

    yield start
    disk.gate.set()
    for commits in made:
        commits.close()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Runs work aside; what it raised is in the list."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_waiters_that_come_during_a_flush_share_the_next_one(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started()
    disk.gate.clear()
    commits.note_written(100)
    first, _ = in_thread(lambda: commits.wait_flushed(100))
    assert disk.entered.acquire(timeout=WAIT_SECONDS_MAX)
    for end in range(200, 1200, 100):
        commits.note_written(end)
    waiters = [in_thread(lambda end=end: commits.wait_flushed(end))[0] for end in range(200, 1200, 100)]
    disk.gate.set()
    for thread in [first, *waiters]:
        thread.join(WAIT_SECONDS_MAX)
        assert not thread.is_alive()
    assert disk.flushed == [(0, 100), (100, 1100)]


def test_an_answer_never_comes_before_its_flush(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started()
    disk.gate.clear()
    commits.note_written(100)
    thread, _ = in_thread(lambda: commits.wait_flushed(100))
    assert disk.entered.acquire(timeout=WAIT_SECONDS_MAX)
    assert commits.flushed_offset == 0
    assert thread.is_alive()
    disk.gate.set()
    thread.join(WAIT_SECONDS_MAX)
    assert commits.flushed_offset == 100


def test_without_a_waiter_the_flush_comes_by_age(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started(interval_millis=20)
    commits.note_written(100)
    assert commits.wait_beyond(0, WAIT_SECONDS_MAX) == 100


class Timed:
    """A group commit of 500 ms; its thread waits with `Condition.wait_for` only, which a counting one replaces.

    Attributes:
        now: seconds; a wait moves it.
        waits: the timeouts of the flush thread, in seconds.
    """

    def __init__(self, disk: Disk, flush_seconds: float = 0.0) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

        def flush(begin: int, end: int) -> None:
            disk.flush(begin, end)
            self.now += flush_seconds

        self.commits = GroupCommit(flush, 500, lambda error: None, 1 << 20, clock=lambda: self.now)
        self._wait_for = self.commits._work.wait_for
        self.commits._work.wait_for = self._wait
        self.commits.start(0)

    def _wait(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if timeout is None:
            return self._wait_for(predicate)
        self.waits.append(timeout)
        self.now += timeout
        return predicate()

    def write(self, end_offset: int) -> None:
        """Write, and wait until it is flushed."""
        self.commits.note_written(end_offset)
        wait_until(lambda: self.commits.flushed_offset == end_offset)
        wait_until(lambda: self.commits._is_idle)


def test_a_flush_begins_an_interval_after_the_one_before_began_and_at_once_after_a_pause(disk: Disk) -> None:
    timed = Timed(disk)
    disk.gate.clear()
    timed.commits.note_written(100)
    assert disk.entered.acquire(timeout=WAIT_SECONDS_MAX)
    timed.commits.note_written(200)  # while the first flush runs
    timed.now += 0.3  # and it runs for long
    disk.gate.set()
    wait_until(lambda: timed.commits.flushed_offset == 200)
    timed.now += 7
    timed.write(300)
    timed.commits.close()
    assert timed.waits == [pytest.approx(0.5), pytest.approx(0.2), 0.0]


def test_where_a_flush_is_slow_what_comes_after_a_pause_is_gathered(disk: Disk) -> None:
    """What is written right behind the begin of a flush would wait for two of them."""
    timed = Timed(disk, flush_seconds=0.6)
    timed.write(100)
    timed.now += 7
    timed.write(200)
    timed.commits.close()
    assert timed.waits == [pytest.approx(0.5), pytest.approx(0.5)]


def test_many_bytes_are_flushed_before_their_time(started: Callable[..., GroupCommit]) -> None:
    commits = started(unflushed_bytes_max=1000)
    commits.note_written(499)
    assert commits.flushed_offset == 0
    commits.note_written(500)
    assert commits.wait_beyond(0, WAIT_SECONDS_MAX) == 500


def test_who_writes_faster_than_the_disk_waits_before_writing(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started(unflushed_bytes_max=1000)
    disk.gate.clear()
    commits.wait_for_room()
    commits.note_written(1000)
    assert disk.entered.acquire(timeout=WAIT_SECONDS_MAX)
    thread, _ = in_thread(commits.wait_for_room)
    thread.join(0.05)
    assert thread.is_alive()
    disk.gate.set()
    thread.join(WAIT_SECONDS_MAX)
    assert not thread.is_alive()


def test_rmq_2706_after_a_refused_flush_nobody_is_told_ok_and_none_is_tried_again(
    started: Callable[..., GroupCommit], disk: Disk
) -> None:
    commits = started()
    disk.gate.clear()
    disk.error = FlushFailedError("the disk refused")
    commits.note_written(100)
    waiting, raised = in_thread(lambda: commits.wait_flushed(100))
    assert disk.entered.acquire(timeout=WAIT_SECONDS_MAX)
    commits.note_written(200)
    later, raised_later = in_thread(lambda: commits.wait_flushed(200))
    disk.gate.set()
    for thread in (waiting, later):
        thread.join(WAIT_SECONDS_MAX)
    disk.error = None  # from now on the disk "works"
    with pytest.raises(FlushFailedError):
        commits.wait_flushed(100)
    commits.note_written(300)
    commits.close()
    assert [type(error) for error in raised + raised_later] == [FlushFailedError, FlushFailedError]
    assert disk.flushed == []
    assert commits.flushed_offset == 0
    assert not disk.entered.acquire(blocking=False)


def test_who_waits_for_room_is_told_of_a_refused_flush(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started(unflushed_bytes_max=1000)
    disk.gate.clear()
    disk.error = OSError(5, "Input/output error")
    commits.note_written(2000)
    thread, raised = in_thread(commits.wait_for_room)
    disk.gate.set()
    thread.join(WAIT_SECONDS_MAX)
    assert [type(error) for error in raised] == [FlushFailedError]


def test_the_end_flushes_what_is_written(started: Callable[..., GroupCommit], disk: Disk) -> None:
    commits = started()
    commits.note_written(100)
    commits.close()
    assert disk.flushed == [(0, 100)]
    assert commits.flushed_offset == 100


def test_a_flush_that_is_wanted_comes_without_a_waiter_and_a_failure_is_said_to_who_wants_one(
    disk: Disk, started: Callable[..., GroupCommit]
) -> None:
    commits = started()
    commits.note_written(100)
    commits.want_flushed(100)
    wait_until(lambda: commits.flushed_offset == 100, "the flush by age would not come within the test")
    commits.raise_failure()

    disk.error = FlushFailedError("the disk is gone")
    commits.note_written(200)
    commits.want_flushed(200)
    wait_until(lambda: commits.failure is not None, "the flush fails")
    with pytest.raises(FlushFailedError):
        commits.want_flushed(200)
    with pytest.raises(FlushFailedError):
        commits.raise_failure()
    commits.want_flushed(100)


def test_a_flush_releases_the_appends_that_wait_for_it_before_it_tells_followers() -> None:
    commits = GroupCommit(lambda begin, end: None, 10, lambda error: None)
    turn = threading.Lock()
    turn.acquire()
    commits._waiters.append((5, turn))
    commits._flushed_offset = 5
    still_waits: list[bool] = []
    commits._progress = Mock(notify_all=lambda: still_waits.append(turn.locked()))
    commits._wake()
    assert still_waits == [False]
