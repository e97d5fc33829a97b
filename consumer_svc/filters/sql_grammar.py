"""The grammar of SQL filters, and the parser that makes closures of them.

Source: `SelectorParser.jj` of RocketMQ 5.3.3. There is no LIKE and no arithmetic. NOT, `-` and `+` stand before one operand:
`NOT a = 1` means `(NOT a) = 1`.

It differs in one way: RocketMQ ignores what stands behind a whole expression, so that of `a = 1 b = 2` or `a = 1) AND b = 2`
only `a = 1` holds, and `a LIKE 'x%'` never does. Here that is an error.

The tokens of an SQL filter, as the scanner of RocketMQ 5.3.3 (`SelectorParser.jj`) finds them.

    keywords    in any case; reserved
    NAME        begins with a letter, `_` or `$`, goes on with these and digits; ASCII only
    TEXT        '...', a ' inside of it is written twice
    WHOLE       0, or digits that do not begin with 0, then l or L or nothing; no hexadecimal, no octal
    FRACTION    1.5  1.  .5  1e3
    ORDER       <  <=  >  >=
    = <> + - ( ) ,

Blanks, `/* comments */` and `-- comments` to the end of a line lie between tokens. In the last line, `--` behind an operand
begins a comment, too: RocketMQ ignores what stands there. Before an operand it is a sign twice.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer

from consumer_svc.filters import sql_expressions
from consumer_svc.filters.sql_expressions import INTEGER_MAX, LONG_MAX, Evaluate, Node, SqlFaultError, SqlType

# The types of tokens in the grammar; the parser drops those that begin with `_`.
_KEYWORDS: Final = {
    word: f"_{word}" for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
}
_CONSTANTS: Final = {word: word for word in ("TRUE", "FALSE", "NULL")}
_TYPES: Final = {**_KEYWORDS, **_CONSTANTS}
_SIGNS: Final = {
    "=": "_EQUAL",
    "<>": "_UNEQUAL",
    "+": "_PLUS",
    "-": "_MINUS",
    "(": "_OPEN",
    ")": "_CLOSE",
    ",": "_COMMA",
}
_OPERAND_ENDS: Final = frozenset(("NAME", "TEXT", "WHOLE", "FRACTION", "TRUE", "FALSE", "NULL", "_CLOSE"))
# Possessive (`*+`): a part that does not match is not tried in other ways.
_TOKEN: Final = re.compile(
    r"""
      (?P<BLANK> [ \t\n\r\f]++ | /\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/ )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]*+ )
    | (?P<TEXT> '(?:''|[^'])*' )
    | (?P<FRACTION> [0-9]+\.[0-9]*+(?:[Ee][+-]?[0-9]+)? | \.[0-9]+(?:[Ee][+-]?[0-9]+)? | [0-9]+[Ee][+-]?[0-9]+ )
    | (?P<WHOLE> 0 | [1-9][0-9]*+[Ll]? )
    | (?P<DASHES> -- )
    | (?P<SIGN> <> | [=+(),-] )
    | (?P<ORDER> [<>]=? )
    """,
    re.VERBOSE,
)
_LINE_END: Final = re.compile(r"[\n\r]")


class SqlLexer(Lexer):
    """Gives the parser its tokens."""

    def __init__(self, _configuration: object) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the interface of lark that takes a text
        """See `tokens`."""
        return tokens(text)


def tokens(expression: str) -> Iterator[Token]:
    """The tokens with their positions, in characters.

    Raises:
        SqlFaultError: a character begins no token.
    """
    last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
    at, end, kind = 0, len(expression), ""
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None:
            raise _unknown(expression, at)
        begin, at = match.span()
        group = match.lastgroup
        if group == "BLANK":
            continue
        if group == "DASHES":
            if at <= last_line_end:
                line_end = _LINE_END.search(expression, at)
                assert line_end is not None
                at = line_end.end()
                continue
            if kind in _OPERAND_ENDS:
                return
            at = begin + 1
        kind = _kind(group, expression[begin:at])
        yield Token(kind, expression[begin:at], start_pos=begin)


def _kind(group: str | None, text: str) -> str:
    if group == "NAME":
        return _TYPES.get(text.upper(), "NAME")
    if group in ("SIGN", "DASHES"):
        return _SIGNS[text]
    assert group is not None
    return group


def _unknown(expression: str, at: int) -> SqlFaultError:
    if expression[at] == "'":
        return SqlFaultError(at, "this text has no end: write ' behind it, and '' for a ' inside it")
    if expression.startswith("/*", at):
        return SqlFaultError(at, "this comment has no end: write */ behind it")
    return SqlFaultError(
        at, f"{expression[at]!r} has no meaning here; write texts in '...', and names with A-Z, 0-9, _ and $"
    )


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
    return lambda _, node, token: sql_expressions.text_test(node, test, _unquoted(token), negated=negated)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Called by the parser for each rule that it has read; the names are those of the grammar."""

    equal = staticmethod(sql_expressions.equal)
    unequal = staticmethod(sql_expressions.unequal)
    between = staticmethod(sql_expressions.between)
    not_between = staticmethod(sql_expressions.not_between)
    negate = staticmethod(sql_expressions.negate)
    invert = staticmethod(sql_expressions.invert)
    contains = _is_a(str.__contains__)
    not_contains = _is_a(str.__contains__, negated=True)
    starts_with = _is_a(str.startswith)
    not_starts_with = _is_a(str.startswith, negated=True)
    ends_with = _is_a(str.endswith)
    not_ends_with = _is_a(str.endswith, negated=True)

    def start(self, node: Node) -> Node:
        return sql_expressions.condition(node)

    def any_of(self, *nodes: Node) -> Node:
        return sql_expressions.join("OR", nodes)

    def all_of(self, *nodes: Node) -> Node:
        return sql_expressions.join("AND", nodes)

    def is_null(self, node: Node, _: Token) -> Node:
        return sql_expressions.is_null(node)

    def is_not_null(self, node: Node, _: Token) -> Node:
        return sql_expressions.is_not_null(node)

    def ordered(self, left: Node, sign: Token, right: Node) -> Node:
        return sql_expressions.ordered(str(sign), left, right)

    def is_in(self, node: Node, *texts: Token) -> Node:
        return sql_expressions.is_in(node, [_unquoted(text) for text in texts], negated=False)

    def is_not_in(self, node: Node, *texts: Token) -> Node:
        return sql_expressions.is_in(node, [_unquoted(text) for text in texts], negated=True)

    def name(self, token: Token) -> Node:
        return sql_expressions.prop(_at(token), str(token))

    def text(self, token: Token) -> Node:
        return sql_expressions.literal(_at(token), SqlType.TEXT, _unquoted(token))

    def true(self, token: Token) -> Node:
        return sql_expressions.literal(_at(token), SqlType.BOOLEAN, True)

    def false(self, token: Token) -> Node:
        return sql_expressions.literal(_at(token), SqlType.BOOLEAN, False)

    def null(self, token: Token) -> Node:
        return sql_expressions.literal(_at(token), SqlType.NOTHING, None)

    def whole(self, token: Token) -> Node:
        """An Integer if it fits, else a Long, with or without an L."""
        digits = token.rstrip("lL")
        value = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
        if value > LONG_MAX:
            raise SqlFaultError(
                _at(token), f"this number is too large; write at most {LONG_MAX}, or one with a fraction"
            )
        return sql_expressions.literal(_at(token), SqlType.INTEGER if value <= INTEGER_MAX else SqlType.LONG, value)

    def fraction(self, token: Token) -> Node:
        """A Double; RocketMQ refuses those that are 0, too."""
        value = float(token)
        if value == 0 or math.isinf(value):
            raise SqlFaultError(_at(token), "this number is 0 or does not fit a Double; write 0 without a fraction")
        return sql_expressions.literal(_at(token), SqlType.DOUBLE, value)


@cache
def _parser() -> "Lark":
    """Made with the first filter: it takes some 50 ms."""
    return Lark(_GRAMMAR, parser="lalr", lexer=SqlLexer, transformer=_Builder())
