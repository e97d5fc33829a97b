"""Comparisons of an SQL filter, compiled for the types of their sides.

Source: `ComparisonExpression`, RocketMQ 5.3.3, which converts a property to the type of the other side:

    property with a number      `Integer.valueOf`, `Long.valueOf` or `Double.valueOf` of the property; `a > 5` has no value
                                for a = '5.5' (ValueError)
    property with TRUE, FALSE   `Boolean.valueOf`: TRUE for "true" in any case, else FALSE
    property with property      `=` and `<>` compare texts; the others compare Doubles
    TRUE with a property        no value: RocketMQ fails on this order of the two (ValueError)
    condition with a number     never equal
    numbers                     the narrower type becomes the wider one

`<`, `<=`, `>`, `>=` are unknown if a side is absent. `=` is unknown if the left side is absent, false if the right one is,
and true if both are. `<>` is NOT `=`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from consumer_svc.filters.java_numbers import INTEGER_MAX, LONG_MAX, compare_doubles, java_double, java_integer
from consumer_svc.filters.sql_nodes import NUMBERS, Evaluate, Kind, Node, SqlFaultError, Value, invert, join, over

Test = Callable[[Any, Any], bool]
_ORDER: Final[dict[str, Test]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONVERT: Final[dict[Kind, Callable[[str], int | float]]] = {
    Kind.INTEGER: partial(java_integer, value_max=INTEGER_MAX),
    Kind.LONG: partial(java_integer, value_max=LONG_MAX),
    Kind.DOUBLE: java_double,
}


def ordered(sign: str, left: Node, right: Node) -> Node:
    """`<`, `<=`, `>` and `>=`.

    Raises:
        SqlFaultError: a side can be no number.
    """
    for side in (left, right):
        if side.kind is Kind.BOOLEAN or (side.is_literal and side.kind not in NUMBERS):
            raise SqlFaultError(side.at, f"only numbers and properties can be compared by {sign}")
    return over(Kind.BOOLEAN, _ordered(sign, left, right), left, right)


def _ordered(sign: str, left: Node, right: Node) -> Evaluate:
    if Kind.NOTHING in (left.kind, right.kind):
        return lambda _: None
    if left.kind is right.kind is Kind.TEXT:
        return _ordered_properties(_ORDER[sign], left.name, right.name)
    if left.kind is Kind.TEXT:
        return _ordered_property(sign, left.name, right)
    if right.kind is Kind.TEXT:
        return _ordered_property(_MIRRORED[sign], right.name, left)
    is_true = _ORDER[sign](_compare_numbers(left, right), 0)
    return lambda _: is_true


def _ordered_properties(test: Test, left: str, right: str) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value, other = properties.get(left), properties.get(right)
        if value is None or other is None:
            return None
        return test(compare_doubles(java_double(value), java_double(other)), 0)

    return evaluate


def _ordered_property(sign: str, name: str, number: Node) -> Evaluate:
    convert, limit = _CONVERT[number.kind], number.constant
    # No constant is NaN or a Double of 0, so Python's order is Java's but for a property that is NaN: it is above all.
    test, expected = (_ORDER[sign], True) if sign in ("<", "<=") else (_ORDER["<=" if sign == ">" else "<"], False)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else test(convert(value), limit) is expected

    return evaluate


def _compare_numbers(left: Node, right: Node) -> int:
    values = left.constant, right.constant
    assert all(isinstance(value, int | float) for value in values), values
    a, b = map(float, values) if Kind.DOUBLE in (left.kind, right.kind) else values  # type: ignore[arg-type]
    return compare_doubles(a, b)  # type: ignore[arg-type]


def equal(left: Node, right: Node) -> Node:
    """`=`.

    Raises:
        SqlFaultError: a side is NULL, or TRUE or FALSE is compared with another constant.
    """
    for side in (left, right):
        if side.is_literal and side.kind is Kind.NOTHING:
            raise SqlFaultError(side.at, "NULL cannot be compared; write IS NULL or IS NOT NULL")
    if left.is_literal and left.kind is Kind.BOOLEAN and right.is_literal and right.kind is not Kind.BOOLEAN:
        raise SqlFaultError(left.at, f"TRUE or FALSE cannot be compared with {right.kind.value}")
    return over(Kind.BOOLEAN, _equal(left, right), left, right)


def unequal(left: Node, right: Node) -> Node:
    """`<>`."""
    return invert(equal(left, right))


def is_null(node: Node) -> Node:
    """`IS NULL`: true if the part is absent or unknown, else false."""
    inner = node.evaluate
    return over(Kind.BOOLEAN, lambda properties: inner(properties) is None, node)


def is_not_null(node: Node) -> Node:
    """`IS NOT NULL`."""
    return invert(is_null(node))


def between(node: Node, low: Node, high: Node) -> Node:
    """`BETWEEN`, both ends included.

    Raises:
        SqlFaultError: an end can be no number, or both are constants of which the first is larger.
    """
    are_constants = all(end.is_literal and end.kind in NUMBERS for end in (low, high))
    if are_constants and _compare_numbers(high, low) < 0:
        raise SqlFaultError(low.at, f"BETWEEN goes from {low.constant} to {high.constant}; begin with the smaller one")
    return join("AND", (ordered(">=", node, low), ordered("<=", node, high)))


def not_between(node: Node, low: Node, high: Node) -> Node:
    """`NOT BETWEEN`: below the first end, or above the second."""
    return join("OR", (ordered("<", node, low), ordered(">", node, high)))


def _equal(left: Node, right: Node) -> Evaluate:
    if left.name and right.is_literal and right.kind is Kind.TEXT:
        return _property_is(left.name, right.constant)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        is_true = _compare_numbers(left, right) == 0
        return lambda _: is_true
    a, b, same = left.evaluate, right.evaluate, _same(left.kind, right.kind)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value, other = a(properties), b(properties)
        if value is None:
            return True if other is None else None
        return other is not None and same(value, other)

    return evaluate


def _property_is(name: str, text: Value) -> Evaluate:
    """The most frequent comparison of all."""

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return evaluate


def _same(left: Kind, right: Kind) -> Test:
    """Whether two values that are there are equal, by their types."""
    if left is right:
        return operator.eq
    if left is Kind.TEXT and right in NUMBERS:
        convert = _CONVERT[right]
        return lambda value, other: convert(value) == other
    if left in NUMBERS and right is Kind.TEXT:
        convert = _CONVERT[left]
        return lambda value, other: value == convert(other)
    if left is Kind.TEXT and right is Kind.BOOLEAN:
        return lambda value, other: (value.lower() == "true") is other
    if left is Kind.BOOLEAN and right is Kind.TEXT:
        return _no_value
    return lambda _value, _other: False


def _no_value(_value: object, _other: object) -> bool:
    raise ValueError("RocketMQ cannot compare a condition with a property that stands behind it")
