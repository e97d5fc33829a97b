r"""Where each field of a stored record lies; shared by the record codec and the append path.

    0   i32  size of the whole record, bytes
    4   i32  magic: V1, V2 (topic length takes 2 bytes), or blank
    8   i32  CRC-32 of the body, top bit cleared
    12  i32  queue id
    16  i32  flag (the user's)
    20  i64  queue offset
    28  i64  commit-log offset of this record ("physical offset")
    36  i32  sysFlag
    40  i64  born time, ms since 1970 UTC
    48  8 B  born host (20 B with sysFlag 0x10)
    56  i64  store time, ms                               |
    64  8 B  store host (20 B with sysFlag 0x20)          | each 12 bytes further for
    72  i32  reconsume times                              | every IPv6 host before it
    76  i64  prepared transaction offset                  |
    84  i32  body length, then the body                   |
        u8 (V1) or i16 (V2) topic length, then the topic
        i16 properties length, then the properties

All numbers big-endian. Source: `CommitLog.checkMessageAndReturnSize` of Apache RocketMQ 5.3.3.

A blank closes a log file: `i32 all bytes that are left | i32 blank magic`, and the rest of the file may hold any bytes.

With RocketMQ's `enabledAppendPropCRC` the properties end with 20 bytes that guard the frame:

    `__CRC32#` \x01 d0 d1 ... d9 \x02

d0..d9 are the decimal digits of CRC-32 (top bit cleared) over all bytes of the record before these 20, the least
significant first, filled up with zeros.
"""

import struct
import zlib
from operator import eq

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
BLANK_MAGIC = -875286124

BLANK_SIZE_BYTES = 8
TOPIC_SIZE_BYTES_MAX_V1 = 127  # Java reads the length as a signed byte
SIZE_AND_MAGIC = struct.Struct(">ii")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
OFFSETS = struct.Struct(">qq")
QUEUE_OFFSET_AT = 20
SYS_FLAG_LOW_BYTE_AT = 39

# One struct for everything up to the body, by (sysFlag >> 4) & 3: born host IPv6 is 1, store host IPv6 is 2.
# size magic body_crc queue_id flag | queue_offset commit_log_offset | sys_flag | born_time born_host |
# store_time store_host | reconsume_times | prepared_transaction_offset | body_length
HEADS = tuple(struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20))
STORE_TIMES_AT = tuple(48 + born for _ in (8, 20) for born in (8, 20))
FRAME_SIZE_BYTES_MIN = HEADS[0].size + 1 + 2
HEADER_BYTES_MAX = 128  # enough to decode any head

assert HEADS[0].size == 88
assert HEADS[3].size == 88 + 24 < HEADER_BYTES_MAX

CRC_MARKER = b"__CRC32#\x01"
CRC_PROPERTY_SIZE_BYTES = 20
_CRC_DIGITS = 10


def masked_crc(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 with the top bit cleared, as RocketMQ stores it."""
    return zlib.crc32(data) & 0x7FFFFFFF


def encode_crc_property(crc: int) -> bytes:
    """The 20 bytes that close the properties; `crc` has its top bit cleared."""
    return b"%b%b\x02" % (CRC_MARKER, (b"%010d" % crc)[::-1])


def decode_crc_digits(digits: bytes) -> int | None:
    """The CRC that ten digits spell, least significant first; None when they are no digits."""
    return int(digits[::-1]) if len(digits) == _CRC_DIGITS and digits.isdigit() else None


def resembles_crc_property(tail: bytes) -> bool:
    """Whether 20 bytes that do not begin with `__CRC32#` resemble that property: a few of its bits may have flipped.

    More than half of the name is in its place, and at least 8 of the 12 characters behind it: separator, ten digits and end. No
    other property name of RocketMQ is that similar, although values with ten digits are common.
    """
    name_size = len(CRC_MARKER) - 1
    if sum(map(eq, tail[:name_size], CRC_MARKER)) <= name_size // 2:
        return False
    digit_count = sum(0x30 <= byte <= 0x39 for byte in tail[len(CRC_MARKER) : -1])
    return digit_count + (tail[name_size] == 1) + (tail[-1] == 2) >= _CRC_DIGITS - 2
