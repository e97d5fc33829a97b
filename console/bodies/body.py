"""A message's body in readable form: inflated, its encoding detected and named, cut to the room on a page.

    text        decoded, as it is                json        parsed, indented, non-ASCII as it is
    hex         offset, bytes, characters        protobuf    the wire format, without a schema (protobuf_raw.py)
    schema      JSON with the names of a schema (schemas.py)

A view that is cut gives the number of bytes that it shows and the size of the body.

The encoding is detected from the bytes: text with its charset, a known format, protobuf, or unknown binary.

    byte order mark ─▶ UTF-8 ─▶ a format's first bytes ─▶ protobuf ─▶ GB18030 ─▶ binary

The UTF-8 decoder is fast and checks the whole body. The guesses for protobuf and GB18030 are slow and check only the begin.
"""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from console.bodies.protobuf_raw import NotProtobufError, begins_like_fields, describe_fields
from console.bodies.schemas import BodyNotReadableError, BodySchema
from store.format.body_compression import (
    INFLATED_BYTES_MAX,
    BodyNotInflatedError,
    compression_name,
    inflate,
    inflate_begin,
)

# A page with this view and its markup must stay below 100 KiB; the download has the whole body.
TEXT_CHARACTERS_MAX = 24_000
HEX_BYTES_MAX = 4_096
HEX_ROW_BYTES = 16
# Nested fields are parsed once for each depth.
PROTOBUF_BYTES_MAX = 1 << 20
PREVIEW_CHARACTERS_MAX = 96
# The bytes that a row inflates and decodes: a character has at most four.
PREVIEW_BYTES_MAX = 4 * PREVIEW_CHARACTERS_MAX


