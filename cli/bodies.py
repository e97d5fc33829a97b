"""Message bodies for people: inflated if they are stored compressed, and shown as text, JSON, hex or base64."""

import base64
import dataclasses
import json
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.exits import usage_error
from store.format.body_compression import BodyNotInflatedError, compression_name
from store.format.body_compression import inflate as inflate_within

if TYPE_CHECKING:
    from reput_client import Message

INFLATED_BYTES_MAX = 64 * 1024 * 1024  # stored bodies have a few MiB at most: one that inflates to more is an attack
BODY_FORMATS = ("auto", "text", "hex", "base64")
_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # ESC may stand in a coloured log line


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A body and what was done to it.

    Attributes:
        content: the bytes, inflated if they could be.
        compression: how the stored ones are compressed: none, zlib, lz4, zstd or unknown.
        note: why a compressed body was not inflated; empty otherwise.
    """

    content: bytes
    compression: str
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ShownBody:
    """A body as characters; `form` says how to read them: text, json, hex or base64."""

    characters: str
    form: str


def inflate(stored: bytes, sys_flag: int) -> Body:
    """Undo the compression that `sys_flag` declares; a body that does not inflate is returned as stored, with a note."""
    compression = compression_name(sys_flag)
    try:
        return Body(inflate_within(stored, sys_flag, INFLATED_BYTES_MAX), compression)
    except BodyNotInflatedError as error:
        return Body(stored, compression, f"marked as {compression} and not inflated ({error}), shown as stored")


def save_bodies(messages: "Sequence[Message]", directory: pathlib.Path) -> list[pathlib.Path]:
    """Write each message's body, inflated as far as possible, to `OFFSET_MSG_ID.body` in a directory; the files.

    Raises:
        CliError: the directory or a file cannot be written.
    """
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for message in messages:
            if not re.fullmatch(r"[0-9A-Fa-f]{1,64}", message.offset_msg_id):
                usage_error(f"the gateway sent the offsetMsgId {message.offset_msg_id!r}, which cannot be a file name")
            path = directory / f"{message.offset_msg_id}.body"
            path.write_bytes(inflate(message.stored_body, message.sys_flag).content)
            paths.append(path)
    except OSError as error:
        usage_error(f"{error.filename} cannot be written: {error.strerror}")
    return paths


def show_body(content: bytes, wanted: str, binary_form: str = "hex", charset: str = "utf-8") -> ShownBody:
    """The body as characters.

    Args:
        content: the bytes.
        wanted: one of `BODY_FORMATS`; `auto` is json or text for text and `binary_form` for anything else.
        binary_form: hex or base64.
        charset: how to read text.
    """
    if wanted == "auto":
        try:
            text = content.decode(charset)
        except UnicodeDecodeError:
            return show_body(content, binary_form)
        if _NOT_TEXT.search(text):
            return show_body(content, binary_form)
        return ShownBody(text, "json" if _is_json(text) else "text")
    if wanted == "text":
        text = content.decode(charset, errors="backslashreplace")
        return ShownBody(text, "json" if _is_json(text) else "text")
    if wanted == "hex":
        return ShownBody(content.hex(), "hex")
    return ShownBody(base64.b64encode(content).decode("ascii"), "base64")


def read_body(characters: str, form: str) -> bytes:
    """The inverse of `show_body`; ValueError when the characters do not have that form."""
    if form in ("text", "json"):
        return characters.encode()
    if form == "hex":
        return bytes.fromhex(characters)
    if form == "base64":
        return base64.b64decode(characters, validate=True)
    raise ValueError(f"body_format {form!r} is none of text, json, hex, base64")


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
