r"""The property string of a message.

    name \x01 value \x02 name \x01 value \x02 ...

The writer ends each property with \x02; older writers leave the last one out and the reader does without it. The reader
follows RocketMQ (`MessageDecoder.string2messageProperties`, 5.3.3) in its quirks:

- the name ends at the first \x01 of the entry, so a value may contain \x01;
- an entry without \x01, without name or without value is dropped silently;
- of two properties with one name the later wins.
"""

from collections.abc import Mapping

from store.errors import InvalidMessageError
from store.format.java_text import decode_java_utf8, encode_java_utf8

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_SIZE_BYTES_MAX = 32767  # the length is a signed 16-bit number

# Names are facts of `MessageConst`.
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
        InvalidMessageError: field `properties`: a name or value holds a separator (it would read back as another), a
            name or value is empty (it would be dropped), or the whole is over 32,767 bytes.
    """
    parts: list[str] = []
    for name, value in properties.items():
        pair = name + value
        if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise InvalidMessageError(
                f"Property {name!r} contains U+0001 or U+0002, which separate properties; leave them out.",
                field="properties",
                property=name,
            )
        if not name or not value:
            raise InvalidMessageError(
                f"Property {name!r} has an empty name or value and would be lost; leave it out.",
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
    """The keys in a KEYS value: cut at each space (no other white space), empty ones left out, repeats kept."""
    return tuple([key for key in text.split(KEY_SEPARATOR) if key])
