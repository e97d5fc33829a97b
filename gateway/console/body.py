"""A message's body as people want to see it: inflated, its encoding detected and named, cut where a page has no more room.

    text        decoded, as it is                json        parsed, indented, non-ASCII as it is
    hex         offset, bytes, characters        protobuf    the wire format, without a schema (protobuf_raw.py)

Nothing is cut or left out in silence: every view says how many of how many bytes it shows.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gateway.console.protobuf_raw import NotProtobufError, describe_fields
from store.format.sys_flag import CompressionType, compression_type, is_compressed

# What a producer may send is 4 MiB; what inflates to more than this is an attack.
INFLATED_BYTES_MAX = 16 << 20
# With markup around it a view must leave a page below 100 KiB; the whole body is one click away.
TEXT_CHARACTERS_MAX = 24_000
HEX_BYTES_MAX = 4_096
HEX_ROW_BYTES = 16
# Parsing and indenting grow with the body; larger ones are shown as text.
JSON_BYTES_MAX = 1 << 20
PREVIEW_CHARACTERS_MAX = 96
_PREVIEW_BYTES_MAX = 4 * PREVIEW_CHARACTERS_MAX
_CONTROL_ALLOWED = frozenset("\t\n\r\x1b")  # ESC may stand in a coloured log line
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
_COMPRESSION_NAMES = {
    CompressionType.ZLIB_UNMARKED: "zlib",
    CompressionType.ZLIB: "zlib",
    CompressionType.LZ4: "lz4",
    CompressionType.ZSTD: "zstd",
}


class View(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class Body:
    """A body and what is known of it.

    Attributes:
        content: the bytes as they were sent, or as stored when they cannot be inflated.
        stored_size_bytes: size of what is stored.
        compression: how that is compressed: none, zlib, lz4, zstd or unknown.
        problem: why it is shown as stored although it is compressed; empty otherwise.
        encoding: what the bytes are, such as `JSON, UTF-8` or `binary (gzip)`.
        charset: how to read them as text; empty when they are no text.
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
        """Inflate what can be, and look at it."""
        content, compression, problem = _inflate(stored, sys_flag)
        encoding, charset, is_json = detect_encoding(content)
        return cls(content, len(stored), compression, problem, encoding, charset, is_json)

    @property
    def best_view(self) -> View:
        """How to show it to somebody who did not choose."""
        if self.is_json:
            return View.JSON
        if self.charset or not self.content:
            return View.TEXT
        return View.PROTOBUF if self.encoding.startswith("protobuf") else View.HEX


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A view: its lines of characters and how much of the body they are.

    Attributes:
        view: how it is shown.
        text: the characters.
        shown_size_bytes: bytes of the body that they stand for.
        size_bytes: bytes of the body.
        problem: why it could not be shown so; `text` is empty then.
    """

    view: View
    text: str
    shown_size_bytes: int
    size_bytes: int
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether some of it is not shown."""
        return self.shown_size_bytes < self.size_bytes


def show(body: Body, view: View, begin: int = 0) -> ShownBody:
    """The body in a view; hex from a position on."""
    content = body.content
    if view is View.HEX:
        begin = min(max(begin, 0), len(content)) // HEX_ROW_BYTES * HEX_ROW_BYTES
        part = content[begin : begin + HEX_BYTES_MAX]
        return ShownBody(view, "\n".join(hex_rows(part, begin)), len(part), len(content))
    if view is View.PROTOBUF:
        try:
            lines = describe_fields(content)
        except NotProtobufError as error:
            return ShownBody(view, "", 0, len(content), str(error))
        text, shown = _cut("\n".join(lines))
        return ShownBody(view, text, len(content) if not shown else 0, len(content))
    if view is View.JSON:
        return _show_json(body)
    text = content.decode(body.charset or "utf-8", errors="backslashreplace")
    text, is_cut = _cut(text)
    shown_size_bytes = len(text.encode(body.charset or "utf-8", errors="replace")) if is_cut else len(content)
    return ShownBody(view, text, min(shown_size_bytes, len(content)), len(content))


def preview(body: Body) -> str:
    """The beginning on one line, empty when it is no text."""
    if not body.charset:
        return ""
    text = body.content[:_PREVIEW_BYTES_MAX].decode(body.charset, errors="ignore")
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_CHARACTERS_MAX else line[: PREVIEW_CHARACTERS_MAX - 1] + "…"


def hex_rows(content: bytes, begin: int) -> Iterator[str]:
    """Rows of offset, bytes and the printable ASCII among them."""
    for at in range(0, len(content), HEX_ROW_BYTES):
        row = content[at : at + HEX_ROW_BYTES]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{begin + at:08x}  {left:<23}  {right:<23}  {characters}"


