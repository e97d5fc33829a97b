"""The 20-byte queue unit; RocketMQ's own units are compared in test_java_hash.py."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.queue_unit import FILLER, QueueUnit, decode_queue_unit, decode_queue_units, encode_queue_unit

UNIT = QueueUnit(0x0102030405060708, 0x090A0B0C, -2)
STORED = bytes.fromhex("0102030405060708 090a0b0c fffffffffffffffe")


def test_unit_has_its_twenty_bytes() -> None:
    assert encode_queue_unit(UNIT) == STORED
    assert decode_queue_unit(b"xx" + STORED, 2) == UNIT
    assert list(decode_queue_units(STORED + encode_queue_unit(FILLER))) == [UNIT, FILLER]


def test_every_prefix_is_refused() -> None:
    for size in range(20):
        with pytest.raises(struct.error):
            decode_queue_unit(STORED[:size])


def test_an_empty_unit_and_a_filler_are_told_apart() -> None:
    assert QueueUnit(0, 0, 0).is_empty
    assert not UNIT.is_empty
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == encode_queue_unit(FILLER)
    assert FILLER.is_filler
    assert not UNIT.is_filler
    assert QueueUnit(100, 30, 0).next_offset == 130


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_unit_comes_back(offset: int, size: int, code: int) -> None:
    assert QueueUnit(offset, size, code) == decode_queue_unit(encode_queue_unit(QueueUnit(offset, size, code)))
