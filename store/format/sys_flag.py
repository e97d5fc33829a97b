"""The bits of a record's sysFlag.

    bit 0      0x001  body is compressed
    bit 1      0x002  several tags
    bits 2-3   0x00c  transaction: 0 none, 4 prepared, 8 committed, 12 rolled back
    bit 4      0x010  born host is IPv6
    bit 5      0x020  store host is IPv6
    bit 6      0x040  body holds messages to unwrap
    bit 7      0x080  inner batch
    bits 8-10  0x700  compression type: 0 zlib (older producers), 1 LZ4, 2 Zstandard, 3 zlib

Source: `MessageSysFlag` and `CompressionType` of Apache RocketMQ 5.3.3.
"""

from enum import IntEnum

COMPRESSED = 0x001
MULTI_TAGS = 0x002
TRANSACTION_MASK = 0x00C
BORN_HOST_V6 = 0x010
STORE_HOST_V6 = 0x020
NEED_UNWRAP = 0x040
INNER_BATCH = 0x080
COMPRESSION_TYPE_MASK = 0x700
_COMPRESSION_TYPE_SHIFT = 8
# What a producer says of its message; all other bits follow from something else.
PRODUCER_MASK = COMPRESSED | MULTI_TAGS | COMPRESSION_TYPE_MASK


class TransactionType(IntEnum):
    """The state in bits 2 and 3; the values are the masked bits."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """How a body is compressed; the values are bits 8 to 10 shifted down."""

    ZLIB_UNMARKED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    """The transaction state of a record."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def is_compressed(sys_flag: int) -> bool:
    """Whether the stored body must be inflated before it is shown."""
    return bool(sys_flag & COMPRESSED)


def compression_type(sys_flag: int) -> CompressionType | None:
    """How the body is compressed; None when it is not, or by an unknown method (4 to 7)."""
    number = (sys_flag & COMPRESSION_TYPE_MASK) >> _COMPRESSION_TYPE_SHIFT
    if not is_compressed(sys_flag) or number > CompressionType.ZLIB:
        return None
    return CompressionType(number)


def host_flags(*, born_v6: bool, store_v6: bool) -> int:
    """The two bits for IPv6 hosts."""
    return (BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0)
