"""Detects the encoding of a body from its bytes: text with its charset, a known format, protobuf, or unknown binary.

    byte order mark ─▶ UTF-8 ─▶ a format's first bytes ─▶ protobuf ─▶ GB18030 ─▶ binary

The UTF-8 decoder is fast and checks the whole body. The guesses for protobuf and GB18030 are slow and check only the begin.
"""

import codecs
import json
import re

from console.bodies.protobuf_raw import begins_like_fields

# Parsing and indenting grow with the body; larger ones are shown as text.
JSON_BYTES_MAX = 1 << 20
# The bytes of a body that a guess reads.
GUESS_BYTES_MAX = 64 << 10
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")  # ESC may stand in a coloured log line
_MAGICS = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"\xac\xed\x00\x05", "Java serialization"),
    (b"Obj\x01", "Avro container"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"%PDF-", "PDF"),
)
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CHARSET_NAMES = {
    "utf-8-sig": "UTF-8 with BOM",
    "utf-16": "UTF-16",
    "utf-8": "UTF-8",
    "gb18030": "GB18030 (guessed)",
}


def detect_encoding(content: bytes) -> tuple[str, str, bool]:
    """The encoding's name, the charset (empty: not text), and whether the bytes are JSON."""
    if not content:
        return "empty", "utf-8", False
    charset, binary = _look(content, len(content))
    return _named_text(content, charset) if charset else (binary, "", False)


def charset_of(begin: bytes, size_bytes: int) -> str:
    """The charset of a body with these first bytes and this size; empty when it is not text."""
    return _look(begin, size_bytes)[0]


def decode_begin(begin: bytes, charset: str, *, is_whole: bool) -> str:
    """The text of the first bytes, whose last character may be cut; UnicodeDecodeError when they do not fit the charset."""
    return codecs.getincrementaldecoder(charset)().decode(begin, is_whole)


def _look(begin: bytes, size_bytes: int) -> tuple[str, str]:
    """The charset; or an empty text and the name of the binary format."""
    for mark, charset in _BYTE_ORDER_MARKS:
        if begin.startswith(mark) and _text(begin, charset, size_bytes) is not None:
            return charset, ""
    if _text(begin, "utf-8", size_bytes) is not None:
        return "utf-8", ""
    for magic, name in _MAGICS:
        if begin.startswith(magic):
            return "", f"binary ({name})"
    guessed = begin[:GUESS_BYTES_MAX]
    if begins_like_fields(guessed, size_bytes):
        return "", "protobuf (guessed from its bytes)"
    # GB18030 maps nearly every pair of bytes, so only text with mostly common characters counts.
    chinese = _text(guessed, "gb18030", size_bytes)
    return ("gb18030", "") if chinese is not None and _is_mostly_chinese(chinese) else ("", "binary")


def _named_text(content: bytes, charset: str) -> tuple[str, str, bool]:
    name = "ASCII" if charset == "utf-8" and content.isascii() else _CHARSET_NAMES[charset]
    if len(content) <= JSON_BYTES_MAX:
        text = content.decode(charset, "backslashreplace")  # a guess has checked only the begin
        if text.lstrip()[:1] in ("{", "["):
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return f"JSON, {name}", charset, True
    return f"text, {name}", charset, False


def _text(begin: bytes, charset: str, size_bytes: int) -> str | None:
    """The text; None when the bytes are not text of this charset."""
    try:
        text = decode_begin(begin, charset, is_whole=len(begin) >= size_bytes)
    except UnicodeDecodeError:
        return None
    return text if _CONTROL.search(text) is None else None


def _is_mostly_chinese(text: str) -> bool:
    wide = [character for character in text if ord(character) > 0x7F]
    common = [
        character for character in wide if 0x4E00 <= ord(character) <= 0x9FFF or 0x3000 <= ord(character) <= 0x303F
    ]
    return len(common) > 0.9 * len(wide)
