"""The parameters of a URL, read and checked by name.

Times are UTC: `2024-05-01T12:30`, optionally with seconds, milliseconds and a `Z` at the end; or milliseconds since 1970 as
digits.

RocketMQ's expression of tags, `TagA || TagB`, or `*` for all, is parsed as by RocketMQ's consumers
(`FilterAPI.buildSubscriptionData`): blanks around a tag are removed, empty parts are left out, and `*` beside other tags is a
tag with this name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from services.convert import millis_to_timestamp
from store.errors import InvalidArgumentError

# The choices for a time range; `all` has no limit.
LAST_SECONDS = {"15m": 900, "1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?)?Z?")
_INT64_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of store times, in milliseconds since 1970; None is no limit."""

    begin_millis: int | None = None
    end_millis: int | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        named = {"begin_time": self.begin_millis, "end_time": self.end_millis}
        return {name: millis_to_timestamp(millis) for name, millis in named.items() if millis is not None}


class Question:
    """The parameters of one request; blanks around values are removed.

    Args:
        parameters: names and values; of a repeated name the last value.
        path: names and values from the URL's path.
        now_millis: the time of the request.
    """

    def __init__(self, parameters: Mapping[str, str], path: Mapping[str, str], now_millis: int) -> None:
        self._parameters = parameters
        self._path = path
        self.now_millis = now_millis

    def text(self, name: str) -> str:
        """A value; empty when it is missing."""
        return self._parameters.get(name, "").strip()

    def whole_text(self, name: str) -> str:
        """A value with its blanks."""
        return self._parameters.get(name, "")

    def path_text(self, name: str) -> str:
        """A part of the path."""
        return self._path[name]

    def choice(self, name: str, choices: Mapping[str, object] | tuple[str, ...], default: str) -> str:
        """One of the choices; the default when there is no value; InvalidArgumentError for any other."""
        value = self.text(name) or default
        if value not in choices:
            raise InvalidArgumentError(f"{name} is {value!r}: one of {', '.join(choices)} is needed.", field=name)
        return value

    def number(self, name: str, default: int, maximum: int = _INT64_MAX) -> int:
        """A number from 0 to `maximum`; InvalidArgumentError for any other value."""
        return self._number(self.text(name), name, default, maximum)

    def path_number(self, name: str, maximum: int) -> int:
        """The same for a part of the path."""
        return self._number(self._path[name], name, 0, maximum)

    @staticmethod
    def _number(text: str, name: str, default: int, maximum: int) -> int:
        if not text:
            return default
        if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > maximum:
            raise InvalidArgumentError(f"{name} is {text!r}: a number from 0 to {maximum} is needed.", field=name)
        return int(text)

    def time_millis(self, name: str, *, is_end: bool = False) -> int | None:
        """A time, in milliseconds since 1970. With `is_end`, a time given as a day, minute or second means its end."""
        text = self.text(name)
        if not text:
            return None
        if re.fullmatch(r"[0-9]{9,16}", text):
            return int(text)
        return parse_time(text, name, is_end=is_end)

    def window(self) -> Window:
        """`last` or `begin` and `end`."""
        last = self.choice("last", ("all", "custom", *LAST_SECONDS), "custom")
        if last in LAST_SECONDS:
            return Window(self.now_millis - 1000 * LAST_SECONDS[last])
        if last == "all":
            return Window()
        return Window(self.time_millis("begin"), self.time_millis("end", is_end=True))

    def link(self, path: str = "", **changed: object) -> str:
        """This request's URL with other parameters; None leaves one out."""
        parameters = {**self._parameters, **{name: value for name, value in changed.items() if value is not None}}
        kept = {name: value for name, value in parameters.items() if value != "" and changed.get(name, "") is not None}
        return f"{path}?{urlencode(kept)}" if kept else path or "?"

    def given(self) -> dict[str, str]:
        """All parameters that have a value."""
        return {name: value for name, value in self._parameters.items() if value}


def parse_time(text: str, field: str, *, is_end: bool = False) -> int:
    """The milliseconds since 1970 of a UTC time in the form above; InvalidArgumentError for any other text."""
    matched = _TIME.fullmatch(text)
    try:
        if matched is None:
            raise ValueError("no such time")
        year, month, day, hour, minute, second, fraction = matched.groups()
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
    except ValueError as error:
        raise InvalidArgumentError(
            f"{field} is {text!r}: a time in UTC such as 2024-05-01T12:30:00.000 is needed.", field=field
        ) from error
    millis = (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0"))
    if not is_end or fraction:
        return millis
    unit_millis = 1_000 if second else 60_000 if minute else 86_400_000
    return millis + unit_millis - 1


ALL_TAGS = "*"
# The limit of a search.
TAG_COUNT_MAX = 64


def parse_tags(text: str, field: str) -> tuple[str, ...]:
    """The tags, each once; empty for all tags. InvalidArgumentError when there is no tag, or too many."""
    if text.strip() in ("", ALL_TAGS):
        return ()
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags or len(tags) > TAG_COUNT_MAX:
        raise InvalidArgumentError(
            f"{field} is {text[:200]!r}: TagA || TagB, with at most {TAG_COUNT_MAX} tags, or * for all is needed.",
            field=field,
        )
    return tags
