"""Times of requests: seconds and nanoseconds since 1970 to the store's milliseconds, without losing a message.

    begin (at or after)   rounded up     1.000_000_001 s -> 1001 ms: a message stored at 1000 ms is before it
    end (at or before)    rounded down   1.000_999_999 s -> 1000 ms

Stores know no time before 1970; `google.protobuf.Timestamp` ends with the year 9999.
"""

from dataclasses import dataclass
from typing import Any

from store.errors import InvalidArgumentError

_SECONDS_MAX = 253_402_300_799  # 9999-12-31T23:59:59Z
# The last time of a request; clients of RocketMQ say Long.MAX_VALUE for the end.
TIME_MILLIS_MAX = _SECONDS_MAX * 1000 + 999
_NANOS_PER_SECOND = 1_000_000_000
_NANOS_PER_MILLI = 1_000_000


def millis_at_or_after(seconds: int, nanos: int, field: str) -> int:
    """The first whole millisecond not before the time; InvalidArgumentError outside 1970 to 9999."""
    _check(seconds, nanos, field)
    return seconds * 1000 + -(-nanos // _NANOS_PER_MILLI)


def millis_at_or_before(seconds: int, nanos: int, field: str) -> int:
    """The last whole millisecond not after the time; InvalidArgumentError outside 1970 to 9999."""
    _check(seconds, nanos, field)
    return seconds * 1000 + nanos // _NANOS_PER_MILLI


def millis_in(message: Any, field: str) -> int | None:
    """A Timestamp of a message of ours in milliseconds since 1970; None when it is absent."""
    if not message.HasField(field):
        return None
    time = getattr(message, field)
    return int(time.seconds) * 1000 + int(time.nanos) // _NANOS_PER_MILLI


def set_millis(time: Any, millis: int) -> None:
    """Set a Timestamp to milliseconds since 1970."""
    time.seconds, time.nanos = millis // 1000, millis % 1000 * _NANOS_PER_MILLI


def _check(seconds: int, nanos: int, field: str) -> None:
    if not 0 <= seconds <= _SECONDS_MAX or not 0 <= nanos < _NANOS_PER_SECOND:
        raise InvalidArgumentError(
            f"{field} is {seconds} s and {nanos} ns after 1970: it must lie from 1970 to 9999, nanos below a second.",
            field=field,
            seconds=seconds,
            nanos=nanos,
        )


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Store times from begin to end, both inclusive; None is no limit."""

    begin_millis: int | None = None
    end_millis: int | None = None

    def __post_init__(self) -> None:
        if self.begin_millis is not None and self.end_millis is not None and self.begin_millis > self.end_millis:
            raise InvalidArgumentError(
                f"begin_time ({self.begin_millis} ms) is after end_time ({self.end_millis} ms).",
                field="begin_time",
                beginMillis=self.begin_millis,
                endMillis=self.end_millis,
            )

    def holds(self, store_time_millis: int) -> bool:
        """Whether the time lies in the window."""
        if self.begin_millis is not None and store_time_millis < self.begin_millis:
            return False
        return self.end_millis is None or store_time_millis <= self.end_millis