def detect_encoding(content: bytes) -> tuple[str, str, bool]:
    """What the bytes are, the charset to read them by (empty: no text), and whether they are JSON."""
    if not content:
        return "empty", "utf-8", False
    for mark, charset in _BYTE_ORDER_MARKS:
        if content.startswith(mark) and _is_text(content, charset):
            return _named_text(content, charset)
    if _is_text(content, "utf-8"):
        return _named_text(content, "utf-8")
    for magic, name in _MAGICS:
        if content.startswith(magic):
            return f"binary ({name})", "", False
    if _is_protobuf(content):
        return "protobuf (guessed from its bytes)", "", False
    # GB18030 maps nearly every pair of bytes: only a text that is mostly of its common part counts.
    if _is_text(content, "gb18030") and _is_mostly_chinese(content.decode("gb18030")):
        return _named_text(content, "gb18030")
    return "binary", "", False


def _named_text(content: bytes, charset: str) -> tuple[str, str, bool]:
    name = {"utf-8-sig": "UTF-8 with BOM", "utf-16": "UTF-16", "utf-8": "UTF-8", "gb18030": "GB18030 (guessed)"}[
        charset
    ]
    if charset == "utf-8" and content.isascii():
        name = "ASCII"
    if len(content) <= JSON_BYTES_MAX:
        text = content.decode(charset)
        if text.lstrip()[:1] in ("{", "["):
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return f"JSON, {name}", charset, True
    return f"text, {name}", charset, False


def _is_text(content: bytes, charset: str) -> bool:
    try:
        text = content.decode(charset)
    except UnicodeDecodeError:
        return False
    return not any(
        (character < " " and character not in _CONTROL_ALLOWED) or character == "\x7f" for character in set(text)
    )


def _is_mostly_chinese(text: str) -> bool:
    wide = [character for character in text if ord(character) > 0x7F]
    common = [
        character for character in wide if 0x4E00 <= ord(character) <= 0x9FFF or 0x3000 <= ord(character) <= 0x303F
    ]
    return len(common) > 0.9 * len(wide)


def _is_protobuf(content: bytes) -> bool:
    try:
        next(iter(describe_fields(content)))
    except (NotProtobufError, StopIteration):
        return False
    return True


def _inflate(stored: bytes, sys_flag: int) -> tuple[bytes, str, str]:
    if not is_compressed(sys_flag):
        return stored, "none", ""
    kind = compression_type(sys_flag)
    name = "unknown" if kind is None else _COMPRESSION_NAMES[kind]
    if name != "zlib":
        return stored, name, f"{name}: shown as stored, only zlib is inflated here"
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(stored, INFLATED_BYTES_MAX)
    except zlib.error as error:
        return stored, name, f"marked as zlib and does not inflate ({error}): shown as stored"
    if not inflater.eof:
        return stored, name, f"cut short, or inflates to over {INFLATED_BYTES_MAX} bytes: shown as stored"
    return content, name, ""


def _show_json(body: Body) -> ShownBody:
    size_bytes = len(body.content)
    if not body.is_json:
        return ShownBody(View.JSON, "", 0, size_bytes, "The body is no JSON object or array.")
    # Numbers stay as they were written: a long id must not come out rounded.
    parsed = json.loads(body.content.decode(body.charset), parse_float=_Number, parse_int=_Number)
    try:
        text, is_cut = _cut("".join(_indented(parsed)))
    except RecursionError:
        return ShownBody(View.JSON, "", 0, size_bytes, "The body is nested too deeply to be indented.")
    return ShownBody(View.JSON, text, 0 if is_cut else size_bytes, size_bytes)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _indented(value: object, depth: int = 0) -> Iterator[str]:
    pad, closing = "  " * (depth + 1), "  " * depth
    if isinstance(value, _Number):
        yield str(value)
    elif isinstance(value, dict) and value:
        for number, (name, member) in enumerate(value.items()):
            yield f"{',' if number else '{'}\n{pad}{json.dumps(name, ensure_ascii=False)}: "
            yield from _indented(member, depth + 1)
        yield f"\n{closing}}}"
    elif isinstance(value, list) and value:
        for number, member in enumerate(value):
            yield f"{',' if number else '['}\n{pad}"
            yield from _indented(member, depth + 1)
        yield f"\n{closing}]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> tuple[str, bool]:
    return (text, False) if len(text) <= TEXT_CHARACTERS_MAX else (text[:TEXT_CHARACTERS_MAX], True)
