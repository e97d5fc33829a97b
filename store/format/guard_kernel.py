"""The property `__CRC32#` that guards a record (`store/format/record_layout.py`), for other kernels.

All functions read inside `data[at:end]` only; the caller checks that this lies inside `data`.
"""

import numpy as np

from store.compiled.compiling import Bytes, Number, compiled
from store.compiled.crc32_kernel import crc32
from store.format.frame_kernel import load_i32
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES

MARKER_SIZE = len(CRC_MARKER)
GUARD_SIZE = CRC_PROPERTY_SIZE_BYTES
BODY_CRC_AT = 8  # in the record
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


@compiled
def is_doubtful(data: Bytes, at: Number, frame_end: Number, body_at: Number, properties_at: Number) -> Number:
    """Whether a CRC of a frame in order is wrong, or what closes its properties may once have been a `__CRC32#`."""
    body_size = load_i32(data, body_at - 4)
    if body_size > 0 and crc32(data, body_at, body_at + body_size) & 0x7FFFFFFF != load_i32(data, at + BODY_CRC_AT):
        return 1
    if frame_end - properties_at < GUARD_SIZE:
        return 0
    matches = marker_matches(data, frame_end - GUARD_SIZE, frame_end)
    if matches == MARKER_SIZE:
        return 0 if is_guard_right(data, at, frame_end) else 1
    return 1 if matches > (MARKER_SIZE - 1) // 2 else 0


def touch() -> None:
    """Compiles all."""
    data = np.zeros(128, dtype=np.uint8)
    data.flags.writeable = False
    marker_matches(data, 0, 20)
    is_guard_right(data, 0, 128)
    is_doubtful(data, 0, 128, 92, 100)
