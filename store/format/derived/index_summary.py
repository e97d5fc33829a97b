r"""The summary of one sealed index file: when its records were stored, and which key hashes it may hold.

A file of 4,096-byte pages beside the store, `reput/index/summaries/NAME`, under the index file's own name:

    page 0        header
    page 1..n     127 blocks of the key filter each; the last page is filled up with zeros

    every page    0   u32  CRC-32 of the other 4,092 bytes, begun with the page's number

    header        4   4s   b"RPIS"                              32  i64  commit-log offset of the first entry
                  8   u32  version, 1                           40  i64  commit-log offset of the last
                  12  u32  CRC-32 of the index file's header    48  u32  entries that the file holds
                  16  i64  earliest store time, ms              52  u32  blocks of the key filter
                  24  i64  latest store time, ms                56       zeros
                           (TIME_UNKNOWN_EARLY, TIME_UNKNOWN_LATE where nothing proves one)

    blocks        4        28 zeros
                  32       127 blocks of 32 bytes: eight little-endian u32 words

The filter is the split-block Bloom filter of Apache Parquet (BloomFilter.md): of a key's 64 bits, the upper 32 choose the
block; the lower 32, multiplied by eight constants, choose one bit in each of its words. The 64 bits are SplitMix64 of the key
hash (`index_layout.key_hash`). With BITS_PER_KEY = 10 it says "maybe" to 1.3 % of the hashes that the file lacks. A full
file holds 20,000,000 of the 2^31 possible hashes, so 0.9 % of other keys have a hash that the file holds (2.2 % measured).

Each page is read and checked alone, so a lookup in the filter costs one read of 4 KiB, and damage is detected before it can
hide a message. Apart from the filter's words everything is big-endian.
"""

import struct
import zlib
from functools import lru_cache
from typing import NamedTuple

from store.format.derived.index_layout import IndexHeader, encode_index_header

VERSION = 1
MAGIC = b"RPIS"
# The least that the disk and the page cache read.
PAGE_SIZE = 4096
BLOCK_SIZE = 32
BLOCK_WORD_COUNT = 8
PAGE_BLOCK_COUNT = 127
# 1.25 bytes a key, 6 % of a full index file. With half as many bits the filter would say "maybe" to every tenth key.
BITS_PER_KEY = 10
TIME_UNKNOWN_EARLY = -(1 << 63)
TIME_UNKNOWN_LATE = (1 << 63) - 1
# Parquet's eight odd constants.
SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
# Keys of searches whose bits are cached.
KEY_BITS_COUNT_MAX = 256

_HEADER = struct.Struct(">4sIIqqqqII")
_CRC = struct.Struct(">I")
_BLOCKS_BEGIN = PAGE_SIZE - PAGE_BLOCK_COUNT * BLOCK_SIZE
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF

assert _CRC.size + _HEADER.size == 56
assert _BLOCKS_BEGIN == 32


class TimeSpan(NamedTuple):
    """The earliest and the latest store time of a file's records, in milliseconds, both inclusive."""

    begin_millis: int
    end_millis: int

    def widened(self, begin_millis: int, end_millis: int) -> "TimeSpan":
        """The span that covers this one and another."""
        return TimeSpan(min(self.begin_millis, begin_millis), max(self.end_millis, end_millis))


# The span of no records: it overlaps nothing, and `widened` returns the other span.
NO_TIMES = TimeSpan(TIME_UNKNOWN_LATE, TIME_UNKNOWN_EARLY)


