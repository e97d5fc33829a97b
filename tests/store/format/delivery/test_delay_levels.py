"""The list of delay levels, and the tags codes that follow from it."""

from collections.abc import Iterator

import pytest

from store.errors import InvalidArgumentError
from store.format.delivery.delay_levels import (
    DELAY_LEVELS_DEFAULT,
    DELAY_LEVELS_MILLIS,
    LEVEL_COUNT_MAX,
    delay_levels_in_use,
    delay_millis,
    hold_delay_levels,
    parse_delay_levels,
    use_delay_levels,
)
from store.format.derived.queue_unit import tags_code
from store.format.topic import SCHEDULE_TOPIC


@pytest.fixture
def own_list() -> Iterator[None]:
    use_delay_levels(parse_delay_levels("3s 2m"))
    yield
    use_delay_levels(DELAY_LEVELS_MILLIS)


def test_rocketmqs_list_has_eighteen_levels() -> None:
    """`MessageStoreConfig.messageDelayLevel` of 5.3.3."""
    seconds = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
    assert "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h" == DELAY_LEVELS_DEFAULT
    assert tuple(1000 * each for each in seconds) == DELAY_LEVELS_MILLIS


def test_units_are_seconds_minutes_hours_and_days() -> None:
    assert (7_000, 120_000, 10_800_000, 345_600_000, 0) == parse_delay_levels("7s 2m 3h 4d 0s")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "level 1 of the delay levels is ''"),
        ("1s  5s", "level 2 of the delay levels is ''"),
        ("1s 5s ", "level 3 of the delay levels is ''"),
        ("1s 5", "level 2 of the delay levels is '5'"),
        ("1s 5w", "is '5w'"),
        ("-1s", "is '-1s'"),
        ("1.5s", "is '1.5s'"),
        ("s", "is 's'"),
        ("1s\t5s", "level 1 of the delay levels is"),
        ("9999999d", "is '9999999d'"),
        (" ".join(["1s"] * (LEVEL_COUNT_MAX + 1)), f"at most {LEVEL_COUNT_MAX}"),
    ],
)
def test_a_malformed_list_says_what_is_wrong_with_it(text: str, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        parse_delay_levels(text)


@pytest.mark.usefixtures("own_list")
def test_a_level_above_the_largest_of_an_own_list_is_the_largest() -> None:
    assert [3_000, 120_000, 120_000] == [delay_millis(level) for level in (1, 2, 18)]


@pytest.mark.usefixtures("own_list")
def test_the_tags_code_of_a_delayed_record_follows_an_own_list() -> None:
    assert [1_003_000, 1_120_000] == [tags_code(SCHEDULE_TOPIC, {"DELAY": level}, 1_000_000) for level in ("1", "9")]


def test_the_list_in_use_is_that_of_the_store(own_list: None) -> None:
    assert delay_levels_in_use() == (3_000, 120_000)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_of_two_stores_that_ends_took_the_delay_levels_of_the_other_away(first: int) -> None:
    own = parse_delay_levels("3s 2m")
    ends = [hold_delay_levels(own), hold_delay_levels(own)]
    ends.pop(first)()
    assert delay_levels_in_use() == own
    with pytest.raises(InvalidArgumentError, match="other delay levels"):
        hold_delay_levels(DELAY_LEVELS_MILLIS)
    ends.pop()()
    assert delay_levels_in_use() == DELAY_LEVELS_MILLIS
