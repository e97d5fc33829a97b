r"""Java's text: UTF-8 as `new String(bytes, UTF_8)` and `getBytes(UTF_8)` treat it, and `String.hashCode`.

Valid UTF-8 is the same everywhere. Two cases differ from Python's strict codec:

- Bytes that are not UTF-8 become U+FFFD, one for each maximal bad part as in Python. The exception: three bytes that encode a
  surrogate (ED A0..BF 80..BF), or the first two of them, become one U+FFFD, not one each. Index hashes depend on it.
- A lone surrogate in a string is written as `?`.

    hash = u[0]*31^(n-1) + u[1]*31^(n-2) + ... + u[n-1]    over UTF-16 units u, in signed 32-bit arithmetic

A character outside the basic plane counts as its two surrogates.
"""

import codecs
import struct
from functools import lru_cache
from operator import mul

_SURROGATE_LEAD = 0xED
_MASK = 0xFFFFFFFF


def _replace_like_java(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError):
        return b"?" * (error.end - error.start), error.end
    assert isinstance(error, UnicodeDecodeError), error
    data, start = error.object, error.start
    end = error.end
    if data[start] == _SURROGATE_LEAD and 0xA0 <= (data[start + 1] if len(data) > start + 1 else 0) <= 0xBF:
        is_whole = len(data) > start + 2 and 0x80 <= data[start + 2] <= 0xBF
        end = start + 3 if is_whole else start + 2
    return "\ufffd", end


codecs.register_error("java_replace", _replace_like_java)


def decode_java_utf8(data: bytes | bytearray | memoryview) -> str:
    """Text of any bytes; never fails."""
    return str(data, "utf-8", "java_replace")


def encode_java_utf8(text: str) -> bytes:
    """UTF-8 of any text; never fails."""
    return text.encode("utf-8", "java_replace")


@lru_cache(maxsize=512)
def _powers(count: int) -> tuple[int, ...]:
    return tuple(int(pow(31, exponent, 1 << 32)) for exponent in range(count - 1, -1, -1))


def java_string_hash(text: str) -> int:
    """`text.hashCode()` of Java, a signed 32-bit number."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode("ascii")
    else:
        wide = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(wide) // 2}H", wide)
    count = len(units)
    value: int
    if count <= 512:
        # One independent multiplication for each unit: twice as fast as the textbook loop.
        value = sum(map(mul, units, _powers(count))) & _MASK
    else:
        value = 0
        for unit in units:
            value = (value * 31 + unit) & _MASK
    return value - (1 << 32) if value >> 31 else value
