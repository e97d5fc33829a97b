"""Formats of numbers, times, sizes, stored texts and errors in a page. Times are UTC, to the millisecond."""

import re
from datetime import UTC, datetime, timedelta

from google.rpc import status_pb2

from console.words import Words
from services.status import from_status, reason_of
from store.errors import StoreError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
# Characters that change the reading direction could make one text look like another.
_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_INVISIBLE = "\u00ad\u200b\u200c\u2060\ufeff"
_STRANGE = re.compile(
    f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DIRECTION}{_INVISIBLE}\u2028\u2029\ud800-\udfff\ufffe\uffff]"
)
_STRANGE_OR_LINE = re.compile(f"{_STRANGE.pattern}|[\t\n\r]")


def time_text(millis: int | None) -> str:
    """`2024-05-01 12:30:00.123`; a dash for None, and the number outside the years 1 to 9999."""
    if millis is None:
        return "–"
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return f"{millis} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def time_attribute(millis: int) -> str:
    """The same for `<time datetime>`."""
    return time_text(millis).replace(" ", "T", 1) + "Z"


def size_text(size_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `12 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in _UNITS:
        value /= 1024
        if abs(value) < 1023.5 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}" if abs(value) < 9.95 else f"{value:.0f} {unit}"


def count_text(count: int) -> str:
    """`1,234,567`."""
    return f"{count:,}"


def duration_text(millis: float) -> str:
    """`3 ms`, `1.2 s`, `5 min`, `3.4 h`, `2.0 d`."""
    seconds = millis / 1000
    if seconds < 1:
        return f"{millis:.0f} ms"
    for limit, divisor, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def visible(text: str) -> str:
    """A text on one line, with its control, direction and invisible characters written out, such as `⟦U+202E⟧`."""
    return _STRANGE_OR_LINE.sub(_name, text)


def visible_lines(text: str) -> str:
    """The same, but line ends and tabs stay."""
    return _STRANGE.sub(_name, text)


def shortened(text: str, characters_max: int = 64) -> str:
    """The begin of a longer text, with an ellipsis."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def middle_cut(text: str, characters_max: int = 40) -> str:
    """A long text without its middle, because ids of one producer have the same begin and differ at the end."""
    if len(text) <= characters_max:
        return text
    head = characters_max // 3
    return f"{text[:head]}…{text[len(text) - (characters_max - 1 - head) :]}"


def _name(matched: re.Match[str]) -> str:
    return f"⟦U+{ord(matched[0]):04X}⟧"


def track_state(words: Words, state: str) -> str:
    """How a message stands with a group, in words; a state of a later release as it is. `state`: its name without a prefix."""
    return {
        "CONSUMED": words("Consumed"),
        "NOT_CONSUMED": words("Not yet delivered"),
        "IN_FLIGHT": words("In flight"),
        "RETRYING": words("Retrying"),
        "DEAD_LETTER": words("Dead letter"),
        "FILTERED_OUT": words("Filtered out"),
        "SKIPPED": words("Skipped by a reset"),
        "UNKNOWN": words("Not known"),
    }.get(state, state)


def error_text(words: Words, error: StoreError | status_pb2.Status) -> str:
    """The explanation of its reason in that language, and the error's own text; in English the text alone."""
    known = error if isinstance(error, StoreError) else from_status(error)
    explanation = words.reason(reason_of(type(known)))
    return f"{explanation}（{known.message}）" if explanation else known.message
