"""Times as people type them."""

import pytest

from cli.exits import CliError
from cli.times import iso_text, moment_of, parse_limit, parse_time

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
