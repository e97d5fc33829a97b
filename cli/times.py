"""Points in time as a person types them, in epoch milliseconds."""

import datetime
import re

from cli.exits import usage_error

TIMESTAMP_MILLIS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z: the last time that protobuf's Timestamp can say
TIMESTAMP_MILLIS_MIN = -62_135_596_800_000  # 0001-01-01T00:00:00Z: the first one
UNIT_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE = re.compile(r"-((?:\d+(?:ms|[smhdw]))+)")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
HINT = (
    "Write epoch milliseconds, ISO-8601 (2026-01-31T12:00:00Z; without a zone: local time), now, "
    "or relative (-2h, -1d12h)."
)


def parse_time(text: str, now_millis: int) -> int:
    """The time that `text` says.

    Args:
        text: epoch milliseconds (`1795256951776`), ISO-8601, `now`, or a span before now (`-2h`, `-1d12h30m`).
        now_millis: what `now` is.

    Returns:
        Epoch milliseconds, unbounded for a plain number.

    Raises:
        CliError: it is none of these.
    """
    text = text.strip()
    if re.fullmatch(r"-?\d{1,30}", text):
        return int(text)
    if text == "now":
        return now_millis
    relative = _RELATIVE.fullmatch(text)
    if relative:
        return now_millis - sum(int(count) * UNIT_MILLIS[unit] for count, unit in _PART.findall(relative.group(1)))
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
    except (ValueError, OverflowError, OSError):
        usage_error(f"{text!r} is no time", HINT)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(milliseconds=1)


def parse_limit(text: str | None, now_millis: int, *, is_end: bool) -> int | None:
    """A begin or end of a time window, or None where it limits nothing.

    mqadmin's own default end is Long.MAX_VALUE: an end behind the year 9999 is no limit, and neither is a begin before
    the year 1.
    """
    if text is None:
        return None
    millis = parse_time(text, now_millis)
    if (is_end and millis > TIMESTAMP_MILLIS_MAX) or (not is_end and millis < TIMESTAMP_MILLIS_MIN):
        return None
    if not TIMESTAMP_MILLIS_MIN <= millis <= TIMESTAMP_MILLIS_MAX:
        usage_error(f"{text!r} lies outside the years 1 to 9999", HINT)
    return millis


def iso_millis(seconds: int, nanos: int) -> str:
    """A protobuf Timestamp's fields as ISO-8601 UTC with milliseconds."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds, milliseconds=nanos // 1_000_000)
    return moment.isoformat(timespec="milliseconds") + "Z"
