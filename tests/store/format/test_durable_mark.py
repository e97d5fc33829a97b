"""The mark that says how far the log is on the disk: a torn or damaged one says nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.durable_mark import DURABLE_MARK, decode_durable_mark, encode_durable_mark

# CRC-32 of 8 zero bytes, and of the bytes 00 00 00 00 00 01 00 00, as the trailer of gzip has them (there little-endian).
MARKS = [(0, "0000000000000000 6522df69"), (1 << 16, "0000000000010000 64e0b55e")]


@pytest.mark.parametrize(("offset", "data"), MARKS)
def test_the_mark_is_the_offset_and_its_crc(offset: int, data: str) -> None:
    assert encode_durable_mark(offset) == bytes.fromhex(data)
    assert decode_durable_mark(bytes.fromhex(data)) == offset


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=20))
def test_any_offset_comes_back_whatever_follows_the_mark(offset: int, rest: bytes) -> None:
    assert decode_durable_mark(encode_durable_mark(offset) + rest) == offset


def test_a_mark_that_is_cut_short_or_damaged_anywhere_says_nothing() -> None:
    mark = encode_durable_mark(123_456_789)
    for size_bytes in range(DURABLE_MARK.size):
        assert decode_durable_mark(mark[:size_bytes]) is None
    for bit in range(8 * len(mark)):
        damaged = bytearray(mark)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_durable_mark(bytes(damaged)) is None
