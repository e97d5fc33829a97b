r"""Headers of sends that are those of an earlier send, but for the number of the request, the time and the properties.

    {"code":310,"extFields":{"a":"pg","b":"T",...,"g":"1700000000000","h":"0","i":"KEYS\u0001k\u0002"},...,"opaque":7,...}
                                                  [    born    ]                [   properties   ]           [opaque]

A program writes all its headers with the same code, so those of its sends to a queue differ in these three values only. The
bytes around the values, in their order, are the frame of a header. What was found out about one header holds for each with the
same frame: its fields, that it is JSON, and that its names are allowed. So a header of a known frame is not decoded (ADR 0141).

A frame is kept when a second header with it comes, and only after a proof: the header with three other values in these places
is decoded, and the command has those values, and is the same in all else. A value has no quotation mark and no escape but
those of the characters that separate properties; a header with another one is decoded, as any that is not JSON.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from services.rocketmq.command import Command, FrameError, decode
from store.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

# Frames that are kept: a queue of a topic has one for each program. Those of real programs have 300 to 500 bytes.
FRAMES_KEPT_MAX = 4_096
# Bytes of all of them. What is known of each takes as much again at the most, and about 600 bytes.
KEPT_BYTES_MAX = 2 << 20
# Frames that were seen once. Beyond that all are forgotten, so that headers that are all different are never kept.
SEEN_MAX = 4_096
# Longer headers are decoded.
HEADER_BYTES_MAX = 34_000
# Shorter than any number that is out of the range of its field.
BORN_DIGITS_MAX, OPAQUE_DIGITS_MAX = 18, 9
_OPAQUE = b'"opaque":'
# What the time and the properties are called in the two forms of a send (310 and 10).
SHORT_FORM, LONG_FORM = ("g", "i"), ("bornTimestamp", "properties")
_MARKS = tuple(
    (b'"%b":"' % born.encode(), b'"%b":"' % properties.encode(), (born, properties))
    for born, properties in (SHORT_FORM, LONG_FORM)
)
_ESCAPES = ((r"\u0001", NAME_VALUE_SEPARATOR), (r"\u0002", PROPERTY_SEPARATOR))
_CHANCE = random.SystemRandom()  # a client that knew the values of a proof could write them into its header

Frame: TypeAlias = tuple[bytes, bytes, bytes, bytes]
T = TypeVar("T")


class Cut(NamedTuple):
    """A header: the bytes around its values, the values, and the names of the time and the properties among its fields."""

    frame: Frame
    born: bytes
    properties: bytes
    opaque: bytes
    fields: tuple[str, str]


def cut(header: bytes) -> Cut | None:
    """The parts of a header of a send; None for one that has to be decoded.

    Args:
        header: of a frame of the remoting protocol whose header is JSON.
    """
    opaque_at = header.find(_OPAQUE) + len(_OPAQUE)
    for born_mark, properties_mark, names in _MARKS:
        born_at = header.find(born_mark) + len(born_mark)
        properties_at = header.find(properties_mark, born_at) + len(properties_mark)
        if born_at >= len(born_mark) and properties_at >= len(properties_mark):
            fields = names
            break
    else:
        return None
    if opaque_at < len(_OPAQUE):
        return None
    born_end, properties_end = header.find(b'"', born_at), header.find(b'"', properties_at)
    opaque_end = header.find(b",", opaque_at)
    if min(born_end, properties_end, opaque_end) < 0:
        return None
    born, properties, opaque = (
        header[born_at:born_end],
        header[properties_at:properties_end],
        header[opaque_at:opaque_end],
    )
    if not (
        born.isdigit()
        and opaque.isdigit()
        and len(born) <= BORN_DIGITS_MAX
        and len(opaque) <= OPAQUE_DIGITS_MAX
        and (opaque[0] != 0x30 or len(opaque) == 1)  # JSON has no number that begins with 0
    ):
        return None
    if opaque_at > properties_end:
        frame = header[:born_at], header[born_end:properties_at], header[properties_end:opaque_at], header[opaque_end:]
    elif opaque_end <= born_at:
        frame = header[:opaque_at], header[opaque_end:born_at], header[born_end:properties_at], header[properties_end:]
    else:
        return None
    return Cut(frame, born, properties, opaque, fields)


def text_of(value: bytes) -> str | None:
    """The text of a value in JSON that is ASCII and has no escapes but of U+0001 and U+0002; None for another one."""
    if not value.isascii():
        return None
    text = value.decode("ascii")
    if not text.isprintable():  # JSON has no such characters but escaped
        return None
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return None if "\\" in text else text


def is_proven(parts: Cut, command: Command, chance: random.Random = _CHANCE) -> bool:
    """Whether the three values of a header are what its command has of them, and nothing else comes from these bytes.

    Args:
        parts: of the header.
        command: that was decoded from it.
        chance: gives the values of the proof.
    """
    born, opaque = str(chance.randrange(10**12, 10**13)), chance.randrange(10**8, 10**9)
    name = f"X{chance.getrandbits(64)}"
    if parts.frame[0].endswith(_OPAQUE):
        values = (str(opaque), born, rf"{name}\u0001Y\u0002", "")
    else:
        values = (born, rf"{name}\u0001Y\u0002", str(opaque), "")
    header = b"".join(piece + value.encode() for piece, value in zip(parts.frame, values, strict=True))
    try:
        found = decode(len(header).to_bytes(4, "big") + header)
    except FrameError:
        return False
    fields = {**command.fields, **dict(zip(parts.fields, (born, f"{name}\x01Y\x02"), strict=True))}
    return found == replace(command, fields=fields, opaque=opaque, body=b"")


class RepeatedHeaders(Generic[T]):
    """What is known of headers, by their frames; for one thread.

    Attributes:
        kept: by frame.
        kept_bytes: of the frames.
    """

    def __init__(self) -> None:
        self.kept: dict[Frame, T] = {}
        self.kept_bytes = 0
        self._seen: set[int] = set()

    def learn(self, parts: Cut, command: Command, make: Callable[[], T]) -> None:
        """Keep what is known of a header whose frame comes for the second time.

        Args:
            parts: of the header.
            command: that was decoded from it.
            make: what is known.
        """
        seen = hash(parts.frame)
        if seen not in self._seen:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen.add(seen)
            return
        if is_proven(parts, command):
            self.kept_bytes += _size_bytes(parts.frame)
            while self.kept and (len(self.kept) >= FRAMES_KEPT_MAX or self.kept_bytes > KEPT_BYTES_MAX):
                oldest = next(iter(self.kept))
                del self.kept[oldest]
                self.kept_bytes -= _size_bytes(oldest)
            self.kept[parts.frame] = make()


def _size_bytes(frame: Frame) -> int:
    return sum(map(len, frame))
