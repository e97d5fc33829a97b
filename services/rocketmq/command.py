"""Commands of RocketMQ's remoting protocol: requests and answers, as bytes and back. Numbers are big-endian.

    0      u32   L, the length of what follows (bytes); at most FRAME_BYTES_MAX
    4      u8    the form of the header: 0 is JSON, 1 is binary ("ROCKETMQ")
    5      u24   H, the length of the header (bytes)
    8      H     header
    8 + H        body, L - 4 - H bytes

The JSON header; `extFields`, `remark` and names that are not listed may be absent or null:

    {"code":105,"extFields":{"topic":"t"},"flag":0,"language":"JAVA","opaque":7,"remark":null,
     "serializeTypeCurrentRPC":"JSON","version":479}

The binary header:

    0      i16   code
    2      u8    language, a number of LANGUAGES
    3      i16   version
    5      i32   opaque
    9      i32   flag
    13     i32   length of the remark (bytes), then the remark in UTF-8
           i32   length of all fields (bytes), then for each: i16 length and name, i32 length and value, in UTF-8

`code` of a request says what is asked (`services/rocketmq/codes.py`), `code` of an answer 0 for success. Bit 0 of `flag` marks
an answer, bit 1 a request that gets none. `opaque` is chosen by the asker, for each connection and direction, and comes back in
the answer. Each command names the form of its own header. Sources: `RemotingCommand`, `RocketMQSerializable`,
`NettyDecoder` of RocketMQ 5.3.3.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# NettyDecoder.FRAME_MAX_LENGTH, which counts the first length, too: a longer frame ends its connection.
FRAME_BYTES_MAX = 16_777_216 - 4
# Real ones take a few kilobytes: the properties of a message have 32 KiB at most.
HEADER_BYTES_MAX = 1 << 20
# Real ones have 30: each costs 150 bytes here, however short it is.
FIELD_COUNT_MAX = 1_024
LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS"),
    "RUST",
)
LANGUAGE = "PYTHON"
# MQVersion's ordinal of the release whose protocol this is: V5_3_3.
VERSION = 479
# MQVersion's first release with a name of three digits, 4.0.0-SNAPSHOT; from there on each has two: a snapshot and itself.
FIRST_ORDINAL, FIRST_RELEASE = 212, 400
LAST_ORDINAL = 611
ANSWER, ONEWAY = 0x01, 0x02
OK = 0

_LENGTHS = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhiii")  # to the length of the remark
_BINARY_TAIL = struct.Struct(">i")
_NAME_SIZE = struct.Struct(">h")
_VALUE_SIZE = struct.Struct(">i")
JSON, BINARY = 0, 1
# One for all headers: `json.dumps` makes one for each call.
_ENCODE_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_TEXTS = {str}
# How the first of two halves of a character, or the second, is escaped; with one of them a text may not be UTF-8.
_SURROGATE_ESCAPES = (b"\\ud", b"\\uD")
_FROM_JSON = json.JSONDecoder().decode

# Before a header.
FRAME_HEAD_BYTES = _LENGTHS.size

assert FRAME_HEAD_BYTES == 8
assert _BINARY_HEAD.size == 17


class FrameError(ValueError):
    """Bytes that are no command; the connection that they came from cannot go on."""


def version_text(ordinal: int) -> str:
    """The release of a client: `5.5.0` of 513, `5.5.0-SNAPSHOT` of 512; its number where MQVersion's table is another."""
    if not FIRST_ORDINAL <= ordinal <= LAST_ORDINAL:
        return str(ordinal)
    release = ".".join(str(FIRST_RELEASE + (ordinal - FIRST_ORDINAL) // 2))
    return release if ordinal % 2 else f"{release}-SNAPSHOT"


def version_ordinal(text: str) -> int:
    """The other way, also for a version that a client over gRPC told; VERSION when MQVersion has none like it."""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(LAST_ORDINAL)):
        return int(text)
    release = text.removesuffix("-SNAPSHOT")
    digits = release.replace(".", "")
    if len(release) != 5 or not (digits.isascii() and digits.isdecimal()) or release != ".".join(digits):
        return VERSION
    ordinal = FIRST_ORDINAL + 2 * (int(digits) - FIRST_RELEASE) + (release == text)
    return ordinal if FIRST_ORDINAL <= ordinal <= LAST_ORDINAL else VERSION


@dataclass(slots=True)
class Command:
    """A request or an answer.

    Attributes:
        code: what is asked, or how it went.
        fields: its named values; numbers and booleans are texts, too.
        body: bytes, as the code says.
        opaque: names the request among those of one side of a connection.
        flag: ANSWER, ONEWAY.
        remark: a text for people; empty: none.
        language: of the program that sent it; a name of LANGUAGES, or one that is not known.
        version: MQVersion's ordinal of the program that sent it.
        is_binary: the form of its header.
        frame_bytes: of the frame that it came in; 0 of one that is made here.
    """

    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str = ""
    language: str = LANGUAGE
    version: int = VERSION
    is_binary: bool = False
    frame_bytes: int = field(default=0, compare=False)

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & ANSWER)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & ONEWAY)

    def answer(
        self, code: int = OK, remark: str = "", fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> "Command":
        """The answer to this request; its header is JSON, as that of RocketMQ's own servers."""
        return Command(code, fields or {}, body, self.opaque, ANSWER, remark)


def encode(command: Command) -> bytes:
    """The bytes of a command."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_size_bytes: int) -> bytes:
    """The bytes of a command without its body, which is sent behind them.

    Raises:
        FrameError: the frame would be longer than a receiver takes, or a binary header cannot have such a code or name.
    """
    header = _binary_header(command) if command.is_binary else _json_header(command)
    size = 4 + len(header) + body_size_bytes
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size} bytes is longer than {FRAME_BYTES_MAX}")
    form = BINARY if command.is_binary else JSON
    return _LENGTHS.pack(size, form << 24 | len(header)) + header


def _json_header(command: Command) -> bytes:
    header: dict[str, object] = {"code": command.code}
    if command.fields:
        header["extFields"] = command.fields
    header["flag"] = command.flag
    header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    # A lone surrogate becomes `?`, as in Java.
    return _ENCODE_JSON(header).encode("utf-8", "replace")


def _binary_header(command: Command) -> bytes:
    remark = command.remark.encode("utf-8", "replace")
    language = LANGUAGES.index(command.language if command.language in LANGUAGES else "OTHER")
    parts: list[bytes] = []
    try:
        for name, value in command.fields.items():
            name_bytes, value_bytes = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
            parts += [_NAME_SIZE.pack(len(name_bytes)), name_bytes, _VALUE_SIZE.pack(len(value_bytes)), value_bytes]
        fields = b"".join(parts)
        head = _BINARY_HEAD.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
        return head + remark + _BINARY_TAIL.pack(len(fields)) + fields
    except struct.error as error:
        raise FrameError(f"a binary header has no room for it: {error}") from error


def decode(frame: bytes | bytearray | memoryview) -> Command:
    """The command in a frame, without its first length.

    Raises:
        FrameError: it is none.
    """
    data = memoryview(frame)
    if len(data) < 4:
        raise FrameError(f"a frame of {len(data)} bytes has no header")
    lengths = int.from_bytes(data[:4], "big")
    form, size = lengths >> 24, lengths & 0xFFFFFF
    if size > len(data) - 4:
        raise FrameError(f"a header of {size} bytes in a frame of {len(data)}")
    if size > HEADER_BYTES_MAX:
        raise FrameError(f"a header of {size} bytes: at most {HEADER_BYTES_MAX} are taken")
    header = data[4 : 4 + size]
    body = bytes(data[4 + size :])
    if form == JSON:
        command = _from_json(bytes(header), body)
    elif form == BINARY:
        command = _from_binary(header, body)
    else:
        raise FrameError(f"a header of form {form}: JSON is 0, binary is 1")
    if len(command.fields) > FIELD_COUNT_MAX:
        raise FrameError(f"a header of {len(command.fields)} fields: at most {FIELD_COUNT_MAX} are taken")
    command.frame_bytes = len(data)
    return command


def _from_json(data: bytes, body: bytes) -> Command:
    try:
        header: Any = _FROM_JSON(data.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header that is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise FrameError("a header that is no JSON object")
    fields = header.get("extFields")
    if fields is None:
        fields = {}
    elif not isinstance(fields, dict):
        raise FrameError("extFields is no JSON object")
    elif set(map(type, fields.values())) - _TEXTS or _SURROGATE_ESCAPES[0] in data or _SURROGATE_ESCAPES[1] in data:
        fields = {
            without_surrogates(name): _as_text(name, value) for name, value in fields.items() if value is not None
        }
    return Command(
        _number(header, "code"),
        fields,
        body,
        _number(header, "opaque"),
        _number(header, "flag"),
        without_surrogates(str(header.get("remark") or "")),
        without_surrogates(str(header.get("language") or "")),
        _number(header, "version"),
    )


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise FrameError(f"{name} is no number of 32 bits")
    return value


def _as_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, (dict, list)):
        raise FrameError(f"the field {name[:80]!r} is no text")
    return json.dumps(value)


def without_surrogates(text: str) -> str:
    """The text as UTF-8 can have it: a lone surrogate, which JSON can say, becomes `?`, as in Java."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _from_binary(data: memoryview, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_HEAD.unpack_from(data)
        at = _BINARY_HEAD.size
        remark, at = _text(data, at, remark_size)
        (fields_size,) = _BINARY_TAIL.unpack_from(data, at)
        at += _BINARY_TAIL.size
        end = at + fields_size
        if fields_size < 0 or end > len(data):
            raise FrameError(f"fields of {fields_size} bytes in a header of {len(data)}")
        fields: dict[str, str] = {}
        while at < end:
            (size,) = _NAME_SIZE.unpack_from(data, at)
            name, at = _text(data, at + _NAME_SIZE.size, size)
            (size,) = _VALUE_SIZE.unpack_from(data, at)
            fields[name], at = _text(data, at + _VALUE_SIZE.size, size)
        if at != end:
            raise FrameError("a field goes on behind the fields")
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a binary header that is cut or no UTF-8: {error}") from error
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, fields, body, opaque, flag, remark, name, version, is_binary=True)


