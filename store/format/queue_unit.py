"""QueueUnit: the 20 bytes that a ConsumeQueue keeps of each message.

    0   i64  commit-log offset of the record
    8   i32  size of the record, bytes
    12  i64  tags code (`java_hash.tags_code`)

Unit n of a queue lies at byte n * 20 of its files laid end to end. Big-endian. Source: `ConsumeQueue`, RocketMQ 5.3.3.
A unit of size 0 was never written. If a queue does not begin at 0, the file holds fillers before its first unit:
offset 0, size 2^31-1, tags code 0.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

UNIT = struct.Struct(">qiq")
UNIT_SIZE_BYTES = 20
FILLER_SIZE_BYTES = 0x7FFFFFFF

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
