"""Texts as numbers, as Java's `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` and `Double.compareTo` take them.

All properties are texts. An SQL filter that compares one with a number converts it by these rules. They differ from
Python's: `1_0` is no number, `0x1p3` and `1.5f` are Doubles, only a Double may have blanks around it, and a text that does
not fit the type is no number of it.
"""

import math
import re
from typing import Final

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
