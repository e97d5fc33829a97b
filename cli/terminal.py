"""Stored text on a terminal: what could steer the terminal or reorder the line is spelt out instead.

Message bodies, keys and properties come from strangers. A table shows ESC as `\\x1b`, a right-to-left override as
`\\u202e`.
"""

import re

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")
_STEERING_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_LINE_MARKS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _spell(match: re.Match[str]) -> str:
    code = ord(match.group())
    return _LINE_MARKS.get(match.group()) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def neutralise(text: str) -> str:
    """The text with controls spelt out; newline and tab stay."""
    return _STEERING.sub(_spell, text)


def one_line(text: str, characters_max: int = 0) -> str:
    """The text on one line with every control spelt out, cut to `characters_max` (0: uncut) with an ellipsis."""
    if characters_max and len(text) > characters_max:
        text = text[: characters_max - 1] + "…"
    return neutralise(text).replace("\n", "\\n").replace("\t", "\\t")


def json_safe(document: str) -> str:
    """A JSON document in which DEL, C1 controls and direction marks are escaped too; it stays the same document."""
    return _STEERING_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", document)
