"""Which C function computes CRC-32."""

import ctypes
import zlib
from importlib.util import find_spec

import pytest

from store.compiled import crc32_function


def test_the_function_of_zlib_ng_is_taken_where_it_is_installed() -> None:
    if find_spec("zlib_ng") is None:
        pytest.skip("zlib-ng is not installed")
    function = crc32_function.zlib_ng()
    assert crc32_function.ADDRESS == ctypes.cast(function, ctypes.c_void_p).value != 0


def test_without_zlib_ng_another_function_or_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc32_function, "find_spec", lambda name: None)
    address = crc32_function.address(crc32_function.zlib_ng, crc32_function.plain_zlib)
    assert address != crc32_function.ADDRESS
    if address:
        kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
        assert kind(address)(0, b"bytes", 5) == zlib.crc32(b"bytes")


def test_a_function_that_computes_something_else_is_not_taken() -> None:
    def strange() -> object:
        return ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)(
            lambda crc, data, size: 7
        )

    assert crc32_function.address(strange) == 0  # type: ignore[arg-type]
