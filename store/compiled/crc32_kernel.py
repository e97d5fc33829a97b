"""CRC-32 (that of zlib) of bytes in the middle of a kernel.

On a CPU that multiplies polynomials, all but the last bytes are folded into 16 (`crc32_fold.py`). These 16, the last bytes and
inputs that are too short to fold go through tables. Other CPUs use tables for everything, 16 bytes at a time.

`crc32` reads `data[begin:end]` and checks no bounds: the caller does.
"""

import numpy as np
import numpy.typing as npt

from store.compiled.compiling import Bytes, Number, compiled
from store.compiled.crc32_fold import HAS_FOLDING, POLYNOMIAL, fold

SLICE_COUNT = 16
FOLD_SIZE_BYTES_MIN = 64


def _make_tables() -> npt.NDArray[np.uint32]:
    """tables[n][byte]: the CRC register after that byte and n zeros."""
    tables = np.zeros((SLICE_COUNT, 256), dtype=np.uint32)
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = register >> 1 ^ (POLYNOMIAL if register & 1 else 0)
        tables[0, byte] = register
    for number in range(1, SLICE_COUNT):
        tables[number] = tables[0, tables[number - 1] & 0xFF] ^ tables[number - 1] >> np.uint32(8)
    return tables


_TABLES = _make_tables()


@compiled
def _slice_16(register: Number, low: Number, high: Number) -> Number:
    """The register after 16 bytes, given as two little-endian numbers."""
    low ^= np.uint64(register)
    byte = np.uint64(0xFF)
    result = np.uint32(0)
    for index in range(8):
        shift = np.uint64(8 * index)
        result ^= _TABLES[15 - index, low >> shift & byte] ^ _TABLES[7 - index, high >> shift & byte]
    return result


@compiled
def _load_64(data: Bytes, at: Number) -> Number:
    value = np.uint64(0)
    for index in range(8):
        value |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return value


@compiled
def _finish(data: Bytes, begin: Number, end: Number, register: Number) -> Number:
    while end - begin >= 16:
        register = _slice_16(register, _load_64(data, begin), _load_64(data, begin + 8))
        begin += 16
    for at in range(begin, end):
        register = _TABLES[0, (register ^ np.uint32(data[at])) & np.uint32(0xFF)] ^ register >> np.uint32(8)
    return register


@compiled
def crc32_by_tables(data: Bytes, begin: Number, end: Number) -> Number:
    """`zlib.crc32(data[begin:end])`, for any CPU."""
    return _finish(data, begin, end, np.uint32(0xFFFFFFFF)) ^ 0xFFFFFFFF


if HAS_FOLDING:

    @compiled
    def crc32(data: Bytes, begin: Number, end: Number) -> Number:
        """`zlib.crc32(data[begin:end])`."""
        register = np.uint32(0xFFFFFFFF)
        size = (end - begin) & ~15
        if size >= FOLD_SIZE_BYTES_MIN:
            low, high = fold(data, begin, size, register)
            register = _slice_16(np.uint32(0), low, high)
            begin += size
        return _finish(data, begin, end, register) ^ 0xFFFFFFFF

else:
    crc32 = crc32_by_tables


def touch() -> None:
    """Compiles both."""
    data = np.zeros(80, dtype=np.uint8)
    data.flags.writeable = False
    crc32(data, 0, 80)
    crc32_by_tables(data, 0, 80)
