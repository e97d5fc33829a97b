"""The texts of the page: English in the code, Chinese by catalog. A test fails for a text without a translation.

Formats numbers and times for people. Pure.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pipeline.analytics.texts_zh import CHINESE

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
# Round durations in milliseconds, for a logarithmic axis.
DURATION_MARKS = (
    0.1, 1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 10 * DAY, 100 * DAY, 1000 * DAY,
    10_000 * DAY, 100_000 * DAY,
)  # fmt: skip

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # steps of 1000, so that axes have round marks


def count_text(value: float) -> str:
    """A count, such as 1,234 or 56.7k or 8.9M."""
    if abs(value) >= 1e9:
        return f"{value / 1e9:.3g}G"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def rate_text(value: float) -> str:
    """Messages per second."""
    return f"{count_text(value)}/s"


def bytes_text(value: float) -> str:
    """A size in bytes, such as 1.5 kB or 20 MB."""
    for unit in BYTE_UNITS[:-1]:
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} {BYTE_UNITS[-1]}"


def bytes_rate_text(value: float) -> str:
    """Bytes per second."""
    return f"{bytes_text(value)}/s"


def millis_text(value: float) -> str:
    """A duration in milliseconds, such as 5 ms, 1.2 s, 3 min, 4.5 h or 2 d."""
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
    """A duration in seconds; see `millis_text`."""
    return millis_text(value * 1000)


def share_text(value: float) -> str:
    """A share between 0 and 1 as a percentage."""
    return f"{value * 100:.3g} %"


def time_text(millis: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in milliseconds since 1970, formatted in UTC."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):  # a record may state any time
        return f"{millis:,} ms"


def axis_times(begins_millis: Sequence[int], bucket_seconds: int) -> list[str]:
    """Names for buckets of time, as short as possible to be distinct."""
    days = {begin // DAY for begin in begins_millis}
    clock = "%H:%M:%S" if bucket_seconds < 60 else "%H:%M"
    if bucket_seconds * 1000 >= DAY:
        form = "%Y-%m-%d"
    elif len(days) == 1:
        form = clock
    else:
        form = f"%m-%d {clock}"
    return [time_text(begin, form) for begin in begins_millis]


ENGLISH, ZH = "en", "zh"
LANGUAGES = {ENGLISH: "English", ZH: "中文"}
HTML_LANGUAGES = {ENGLISH: "en", ZH: "zh-CN"}
PAGE_NAMES = {ENGLISH: "report.html", ZH: "report.zh.html"}
_CATALOGS: Mapping[str, Mapping[str, str]] = {ENGLISH: {}, ZH: CHINESE}


class Texts:
    """The texts of one language.

    Args:
        language: one of `LANGUAGES`.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self.language = language
        self._catalog = _CATALOGS[language]

    def __call__(self, text: str, **values: object) -> str:
        """A text, with `{name}` replaced by values; not escaped."""
        translated = self._catalog.get(text, text)
        return translated.format(**values) if values else translated
