"""A message's body in readable form: inflated, its encoding detected and named, cut to the room on a page.

    text        decoded, as it is                json        parsed, indented, non-ASCII as it is
    hex         offset, bytes, characters        protobuf    the wire format, without a schema (protobuf_raw.py)
    schema      JSON with the names of a schema (schemas.py)

A view that is cut gives the number of bytes that it shows and the size of the body.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from console.bodies.encoding import charset_of, decode_begin, detect_encoding
from console.bodies.protobuf_raw import NotProtobufError, describe_fields
from console.bodies.schema_errors import BodyNotReadableError
from console.bodies.schemas import BodySchema
from store.format.body_compression import BodyNotInflatedError, compression_name, inflate, inflate_begin

# A producer may send 4 MiB; a body that inflates to more than this is treated as an attack.
INFLATED_BYTES_MAX = 16 << 20
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
