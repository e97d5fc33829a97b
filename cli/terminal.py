"""Stored text on a terminal: characters that control the terminal or reorder the line are shown as escapes.

Message bodies, keys and properties are untrusted. A table shows ESC as `\\x1b`, a right-to-left override as
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
    """The text with control characters as escapes; newline and tab stay."""
    return _STEERING.sub(_spell, text)


def one_line(text: str, characters_max: int = 0) -> str:
    """The text on one line, control characters as escapes, cut to `characters_max` with an ellipsis (0: not cut)."""
    if characters_max and len(text) > characters_max:
        text = text[: characters_max - 1] + "…"
    return neutralise(text).replace("\n", "\\n").replace("\t", "\\t")


def json_safe(document: str) -> str:
    """The same JSON document with DEL, C1 controls and direction marks escaped too."""
    return _STEERING_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", document)
