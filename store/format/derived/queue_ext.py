"""QueueExtUnit: what `consumequeue_ext/` keeps of a message beside its queue unit.

    0   i16  size of this unit, bytes
    2   i64  tags code, as a queue unit has it without this
    10  i64  store time of the record, milliseconds
    18  i16  size of the bit map, bytes; 0 for none
    20  ...  bit map: which consumer groups' SQL filters the message matches (a Bloom filter)

Big-endian. Source: `ConsumeQueueExt`, RocketMQ 5.3.3, with `enableConsumeQueueExt`. The queue unit then holds, in place of
its tags code, the address of this one: its byte in the queue's files laid end to end, plus `Long.MIN_VALUE`. Files are
48 MiB long (`mappedFileSizeConsumeQueueExt`). A unit lies in one file, and the last 4 bytes of a file are never part of
one: where the next does not fit, -1 stands for its size, and it begins the next file. Size 0 was never written.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

QUEUE_EXT_HEAD: Final = struct.Struct(">hqqh")
HEAD_SIZE_BYTES: Final = 20
UNIT_SIZE_BYTES_MAX: Final = 32767  # a signed 16-bit number
END_BLANK_SIZE_BYTES: Final = 4
END_OF_FILE: Final = struct.pack(">h", -1)
FILE_SIZE_BYTES: Final = 48 * 1024 * 1024
# A tags code is a hash of 32 bits; every address is below all of these.
ADDRESS_MAX: Final = -(2**31) - 1
_ADDRESS_OF_0: Final = -(2**63)

assert QUEUE_EXT_HEAD.size == HEAD_SIZE_BYTES


class QueueExtUnit(NamedTuple):
    """One unit; `bit_map` is empty if it has none."""

    tags_code: int
    store_time_millis: int
    bit_map: bytes = b""

    @property
    def size_bytes(self) -> int:
        """Its length in the file."""
        return HEAD_SIZE_BYTES + len(self.bit_map)


def encode_queue_ext_unit(unit: QueueExtUnit) -> bytes:
    """The bytes of a unit; struct.error if its bit map is longer than 32,747 bytes."""
    head = QUEUE_EXT_HEAD.pack(unit.size_bytes, unit.tags_code, unit.store_time_millis, len(unit.bit_map))
    return head + unit.bit_map


def decode_queue_ext_unit(buf: bytes | bytearray | memoryview, at: int = 0) -> QueueExtUnit | None:
    """The unit at byte `at`; None where there is none: the end of a file, bytes never written, or a size that cannot be."""
    if len(buf) - at < HEAD_SIZE_BYTES:
        return None
    size, tags_code, store_time_millis, bit_map_size = QUEUE_EXT_HEAD.unpack_from(buf, at)
    if bit_map_size < 0 or size != HEAD_SIZE_BYTES + bit_map_size or len(buf) - at < size:
        return None
    return QueueExtUnit(tags_code, store_time_millis, bytes(buf[at + HEAD_SIZE_BYTES : at + size]))


def is_ext_address(tags_code: int) -> bool:
    """Whether a queue unit holds an address in place of a tags code."""
    return tags_code <= ADDRESS_MAX


def ext_address(offset: int) -> int:
    """The address of a byte of a queue's files laid end to end."""
    return offset + _ADDRESS_OF_0


def ext_offset(address: int) -> int:
    """The opposite."""
    return address - _ADDRESS_OF_0


def bare_unit_count(file_size_bytes: int) -> int:
    """How many units without a bit map a file holds."""
    return (file_size_bytes - END_BLANK_SIZE_BYTES) // HEAD_SIZE_BYTES


def bare_unit_offset(number: int, file_size_bytes: int) -> int:
    """Where unit `number` of a queue begins if none has a bit map: a byte of the queue's files laid end to end."""
    file, place = divmod(number, bare_unit_count(file_size_bytes))
    return file * file_size_bytes + place * HEAD_SIZE_BYTES


def lay_out(
    units: Iterable[QueueExtUnit], offset: int, file_size_bytes: int = FILE_SIZE_BYTES
) -> tuple[bytes, list[int]]:
    """The bytes of units that follow each other, and the address of each.

    Args:
        units: none larger than a file less 4 bytes.
        offset: where the first may begin: the end of what is written.
        file_size_bytes: length of each file.
    """
    data, addresses = bytearray(), []
    for unit in units:
        left = file_size_bytes - (offset + len(data)) % file_size_bytes
        if unit.size_bytes > left - END_BLANK_SIZE_BYTES:
            data += END_OF_FILE.ljust(left, b"\0")
        addresses.append(ext_address(offset + len(data)))
        data += encode_queue_ext_unit(unit)
    return bytes(data), addresses
