"""Reading, copying and writing bytes, for other kernels.

`copy`, `put` and `is_text` check no bounds: the caller does.

Indices are unsigned here. A negative signed index counts from the end, so the compiler tests the sign of each index, and a
loop with that test gets no vector instructions (1 KiB copied in 340 ns instead of 24).
"""

import numpy as np

from store.compiled.compiling import Bytes, Number, compiled


@compiled
def copy(source: Bytes, begin: Number, end: Number, target: Bytes, at: Number) -> Number:
    """Copies source[begin:end] to `at`; returns where the copy ends."""
    from_, to = np.uint64(begin), np.uint64(at)
    for index in range(np.uint64(end - begin)):
        target[to + index] = source[from_ + index]
    return at + end - begin


@compiled
def put(target: Bytes, at: Number, value: Number, size: Number) -> None:
    """Writes a number of `size` bytes, big-endian."""
    to = np.uint64(at)
    for index in range(np.uint64(size)):
        target[to + index] = value >> np.int64(8 * (size - 1 - np.int64(index))) & 0xFF


@compiled
def is_text(data: Bytes, begin: Number, end: Number, least: Number) -> bool:
    """Whether all bytes are printable ASCII, and not below `least`."""
    from_ = np.uint64(begin)
    first, is_ = np.uint8(least), True
    for index in range(np.uint64(end - begin)):
        byte = data[from_ + index]
        is_ &= (byte >= first) & (byte < np.uint8(0x7F))
    return is_


@compiled
def read_varint(data: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """The value as a signed 64-bit number, and where it ends; the end is -1 when there is no varint."""
    value = np.int64(0)
    shift = 0
    while at < end and shift < 64:
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return np.int64(0), -1


@compiled
def read_span(data: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """Begin and end of the bytes whose length is the varint at `at`; the end is -1 when some are missing."""
    size, begin = read_varint(data, at, end)
    if begin < 0 or size < 0 or size > end - begin:
        return 0, -1
    return begin, begin + size


def touch() -> None:
    """Compiles all."""
    data = np.zeros(1, dtype=np.uint8)
    copy(data, 0, 0, data, 0)
    put(data, 0, 0, 1)
    is_text(data, 0, 1, 0x20)
    read_span(data, 0, 1)
