"""BatchUnit: the 46 bytes that a queue of `queue.type=BatchCQ` keeps of each batch.

    0   i64  commit-log offset of the record
    8   i32  size of the record, bytes
    12  i64  tags code
    20  i64  store time, ms
    28  i64  queue offset of the batch's first message (the record's INNER_BASE)
    36  i16  number of its messages (INNER_NUM)
    38  i32  offset in a compacted file, -1 for none
    42  i32  unused

Big-endian; places behind the last unit are zeros. The files lie in `batchconsumequeue/TOPIC/QUEUE/`.
Source: `BatchConsumeQueue` of RocketMQ 5.3.3.
"""

import re
import struct
from collections.abc import Mapping
from typing import NamedTuple

BATCH_UNIT = struct.Struct(">qiqqqhii")
BATCH_UNIT_SIZE_BYTES = 46
INNER_NUM = "INNER_NUM"
BATCH_COUNT_MAX = 0x7FFF  # Java's short
_JAVA_SHORT = re.compile(r"\+?[0-9]{1,16}")

assert BATCH_UNIT.size == BATCH_UNIT_SIZE_BYTES


class BatchUnit(NamedTuple):
    """One unit."""

    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    store_time_millis: int
    queue_offset: int
    message_count: int
    compacted_offset: int
    reserved: int

    @property
    def is_whole(self) -> bool:
        """Whether it was written: what a broker's recovery asks."""
        return (
            self.commit_log_offset >= 0
            and self.record_size_bytes > 0
            and self.queue_offset >= 0
            and self.message_count > 0
        )

    @property
    def next_offset(self) -> int:
        """The first byte of the log behind the record."""
        return self.commit_log_offset + self.record_size_bytes


def decode_batch_unit(data: bytes) -> BatchUnit:
    """The unit in 46 bytes."""
    return BatchUnit(*BATCH_UNIT.unpack(data))


def batch_message_count(properties: Mapping[str, str]) -> int | None:
    """How many messages, and so queue offsets, a record with the bit of an inner batch has; None when it does not say."""
    text = properties.get(INNER_NUM, "")
    count = int(text) if _JAVA_SHORT.fullmatch(text) else 0
    return count if 0 < count <= BATCH_COUNT_MAX else None
