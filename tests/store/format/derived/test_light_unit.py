"""LightEntry: its bytes as drawn, and what is no entry."""

import struct
import zlib

import pytest

from store.format.derived.light_unit import (
    ENTRY_SIZE_BYTES,
    LightEntry,
    decode_light_entry,
    decode_light_names,
    encode_light_entry,
    encode_light_name,
)

ENTRY = LightEntry(1 << 40, 300, -5, 7, 11, -1, 3)
DATA = encode_light_entry(ENTRY)


def test_an_entry_has_the_bytes_that_are_drawn() -> None:
    fields = struct.pack(">qiqqqqq", 1 << 40, 300, -5, 7, 11, -1, 3)

    assert fields + struct.pack(">I", zlib.crc32(fields)) == encode_light_entry(ENTRY)
    assert decode_light_entry(DATA) == ENTRY


@pytest.mark.parametrize("at", [0, 8, 12, 28, 36, 44, 55])
def test_a_changed_byte_makes_it_no_entry(at: int) -> None:
    changed = bytearray(DATA)
    changed[at] ^= 1

    assert decode_light_entry(bytes(changed)) is None


@pytest.mark.parametrize("size", [0, 1, ENTRY_SIZE_BYTES - 1])
def test_part_of_an_entry_is_none(size: int) -> None:
    assert decode_light_entry(DATA[:size]) is None


@pytest.mark.parametrize(("cut", "count"), [(0, 2), (1, 1), (20, 1), (21, 1), (22, 0), (37, 0)])
def test_names_end_at_the_first_that_is_not_whole(cut: int, count: int) -> None:
    names = encode_light_name(3, "%LMQ%a") + encode_light_name(4, "%LMQ%设备")
    assert list(decode_light_names(names[: len(names) - cut])) == [(3, "%LMQ%a"), (4, "%LMQ%设备")][:count]
