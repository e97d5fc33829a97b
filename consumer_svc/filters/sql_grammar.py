"""The grammar of SQL filters, and the parser that makes closures of them.

Source: `SelectorParser.jj` of RocketMQ 5.3.3. There is no LIKE and no arithmetic. NOT, `-` and `+` stand before one operand:
`NOT a = 1` means `(NOT a) = 1`.

It differs in one way: RocketMQ ignores what stands behind a whole expression, so that of `a = 1 b = 2` or `a = 1) AND b = 2`
only `a = 1` holds, and `a LIKE 'x%'` never does. Here that is an error.
"""

import math
from collections.abc import Callable, Collection
from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedToken, v_args

from consumer_svc.filters import sql_comparisons, sql_nodes
from consumer_svc.filters.java_numbers import INTEGER_MAX, LONG_MAX
from consumer_svc.filters.sql_nodes import Evaluate, Kind, Node, SqlFaultError
from consumer_svc.filters.sql_tokens import SqlLexer

_GRAMMAR: Final = r"""
start: disjunction
?disjunction: conjunction | conjunction (_OR conjunction)+       -> any_of
?conjunction: equality | equality (_AND equality)+               -> all_of
?equality: comparison
    | equality _EQUAL comparison                                 -> equal
    | equality _UNEQUAL comparison                               -> unequal
    | equality _IS NULL                                          -> is_null
    | equality _IS _NOT NULL                                     -> is_not_null
?comparison: unary
    | comparison ORDER unary                                     -> ordered
    | comparison _BETWEEN unary _AND unary                       -> between
    | comparison _NOT _BETWEEN unary _AND unary                  -> not_between
    | comparison _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE            -> is_in
    | comparison _NOT _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE       -> is_not_in
    | comparison _CONTAINS TEXT                                  -> contains
    | comparison _NOT _CONTAINS TEXT                             -> not_contains
    | comparison _STARTSWITH TEXT                                -> starts_with
    | comparison _NOT _STARTSWITH TEXT                           -> not_starts_with
    | comparison _ENDSWITH TEXT                                  -> ends_with
    | comparison _NOT _ENDSWITH TEXT                             -> not_ends_with
?unary: _PLUS unary
    | _MINUS unary                                               -> negate
    | _NOT unary                                                 -> invert
    | NAME                                                       -> name
    | TEXT                                                       -> text
    | FRACTION                                                   -> fraction
    | WHOLE                                                      -> whole
    | TRUE                                                       -> true
    | FALSE                                                      -> false
    | NULL                                                       -> null
    | _OPEN disjunction _CLOSE
%declare NAME TEXT FRACTION WHOLE ORDER TRUE FALSE NULL
%declare _NOT _AND _OR _BETWEEN _IN _IS _CONTAINS _STARTSWITH _ENDSWITH _EQUAL _UNEQUAL _PLUS _MINUS _OPEN _CLOSE _COMMA
"""
# What may stand at a place, in the order of a text that says so.
_EXPECTED: Final = {
    "NAME": "a property, a number, a text in '...', TRUE, FALSE, NOT, - or (",
    "ORDER": "a comparison",
    "_AND": "AND",
    "_OR": "OR",
    "TEXT": "a text in '...'",
    "_OPEN": "(",
    "_CLOSE": ")",
    "_COMMA": "a comma",
    "NULL": "NULL",
    "_NOT": "NOT",
    "_CONTAINS": "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN",
    "$END": "the end",
}
_OPERANDS: Final = frozenset(("TEXT", "_OPEN", "NULL", "_NOT"))  # NAME stands for them


def parse(expression: str) -> Evaluate:
    """The closure of an expression; its length is the caller's concern.

    Raises:
        SqlFaultError: it is no SQL filter.
    """
    try:
        node = _parser().parse(expression)
    except UnexpectedToken as error:
        expected = _listed(error.accepts)
        if error.token.type == "$END":
            raise SqlFaultError(len(expression), f"the expression ends too early: expected {expected}") from None
        raise SqlFaultError(_at(error.token), f"this cannot stand here: expected {expected}") from None
    assert isinstance(node, Node), node
    return node.evaluate


