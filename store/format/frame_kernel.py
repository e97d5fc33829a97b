"""Where the parts of a stored record lie (`store/format/record_layout.py`), for other kernels.

All functions read inside `data[:end]` only, for any bytes and any 0 <= at <= end <= len(data).

Indices in loops are unsigned: a signed one costs a test of its sign each time, because negative ones count from the end.
"""

import numpy as np

from store.compiled.compiling import Bytes, Number, compiled
from store.format.record_layout import FRAME_SIZE_BYTES_MIN, HEADS, MAGIC_V1, MAGIC_V2

_HEAD_SIZE = HEADS[0].size
_HOST_V6_EXTRA_BYTES = 12
_TOPIC_SIZE_BYTES_MAX_V1 = 127


@compiled
def load_i16(data: Bytes, at: Number) -> Number:
    """The big-endian signed number at `at`; checks no bounds, nor do the functions below."""
    first = np.uint64(at)
    value = np.int64(data[first]) << 8 | np.int64(data[first + np.uint64(1)])
    return (value ^ 0x8000) - 0x8000


@compiled
def load_i32(data: Bytes, at: Number) -> Number:
    """As `load_i16`."""
    first = np.uint64(at)
    value = (
        np.int64(data[first]) << 24
        | np.int64(data[first + np.uint64(1)]) << 16
        | np.int64(data[first + np.uint64(2)]) << 8
        | np.int64(data[first + np.uint64(3)])
    )
    return (value ^ 0x80000000) - 0x80000000


@compiled
def load_i64(data: Bytes, at: Number) -> Number:
    """As `load_i16`."""
    return load_i32(data, at) << 32 | (load_i32(data, at + 4) & 0xFFFFFFFF)


@compiled
def locate(data: Bytes, at: Number, end: Number, commit_log_offset: Number) -> tuple[Number, Number, Number, Number]:
    """Size of the record, and where body, topic and properties start in `data`; size 0 if the record is not in order.

    In order is a whole V1 or V2 record that states `commit_log_offset` as its own and whose lengths add up.
    """
    nothing = (0, 0, 0, 0)
    if end - at < FRAME_SIZE_BYTES_MIN:
        return nothing
    size = load_i32(data, at)
    magic = load_i32(data, at + 4)
    if size < FRAME_SIZE_BYTES_MIN or size > end - at or load_i64(data, at + 28) != commit_log_offset:
        return nothing
    flags = np.int64(data[at + 39])
    body_at = at + _HEAD_SIZE + _HOST_V6_EXTRA_BYTES * ((flags >> 4 & 1) + (flags >> 5 & 1))
    frame_end = at + size
    if body_at + 3 > frame_end:
        return nothing
    body_size = load_i32(data, body_at - 4)
    if body_size < 0 or body_size > frame_end - body_at - 3:
        return nothing
    length_at = body_at + body_size
    if magic == MAGIC_V1:
        topic_at, topic_size = length_at + 1, np.int64(data[length_at])
        if topic_size > _TOPIC_SIZE_BYTES_MAX_V1:
            return nothing
    elif magic == MAGIC_V2:
        topic_at, topic_size = length_at + 2, load_i16(data, length_at)
        if topic_size < 0:
            return nothing
    else:
        return nothing
    properties_at = topic_at + topic_size + 2
    if properties_at > frame_end:
        return nothing
    properties_size = load_i16(data, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != frame_end:
        return nothing
    return size, body_at, topic_at, properties_at


@compiled
def store_time_at(data: Bytes, at: Number) -> Number:
    """Where the store time of a located record lies."""
    return at + 56 + _HOST_V6_EXTRA_BYTES * (np.int64(data[at + 39]) >> 4 & 1)


@compiled
def is_same(data: Bytes, one: Number, other: Number, size: Number) -> Number:
    """Whether two ranges of `size` bytes inside `data` are equal."""
    first, second = np.uint64(one), np.uint64(other)
    for index in range(np.uint64(size)):  # noqa: SIM110 - numba has no all()
        if data[first + index] != data[second + index]:
            return False
    return True


@compiled
def bits_of(data: Bytes, begin: Number, end: Number) -> Number:
    """The bitwise OR of data[begin:end]; above 0x7F when a byte is not ASCII."""
    first = np.uint64(begin)
    seen = np.uint8(0)
    for index in range(np.uint64(end - begin)):
        seen |= data[first + index]
    return seen


def touch() -> None:
    """Compiles all."""
    data = np.zeros(128, dtype=np.uint8)
    data.flags.writeable = False
    locate(data, 0, 128, 0)
    store_time_at(data, 0)
    is_same(data, 0, 0, 0)
    bits_of(data, 0, 128)
