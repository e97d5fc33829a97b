"""Spark's filters as conditions on the columns of a batch.

A filter is taken only where it can be answered exactly as Spark would, because Spark does not check rows again. Spark
evaluates the other filters itself, on the rows that remain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, LongType, TimestampType

from pipeline.scan.schema import FROM_PROPERTIES, NATIVE_SCHEMA

Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
TOPIC, QUEUE_ID, PHYSICAL_OFFSET, STORE_TIME = "topic", "queueId", "physicalOffset", "storeTimestamp"
TIMES = frozenset(field.name for field in NATIVE_SCHEMA if isinstance(field.dataType, TimestampType))
NUMBERS = frozenset(
    field.name
    for field in NATIVE_SCHEMA
    if isinstance(field.dataType, IntegerType | LongType) and field.name not in FROM_PROPERTIES
)
_ANSWERED = {name.lower(): name for name in (TOPIC, *TIMES, *NUMBERS)}
_NEVER_NULL = frozenset(field.name.lower() for field in NATIVE_SCHEMA if not field.nullable)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: dict[type[Filter], tuple[str, Callable[[Any, Any], Any]]] = {
    EqualTo: ("=", lambda one, other: one == other),
    GreaterThan: (">", lambda one, other: one > other),
    GreaterThanOrEqual: (">=", lambda one, other: one >= other),
    LessThan: ("<", lambda one, other: one < other),
    LessThanOrEqual: ("<=", lambda one, other: one <= other),
}
_TEXT: dict[type[Filter], tuple[str, Callable[[str, Any], bool]]] = {
    EqualTo: ("=", lambda text, value: text == value),
    StringStartsWith: ("starts with", lambda text, value: text.startswith(value)),
    StringEndsWith: ("ends with", lambda text, value: text.endswith(value)),
    StringContains: ("contains", lambda text, value: value in text),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter on one column; on every row it gives the same answer as Spark's.

    Attributes:
        column: a name of `pipeline/scan/schema.py`: the topic, a number, or a time.
        operator: `=`, `<`, ..., `starts with`, ..., or `in`.
        values: texts, numbers, or microseconds since 1970 UTC to compare with; exactly one unless the operator is `in`.
        is_negated: whether the condition is inverted (NOT).
    """

    column: str
    operator: str
    values: tuple[Any, ...]
    is_negated: bool = False

    def of_text(self, text: str) -> bool:
        """Whether a topic fulfils it."""
        if self.operator == "in":
            return (text in self.values) != self.is_negated
        return _TEXT_BY_OPERATOR[self.operator](text, self.values[0]) != self.is_negated

    def of_numbers(self, numbers: Numbers) -> Mask:
        """Which numbers, or times in microseconds, fulfil it."""
        if self.operator == "in":
            mask: Mask = np.isin(numbers, np.array(self.values, dtype=np.int64))
        else:
            mask = _NUMBER_BY_OPERATOR[self.operator](numbers, self.values[0])
        return ~mask if self.is_negated else mask

    def may_hold(
        self, begin_offset: int, end_offset: int, time_millis_min: int | None, time_millis_max: int | None
    ) -> bool:
        """Whether a record in `[begin_offset, end_offset)`, stored between the two times, can fulfil it."""
        if self.is_negated:
            return True
        if self.column == PHYSICAL_OFFSET:
            return self._may_lie(begin_offset, end_offset - 1)
        if self.column == STORE_TIME and time_millis_min is not None and time_millis_max is not None:
            return self._may_lie(*map(clamp_micros, (time_millis_min, time_millis_max)))
        return True

    def _may_lie(self, low: int, high: int) -> bool:
        """Whether a number from `low` to `high` can fulfil it."""
        if self.operator == "in":
            return any(low <= value <= high for value in self.values)
        value = self.values[0]
        match self.operator:
            case "=":
                return bool(low <= value <= high)
            case ">":
                return bool(high > value)
            case ">=":
                return bool(high >= value)
            case "<":
                return bool(low < value)
            case _:
                return bool(low <= value)


_TEXT_BY_OPERATOR = dict(_TEXT.values())
_NUMBER_BY_OPERATOR = dict(_COMPARE.values())

# Range of Spark's timestamps: the years 1 to 9999. A record may contain any time.
TIME_MILLIS_MIN = -62_135_596_800_000
TIME_MILLIS_MAX = 253_402_300_799_999


def clamp_micros(time_millis: int) -> int:
    """A time as its column holds it: in microseconds since 1970 UTC, limited to the years 1 to 9999."""
    return min(max(time_millis, TIME_MILLIS_MIN), TIME_MILLIS_MAX) * 1000


def take_filters(filters: Sequence[Filter]) -> tuple[list[Condition], list[Filter]]:
    """The filters that the scan answers, as conditions, and those that Spark must evaluate."""
    conditions: list[Condition] = []
    left: list[Filter] = []
    for filter_ in filters:
        if (
            isinstance(filter_, IsNotNull)
            and len(filter_.attribute) == 1
            and filter_.attribute[0].lower() in _NEVER_NULL
        ):
            continue
        condition = _condition(filter_)
        if condition is None:
            left.append(filter_)
        else:
            conditions.append(condition)
    return conditions, left


def _condition(filter_: Filter) -> Condition | None:
    if isinstance(filter_, Not):
        child = _condition(filter_.child)
        # NOT IN with a null is never true; Spark does not push one. The columns here are never null.
        return None if child is None else Condition(child.column, child.operator, child.values, not child.is_negated)
    attribute: Sequence[str] = getattr(filter_, "attribute", ())
    column = _ANSWERED.get(attribute[0].lower()) if len(attribute) == 1 else None
    if column is None:
        return None
    if isinstance(filter_, In):
        operator, raw = "in", tuple(filter_.value)
    elif column == TOPIC and type(filter_) in _TEXT:
        operator, raw = _TEXT[type(filter_)][0], (filter_.value,)  # type: ignore[attr-defined]
    elif column != TOPIC and type(filter_) in _COMPARE:
        operator, raw = _COMPARE[type(filter_)][0], (filter_.value,)  # type: ignore[attr-defined]
    else:
        return None
    values = tuple(_value(column, value) for value in raw)
    return None if None in values else Condition(column, operator, values)


def _value(column: str, value: Any) -> Any:
    """The value in the column's unit; None for a value that cannot be compared exactly."""
    if column == TOPIC:
        return value if isinstance(value, str) else None
    if column in TIMES:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // timedelta(microseconds=1)
    is_number = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return value if is_number else None


def matches(conditions: Sequence[Condition], row: Mapping[str, Any]) -> bool:
    """Whether one row fulfils all conditions; its values have the units of `Condition.values`."""
    return all(
        condition.of_text(row[TOPIC])
        if condition.column == TOPIC
        else bool(condition.of_numbers(np.array([row[condition.column]], dtype=np.int64))[0])
        for condition in conditions
    )
