"""The parts of an SQL filter as closures over the properties of a message.

Source: the classes of `org.apache.rocketmq.filter.expression`, RocketMQ 5.3.3. Types are Java's: a property is a text or
absent, a number is an Integer, a Long or a Double. The type of each part is known before a message is seen, so that each
comparison is compiled for the types of its sides.

Three-valued logic: a closure returns True, False or None (unknown). Where RocketMQ throws while it evaluates, as for a text
that should be a number, a closure raises ValueError: the message does not match, whatever the rest of the expression says.

Comparisons of an SQL filter, compiled for the types of their sides.

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

java_integer, java_double and compare_doubles take texts as numbers, as Java's `Integer.valueOf`, `Long.valueOf`,
`Double.valueOf` and `Double.compareTo` do.

All properties are texts. An SQL filter that compares one with a number converts it by these rules. They differ from
Python's: `1_0` is no number, `0x1p3` and `1.5f` are Doubles, only a Double may have blanks around it, and a text that does
not fit the type is no number of it.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Final

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19  # of a Long, without leading zeros
_SHORT_DIGITS: Final = 9  # fit an Integer, whatever they are
_BLANKS: Final = "".join(map(chr, range(33)))  # what `String.trim` removes
_SIGNED_DIGITS: Final = re.compile(r"[+-]?\d+")
_FRACTION: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX_FRACTION: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
)
_NAMES: Final = {
    sign + name: value
    for sign, value_sign in (("", 1.0), ("+", 1.0), ("-", -1.0))
    for name, value in (("NaN", math.nan), ("Infinity", value_sign * math.inf))
}


def java_integer(text: str, value_max: int) -> int:
    """`Integer.valueOf` or `Long.valueOf`.

    Args:
        text: a property.
        value_max: INTEGER_MAX or LONG_MAX.

    Raises:
        ValueError: it is no such number, or does not fit.
    """
    if len(text) <= _SHORT_DIGITS and text.isdigit() and text.isascii():
        return int(text)  # as most are
    if not _SIGNED_DIGITS.fullmatch(text) or max(text) > "\uffff":  # Java looks at UTF-16 units
        raise ValueError("this is no whole number")
    digits = text.lstrip("+-0")
    if len(digits) > _DIGITS_MAX and not text.isascii():
        digits = "".join(str(int(digit)) for digit in digits).lstrip("0")  # other scripts have zeros, too
    value = int(digits or "0") if len(digits) <= _DIGITS_MAX else LONG_MAX + 2
    if text[0] == "-":
        value = -value
    if not -value_max - 1 <= value <= value_max:
        raise ValueError("this number does not fit")
    return value


def java_double(text: str) -> float:
    """`Double.valueOf`: correctly rounded; a number that is too large is infinite, one that is too small is 0.

    Raises:
        ValueError: it is no such number.
    """
    trimmed = text.strip(_BLANKS)
    if match := _FRACTION.fullmatch(trimmed):
        return float(match[1])
    if match := _HEX_FRACTION.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if trimmed[0] == "-" else math.inf
    if trimmed in _NAMES:
        return _NAMES[trimmed]
    raise ValueError("this is no number")


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: below 0, 0 or above; NaN is equal to itself and above all others, and 0.0 is above -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """Orders values that neither `<` nor `>` tells apart: -0.0, the rest, NaN."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1


Value = str | int | float | bool | None
Evaluate = Callable[[Mapping[str, str]], Value]

# Closures call each other as deep as operators are nested. Parentheses and chains of AND or of OR do not count. Python's
# stack takes 1,000 calls; most of them are left to the callers.
NESTING_MAX: Final = 200


class SqlType(Enum):
    """Java's type of a value that is not null; NOTHING is always null."""

    TEXT = "a text"
    INTEGER = "an Integer"
    LONG = "a Long"
    DOUBLE = "a Double"
    BOOLEAN = "a condition"
    NOTHING = "always NULL"


NUMBERS: Final = frozenset((SqlType.INTEGER, SqlType.LONG, SqlType.DOUBLE))


