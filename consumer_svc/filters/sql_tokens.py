"""The tokens of an SQL filter, as the scanner of RocketMQ 5.3.3 (`SelectorParser.jj`) finds them.

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

import re
from collections.abc import Iterator
from typing import Final

from lark import Token
from lark.lexer import Lexer

from consumer_svc.filters.sql_nodes import SqlFaultError

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
