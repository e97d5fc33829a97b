"""The lag is a bound of the oldest unbuilt record's age, and 0 whenever nothing is unbuilt."""

from services.following.follower_lag import FollowerLag
from services.following.follower_progress import END_UNKNOWN, FollowerProgress
from services.observing.meters import Meters

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
