"""The lag is a bound of the oldest unbuilt record's age, and 0 whenever nothing is unbuilt.

Calls that wait for a builder: woken by it, bounded in time and number.
"""

import threading

import pytest

from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from services.following.follower_progress import END_UNKNOWN, FollowerLag, FollowerProgress, ProgressWait
from services.observing.meters import Meters
from store.errors import InvalidArgumentError

WALL = 1_700_000_000.0


class Clocks:
    def __init__(self) -> None:
        self.now = 1_000.0

    def rising(self) -> float:
        return self.now

    def wall(self) -> float:
        return WALL + self.now - 1_000.0


def lag_at(
    next_offset: int, end_offset: int, *, applied_ago: float | None
) -> tuple[FollowerLag, FollowerProgress, Clocks]:
    clocks, progress = Clocks(), FollowerProgress()
    progress.see_log(0, end_offset)
    millis = None if applied_ago is None else round((WALL - applied_ago) * 1000)
    progress.advance(next_offset, millis)
    return FollowerLag(progress, clocks.rising, clocks.wall), progress, clocks


def test_nothing_is_known_before_the_log_was_seen():
    assert FollowerLag(FollowerProgress()).seconds() is None


def test_at_the_end_it_is_0_however_long_nobody_has_appended():
    lag, _, clocks = lag_at(500, 500, applied_ago=86_400)
    clocks.now += 3_600

    assert lag.seconds() == 0


def test_behind_after_a_long_silence_it_counts_from_the_last_time_at_the_end():
    lag, progress, clocks = lag_at(500, 500, applied_ago=86_400)
    lag.note(500, 500)
    clocks.now += 3
    progress.see_log(0, 900)

    assert lag.seconds() == 3


def test_under_constant_load_it_counts_from_the_newest_record_applied():
    lag, progress, clocks = lag_at(500, 900, applied_ago=0.25)
    lag.note(500, 500)
    clocks.now += 600
    progress.advance(800, round((clocks.wall() - 0.25) * 1000))

    assert abs(lag.seconds() - 0.25) < 0.002


def test_a_recovering_log_has_no_end_that_could_be_reached():
    lag, _, clocks = lag_at(500, 900, applied_ago=7)
    lag.note(700, END_UNKNOWN)
    clocks.now += 1

    assert abs(lag.seconds() - 8) < 0.002


def test_a_stalled_builder_is_not_at_the_end_because_nobody_knows_where_that_is():
    lag, progress, clocks = lag_at(500, 500, applied_ago=86_400)
    lag.note(500, 500)
    progress.stall()
    clocks.now += 5

    assert lag.seconds() == 5


def test_a_clock_that_was_set_back_makes_no_negative_lag():
    lag, _, _ = lag_at(500, 900, applied_ago=-60)

    assert lag.seconds() == 0


def test_it_is_shown_with_its_builder_once_it_is_known():
    meters = Meters()
    lag, _, _ = lag_at(500, 500, applied_ago=1)
    lag.show("index", meters)
    FollowerLag(FollowerProgress()).show("consumequeue", meters)

    assert [dict(gauge.read()) for gauge in meters.gauges] == [{("index",): 0.0}, {}]


REQUESTS = [index_pb.GetStatusRequest, queue_pb.GetStatusRequest]


class NotedProgress(FollowerProgress):
    """Notes who waits, and lets nobody wait long."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = []

    def wait_past(self, offset, timeout_seconds):
        self.waits.append((offset, timeout_seconds))
        return super().wait_past(offset, 0)


@pytest.mark.parametrize("request_class", REQUESTS)
def test_who_asks_for_no_wait_does_not_wait(request_class):
    progress = NotedProgress()
    wait = ProgressWait(progress, 1)
    assert not wait.wait(request_class())
    assert not wait.wait(request_class(past_offset=7))
    assert not wait.wait(request_class(wait_millis=7))
    assert wait.wait(request_class(past_offset=0, wait_millis=70))
    assert wait.wait(request_class(past_offset=8, wait_millis=2_000_000_000))
    assert progress.waits == [(0, 0.07), (8, 1.0)]


@pytest.mark.parametrize("request_class", REQUESTS)
@pytest.mark.parametrize("fields", [{"past_offset": -1, "wait_millis": 5}, {"past_offset": 1, "wait_millis": -5}])
def test_a_negative_number_is_refused(request_class, fields):
    with pytest.raises(InvalidArgumentError):
        ProgressWait(NotedProgress(), 1).wait(request_class(**fields))


def test_a_waiter_is_woken_by_the_record_that_it_waits_for_and_by_none_before():
    progress = FollowerProgress()
    progress.advance(100)
    woken = threading.Event()

    def wait() -> None:
        assert progress.wait_past(200, 60)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    for offset in (150, 200):  # the record that starts at 200 is not built yet
        progress.advance(offset)
        assert not woken.wait(0.05)
    progress.advance(300)
    assert woken.wait(60)
    thread.join()


def test_what_is_built_needs_no_wait_and_what_is_not_ends_with_the_time():
    progress = FollowerProgress()
    assert not progress.wait_past(0, 0)
    progress.advance(1)
    assert progress.wait_past(0, 0)
    assert not progress.wait_past(1, 0.01)


def test_who_finds_no_place_to_wait_is_answered_at_once():
    progress = FollowerProgress()
    begun = threading.Event()

    class OnePlace(NotedProgress):
        def wait_past(self, offset, timeout_seconds):
            begun.set()
            return progress.wait_past(offset, 60)

    wait = ProgressWait(OnePlace(), 1)
    request = index_pb.GetStatusRequest(past_offset=0, wait_millis=1000)
    first = threading.Thread(target=wait.wait, args=[request])
    first.start()
    assert begun.wait(60)
    assert wait.wait(request), "it asked to wait, so the counts are left out all the same"
    assert first.is_alive()
    progress.advance(1)
    first.join()
    assert wait.wait(request), "the place is free again"