def _text(data: memoryview, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise FrameError(f"a text of {size} bytes in a header of {len(data)}")
    return str(data[at:end], "utf-8"), end


class FrameReader:
    """Cuts what arrives on a connection into commands.

    Args:
        frame_bytes_max: a longer frame is refused by its length, before its bytes are kept.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._data = bytearray()
        self._at = 0  # of the frame that comes next

    @property
    def size_bytes(self) -> int:
        """What has come and was not read as a command."""
        return len(self._data) - self._at

    @property
    def held_bytes(self) -> int:
        """What is kept of all that came: `size_bytes`, and what was read since bytes came last."""
        return len(self._data)

    @property
    def has_frame(self) -> bool:
        """Whether `next` needs no more bytes: a frame is whole, or is none."""
        size = self.size_bytes
        if size < 4:
            return False
        length = int.from_bytes(self._data[self._at : self._at + 4], "big")
        return length > self._frame_bytes_max or size >= length + 4

    def add(self, data: bytes | memoryview) -> None:
        """Keep bytes that came, and give up what was read before."""
        self._release()
        self._data += data

    def next(self) -> Command | None:
        """The next command that is whole; None: more bytes are needed. FrameError: what comes next is none."""
        frame = self.next_frame()
        return None if frame is None else decode(frame)

    def next_frame(self) -> bytes | None:
        """The bytes of the next command without its first length, for `decode`; None: more bytes are needed.

        Raises:
            FrameError: what comes next is no frame.
        """
        begin = self._at + 4
        if len(self._data) < begin:
            self._release()
            return None
        size = int.from_bytes(self._data[self._at : begin], "big")
        if not 4 <= size <= self._frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes: 4 to {self._frame_bytes_max} are taken")
        end = begin + size
        if len(self._data) < end:
            self._release()
            return None
        frame, self._at = bytes(memoryview(self._data)[begin:end]), end
        return frame

    def _release(self) -> None:
        """Give up the room of what was read."""
        if self._at:
            del self._data[: self._at]
            self._at = 0