class View(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    PROTOBUF = "protobuf"
    SCHEMA = "schema"


@dataclass(frozen=True, slots=True)
class Body:
    """A body and its detected encoding.

    Attributes:
        content: the bytes as they were sent, or as stored when they cannot be inflated.
        stored_size_bytes: size of the stored bytes.
        compression: of the stored bytes: none, zlib, lz4, zstd or unknown.
        problem: why a compressed body is shown as stored; empty otherwise.
        encoding: the kind of the bytes, such as `JSON, UTF-8` or `binary (gzip)`.
        charset: decodes them as text; empty when they are not text.
        is_json: whether they are a JSON object or array.
    """

    content: bytes
    stored_size_bytes: int
    compression: str
    problem: str
    encoding: str
    charset: str
    is_json: bool

    @classmethod
    def of(cls, stored: bytes, sys_flag: int) -> "Body":
        """The body, inflated if possible, with its encoding."""
        content, problem = inflated(stored, sys_flag)
        encoding, charset, is_json = detect_encoding(content)
        return cls(content, len(stored), compression_name(sys_flag), problem, encoding, charset, is_json)

    @property
    def best_view(self) -> View:
        """The default view for this body."""
        if self.is_json:
            return View.JSON
        if self.charset or not self.content:
            return View.TEXT
        is_shown = self.encoding.startswith("protobuf") and len(self.content) <= PROTOBUF_BYTES_MAX
        return View.PROTOBUF if is_shown else View.HEX


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A view: its text, and how much of the body it shows.

    Attributes:
        view: the kind of view.
        text: the characters.
        shown_size_bytes: the bytes of the body that the text shows.
        size_bytes: bytes of the body.
        problem: why the body has no such view; `text` is empty then.
    """

    view: View
    text: str
    shown_size_bytes: int
    size_bytes: int
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether a part of the body is not shown."""
        return self.shown_size_bytes < self.size_bytes


def show(body: Body, view: View, begin: int = 0) -> ShownBody:
    """The body in a view; `begin` is the first byte of the hex view."""
    content = body.content
    if view is View.HEX:
        begin = min(max(begin, 0), len(content)) // HEX_ROW_BYTES * HEX_ROW_BYTES
        part = content[begin : begin + HEX_BYTES_MAX]
        return ShownBody(view, "\n".join(hex_rows(part, begin)), len(part), len(content))
    if view is View.PROTOBUF:
        if len(content) > PROTOBUF_BYTES_MAX:
            problem = f"Only bodies of up to {PROTOBUF_BYTES_MAX} bytes are taken apart here."
            return ShownBody(view, "", 0, len(content), problem)
        try:
            lines = describe_fields(content)
        except NotProtobufError as error:
            return ShownBody(view, "", 0, len(content), str(error))
        text, shown = _cut("\n".join(lines))
        return ShownBody(view, text, len(content) if not shown else 0, len(content))
    if view is View.JSON:
        return _show_json(body)
    if view is View.SCHEMA:
        return ShownBody(view, "", 0, len(content), "No schema is chosen.")
    text = content.decode(body.charset or "utf-8", errors="backslashreplace")
    text, is_cut = _cut(text)
    shown_size_bytes = len(text.encode(body.charset or "utf-8", errors="replace")) if is_cut else len(content)
    return ShownBody(view, text, min(shown_size_bytes, len(content)), len(content))


def show_by(schema: BodySchema, type_name: str, body: Body) -> ShownBody:
    """The body as JSON by a schema."""
    size_bytes = len(body.content)
    if size_bytes > PROTOBUF_BYTES_MAX:
        problem = f"Only bodies of up to {PROTOBUF_BYTES_MAX} bytes are taken apart here."
        return ShownBody(View.SCHEMA, "", 0, size_bytes, problem)
    try:
        text, is_cut = _cut(schema.to_json(type_name, body.content))
    except BodyNotReadableError as error:
        return ShownBody(View.SCHEMA, "", 0, size_bytes, str(error))
    return ShownBody(View.SCHEMA, text, 0 if is_cut else size_bytes, size_bytes)


def preview(stored: bytes, sys_flag: int) -> str:
    """The begin of a body on one line; empty when it is not text."""
    begin, size_bytes = _inflate_begin(stored, sys_flag)
    charset = charset_of(begin, size_bytes)
    if not charset:
        return ""
    text = decode_begin(begin, charset, is_whole=False)
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_CHARACTERS_MAX else line[: PREVIEW_CHARACTERS_MAX - 1] + "…"


def hex_rows(content: bytes, begin: int) -> Iterator[str]:
    """Rows of offset, bytes and the printable ASCII among them."""
    for at in range(0, len(content), HEX_ROW_BYTES):
        row = content[at : at + HEX_ROW_BYTES]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{begin + at:08x}  {left:<23}  {right:<23}  {characters}"


def inflated(stored: bytes, sys_flag: int) -> tuple[bytes, str]:
    """The bytes that were sent and an empty text; or the stored bytes and why they cannot be inflated."""
    try:
        return inflate(stored, sys_flag, INFLATED_BYTES_MAX), ""
    except BodyNotInflatedError as error:
        how = "damaged" if error.is_damaged else "not inflated"
        return stored, f"{how}, shown as stored: the message says {compression_name(sys_flag)}, but {error}"


def _inflate_begin(stored: bytes, sys_flag: int) -> tuple[bytes, int]:
    """The first PREVIEW_BYTES_MAX bytes that were sent, and an upper bound of the size of all of them."""
    try:
        begin, is_all = inflate_begin(stored, sys_flag, PREVIEW_BYTES_MAX)
    except BodyNotInflatedError:
        return stored[:PREVIEW_BYTES_MAX], len(stored)  # the page shows the whole body as stored, too
    return begin, len(begin) if is_all else INFLATED_BYTES_MAX


def _show_json(body: Body) -> ShownBody:
    size_bytes = len(body.content)
    if not body.is_json:
        return ShownBody(View.JSON, "", 0, size_bytes, "The body is not a JSON object or array.")
    text = body.content.decode(body.charset, "backslashreplace")
    try:
        # Numbers stay as they were written, because a float would round a long id.
        parsed = json.loads(text, parse_float=_Number, parse_int=_Number)
    except RecursionError:
        return ShownBody(View.JSON, "", 0, size_bytes, "The body is nested too deeply to be indented.")
    parts: list[str] = []
    character_count = 0
    for part in _indented(parsed):
        parts.append(part)
        character_count += len(part)
        if character_count > TEXT_CHARACTERS_MAX:
            break
    text, is_cut = _cut("".join(parts))
    return ShownBody(View.JSON, text, 0 if is_cut else size_bytes, size_bytes)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _indented(value: object) -> Iterator[str]:
    """Parts of the indented text; without recursion, so that a part costs the same at any depth."""
    open_values: list[tuple[Iterator[tuple[str, object]], str]] = []  # the remaining members and the closing bracket
    begin = ""
    while True:
        if isinstance(value, dict) and value:
            named = ((f"{json.dumps(name, ensure_ascii=False)}: ", member) for name, member in value.items())
            yield begin + "{"
            open_values.append((named, "}"))
            separator = ""
        elif isinstance(value, list) and value:
            yield begin + "["
            open_values.append(((("", member) for member in value), "]"))
            separator = ""
        else:
            yield begin + (str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False))
            separator = ","
        while True:
            if not open_values:
                return
            members, closing = open_values[-1]
            following = next(members, None)
            if following is not None:
                break
            open_values.pop()
            yield f"\n{'  ' * len(open_values)}{closing}"
            separator = ","
        name, value = following
        begin = f"{separator}\n{'  ' * len(open_values)}{name}"


def _cut(text: str) -> tuple[str, bool]:
    return (text, False) if len(text) <= TEXT_CHARACTERS_MAX else (text[:TEXT_CHARACTERS_MAX], True)


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
