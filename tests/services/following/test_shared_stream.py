"""Followers of one process share a stream: each record once, in order, whatever becomes of the one that has the stream."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.commitlog import CommitLogClient, ReputBatch
from services.following.reput_tail import ReputTail
from services.following.shared_stream import GIVEN_COUNT_MAX, GIVEN_SECONDS_MAX, Giver, Meeting, Taking
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

SIZE_BYTES = 100
LOG = "unix:/log"


def batch_of(begin_offset: int, end_offset: int, log_end_offset: int | None = None) -> ReputBatch:
    """The records of 100 bytes between two offsets."""
    records = [
        DispatchRequest("orders", 0, offset // SIZE_BYTES, offset, SIZE_BYTES, 0, 1, (), "", 0, 0)
        for offset in range(begin_offset, end_offset, SIZE_BYTES)
    ]
    end_offset_of_log = end_offset if log_end_offset is None else log_end_offset
    return ReputBatch(DispatchColumns.of(records) if records else None, end_offset, 0, end_offset_of_log)


def offsets_of(batch: ReputBatch) -> list[int]:
    return batch.columns.commit_log_offsets.tolist() if batch.columns is not None else []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def given_by(giver: Giver | Taking | None) -> Giver:
    assert isinstance(giver, Giver)
    return giver


def taken_by(taking: Giver | Taking | None) -> Iterator[ReputBatch]:
    assert isinstance(taking, Taking)
    return iter(taking)


def test_the_first_tail_at_the_end_gives_and_the_others_take():
    meeting = Meeting()
    giver = given_by(meeting.meet(LOG, 100))
    takers = [taken_by(meeting.meet(LOG, 100)) for _ in range(2)]

    giver.give(batch_of(100, 300))

    assert [offsets_of(next(taker)) for taker in takers] == [[100, 200], [100, 200]]


def test_followers_of_another_log_have_a_giver_of_their_own():
    meeting = Meeting()
    given_by(meeting.meet(LOG, 100))

    given_by(meeting.meet("unix:/another", 100))


def test_a_taker_gets_only_the_records_that_it_does_not_have():
    meeting = Meeting()
    giver = given_by(meeting.meet(LOG, 100))
    taker = taken_by(meeting.meet(LOG, 300))

    giver.give(batch_of(100, 200))
    giver.give(batch_of(200, 500))
    giver.give(batch_of(500, 600))

    assert [offsets_of(next(taker)) for _ in range(2)] == [[300, 400], [500]]


def test_a_tail_that_is_behind_the_giver_goes_on_alone():
    meeting = Meeting()
    given_by(meeting.meet(LOG, 200))

    assert meeting.meet(LOG, 100) is None
    assert isinstance(meeting.meet(LOG, 200), Taking)


def test_a_tail_that_does_not_give_goes_on_alone_until_another_one_gives():
    meeting = Meeting()
    assert meeting.meet(LOG, 100, gives=False) is None

    given_by(meeting.meet(LOG, 100))

    assert isinstance(meeting.meet(LOG, 100, gives=False), Taking)


def test_what_was_given_is_applied_before_a_taker_leaves_a_giver_that_has_gone():
    meeting = Meeting()
    giver = given_by(meeting.meet(LOG, 0))
    taker = taken_by(meeting.meet(LOG, 0))
    giver.give(batch_of(0, 100))

    meeting.leave(LOG, giver)

    assert [offsets_of(batch) for batch in taker] == [[0]]
    given_by(meeting.meet(LOG, 100))


def test_a_taker_that_does_not_keep_up_is_given_no_more_and_holds_a_bounded_number_of_batches():
    meeting = Meeting()
    giver = given_by(meeting.meet(LOG, 0))
    taker = taken_by(meeting.meet(LOG, 0))

    for number in range(GIVEN_COUNT_MAX + 5):
        giver.give(batch_of(number * SIZE_BYTES, (number + 1) * SIZE_BYTES))

    assert [offsets_of(batch) for batch in taker] == [[number * SIZE_BYTES] for number in range(GIVEN_COUNT_MAX)]


def test_a_giver_that_hangs_is_replaced_by_the_next_tail_at_the_end():
    meeting, clock = Meeting(), Clock()
    hung = given_by(meeting.meet(LOG, 100, clock=clock))
    clock.now = GIVEN_SECONDS_MAX
    assert isinstance(meeting.meet(LOG, 100, clock=clock), Taking)
    clock.now += 0.1

    giver = given_by(meeting.meet(LOG, 200, clock=clock))

    assert (hung.is_replaced, giver.is_replaced) == (True, False)
    meeting.leave(LOG, hung)
    assert isinstance(meeting.meet(LOG, 200, clock=clock), Taking), "the new giver stays when the old one goes"


def test_a_tail_that_asks_for_pauses_does_not_give_and_gathers_what_it_takes():
    meeting, clock = Meeting(), Clock()
    assert meeting.meet(LOG, 0, pause_seconds=0.05, clock=clock) is None
    giver = given_by(meeting.meet(LOG, 0, clock=clock))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds
        giver.give(batch_of(200, 300))
        giver.give(batch_of(300, 400))

    taker = taken_by(meeting.meet(LOG, 0, pause_seconds=0.05, sleep=sleep, clock=clock))
    giver.give(batch_of(0, 100))
    giver.give(batch_of(100, 200))

    assert [offsets_of(next(taker)) for _ in range(4)] == [[0], [100], [200], [300]]
    assert slept == [pytest.approx(0.05)], "what has come is taken without a pause"


class GrowingLog:
    """A log whose streams send what it has, and then what comes; a heartbeat meanwhile."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.end_offset = 0
        self.opened_count = self.stream_count = 0

    def grow(self) -> int:
        with self.changed:
            self.end_offset += SIZE_BYTES
            self.changed.notify_all()
            return self.end_offset

    def reput(self, request: pb.ReputRequest, context) -> Iterator[pb.ReputResponse]:
        offset = max(0, request.start_offset)
        with self.changed:
            self.opened_count += 1
            self.stream_count += 1
        try:
            while context.is_active():
                with self.changed:
                    end_offset = self.end_offset
                    if offset == end_offset:
                        self.changed.wait(0.05)
                response = pb.ReputResponse(next_offset=end_offset, log_first_offset=0, log_end_offset=end_offset)
                for begin in range(offset, end_offset, SIZE_BYTES):
                    response.requests.add(topic="orders", commit_log_offset=begin, record_size_bytes=SIZE_BYTES)
                yield response
                offset = end_offset
        finally:
            with self.changed:
                self.stream_count -= 1


