"""Java's `String.hashCode`, and the tags code that queue units carry.

    hash = u[0]*31^(n-1) + u[1]*31^(n-2) + ... + u[n-1]    over UTF-16 units u, in signed 32-bit arithmetic

A character outside the basic plane counts as its two surrogates.
"""

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from operator import mul

from store.format.properties import DELAY, TAGS

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# `messageDelayLevel` of RocketMQ, in milliseconds; level 1 is the first. A broker's setting may differ.
DELAY_LEVELS_MILLIS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}")
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=512)
def _powers(count: int) -> tuple[int, ...]:
    return tuple(int(pow(31, exponent, 1 << 32)) for exponent in range(count - 1, -1, -1))


def java_string_hash(text: str) -> int:
    """`text.hashCode()` of Java, a signed 32-bit number."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode("ascii")
    else:
        wide = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(wide) // 2}H", wide)
    count = len(units)
    value: int
    if count <= 512:
        # One independent multiplication for each unit: twice as fast as the textbook loop.
        value = sum(map(mul, units, _powers(count))) & _MASK
    else:
        value = 0
        for unit in units:
            value = (value * 31 + unit) & _MASK
    return value - (1 << 32) if value >> 31 else value


TAGS_CHARACTERS_MAX = 256  # of tags whose hash is cached: at most 8 MiB; a record may hold 32 KiB of tags


@lru_cache(maxsize=4096)
def _short_tags_hash(tags: str) -> int:
    return java_string_hash(tags)


def _tags_hash(tags: str) -> int:
    """The hash of tags; cached, because the same few repeat."""
    return _short_tags_hash(tags) if len(tags) <= TAGS_CHARACTERS_MAX else java_string_hash(tags)


def tags_code(topic: str, properties: Mapping[str, str], store_time_millis: int) -> int:
    """The tags code of a record, as its queue unit holds it.

    It is the hash of TAGS, or 0 without tags. In `SCHEDULE_TOPIC_XXXX` a record with a DELAY level of 1 or more has
    the time of its delivery instead, in milliseconds: its store time plus the delay of the level in RocketMQ's own list.
    """
    if topic == SCHEDULE_TOPIC:
        delay = properties.get(DELAY)
        # A level that is not a number ends RocketMQ's walk of the log; here the record counts as not delayed.
        level = int(delay) if delay and _JAVA_INT.fullmatch(delay) else 0
        if level > 0:
            return store_time_millis + DELAY_LEVELS_MILLIS[min(level, len(DELAY_LEVELS_MILLIS)) - 1]
    tags = properties.get(TAGS)
    return _tags_hash(tags) if tags else 0
