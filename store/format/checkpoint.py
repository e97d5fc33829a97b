"""StoreCheckpoint: the file `checkpoint` of a store root, one page of 4,096 bytes.

    0   i64  store time up to which the log is flushed, ms
    8   i64  the same for the consume queues
    16  i64  the same for the index
    24  i64  master's flushed commit-log offset (replication)
    32  i64  confirmed commit-log offset (replication)
    40  i64  commit-log offset of the record whose queue unit was flushed last; RocketMQ 5.5.0 writes it with each flush of the
             queues, and uses it with `enableAcceleratedRecovery`. 0 before, and in a store that no such broker had
    48  ...  zeros

Big-endian. Source: `StoreCheckpoint`, RocketMQ 5.3.3 and 5.5.0. The smallest of the first three, less 3
seconds, tells RocketMQ with which file its recovery begins.

The marks `reput/commitlog/durable` and `reput/commitlog/confirmed`: up to where the log is on the disk, and on its replicas.

    0   i64  commit-log offset
    8   u32  CRC-32 of these 8 bytes

Big-endian. Written after each flush, and not flushed itself: it may be behind the disk, never ahead. `confirmed` is there only
if the log has or had replicas; it is written before anything behind the former value is shown.
"""

import dataclasses
import struct
import zlib
from dataclasses import dataclass

from store.errors import StoreCorruptedError

CHECKPOINT_SIZE_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """The five numbers; 0 where none is known. `rest` holds the bytes behind them, which a newer RocketMQ may use."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    rest: bytes = b""

    @property
    def queues_flushed_offset(self) -> int:
        """The offset at byte 40; Reput keeps it: a broker that finds an older one recovers more."""
        return int(_OFFSET.unpack(self.rest[: _OFFSET.size].ljust(_OFFSET.size, b"\0"))[0])

    def limited_to(self, end_offset: int) -> "StoreCheckpoint":
        """The same with no offset of the queues behind this one (bytes): a broker would not recover what lies before it."""
        if self.queues_flushed_offset <= end_offset:
            return self
        return dataclasses.replace(self, rest=_OFFSET.pack(end_offset) + self.rest[_OFFSET.size :])


def encode_checkpoint(checkpoint: StoreCheckpoint) -> bytes:
    """The whole page."""
    fields = _FIELDS.pack(
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_phy_offset,
    )
    page = (fields + checkpoint.rest).ljust(CHECKPOINT_SIZE_BYTES, b"\0")
    assert len(page) == CHECKPOINT_SIZE_BYTES, len(page)
    return page


def decode_checkpoint(data: bytes | bytearray | memoryview) -> StoreCheckpoint:
    """The checkpoint in a file's bytes.

    Raises:
        StoreCorruptedError: fewer than 40 bytes. A longer file is accepted; its first page counts.
    """
    if len(data) < _FIELDS.size:
        raise StoreCorruptedError(
            f"The checkpoint has {len(data)} bytes, not {CHECKPOINT_SIZE_BYTES}: remove it, then it is written anew.",
            file="checkpoint",
            offset=len(data),
        )
    rest = bytes(data[_FIELDS.size : CHECKPOINT_SIZE_BYTES]).rstrip(b"\0")
    return StoreCheckpoint(*(*_FIELDS.unpack_from(data), rest))


DURABLE_MARK_NAME = "durable"
CONFIRMED_MARK_NAME = "confirmed"
DURABLE_MARK = struct.Struct(">qI")


def encode_durable_mark(commit_log_offset: int) -> bytes:
    """The 12 bytes."""
    return DURABLE_MARK.pack(commit_log_offset, zlib.crc32(commit_log_offset.to_bytes(8, "big")))


def decode_durable_mark(data: bytes) -> int | None:
    """The offset; None when bytes are missing or the CRC does not match."""
    if len(data) < DURABLE_MARK.size:
        return None
    offset, crc = DURABLE_MARK.unpack_from(data)
    return int(offset) if zlib.crc32(data[:8]) == crc else None
