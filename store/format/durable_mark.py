"""The marks `reput/commitlog/durable` and `reput/commitlog/confirmed`: up to where the log is on the disk, and on its replicas.

    0   i64  commit-log offset
    8   u32  CRC-32 of these 8 bytes

Big-endian. Written after each flush, and not flushed itself: it may be behind the disk, never ahead. `confirmed` is there only
if the log has or had replicas; it is written before anything behind the former value is shown.
"""

import struct
import zlib

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
