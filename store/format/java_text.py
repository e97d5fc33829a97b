r"""UTF-8 as Java's `new String(bytes, UTF_8)` and `getBytes(UTF_8)` treat it.

Valid UTF-8 is the same everywhere. Two cases differ from Python's strict codec:

- Bytes that are not UTF-8 become U+FFFD, one for each maximal bad part as in Python. The exception: three bytes that encode a
  surrogate (ED A0..BF 80..BF), or the first two of them, become one U+FFFD, not one each. Index hashes depend on it.
- A lone surrogate in a string is written as `?`.
"""

import codecs

_SURROGATE_LEAD = 0xED


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
