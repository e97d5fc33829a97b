"""The parts of an SQL filter as closures over the properties of a message.

Source: the classes of `org.apache.rocketmq.filter.expression`, RocketMQ 5.3.3. Types are Java's: a property is a text or
absent, a number is an Integer, a Long or a Double. The type of each part is known before a message is seen, so that each
comparison is compiled for the types of its sides.

Three-valued logic: a closure returns True, False or None (unknown). Where RocketMQ throws while it evaluates, as for a text
that should be a number, a closure raises ValueError: the message does not match, whatever the rest of the expression says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

Value = str | int | float | bool | None
Evaluate = Callable[[Mapping[str, str]], Value]

# Closures call each other as deep as operators are nested. Parentheses and chains of AND or of OR do not count. Python's
# stack takes 1,000 calls; most of them are left to the callers.
NESTING_MAX: Final = 200


class Kind(Enum):
    """Java's type of a value that is not null; NOTHING is always null."""

    TEXT = "a text"
    INTEGER = "an Integer"
    LONG = "a Long"
    DOUBLE = "a Double"
    BOOLEAN = "a condition"
    NOTHING = "always NULL"


NUMBERS: Final = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))


class SqlFaultError(Exception):
    """What is wrong with an expression.

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
    kind: Kind
    evaluate: Evaluate
    constant: Value = None
    is_literal: bool = False
    name: str = ""
    operator: str = ""
    operands: tuple[Evaluate, ...] = ()
    depth: int = 0


def literal(at: int, kind: Kind, value: Value) -> Node:
    """A constant."""
    return Node(at, kind, lambda _: value, constant=value, is_literal=True)


def prop(at: int, name: str) -> Node:
    """A property, by its name."""
    return Node(at, Kind.TEXT, lambda properties: properties.get(name), name=name)


def over(kind: Kind, evaluate: Evaluate, *parts: Node) -> Node:
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
    if node.kind is Kind.BOOLEAN or (node.kind is Kind.NOTHING and node.is_literal):
        return node
    if node.name:
        name = node.name
        return over(Kind.BOOLEAN, lambda properties: None if properties.get(name) is None else False, node)
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

    return over(Kind.NOTHING, evaluate, node)


def invert(node: Node) -> Node:
    """`NOT`."""
    part = condition(node)
    inner = part.evaluate

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return over(Kind.BOOLEAN, evaluate, part)


def join(operator: str, nodes: Sequence[Node]) -> Node:
    """`AND` or `OR` of conditions, from the left, each only as far as it matters."""
    parts = [condition(node) for node in nodes]
    operands: list[Evaluate] = []
    for part in parts:
        operands += part.operands if part.operator == operator else [part.evaluate]
    # An operand in the form of the same operator is as deep as its own operands are.
    depth = max(part.depth - (part.operator == operator) for part in parts)
    chain = tuple(operands)
    joined = over(Kind.BOOLEAN, _joined(operator, chain), replace(parts[0], depth=depth))
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

    return over(Kind.BOOLEAN, evaluate, node)


def text_test(node: Node, test: Callable[[str, str], bool], search: str, *, negated: bool) -> Node:
    """`CONTAINS`, `STARTSWITH`, `ENDSWITH` and their NOT: all false for what is no text, and for an empty search."""
    if not search:
        return over(Kind.BOOLEAN, lambda _: False, node)
    inner = node.evaluate

    def evaluate(properties: Mapping[str, str]) -> bool:
        value = inner(properties)
        return isinstance(value, str) and test(value, search) is not negated

    return over(Kind.BOOLEAN, evaluate, node)
