"""Numbers and times as a person reads them. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
# Round durations in milliseconds, for an axis that goes up by factors.
DURATION_MARKS = (
    0.1, 1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 10 * DAY, 100 * DAY, 1000 * DAY,
    10_000 * DAY, 100_000 * DAY,
)  # fmt: skip

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # by thousands, so that axes have round marks


def count_text(value: float) -> str:
    """1,234, 56.7k, 8.9M."""
    if abs(value) >= 1e9:
        return f"{value / 1e9:.3g}G"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def rate_text(value: float) -> str:
    """Messages a second."""
    return f"{count_text(value)}/s"


def bytes_text(value: float) -> str:
    """1.5 kB, 20 MB."""
    for unit in BYTE_UNITS[:-1]:
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} {BYTE_UNITS[-1]}"


def bytes_rate_text(value: float) -> str:
    """Bytes a second."""
    return f"{bytes_text(value)}/s"


def millis_text(value: float) -> str:
    """5 ms, 1.2 s, 3 min, 4.5 h, 2 d."""
    sign, size = ("−" if value < 0 else ""), abs(value)
    if size < 1000:
        text = f"{size:.3g} ms"
    elif size < 60_000:
        text = f"{size / 1000:.3g} s"
    elif size < 3_600_000:
        text = f"{size / 60_000:.3g} min"
    elif size < 48 * 3_600_000:
        text = f"{size / 3_600_000:.3g} h"
    else:
        text = f"{size / 86_400_000:,.3g} d" if size < 864_000_000_000 else f"{size / 86_400_000:,.0f} d"
    return sign + text


def seconds_text(value: float) -> str:
    """The same of seconds."""
    return millis_text(value * 1000)


def share_text(value: float) -> str:
    """A part of 1 as a percentage."""
    return f"{value * 100:.3g} %"


def time_text(millis: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in UTC."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return f"{millis:,} ms"


def axis_times(begins_millis: Sequence[int], bucket_seconds: int) -> list[str]:
    """Names for buckets of time: as short as tells them apart."""
    days = {begin // DAY for begin in begins_millis}
    clock = "%H:%M:%S" if bucket_seconds < 60 else "%H:%M"
    if bucket_seconds * 1000 >= DAY:
        form = "%Y-%m-%d"
    elif len(days) == 1:
        form = clock
    else:
        form = f"%b %-d, {clock}"
    return [time_text(begin, form) for begin in begins_millis]
