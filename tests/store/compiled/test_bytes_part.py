"""Bytes in kernels against what Python makes of them; compiled, and as plain Python."""

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.internal.encoder import _VarintEncoder  # type: ignore[attr-defined]  # protobuf's own
from hypothesis import given
from hypothesis import strategies as st

from deploy import build_kernels
from store.compiled import built, crc32_function
from tests.support.kernels import FORMS

KERNEL = "tests.store.compiled.all_bytes_kernel"
INT64S = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 63).map(lambda bit: (1 << bit) - 1),
    st.integers(0, 63).map(lambda bit: -(1 << bit)),
)
# The first and last of each length, and what stands around the surrogates.
CHARACTERS = "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff名"
PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(CHARACTERS).map(str.encode),
    st.sampled_from(
        [b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xc1\xbf"]
    ),
)


@pytest.fixture(scope="module", params=FORMS)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "compiled" and not built.binary_of(KERNEL).exists():
        try:
            build_kernels.build(KERNEL, build_kernels.compiler())
        except build_kernels.BuildError as error:
            pytest.skip(str(error))
    return FORMS[request.param](KERNEL)


@given(data=st.binary(min_size=8, max_size=12), at=st.integers(0, 4))
def test_numbers_are_those_that_python_reads(kernel: ModuleType, data: bytes, at: int) -> None:
    for size in (2, 4, 8):
        if at + size <= len(data):
            expected = int.from_bytes(data[at : at + size], signed=True)
            assert kernel.ask(f"load_i{8 * size}", data, at) == expected


@given(pieces=st.lists(PIECES, max_size=5))
def test_bytes_are_utf8_if_python_decodes_them(kernel: ModuleType, pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    try:
        expected = bool(data.decode()) or not data
    except UnicodeDecodeError:
        expected = False
    assert kernel.ask("is_utf8", b"\xff" + data + b"\xff", 1, 1 + len(data)) == expected


@given(value=INT64S)
def test_numbers_are_written_as_protobuf_writes_them_and_read_again(kernel: ModuleType, value: int) -> None:
    pieces: list[bytes] = []
    _VarintEncoder()(pieces.append, value & (1 << 64) - 1)
    expected = b"".join(pieces)
    target = bytearray(16)
    end = kernel.write("put_varint", target, 2, value, 0)
    assert target[2:end] == expected
    assert kernel.parse("read_varint", bytes(target), 2, 16) == (value, end)
    assert kernel.parse("read_varint", bytes(target), 2, end - 1) == (0, -1)
    if value >= 0:
        assert kernel.varint_size(value) == end - 2
    end = kernel.write("put_number", target, 0, value, 0x18)
    assert target[:end] == (b"\x18" + expected if value else b"")
    for size in (1, 2, 4, 8):
        kernel.write("put", target, 3, value, size)
        assert int.from_bytes(target[3 : 3 + size]) == value & (1 << 8 * size) - 1


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"", b"\x80"])
def test_what_is_no_number_of_64_bits_has_no_end(kernel: ModuleType, data: bytes) -> None:
    assert kernel.parse("read_varint", data, 0, len(data)) == (0, -1)


@given(size=st.one_of(st.integers(0, 30), INT64S), length=st.integers(0, 20))
def test_a_span_lies_inside_or_is_none(kernel: ModuleType, size: int, length: int) -> None:
    pieces: list[bytes] = []
    _VarintEncoder()(pieces.append, size & (1 << 64) - 1)
    prefix = b"".join(pieces)
    data = prefix + bytes(length)
    expected = (len(prefix), len(prefix) + size) if 0 <= size <= length else (0, -1)
    assert kernel.parse("read_span", data, 0, len(data)) == expected


