"""LightEntry: a unit of a light queue (LMQ) of RocketMQ as the consumequeue service keeps it, in a file of its own (ADR 0154).

A file has the units of all light queues in the order of the log. Each points back to units of its own queue, so a million
queues need no file each, and a position is found in a number of steps that grows with the logarithm of their distance.

    commit-log offset   8
    record size         4
    tags code           8
    queue offset        8
    previous            8   number of the queue's unit before; -1 for the first
    jump                8   number of an older unit of the queue, or its own for the first
    queue number        8   see `names.*`
    CRC-32              4   of the bytes before

All numbers are big-endian and signed but the CRC. Entries are numbered from 0 on over all files; a file's name is the number
of its first one.

    names.<number>      for each queue with a unit in the file: queue number (8), length (2), name (UTF-8)
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

_FIELDS = Struct(">qiqqqqq")
_CRC = Struct(">I")
_NAME_HEAD = Struct(">qH")
ENTRY_SIZE_BYTES = 56

assert _FIELDS.size + _CRC.size == ENTRY_SIZE_BYTES


class LightEntry(NamedTuple):
    """See the top of this file; offsets and sizes are bytes, the queue offset is in messages."""

    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    queue_offset: int
    previous: int
    jump: int
    queue_number: int


def encode_light_entry(entry: tuple[int, int, int, int, int, int, int]) -> bytes:
    """The 56 bytes of a LightEntry, or of its fields."""
    data = _FIELDS.pack(*entry)
    return data + _CRC.pack(zlib.crc32(data))


def decode_light_entry(data: bytes) -> LightEntry | None:
    """The entry; None when these are not the bytes of one."""
    if len(data) != ENTRY_SIZE_BYTES or zlib.crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    return LightEntry._make(_FIELDS.unpack_from(data))


def encode_light_name(queue_number: int, name: str) -> bytes:
    """The number and the name of a queue; names are parts of a property, so they take less than 32 KiB."""
    data = name.encode("utf-8", "surrogateescape")
    return _NAME_HEAD.pack(queue_number, len(data)) + data


def decode_light_names(data: bytes) -> Iterator[tuple[int, str]]:
    """The numbers and names of queues; ends at the first that is not whole."""
    at, unpack, head_size = 0, _NAME_HEAD.unpack_from, _NAME_HEAD.size
    text = data.decode("latin-1")  # a part of it is made in half the time that to decode a name takes
    while at + head_size <= len(data):
        queue_number, size = unpack(data, at)
        begin = at + head_size
        at = begin + size
        if at > len(data):
            return
        name = text[begin:at]
        yield queue_number, name if name.isascii() else data[begin:at].decode("utf-8", "surrogateescape")
