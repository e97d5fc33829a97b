"""QueueUnit: the 20 bytes that a ConsumeQueue keeps of each message.

    0   i64  commit-log offset of the record
    8   i32  size of the record, bytes
    12  i64  tags code (`tags_code` below)

Unit n of a queue lies at byte n * 20 of its files laid end to end. Big-endian. Source: `ConsumeQueue`, RocketMQ 5.3.3.
A unit of size 0 was never written. If a queue does not begin at 0, the file holds fillers before its first unit:
offset 0, size 2^31-1, tags code 0.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from store.format.delivery.delay_levels import delay_millis
from store.format.java_text import java_string_hash
from store.format.properties import DELAY, TAGS
from store.format.topic import SCHEDULE_TOPIC

UNIT = struct.Struct(">qiq")
UNIT_SIZE_BYTES = 20
FILLER_SIZE_BYTES = 0x7FFFFFFF
_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}")

assert UNIT.size == UNIT_SIZE_BYTES


class QueueUnit(NamedTuple):
    """One unit; `record_size_bytes` 0 means that it was never written, see also `is_filler`."""

    commit_log_offset: int
    record_size_bytes: int
    tags_code: int

    @property
    def is_empty(self) -> bool:
        """Whether the place was never written."""
        return self.record_size_bytes <= 0

    @property
    def is_filler(self) -> bool:
        """Whether it is a filler before the queue's first message."""
        return self == FILLER

    @property
    def next_offset(self) -> int:
        """The first byte of the log behind the record."""
        return self.commit_log_offset + self.record_size_bytes


FILLER = QueueUnit(0, FILLER_SIZE_BYTES, 0)


def encode_queue_unit(unit: QueueUnit) -> bytes:
    """The 20 bytes."""
    return UNIT.pack(*unit)


def decode_queue_unit(buf: bytes | bytearray | memoryview, at: int = 0) -> QueueUnit:
    """The unit at byte `at`; struct.error when fewer than 20 bytes follow."""
    return QueueUnit._make(UNIT.unpack_from(buf, at))


def decode_queue_units(buf: bytes | bytearray | memoryview) -> Iterator[QueueUnit]:
    """All units of a buffer that is a multiple of 20 bytes long."""
    return map(QueueUnit._make, UNIT.iter_unpack(buf))


_SIZES = struct.Struct(">8xi8x")


def record_bytes_of(buf: bytes) -> int:
    """Bytes of the records of all units of a buffer, without fillers; a multiple of 20 bytes long.

    The sizes are summed by their four bytes, which takes a tenth of the time of unpacking. Only fillers, which are 2^31-1, and
    records of 16 MiB have a first byte that is not 0.
    """
    if any(buf[8::UNIT_SIZE_BYTES]):
        return sum(size for (size,) in _SIZES.iter_unpack(buf) if 0 < size < FILLER_SIZE_BYTES)
    return sum(sum(buf[8 + place :: UNIT_SIZE_BYTES]) << 8 * (3 - place) for place in (1, 2, 3))


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
    the time of its delivery instead, in milliseconds: its store time plus the delay of the level (`delay_levels.py`).
    """
    if topic == SCHEDULE_TOPIC:
        delay = properties.get(DELAY)
        # A level that is not a number ends RocketMQ's walk of the log; here the record counts as not delayed.
        level = int(delay) if delay and _JAVA_INT.fullmatch(delay) else 0
        if level > 0:
            return store_time_millis + delay_millis(level)
    tags = properties.get(TAGS)
    return _tags_hash(tags) if tags else 0