@given(
    data=st.binary(max_size=20),
    begin=st.integers(0, 20),
    end=st.integers(0, 20),
    wanted=st.sampled_from([0, 1, 2, 255]),
)
def test_a_byte_is_found_where_python_finds_it(
    kernel: ModuleType, data: bytes, begin: int, end: int, wanted: int
) -> None:
    end = min(end, len(data))
    begin = min(begin, end)
    part = data[begin:end]
    expected = data.find(bytes([wanted]), begin, end)
    assert kernel.ask("find_byte", data, begin, end, wanted) == (end if expected < 0 else expected)
    assert kernel.match("is_bytes", data, begin, end - begin, part)
    assert not kernel.match("is_bytes", data + b"x", begin, end - begin, part + b"x")
    assert kernel.match("begins_with", data + b"x", begin, 0, part)
    if begin < end:
        other = bytes([data[begin] ^ 1]) + data[begin + 1 : end]
        assert not kernel.match("is_bytes", data, begin, end - begin, other)
        assert not kernel.match("begins_with", data, begin, 0, other)
    bits = 0
    for byte in part:
        bits |= byte
    assert kernel.ask("bits_of", data, begin, end) == bits
    assert kernel.ask("is_text", data, begin, end, 0x20) == all(0x20 <= byte < 0x7F for byte in part)
    assert kernel.ask("is_same", part + b"," + part, 0, len(part) + 1, len(part))
    assert kernel.ask("is_same", b"ab", 0, 1, 1) == 0


def test_bytes_are_copied_and_moved_either_way(kernel: ModuleType) -> None:
    room = bytearray(range(40))
    assert kernel.copied(b"0123456789", 2, 7, room, 30) == 35
    assert room[30:35] == b"23456"
    assert kernel.moved(room, 5, 25, 2) == 22
    assert room[2:22] == bytes(range(5, 25))
    assert kernel.moved(room, 2, 22, 5) == 25
    assert room[5:25] == bytes(range(5, 25)), "overlap"
    assert kernel.copied(b"", 0, 0, room, 40) == 40


def test_every_short_size_is_copied_moved_and_compared(kernel: ModuleType) -> None:
    """Words that overlap serve sizes up to 16, calls the others."""
    data = bytes(range(100, 164))
    for size in range(36):
        for at in (0, 1, 3, size, 20):
            room, expected = bytearray(range(80)), bytearray(range(80))
            expected[at : at + size] = data[5 : 5 + size]
            assert kernel.copied(data, 5, 5 + size, room, at) == at + size
            assert room == expected
            expected[at : at + size] = expected[7 : 7 + size]
            assert kernel.moved(room, 7, 7 + size, at) == at + size
            assert room == expected, (size, at)
        part = data[:size]
        assert kernel.ask("is_same", part + part, 0, size, size)
        for place in range(size):
            other = bytearray(part)
            other[place] ^= 0x80
            assert not kernel.ask("is_same", part + other, 0, size, size), (size, place)
            assert not kernel.match("is_bytes", part, 0, size, bytes(other))


HUGE = (1 << 63) - 1  # one more is negative
OUTSIDE = [
    ("load_i16", 9), ("load_i32", 7), ("load_i64", 3), ("load_i16", -1), ("load_i32", -1), ("load_i64", -1),
    ("load_i32", 1 << 62), ("is_same", 0, 6, 5), ("is_same", -1, 0, 2), ("is_same", 8, 0, 3),
    ("find_byte", 0, 11, 7), ("find_byte", -1, 3, 7), ("bits_of", 0, 11), ("bits_of", -2, 3),
    ("is_text", 0, 11, 0), ("is_text", -1, 3, 0), ("is_utf8", 8, 12), ("is_utf8", -1, 1),
    ("crc32", 0, 11), ("crc32", -1, 5), ("crc32", 0, 1 << 62), ("crc32", 5, 4), ("find_byte", 5, 4, 7), ("bits_of", 5, 4),
    ("load_i16", HUGE), ("load_i32", HUGE), ("load_i64", HUGE), ("is_same", 0, HUGE, 2), ("is_same", 0, 1, HUGE),
]  # fmt: skip


@pytest.mark.parametrize("call", OUTSIDE, ids=str)
def test_nothing_is_read_outside(kernel: ModuleType, call: tuple[str, int]) -> None:
    with pytest.raises(IndexError):
        kernel.ask(call[0], bytes(range(0x30, 0x3A)), *call[1:])


