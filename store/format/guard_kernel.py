"""The property `__CRC32#` that guards a record (`store/format/record_layout.py`), for other kernels.

All functions read inside `data[at:end]` only; the caller checks that this lies inside `data`.
"""

import numpy as np

from store.compiled.compiling import Bytes, Number, compiled
from store.compiled.crc32_kernel import crc32
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES

MARKER_SIZE = len(CRC_MARKER)
GUARD_SIZE = CRC_PROPERTY_SIZE_BYTES
_MARKER = np.frombuffer(CRC_MARKER, dtype=np.uint8)
_DIGIT_COUNT = CRC_PROPERTY_SIZE_BYTES - len(CRC_MARKER) - 1


@compiled
def marker_matches(data: Bytes, at: Number, end: Number) -> Number:
    """How many bytes of the property's beginning are in their place in data[at:end]."""
    count = 0
    for index in range(min(len(_MARKER), end - at)):
        if data[at + index] == _MARKER[index]:
            count += 1
    return count


@compiled
def is_guard_right(data: Bytes, begin: Number, end: Number) -> Number:
    """Whether the record data[begin:end], which ends with `__CRC32#`, has that CRC."""
    digits_at = end - 1 - _DIGIT_COUNT
    stated = np.int64(0)
    for index in range(_DIGIT_COUNT - 1, -1, -1):
        digit = np.int64(data[digits_at + index]) - 0x30
        if digit < 0 or digit > 9:
            return False
        stated = stated * 10 + digit
    return data[end - 1] == 2 and stated == crc32(data, begin, end - GUARD_SIZE) & 0x7FFFFFFF


def touch() -> None:
    """Compiles both."""
    data = np.zeros(128, dtype=np.uint8)
    data.flags.writeable = False
    marker_matches(data, 0, 20)
    is_guard_right(data, 0, 128)