class SummaryHeader(NamedTuple):
    """The header of a summary; times in milliseconds, offsets in bytes of the log."""

    index_header_crc: int
    begin_time_millis: int
    end_time_millis: int
    begin_commit_log_offset: int
    end_commit_log_offset: int
    key_count: int
    block_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        return PAGE_SIZE * (1 + -(-self.block_count // PAGE_BLOCK_COUNT))

    @property
    def time_span(self) -> TimeSpan:
        """The store times of the file's records."""
        return TimeSpan(self.begin_time_millis, self.end_time_millis)

    def overlaps(self, begin_millis: int, end_millis: int) -> bool:
        """Whether a record of the file may be stored in [begin_millis, end_millis]."""
        return self.begin_time_millis <= end_millis and self.end_time_millis >= begin_millis


def index_header_crc(header: IndexHeader) -> int:
    """The CRC-32 that ties a summary to the index file from which it was made."""
    return zlib.crc32(encode_index_header(header))


def block_count_of(key_count: int) -> int:
    """Blocks of a filter for `key_count` keys, at least one."""
    return max(1, -(-key_count * BITS_PER_KEY // (8 * BLOCK_SIZE)))


def spread(key_hash: int) -> int:
    """The 64 bits of a key hash: SplitMix64."""
    value = (key_hash + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK64
    return value ^ value >> 31


class KeyBits(NamedTuple):
    """A key's 64 bits, and its eight bits in a block as one number (the block's bytes read as little-endian)."""

    bits: int
    mask: int


@lru_cache(KEY_BITS_COUNT_MAX)
def key_bits(key_hash: int) -> KeyBits:
    """The bits of a key hash; cached, because a search needs them for each file."""
    bits = spread(key_hash)
    return KeyBits(bits, sum(mask << 32 * word for word, mask in enumerate(word_masks(bits))))


def word_masks(bits: int) -> tuple[int, ...]:
    """The mask of each word of the block, from a key's 64 bits."""
    low = bits & _MASK32
    return tuple(1 << ((low * salt & _MASK32) >> 27) for salt in SALTS)


def block_of(bits: int, block_count: int) -> int:
    """The number of the block of a key, from its 64 bits."""
    return (bits >> 32) * block_count >> 32


def block_holds(block: bytes | memoryview, key: KeyBits) -> bool:
    """Whether a block's 32 bytes may hold a key."""
    return int.from_bytes(block, "little") & key.mask == key.mask


def block_place(block: int) -> tuple[int, int]:
    """The page of a block, and the block's byte in it."""
    page, place = divmod(block, PAGE_BLOCK_COUNT)
    return page + 1, _BLOCKS_BEGIN + place * BLOCK_SIZE


def page_is_sound(page: bytes, number: int) -> bool:
    """Whether a page has its CRC and is page `number`."""
    return len(page) == PAGE_SIZE and _CRC.unpack_from(page)[0] == zlib.crc32(memoryview(page)[_CRC.size :], number)


def encode_summary(header: SummaryHeader, blocks: bytes | memoryview) -> bytes:
    """The whole file; `blocks` are the filter's words as bytes."""
    assert len(blocks) == header.block_count * BLOCK_SIZE, (len(blocks), header)
    data = bytearray(header.size_bytes)
    _HEADER.pack_into(data, _CRC.size, MAGIC, VERSION, *header)
    source, view = memoryview(blocks), memoryview(data)
    for number in range(len(data) // PAGE_SIZE):
        page = view[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]
        if number:
            begin = (number - 1) * PAGE_BLOCK_COUNT * BLOCK_SIZE
            part = source[begin : begin + PAGE_BLOCK_COUNT * BLOCK_SIZE]
            page[_BLOCKS_BEGIN : _BLOCKS_BEGIN + len(part)] = part
        _CRC.pack_into(page, 0, zlib.crc32(page[_CRC.size :], number))
    return bytes(data)


def decode_summary_header(page: bytes) -> SummaryHeader | None:
    """The header of page 0; None when it is damaged, of another version or not a summary."""
    if not page_is_sound(page, 0):
        return None
    magic, version, *fields = _HEADER.unpack_from(page, _CRC.size)
    header = SummaryHeader._make(fields)
    return header if (magic, version) == (MAGIC, VERSION) and header.block_count > 0 else None
