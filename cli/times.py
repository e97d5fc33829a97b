"""Points in time: as a person types them, as epoch milliseconds, and as the command prints them."""

import datetime
import re
import time
import zoneinfo
from contextvars import ContextVar

from cli.exits import usage_error

TIMESTAMP_MILLIS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last time of protobuf's Timestamp
TIMESTAMP_MILLIS_MIN = -62_135_596_800_000  # 0001-01-01T00:00:00Z, the first one
UNIT_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Stands for the machine's zone, whose offset depends on the date. To be compared by `is`: zones with one offset are equal.
LOCAL = datetime.timezone(datetime.timedelta(0), "local")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")
_zone: ContextVar[datetime.tzinfo | None] = ContextVar("reput_zone", default=None)
_RELATIVE = re.compile(r"-((?:\d+(?:ms|[smhdw]))+)")
_SPAN = re.compile(r"(?:\d{1,9}(?:ms|[smhdw]))+")
_COMMIT_LOG_OFFSET = re.compile(r"[0-9]{1,19}")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
HINT = (
    "Write epoch milliseconds, ISO-8601 (2026-01-31T12:00:00Z; without a zone: local time), now, "
    "or relative (-2h, -1d12h)."
)


def parse_time(text: str, now_millis: int) -> int:
    """The time that `text` stands for.

    Args:
        text: epoch milliseconds (`1795256951776`), ISO-8601, `now`, or a span before now (`-2h`, `-1d12h30m`).
        now_millis: the time of `now`, epoch milliseconds.

    Returns:
        Epoch milliseconds, unbounded for a plain number.

    Raises:
        CliError: it is none of these formats.
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
            zone = _zone.get()
            # In local time the offset depends on the date.
            moment = moment.astimezone() if zone is None or zone is LOCAL else moment.replace(tzinfo=zone)
    except (ValueError, OverflowError, OSError):
        usage_error(f"{text!r} is not a time", HINT)
    return millis_of(moment)


def parse_span(text: str) -> int:
    """The milliseconds of a span such as `10s` or `1h30m`; CliError when it is none."""
    if not _SPAN.fullmatch(text.strip()):
        usage_error(f"{text!r} is not a span of time", "Write 500ms, 10s, 5m, 2h, 1d, or several together: 1h30m.")
    return sum(int(count) * UNIT_MILLIS[unit] for count, unit in _PART.findall(text))


def parse_limit(text: str | None, now_millis: int, *, is_end: bool) -> int | None:
    """A begin or end of a time window in epoch milliseconds, or None when it is no limit.

    An end after the year 9999 is no limit (mqadmin's default end is Long.MAX_VALUE); nor is a begin before the year 1.
    """
    if text is None:
        return None
    millis = parse_time(text, now_millis)
    if (is_end and millis > TIMESTAMP_MILLIS_MAX) or (not is_end and millis < TIMESTAMP_MILLIS_MIN):
        return None
    if not TIMESTAMP_MILLIS_MIN <= millis <= TIMESTAMP_MILLIS_MAX:
        usage_error(f"{text!r} lies outside the years 1 to 9999", HINT)
    return millis


def parse_place(text: str | None, *, is_end: bool) -> tuple[int | None, int | None]:
    """A commit-log offset in bytes (a plain number), or a time in epoch milliseconds (everything else)."""
    if text is not None and _COMMIT_LOG_OFFSET.fullmatch(text):
        return int(text), None
    return None, parse_limit(text, time.time_ns() // 1_000_000, is_end=is_end)


def millis_of(moment: datetime.datetime) -> int:
    """Epoch milliseconds of a time with a zone, rounded down."""
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def moment_of(millis: int) -> datetime.datetime:
    """The time of epoch milliseconds, UTC; OverflowError outside the years 1 to 9999."""
    return _EPOCH + datetime.timedelta(milliseconds=millis)


def utc_text(moment: datetime.datetime) -> str:
    """A time in UTC as ISO-8601 with milliseconds, whatever zone was asked for: for files."""
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def iso_text(moment: datetime.datetime) -> str:
    """A time, given in UTC, as ISO-8601 with milliseconds in the zone that `--tz` asks for; UTC by default."""
    zone = _zone.get()
    if zone is None or zone is datetime.UTC:
        return utc_text(moment)
    try:
        return moment.astimezone(None if zone is LOCAL else zone).isoformat(timespec="milliseconds")
    except (OverflowError, OSError):  # at the ends of the calendar
        return utc_text(moment)


def parse_zone(text: str) -> datetime.tzinfo | None:
    """The zone that `--tz` names; None when it names none, `LOCAL` for the machine's.

    Raises:
        CliError: it is no zone.
    """
    if not text:
        return None
    if text.lower() in ("utc", "z"):
        return datetime.UTC
    if text.lower() == "local":
        return LOCAL
    offset = _OFFSET.fullmatch(text)
    try:
        if offset is not None:
            sign, hours, minutes = offset.groups()
            span = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
            return datetime.timezone(-span if sign == "-" else span)
        return zoneinfo.ZoneInfo(text)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        usage_error(f"--tz {text!r} is not a time zone", "Write local, UTC, +08:00, or a name such as Asia/Shanghai.")


def set_zone(zone: datetime.tzinfo | None) -> None:
    """The zone of all times that are printed, and of those that are typed without a zone."""
    _zone.set(zone)
