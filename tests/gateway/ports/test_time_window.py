"""Times of requests become milliseconds without losing a message at either end."""

import pytest

from gateway.ports.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from store.errors import InvalidArgumentError


def test_a_begin_inside_a_millisecond_is_rounded_up_and_an_end_down():
    assert millis_at_or_after(1, 1, "begin_time") == 1001
    assert millis_at_or_after(1, 1_000_000, "begin_time") == 1001
    assert millis_at_or_after(1, 999_999_999, "begin_time") == 2000
    assert millis_at_or_before(1, 999_999, "end_time") == 1000
    assert millis_at_or_before(1, 999_999_999, "end_time") == 1999


def test_the_year_9999_is_a_time():
    assert millis_at_or_before(253_402_300_799, 999_000_000, "end_time") == 253_402_300_799_999


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (253_402_300_800, 0), (0, -1), (0, 1_000_000_000)])
@pytest.mark.parametrize("convert", [millis_at_or_after, millis_at_or_before])
def test_a_time_outside_1970_to_9999_is_refused_by_field(convert, seconds, nanos):
    with pytest.raises(InvalidArgumentError) as refused:
        convert(seconds, nanos, "begin_time")

    assert refused.value.metadata["field"] == "begin_time"


def test_a_window_holds_both_its_ends():
    window = TimeWindow(10, 20)

    assert [window.holds(millis) for millis in (9, 10, 20, 21)] == [False, True, True, False]
    assert TimeWindow(5, 5).holds(5)
    assert TimeWindow().holds(0)


def test_a_window_that_ends_before_it_begins_is_refused():
    with pytest.raises(InvalidArgumentError) as refused:
        TimeWindow(11, 10)

    assert refused.value.metadata["field"] == "begin_time"