class Follower:
    """Keeps the offsets of what it is given; `before` runs before each batch."""

    def __init__(self, address: str, before: Callable[[], object] = lambda: None, *, gives: bool = True) -> None:
        self.applied: list[int] = []
        self.error: BaseException | None = None
        self.before = before
        self.tail = ReputTail(CommitLogClient(address), self.start_offset, self.apply, shares=True, gives=gives)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        try:
            self.tail.run()
        except RuntimeError as error:
            self.error = error

    def start_offset(self) -> int:
        return self.applied[-1] + SIZE_BYTES if self.applied else -1

    def apply(self, batch: ReputBatch) -> bool:
        self.before()
        self.applied += offsets_of(batch)
        return True

    def stop(self) -> None:
        self.tail.stop()
        self.thread.join(WAIT_SECONDS_MAX)
        assert not self.thread.is_alive()


@contextmanager
def followers_of(log: GrowingLog, count: int = 3) -> Iterator[list[Follower]]:
    with commit_log_server(reput=log.reput) as server:
        followers = [Follower(server.address) for _ in range(count)]
        try:
            yield followers
        finally:
            for follower in followers:
                follower.stop()


def wait_until_one_stream_is_left(log: GrowingLog, followers: list[Follower]) -> None:
    wait_until(
        lambda: log.opened_count >= len(followers) and log.stream_count == 1,
        lambda: f"{log.stream_count} of {log.opened_count} streams",
    )


def wait_until_all_have(log: GrowingLog, followers: list[Follower]) -> None:
    expected = list(range(0, log.end_offset, SIZE_BYTES))
    wait_until(
        lambda: all(follower.applied == expected for follower in followers),
        lambda: f"{[follower.applied for follower in followers]} of {expected}",
    )


def test_tails_of_one_process_have_one_stream_at_the_end_of_the_log():
    log = GrowingLog()
    log.grow()
    with followers_of(log) as followers:
        wait_until_one_stream_is_left(log, followers)
        for _ in range(20):
            log.grow()

        wait_until_all_have(log, followers)
        assert log.stream_count == 1


def test_an_error_of_one_follower_is_its_own_and_the_others_go_on():
    log = GrowingLog()
    with followers_of(log) as followers:
        wait_until_one_stream_is_left(log, followers)

        def fail() -> None:
            raise RuntimeError("a disk that fails")

        for failing, others in ((followers[0], followers[1:]), (followers[1], followers[2:])):
            failing.before = fail
            log.grow()
            wait_until_all_have(log, others)
            failing.thread.join(WAIT_SECONDS_MAX)
            assert str(failing.error) == "a disk that fails"


def test_a_follower_that_is_busy_delays_no_other():
    log = GrowingLog()
    with followers_of(log) as followers:
        wait_until_one_stream_is_left(log, followers)
        for busy in followers:  # one of them gives
            release = threading.Event()
            busy.before = lambda release=release: release.wait(WAIT_SECONDS_MAX)
            log.grow()
            try:
                wait_until_all_have(log, [follower for follower in followers if follower is not busy])
            finally:
                release.set()
            wait_until_all_have(log, followers)


def test_a_follower_with_work_between_its_batches_does_not_give_and_holds_up_nobody():
    """Named after a bug: the consumer service looked through lite topics for a second behind each batch that it gave."""
    log = GrowingLog()
    with commit_log_server(reput=log.reput) as server:
        busy, other = Follower(server.address, gives=False), None
        release, is_busy = threading.Event(), threading.Event()
        try:
            log.grow()
            wait_until_all_have(log, [busy])
            other = Follower(server.address)
            wait_until_one_stream_is_left(log, [busy, other])
            opened_count = log.opened_count

            busy.before = lambda: (is_busy.set(), release.wait(WAIT_SECONDS_MAX))
            for _ in range(5):
                log.grow()
                wait_until_all_have(log, [other])
                assert is_busy.wait(WAIT_SECONDS_MAX)

            assert log.opened_count == opened_count, "it had to leave no giver"
            release.set()
            wait_until_all_have(log, [busy])
        finally:
            release.set()
            for follower in (busy, other):
                if follower is not None:
                    follower.stop()
