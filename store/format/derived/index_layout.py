"""The parts of an IndexFile.

    header   40 bytes
    slots    4 bytes each: number of the newest entry whose hash falls here, 0 for none
    entries  20 bytes each: number 0 is never used

    header:  0   i64  store time of the first message, ms        32  i32  slots in use
             8   i64  store time of the last                     36  i32  entries + 1 (0 in a file never flushed)
             16  i64  commit-log offset of the first
             24  i64  commit-log offset of the last

    entry:   0   i32  key hash                                   12  i32  seconds since the header's first, >= 0
             4   i64  commit-log offset                          16  i32  number of the slot's entry before, 0 for none

A key is `topic#key`; its slot is its hash modulo the number of slots. Big-endian. Source: `IndexFile`, `IndexHeader` of
RocketMQ 5.3.3. The rules for the numbers are in `store/derive/index_state.py`.
"""

import struct
from typing import NamedTuple

from store.format.java_text import java_string_hash

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
TIME_DIFF_SECONDS_MAX = 0x7FFFFFFF
_INT_MIN = -(1 << 31)

assert (HEADER.size, SLOT.size, ENTRY.size) == (HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE)


class IndexHeader(NamedTuple):
    """The header; times in milliseconds, `entry_count` is RocketMQ's indexCount: entries + 1, or 0."""

    begin_time_millis: int
    end_time_millis: int
    begin_commit_log_offset: int
    end_commit_log_offset: int
    used_slot_count: int
    entry_count: int


class IndexEntry(NamedTuple):
    """One entry; `previous` is the number of the next older entry of its slot, 0 for none."""

    key_hash: int
    commit_log_offset: int
    time_diff_seconds: int
    previous: int


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 bytes."""
    return HEADER.pack(*header)


def decode_index_header(buf: bytes | bytearray | memoryview, at: int = 0) -> IndexHeader:
    """The header at byte `at`; struct.error when fewer than 40 bytes follow."""
    return IndexHeader._make(HEADER.unpack_from(buf, at))


def encode_index_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes."""
    return ENTRY.pack(*entry)


def decode_index_entry(buf: bytes | bytearray | memoryview, at: int = 0) -> IndexEntry:
    """The entry at byte `at`; struct.error when fewer than 20 bytes follow."""
    return IndexEntry._make(ENTRY.unpack_from(buf, at))


def index_key(topic: str, key: str) -> str:
    """The string that is hashed for a key."""
    return f"{topic}#{key}"


def tag_key(tags: str) -> str:
    """What stands for a key in the entry that RocketMQ 5.5.0 writes for the whole TAGS of a record (`INDEX_TAG_TYPE`)."""
    return f"T#{tags}"


def key_hash(text: str) -> int:
    """The hash of a `topic#key`: Java's, made positive (-2^31, which has no positive counterpart, becomes 0)."""
    value = java_string_hash(text)
    return 0 if value == _INT_MIN else abs(value)


def slot_of(hash_: int, slot_count: int) -> int:
    """The slot of a key hash."""
    return hash_ % slot_count


def slot_position(slot: int) -> int:
    """Byte of a slot in the file."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_position(number: int, slot_count: int) -> int:
    """Byte of entry `number` in the file."""
    return HEADER_SIZE + slot_count * SLOT_SIZE + number * ENTRY_SIZE


def file_size_bytes(slot_count: int, entry_count_max: int) -> int:
    """Size of a file; `entry_count_max` is RocketMQ's maxIndexNum, one more than the entries that fit."""
    return HEADER_SIZE + slot_count * SLOT_SIZE + entry_count_max * ENTRY_SIZE
