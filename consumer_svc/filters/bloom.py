"""The Bloom filter of ConsumeQueueExt's bit maps: which groups' SQL filters a message matches, with some false hits.

Each group and topic has `hash_count` bits of a map, chosen by the hash of `GROUP#TOPIC`. A message that a group's filter
matches has all of these set. Source: `BloomFilter`, `BitsArray` and `ConsumerFilterManager`, RocketMQ 5.3.3, and guava's
`murmur3_128`.
"""

import math
from dataclasses import dataclass
from typing import Final

from store.format.java_text import encode_java_utf8

# The defaults of a broker: `maxErrorRateOfBloomFilter` (percent) and `expectConsumerNumUseFilter`.
FALSE_HIT_PERCENT: Final = 20
GROUP_COUNT: Final = 32
_MASK_64: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The form of bit maps.

    Args:
        hash_count: bits of one group and topic.
        bit_count: bits of a map, a multiple of 8.
    """

    hash_count: int
    bit_count: int

    @classmethod
    def of(cls, false_hit_percent: int = FALSE_HIT_PERCENT, group_count: int = GROUP_COUNT) -> "BloomFilter":
        """The form that a broker chooses for so many false hits with so many groups.

        Args:
            false_hit_percent: 1 to 99.
            group_count: at least 1.
        """
        assert 1 <= false_hit_percent < 100 <= 100 * group_count, (false_hit_percent, group_count)
        rate = false_hit_percent / 100.0
        # Written as RocketMQ computes it: another form of the same formula may round to another number.
        hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bit_count = math.ceil(group_count * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(hash_count, 8 * math.ceil(bit_count / 8))

    def bit_positions(self, consumer_group: str, topic: str) -> tuple[int, ...]:
        """The bits of a group and topic, in RocketMQ's order; two may be the same."""
        low_64 = murmur3_128_low(encode_java_utf8(f"{consumer_group}#{topic}"))
        first, second = low_64 & _MASK_32, low_64 >> 32
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = (first + number * second) & _MASK_32
            positions.append((combined ^ _MASK_32 if combined >> 31 else combined) % self.bit_count)
        return tuple(positions)

    def may_match(self, bit_map: bytes, positions: tuple[int, ...]) -> bool:
        """Whether the group with these bits may get a message with this map; true for a map of another form."""
        if len(bit_map) * 8 != self.bit_count:
            return True
        return all(bit_map[position // 8] >> position % 8 & 1 for position in positions)

    def bit_map(self, matched: list[tuple[int, ...]]) -> bytes:
        """The map of a message that the groups with these bits get."""
        bits = bytearray(self.bit_count // 8)
        for positions in matched:
            for position in positions:
                bits[position // 8] |= 1 << position % 8
        return bytes(bits)


def murmur3_128_low(data: bytes) -> int:
    """The first 8 of the 16 bytes of MurmurHash3_x64_128 with seed 0, as guava's `asLong` reads them: little-endian."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _mix_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK_64
        h2 ^= _mix_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK_64
    h1 ^= _mix_1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mix_2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    return (_final(h1) + _final(h2)) & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK_64


def _mix_1(part: int) -> int:
    return _rotated(part * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mix_2(part: int) -> int:
    return _rotated(part * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33
