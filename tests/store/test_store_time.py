"""A record of the future holds no clock up, and a small step back keeps the order."""

import pytest

from services.following.store_clock import DueClock, StoreClock
from store.store_time import AHEAD_MILLIS_MAX, next_store_time

NOW = 1_790_000_000_000
YEAR_2050 = 2_524_608_000_000


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (0, NOW),
        (NOW - 1, NOW),
        (NOW, NOW),
        (NOW + 1, NOW + 1),
        (NOW + AHEAD_MILLIS_MAX, NOW + AHEAD_MILLIS_MAX),
        (NOW + AHEAD_MILLIS_MAX + 1, NOW),
        (YEAR_2050, NOW),
    ],
)
def test_the_newest_record_counts_only_within_a_minute_of_the_clock(newest: int, expected: int) -> None:
    assert next_store_time(NOW, newest) == expected
    assert StoreClock(lambda: NOW / 1000, lambda: 0.0, newest).millis() == expected
    assert DueClock(lambda: NOW, newest).millis() == expected
    seeing = DueClock(lambda: NOW)
    seeing.see(newest)
    assert seeing.millis() == expected


def test_a_record_of_2050_that_was_seen_makes_nothing_due_when_its_time_comes_near() -> None:
    now = [NOW]
    clock = DueClock(lambda: now[0])
    clock.see(YEAR_2050)
    now[0] = YEAR_2050 - 30_000
    assert clock.millis() == YEAR_2050 - 30_000