class SqlFaultError(Exception):
    """An error of an expression, and its place.

    Args:
        at: where, in characters from the start.
        what: what is wrong there, and what to write instead.
    """

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Args:
        at: where it begins, in characters.
        kind: the type of its value.
        evaluate: gives its value for the properties of a message.
        constant: the value that it always has, None where it differs.
        is_literal: whether it is written as a constant; `-5` is not.
        name: of a property, empty for anything else.
        operator, operands: of an AND or an OR, so that a chain of them is one closure.
        depth: how many closures are nested in it.
    """

    at: int
    kind: SqlType
    evaluate: Evaluate
    constant: Value = None
    is_literal: bool = False
    name: str = ""
    operator: str = ""
    operands: tuple[Evaluate, ...] = ()
    depth: int = 0


def literal(at: int, kind: SqlType, value: Value) -> Node:
    """A constant."""
    return Node(at, kind, lambda _: value, constant=value, is_literal=True)


def prop(at: int, name: str) -> Node:
    """A property, by its name."""
    return Node(at, SqlType.TEXT, lambda properties: properties.get(name), name=name)


def over(kind: SqlType, evaluate: Evaluate, *parts: Node) -> Node:
    """A part made of others, the first of which stands first.

    Raises:
        SqlFaultError: it is nested too deep.
    """
    depth = 1 + max(part.depth for part in parts)
    if depth > NESTING_MAX:
        raise SqlFaultError(parts[0].at, f"more than {NESTING_MAX} operators are nested here; use fewer")
    return Node(parts[0].at, kind, evaluate, depth=depth)


def condition(node: Node) -> Node:
    """A part as a condition. A property is one: unknown without it, false with it, since its value is a text.

    Raises:
        SqlFaultError: it can never be one.
    """
    if node.kind is SqlType.BOOLEAN or (node.kind is SqlType.NOTHING and node.is_literal):
        return node
    if node.name:
        name = node.name
        return over(SqlType.BOOLEAN, lambda properties: None if properties.get(name) is None else False, node)
    raise SqlFaultError(node.at, f"this is {node.kind.value}, not a condition; compare it with something")


def negate(node: Node) -> Node:
    """`-`: of a number; unknown for anything else, a property included."""
    if node.kind in NUMBERS:
        assert isinstance(node.constant, int | float), node
        value = -node.constant
        return Node(node.at, node.kind, lambda _: value, constant=value)
    inner = node.evaluate

    def evaluate(properties: Mapping[str, str]) -> None:
        inner(properties)  # it may have no value to negate

    return over(SqlType.NOTHING, evaluate, node)


def invert(node: Node) -> Node:
    """`NOT`."""
    part = condition(node)
    inner = part.evaluate

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return over(SqlType.BOOLEAN, evaluate, part)


def join(operator: str, nodes: Sequence[Node]) -> Node:
    """`AND` or `OR` of conditions, from the left, each only as far as it matters."""
    parts = [condition(node) for node in nodes]
    operands: list[Evaluate] = []
    for part in parts:
        operands += part.operands if part.operator == operator else [part.evaluate]
    # An operand in the form of the same operator is as deep as its own operands are.
    depth = max(part.depth - (part.operator == operator) for part in parts)
    chain = tuple(operands)
    joined = over(SqlType.BOOLEAN, _joined(operator, chain), replace(parts[0], depth=depth))
    return replace(joined, operator=operator, operands=chain)


def _joined(operator: str, operands: tuple[Evaluate, ...]) -> Evaluate:
    decisive = operator == "OR"

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        is_unknown = False
        for operand in operands:
            value = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                is_unknown = True
        return None if is_unknown else not decisive

    return evaluate


def is_in(node: Node, texts: Sequence[str], *, negated: bool) -> Node:
    """`IN` and `NOT IN`: of a property only; unknown without it.

    Raises:
        SqlFaultError: it is no property.
    """
    name = node.name
    if not name:
        raise SqlFaultError(node.at, "only a property can stand before IN and NOT IN")
    wanted = frozenset(texts)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not negated

    return over(SqlType.BOOLEAN, evaluate, node)


def text_test(node: Node, test: Callable[[str, str], bool], search: str, *, negated: bool) -> Node:
    """`CONTAINS`, `STARTSWITH`, `ENDSWITH` and their NOT: all false for what is no text, and for an empty search."""
    if not search:
        return over(SqlType.BOOLEAN, lambda _: False, node)
    inner = node.evaluate

    def evaluate(properties: Mapping[str, str]) -> bool:
        value = inner(properties)
        return isinstance(value, str) and test(value, search) is not negated

    return over(SqlType.BOOLEAN, evaluate, node)


Test = Callable[[Any, Any], bool]
_ORDER: Final[dict[str, Test]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONVERT: Final[dict[SqlType, Callable[[str], int | float]]] = {
    SqlType.INTEGER: partial(java_integer, value_max=INTEGER_MAX),
    SqlType.LONG: partial(java_integer, value_max=LONG_MAX),
    SqlType.DOUBLE: java_double,
}


def ordered(sign: str, left: Node, right: Node) -> Node:
    """`<`, `<=`, `>` and `>=`.

    Raises:
        SqlFaultError: a side can be no number.
    """
    for side in (left, right):
        if side.kind is SqlType.BOOLEAN or (side.is_literal and side.kind not in NUMBERS):
            raise SqlFaultError(side.at, f"only numbers and properties can be compared by {sign}")
    return over(SqlType.BOOLEAN, _ordered(sign, left, right), left, right)


def _ordered(sign: str, left: Node, right: Node) -> Evaluate:
    if SqlType.NOTHING in (left.kind, right.kind):
        return lambda _: None
    if left.kind is right.kind is SqlType.TEXT:
        return _ordered_properties(_ORDER[sign], left.name, right.name)
    if left.kind is SqlType.TEXT:
        return _ordered_property(sign, left.name, right)
    if right.kind is SqlType.TEXT:
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
    a, b = map(float, values) if SqlType.DOUBLE in (left.kind, right.kind) else values  # type: ignore[arg-type]
    return compare_doubles(a, b)  # type: ignore[arg-type]


def equal(left: Node, right: Node) -> Node:
    """`=`.

    Raises:
        SqlFaultError: a side is NULL, or TRUE or FALSE is compared with another constant.
    """
    for side in (left, right):
        if side.is_literal and side.kind is SqlType.NOTHING:
            raise SqlFaultError(side.at, "NULL cannot be compared; write IS NULL or IS NOT NULL")
    if left.is_literal and left.kind is SqlType.BOOLEAN and right.is_literal and right.kind is not SqlType.BOOLEAN:
        raise SqlFaultError(left.at, f"TRUE or FALSE cannot be compared with {right.kind.value}")
    return over(SqlType.BOOLEAN, _equal(left, right), left, right)


def unequal(left: Node, right: Node) -> Node:
    """`<>`."""
    return invert(equal(left, right))


def is_null(node: Node) -> Node:
    """`IS NULL`: true if the part is absent or unknown, else false."""
    inner = node.evaluate
    return over(SqlType.BOOLEAN, lambda properties: inner(properties) is None, node)


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
    if left.name and right.is_literal and right.kind is SqlType.TEXT:
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


def _same(left: SqlType, right: SqlType) -> Test:
    """Whether two values that are there are equal, by their types."""
    if left is right:
        return operator.eq
    if left is SqlType.TEXT and right in NUMBERS:
        convert = _CONVERT[right]
        return lambda value, other: convert(value) == other
    if left in NUMBERS and right is SqlType.TEXT:
        convert = _CONVERT[left]
        return lambda value, other: value == convert(other)
    if left is SqlType.TEXT and right is SqlType.BOOLEAN:
        return lambda value, other: (value.lower() == "true") is other
    if left is SqlType.BOOLEAN and right is SqlType.TEXT:
        return _no_value
    return lambda _value, _other: False


def _no_value(_value: object, _other: object) -> bool:
    raise ValueError("RocketMQ cannot compare a condition with a property that stands behind it")