def _listed(terminals: Collection[str]) -> str:
    left_out = _OPERANDS if "NAME" in terminals else ()
    return " or ".join(text for name, text in _EXPECTED.items() if name in terminals and name not in left_out)


def _is_a(test: Callable[[str, str], bool], *, negated: bool = False) -> Callable[["_Builder", Node, Token], Node]:
    return lambda _, node, token: sql_nodes.text_test(node, test, _unquoted(token), negated=negated)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Called by the parser for each rule that it has read; the names are those of the grammar."""

    equal = staticmethod(sql_comparisons.equal)
    unequal = staticmethod(sql_comparisons.unequal)
    between = staticmethod(sql_comparisons.between)
    not_between = staticmethod(sql_comparisons.not_between)
    negate = staticmethod(sql_nodes.negate)
    invert = staticmethod(sql_nodes.invert)
    contains = _is_a(str.__contains__)
    not_contains = _is_a(str.__contains__, negated=True)
    starts_with = _is_a(str.startswith)
    not_starts_with = _is_a(str.startswith, negated=True)
    ends_with = _is_a(str.endswith)
    not_ends_with = _is_a(str.endswith, negated=True)

    def start(self, node: Node) -> Node:
        return sql_nodes.condition(node)

    def any_of(self, *nodes: Node) -> Node:
        return sql_nodes.join("OR", nodes)

    def all_of(self, *nodes: Node) -> Node:
        return sql_nodes.join("AND", nodes)

    def is_null(self, node: Node, _: Token) -> Node:
        return sql_comparisons.is_null(node)

    def is_not_null(self, node: Node, _: Token) -> Node:
        return sql_comparisons.is_not_null(node)

    def ordered(self, left: Node, sign: Token, right: Node) -> Node:
        return sql_comparisons.ordered(str(sign), left, right)

    def is_in(self, node: Node, *texts: Token) -> Node:
        return sql_nodes.is_in(node, [_unquoted(text) for text in texts], negated=False)

    def is_not_in(self, node: Node, *texts: Token) -> Node:
        return sql_nodes.is_in(node, [_unquoted(text) for text in texts], negated=True)

    def name(self, token: Token) -> Node:
        return sql_nodes.prop(_at(token), str(token))

    def text(self, token: Token) -> Node:
        return sql_nodes.literal(_at(token), Kind.TEXT, _unquoted(token))

    def true(self, token: Token) -> Node:
        return sql_nodes.literal(_at(token), Kind.BOOLEAN, True)

    def false(self, token: Token) -> Node:
        return sql_nodes.literal(_at(token), Kind.BOOLEAN, False)

    def null(self, token: Token) -> Node:
        return sql_nodes.literal(_at(token), Kind.NOTHING, None)

    def whole(self, token: Token) -> Node:
        """An Integer if it fits, else a Long, with or without an L."""
        digits = token.rstrip("lL")
        value = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
        if value > LONG_MAX:
            raise SqlFaultError(
                _at(token), f"this number is too large; write at most {LONG_MAX}, or one with a fraction"
            )
        return sql_nodes.literal(_at(token), Kind.INTEGER if value <= INTEGER_MAX else Kind.LONG, value)

    def fraction(self, token: Token) -> Node:
        """A Double; RocketMQ refuses those that are 0, too."""
        value = float(token)
        if value == 0 or math.isinf(value):
            raise SqlFaultError(_at(token), "this number is 0 or does not fit a Double; write 0 without a fraction")
        return sql_nodes.literal(_at(token), Kind.DOUBLE, value)


@cache
def _parser() -> "Lark":
    """Made with the first filter: it takes some 50 ms."""
    return Lark(_GRAMMAR, parser="lalr", lexer=SqlLexer, transformer=_Builder())
