r"""The property string of a message.

    name \x01 value \x02 name \x01 value \x02 ...

The writer ends each property with \x02; older writers omit the last one, and the reader accepts that. The reader
follows RocketMQ (`MessageDecoder.string2messageProperties`, 5.3.3) in these details:

- the name ends at the first \x01 of the entry, so a value may contain \x01;
- an entry without \x01, name or value is ignored;
- of two properties with one name the later wins.
"""

from collections.abc import Mapping

from store.errors import InvalidMessageError
from store.format.java_text import decode_java_utf8, encode_java_utf8

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_SIZE_BYTES_MAX = 32767  # the length is a signed 16-bit number

# The names of `MessageConst`.
KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
CRC32 = "__CRC32#"


def parse_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties in order of first appearance; never fails, bad UTF-8 reads as U+FFFD."""
    properties: dict[str, str] = {}
    for entry in decode_java_utf8(data).split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The stored bytes, each property closed by its separator.

    Raises:
        InvalidMessageError: field `properties`: a name or value holds a separator (a reader would split it there),
            a name or value is empty (a reader would ignore it), or all together take over 32,767 bytes.
    """
    parts: list[str] = []
    for name, value in properties.items():
        pair = name + value
        if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise InvalidMessageError(
                f"Property {name!r} contains U+0001 or U+0002, which separate properties: leave them out.",
                field="properties",
                property=name,
            )
        if not name or not value:
            raise InvalidMessageError(
                f"Property {name!r} has an empty name or value and would be lost: leave it out.",
                field="properties",
                property=name,
            )
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    data = encode_java_utf8("".join(parts))
    if len(data) > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"Properties take {len(data)} bytes, at most {PROPERTIES_SIZE_BYTES_MAX} can be stored.",
            field="properties",
            sizeBytes=len(data),
            sizeBytesMax=PROPERTIES_SIZE_BYTES_MAX,
        )
    return data


def split_keys(text: str) -> tuple[str, ...]:
    """The keys in a KEYS value: split at each space (no other white space); without empty ones, with repeats."""
    return tuple([key for key in text.split(KEY_SEPARATOR) if key])
