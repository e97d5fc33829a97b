"""Protobuf's wire format without a schema, as `protoc --decode_raw` shows it: field numbers, types and nested fields.

    tag      varint: field number << 3 | type
    type 0   varint            shown as a number, and also as a negative int64 where it is one
    type 1   8 bytes           fixed64, and also as a double
    type 2   varint n, n bytes a text, a message, or bytes: the first that fits
    type 5   4 bytes           fixed32, and also as a float
    type 3, 4                  groups: begin and end

Without a schema, other bytes that fit the wire format by chance cannot be told from protobuf; they are shown, too.
"""

import math
import struct
from collections.abc import Iterator

DEPTH_MAX = 32
LINE_COUNT_MAX = 2_000
_TEXT_BYTES_MAX = 4_096
_HEX_BYTES_MAX = 64
_FIELD_NUMBER_MAX = (1 << 29) - 1
_VARINT_BYTES_MAX = 10


class NotProtobufError(Exception):
    """The bytes do not fit the wire format; the text gives the byte and the reason."""


def describe_fields(content: bytes) -> Iterator[str]:
    """Lines, one for each field, nested ones indented.

    Raises:
        NotProtobufError: the bytes do not fit the wire format; raised when the first line is read.
    """
    if not content:
        return iter(())
    lines: list[str] = []
    _read(memoryview(content), 0, lines)
    return iter(lines)


def begins_like_fields(begin: bytes, size_bytes: int) -> bool:
    """Whether these can be the first bytes of a message of `size_bytes`; nested fields are not checked."""
    view = memoryview(begin)
    at = 0
    groups: list[int] = []
    while at < len(begin):
        try:
            tag, at = _varint(view, at)
            number, wire_type = tag >> 3, tag & 7
            if not 1 <= number <= _FIELD_NUMBER_MAX or wire_type > 5:
                return False
            if wire_type == 0:
                at = _varint(view, at)[1]
            elif wire_type == 2:
                size, at = _varint(view, at)
                at += size
            elif wire_type == 3:
                groups.append(number)
            elif wire_type == 4:
                if not groups or groups.pop() != number:
                    return False
            else:
                at += 8 if wire_type == 1 else 4
        except NotProtobufError:
            # The number is cut at the end of these bytes. A number that is too long would have more bytes left.
            return len(begin) < size_bytes and len(begin) - at < _VARINT_BYTES_MAX
    return at < size_bytes or (at == size_bytes and not groups)


def _read(content: memoryview, depth: int, lines: list[str]) -> None:
    if depth > DEPTH_MAX:
        raise NotProtobufError(f"nested more than {DEPTH_MAX} deep")
    at = 0
    groups: list[int] = []
    while at < len(content):
        field_at = at
        tag, at = _varint(content, at)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _FIELD_NUMBER_MAX:
            raise NotProtobufError(f"byte {field_at}: {number} is not a field number")
        pad = "  " * (depth + len(groups))
        if len(lines) >= LINE_COUNT_MAX:
            lines.append(f"{pad}… {len(content) - field_at} more bytes")
            return
        if wire_type == 0:
            value, at = _varint(content, at)
            lines.append(f"{pad}{number}: {value}{_zigzag(value)}")
        elif wire_type == 1:
            at = _end(content, at, 8)
            fixed, double = struct.unpack("<Qd", bytes(content[at - 8 : at]) * 2)
            lines.append(f"{pad}{number}: 0x{fixed:016x}  fixed64{_number(double)}")
        elif wire_type == 2:
            size, at = _varint(content, at)
            at = _end(content, at, size)
            _describe_bytes(content[at - size : at], number, pad, depth + len(groups), lines)
        elif wire_type == 3:
            groups.append(number)
            # Each has an indent of its own: a text of the square of the body's size.
            if depth + len(groups) > DEPTH_MAX:
                raise NotProtobufError(f"nested more than {DEPTH_MAX} deep")
            lines.append(f"{pad}{number}: group {{")
        elif wire_type == 4:
            if not groups or groups.pop() != number:
                raise NotProtobufError(f"byte {field_at}: a group ends without a begin")
            lines.append(f"{pad[2:]}}}")
        elif wire_type == 5:
            at = _end(content, at, 4)
            fixed, single = struct.unpack("<If", bytes(content[at - 4 : at]) * 2)
            lines.append(f"{pad}{number}: 0x{fixed:08x}  fixed32{_number(single)}")
        else:
            raise NotProtobufError(f"byte {field_at}: there is no wire type {wire_type}")
    if groups:
        raise NotProtobufError("a group does not end")


def _describe_bytes(value: memoryview, number: int, pad: str, depth: int, lines: list[str]) -> None:
    text = _text(value)
    if text is not None:
        lines.append(f'{pad}{number}: "{text}"')
        return
    nested: list[str] = []
    try:
        _read(value, depth + 1, nested)
    except NotProtobufError:
        more = "…" if len(value) > _HEX_BYTES_MAX else ""
        lines.append(f"{pad}{number}: {bytes(value[:_HEX_BYTES_MAX]).hex()}{more}  {len(value)} bytes")
        return
    lines.append(f"{pad}{number}: {{")
    lines.extend(nested[: max(0, LINE_COUNT_MAX - len(lines))])
    lines.append(f"{pad}}}")


def _text(value: memoryview) -> str | None:
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError:
        return None
    if not all(character.isprintable() or character in "\t\r\n" for character in text):
        return None
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shown if len(shown) <= _TEXT_BYTES_MAX else f"{shown[:_TEXT_BYTES_MAX]}…"


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for end in range(at, min(at + _VARINT_BYTES_MAX, len(content))):
        value |= (content[end] & 0x7F) << shift
        if content[end] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, end + 1
        shift += 7
    raise NotProtobufError(f"byte {at}: a number does not end")


def _end(content: memoryview, at: int, size: int) -> int:
    if at + size > len(content):
        raise NotProtobufError(f"byte {at}: {size} bytes are announced, {len(content) - at} are left")
    return at + size


def _zigzag(value: int) -> str:
    signed = value - (1 << 64) if value >> 63 else value
    return f"  int64 {signed}" if signed < 0 else ""


def _number(value: float) -> str:
    return f"  {value!r}" if math.isfinite(value) and (value == 0 or 1e-9 < abs(value) < 1e15) else ""
