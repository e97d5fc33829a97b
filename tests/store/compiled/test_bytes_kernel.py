"""Bytes in kernels against what Python makes of them."""

import os
from pathlib import Path

import numpy as np
from google.protobuf.internal.encoder import _VarintEncoder  # type: ignore[attr-defined]  # protobuf's own
from hypothesis import given
from hypothesis import strategies as st

from store.compiled.bytes_kernel import find_byte, is_bytes, is_utf8, put_number, put_varint, size_of_varint
from store.compiled.compiling import Bytes
from store.compiled.pread_kernel import PREAD_AT, pread

# The first and last of each length, and what stands around the surrogates.
CHARACTERS = "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff名"
PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(CHARACTERS).map(str.encode),
    st.sampled_from(
        [b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xc1\xbf"]
    ),
)


def array(data: bytes) -> Bytes:
    return np.array(
        np.frombuffer(data, dtype=np.uint8)
    )  # a copy that may be written: what the kernels are compiled for


@given(st.lists(PIECES, max_size=5).map(b"".join))
def test_bytes_are_utf8_if_python_decodes_them(data: bytes) -> None:
    try:
        expected = bool(data.decode()) or not data
    except UnicodeDecodeError:
        expected = False
    assert is_utf8(array(b"\xff" + data + b"\xff"), 1, 1 + len(data)) == expected


@given(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 63).map(lambda bit: (1 << bit) - 1)))
def test_numbers_are_written_as_protobuf_writes_them(value: int) -> None:
    expected: list[bytes] = []
    _VarintEncoder()(expected.append, value & (1 << 64) - 1)
    target = np.zeros(16, dtype=np.uint8)
    end = put_varint(target, 2, np.int64(value))
    assert target[2:end].tobytes() == b"".join(expected)
    if value >= 0:
        assert size_of_varint(np.int64(value)) == end - 2
    end = put_number(target, 0, 0x18, np.int64(value))
    assert target[:end].tobytes() == (b"\x18" + b"".join(expected) if value else b"")


@given(st.binary(max_size=20), st.integers(0, 20), st.integers(0, 20), st.sampled_from([0, 1, 2, 255]))
def test_a_byte_is_found_where_python_finds_it(data: bytes, begin: int, end: int, wanted: int) -> None:
    end = min(end, len(data))
    begin = min(begin, end)
    expected = data.find(bytes([wanted]), begin, end)
    assert find_byte(array(data), begin, end, wanted) == (end if expected < 0 else expected)
    assert is_bytes(array(data), begin, end - begin, array(data[begin:end]))
    assert not is_bytes(array(data), begin, end - begin, array(data[begin:end] + b"x"))
    if begin < end:
        assert not is_bytes(array(data), begin, end - begin, array(bytes([data[begin] ^ 1]) + data[begin + 1 : end]))


def test_a_file_is_read_where_it_is_told_to_and_a_failure_is_minus_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    fd = os.open(path, os.O_RDONLY)
    target = np.zeros(64, dtype=np.uint8)
    try:
        assert pread(PREAD_AT, fd, 100, 20, target, 3) == 20
        assert target.tobytes() == bytes(3) + bytes(range(100, 120)) + bytes(41)
        assert pread(PREAD_AT, fd, 190, 20, target, 0) == 10
        assert pread(PREAD_AT, fd, 200, 20, target, 0) == 0
    finally:
        os.close(fd)
    assert pread(PREAD_AT, -1, 0, 1, target, 0) == -1
