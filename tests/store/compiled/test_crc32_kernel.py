"""Both ways to the CRC against zlib's."""

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.compiled import loading


@pytest.fixture(scope="module", params=["crc32", "crc32_by_tables"])
def crc32(request: pytest.FixtureRequest) -> Any:
    kernel = loading.load("store.compiled.crc32_kernel")
    assert kernel is not None
    return getattr(kernel, request.param)


def array(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


def test_every_length_up_to_some_folds_at_every_alignment(crc32: Any) -> None:
    data = np.random.default_rng(1).bytes(700)
    for size in range(600):
        for begin in (0, 1, 7, 8, 15, 16, 33):
            assert crc32(array(data), begin, begin + size) == zlib.crc32(data[begin : begin + size]), (size, begin)


@pytest.mark.parametrize("size_bytes", [1 << 20, (4 << 20) + 13])
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x80])
def test_long_runs_of_one_byte(crc32: Any, size_bytes: int, byte: int) -> None:
    data = bytes((byte,)) * size_bytes
    assert crc32(array(data), 0, size_bytes) == zlib.crc32(data)


@given(data=st.binary(max_size=400))
def test_any_bytes_have_the_crc_that_zlib_gives(crc32: Any, data: bytes) -> None:
    assert crc32(array(data + b"behind"), 0, len(data)) == zlib.crc32(data)


def test_a_single_flipped_bit_anywhere_is_seen(crc32: Any) -> None:
    data = bytes(range(200))
    whole = crc32(array(data), 0, 200)
    for bit in range(1600):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert crc32(array(bytes(flipped)), 0, 200) != whole


def test_a_cpu_without_wide_registers_folds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    from store.compiled import crc32_fold

    if not crc32_fold.HAS_FOLDING:
        pytest.skip("this CPU does not multiply polynomials")
    monkeypatch.setattr(crc32_fold, "HAS_WIDE_FOLDING", False)
    fold = numba.extending.intrinsic(crc32_fold._fold)

    @numba.njit
    def folded(data: Any, size: int) -> Any:
        return fold(data, 0, size, np.uint32(0xFFFFFFFF))

    data = np.random.default_rng(2).bytes(2048)
    for size in range(64, 2048, 16):
        low, high = folded(array(data), size)
        rest = int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")
        # The register that 16 bytes leave which begin with one of 0: zlib's begins and ends inverted.
        assert zlib.crc32(rest, 0xFFFFFFFF) == zlib.crc32(data[:size]), size