def test_nothing_is_matched_or_parsed_outside(kernel: ModuleType) -> None:
    for name, at in (("begins_with", 8), ("begins_with", -1), ("is_bytes", 8), ("is_bytes", -1)):
        with pytest.raises(IndexError):
            kernel.match(name, b"0123456789", at, 3, b"89x")
    for name, at, end in (("read_varint", 1, 3), ("read_varint", -1, 1), ("read_span", 1, 3)):
        with pytest.raises(IndexError):
            kernel.parse(name, b"\x80\x80", at, end)


def test_nothing_is_written_outside(kernel: ModuleType) -> None:
    room = bytearray(10)
    for name, at, value, more in (
        ("put", 7, 1, 4), ("put", -1, 1, 1), ("put_varint", 9, 128, 0), ("put_varint", -1, 1, 0), ("put_varint", 10, 1, 0),
        ("put_number", 10, 1, 8), ("put_number", 9, 1, 8), ("put_number", -1, 1, 8),
    ):  # fmt: skip
        inside = memoryview(room)[:10]
        with pytest.raises(IndexError):
            kernel.write(name, inside, at, value, more)
    for begin, end, at in ((0, 11, 0), (-1, 3, 0), (0, 5, 6), (0, 1, -1), (0, 1, 1 << 62), (0, 5, HUGE), (5, 4, 0)):
        with pytest.raises(IndexError):
            kernel.copied(b"0123456789", begin, end, room, at)
    for size, at in ((11, 0), (5, 6), (1, -1)):
        with pytest.raises(IndexError):
            kernel.from_file(-1, 0, size, room, at)
    with pytest.raises((IndexError, TypeError)):
        kernel.write_read_only(bytes(5))


def test_a_file_is_read_where_it_is_told_to_and_a_failure_is_minus_one(kernel: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    fd = os.open(path, os.O_RDONLY)
    target = bytearray(64)
    try:
        assert kernel.from_file(fd, 100, 20, target, 3) == 20
        assert target == bytes(3) + bytes(range(100, 120)) + bytes(41)
        assert kernel.from_file(fd, 190, 20, target, 0) == 10
        assert kernel.from_file(fd, 200, 20, target, 0) == 0
        assert kernel.from_file(fd, 0, 0, target, 64) == 0
    finally:
        os.close(fd)
    assert kernel.from_file(-1, 0, 1, target, 0) == -1


def _plain_zlib() -> int:
    return crc32_function.address(crc32_function.plain_zlib)


@pytest.fixture(params=["zlib-ng", "zlib", "Python"])
def crc_kernel(request: pytest.FixtureRequest, kernel: ModuleType) -> Iterator[ModuleType]:
    address = {"zlib-ng": crc32_function.ADDRESS, "zlib": _plain_zlib(), "Python": 0}[request.param]
    kernel.use_crc32(address)
    yield kernel
    kernel.use_crc32(crc32_function.ADDRESS)


def test_every_length_has_the_crc_of_zlib_at_every_alignment(crc_kernel: ModuleType) -> None:
    data = random.Random(1).randbytes(700)
    for size in range(600):
        for begin in (0, 1, 7, 8, 15, 16, 33):
            assert crc_kernel.ask("crc32", data, begin, begin + size) == zlib.crc32(data[begin : begin + size])


@pytest.mark.parametrize("size_bytes", [1 << 20, (4 << 20) + 13])
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x80])
def test_long_runs_of_one_byte_have_the_crc_of_zlib(crc_kernel: ModuleType, size_bytes: int, byte: int) -> None:
    data = bytes((byte,)) * size_bytes
    assert crc_kernel.ask("crc32", data, 0, size_bytes) == zlib.crc32(data)


def test_a_single_flipped_bit_anywhere_changes_the_crc(crc_kernel: ModuleType) -> None:
    data = bytes(range(200))
    whole = crc_kernel.ask("crc32", data, 0, 200)
    for bit in range(1600):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert crc_kernel.ask("crc32", bytes(flipped), 0, 200) != whole
