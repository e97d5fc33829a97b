"""Times as people type them."""

import time
from collections.abc import Callable, Iterator

import pytest

from cli.exits import CliError
from cli.times import iso_text, moment_of, parse_limit, parse_place, parse_time, parse_zone, set_zone, utc_text

NOW_MILLIS = 1_795_256_951_776


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("-1", -1),
        ("1795256951776", 1_795_256_951_776),
        ("now", NOW_MILLIS),
        ("-2h", NOW_MILLIS - 7_200_000),
        ("-1d12h30m", NOW_MILLIS - 131_400_000),
        ("-250ms", NOW_MILLIS - 250),
        ("-1w", NOW_MILLIS - 604_800_000),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T08:00:00+08:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_time_is_read_to_the_millisecond(text: str, millis: int) -> None:
    assert millis == parse_time(text, NOW_MILLIS)


@pytest.mark.parametrize("text", ["", "yesterday", "-2y", "2h", "2026-13-01", "0x10", "1e9"])
def test_what_is_no_time_is_refused_as_usage(text: str) -> None:
    with pytest.raises(CliError) as refused:
        parse_time(text, NOW_MILLIS)

    assert refused.value.code == 2


def test_mqadmins_default_end_limits_nothing() -> None:
    """mqadmin's -e defaults to Long.MAX_VALUE, which no Timestamp can say."""
    assert parse_limit("9223372036854775807", NOW_MILLIS, is_end=True) is None
    assert parse_limit(None, NOW_MILLIS, is_end=True) is None
    assert parse_limit("0", NOW_MILLIS, is_end=False) == 0
    with pytest.raises(CliError):
        parse_limit("9223372036854775807", NOW_MILLIS, is_end=False)


def test_a_time_before_1970_prints_as_itself() -> None:
    assert iso_text(moment_of(-1)) == "1969-12-31T23:59:59.999Z"
    assert iso_text(moment_of(1_795_256_951_776)) == "2026-11-21T10:29:11.776Z"


@pytest.fixture
def zoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone that `--tz` asks for; the machine's is nine hours east."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield lambda text: set_zone(parse_zone(text))
    set_zone(None)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("", "2026-11-21T10:29:11.776Z"),
        ("UTC", "2026-11-21T10:29:11.776Z"),
        ("local", "2026-11-21T19:29:11.776+09:00"),
        ("+08:00", "2026-11-21T18:29:11.776+08:00"),
        ("-0330", "2026-11-21T06:59:11.776-03:30"),
        ("Europe/Berlin", "2026-11-21T11:29:11.776+01:00"),
    ],
)
def test_times_are_printed_in_the_zone_that_is_asked_for_and_read_back(
    zoned: Callable[[str], None], zone: str, shown: str
) -> None:
    zoned(zone)
    assert iso_text(moment_of(NOW_MILLIS)) == shown
    assert parse_time(shown, 0) == NOW_MILLIS
    assert utc_text(moment_of(NOW_MILLIS)) == "2026-11-21T10:29:11.776Z"


def test_a_time_that_is_typed_without_a_zone_is_of_the_zone_that_is_asked_for(zoned: Callable[[str], None]) -> None:
    offsets = {}
    for zone in ("", "local", "UTC", "+08:00", "Europe/Berlin"):
        zoned(zone)
        offsets[zone] = -parse_time("1970-07-01T00:00:00", 0) // 3_600_000 + 181 * 24
    assert offsets == {"": 9, "local": 9, "UTC": 0, "+08:00": 8, "Europe/Berlin": 1}


def test_the_end_of_the_calendar_is_printed_in_utc(zoned: Callable[[str], None]) -> None:
    zoned("+14:00")
    assert iso_text(moment_of(253_402_300_799_999)) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("zone", ["Mars", "+8", "08:00", "+25:00", "../etc/passwd"])
def test_what_is_no_zone_is_refused_as_usage(zone: str) -> None:
    with pytest.raises(CliError) as refused:
        parse_zone(zone)
    assert refused.value.code == 2


def test_a_plain_number_is_an_offset_of_the_log_and_everything_else_a_time() -> None:
    assert parse_place("1795256951776", is_end=True) == (1_795_256_951_776, None)
    assert parse_place("2026-01-31T12:00:00Z", is_end=True) == (None, 1_769_860_800_000)
    assert parse_place(None, is_end=True) == (None, None)
    with pytest.raises(CliError):
        parse_place("yesterday", is_end=False)
