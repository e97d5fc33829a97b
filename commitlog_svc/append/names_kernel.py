"""Tables of names, for other kernels: open addressing by `layout.hash_bytes`, -1 in empty slots.

Their length is a power of two.
"""

import numpy as np

from commitlog_svc.append.layout import HASH_FACTOR, HASH_START, Int64s, Number
from store.compiled.compiling import Bytes, compiled
from store.format.record_layout import TOPIC_SIZE_BYTES_MAX_V1

_HASH_START = np.uint64(HASH_START)
_HASH_FACTOR = np.uint64(HASH_FACTOR)


@compiled
def hash_name(data: Bytes, begin: Number, end: Number) -> Number:
    """`layout.hash_bytes`, as an index: without the top bit."""
    value = _HASH_START
    for at in range(np.uint64(begin), np.uint64(end)):
        value = (value ^ np.uint64(data[at])) * _HASH_FACTOR
    return np.int64(value & np.uint64(0x7FFFFFFFFFFFFFFF))


@compiled
def is_name(data: Bytes, begin: Number, end: Number, names: Bytes, sizes: Int64s, number: Number) -> bool:
    """Whether the text data[begin:end] is name `number`."""
    if number < 0 or number >= len(sizes) or sizes[number] != end - begin:
        return False
    is_same, row, from_ = True, np.uint64(number), np.uint64(begin)
    for index in range(np.uint64(end - begin)):
        is_same &= data[from_ + index] == names[row, index]
    return is_same


@compiled
def find_name(data: Bytes, begin: Number, end: Number, slots: Int64s, names: Bytes, sizes: Int64s) -> Number:
    """The number of a name, or -1; only names of at most TOPIC_SIZE_BYTES_MAX_V1 bytes are found."""
    if end - begin > TOPIC_SIZE_BYTES_MAX_V1 or names.shape[1] < TOPIC_SIZE_BYTES_MAX_V1:
        return -1
    slot = hash_name(data, begin, end) & (len(slots) - 1)
    for _ in range(len(slots)):
        number = slots[slot]
        if number < 0:
            break
        if is_name(data, begin, end, names, sizes, number):
            return number
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@compiled
def has_hash(data: Bytes, begin: Number, end: Number, slots: Int64s) -> bool:
    """Whether the table has the hash of a name, so that it may have the name."""
    hash_ = hash_name(data, begin, end)
    slot = hash_ & (len(slots) - 1)
    for _ in range(len(slots)):
        if slots[slot] < 0:
            return False
        if slots[slot] == hash_:
            return True
        slot = (slot + 1) & (len(slots) - 1)
    return True


def touch() -> None:
    """Compiles all."""
    data, numbers = np.zeros(1, dtype=np.uint8), np.full(1, -1, dtype=np.int64)
    find_name(data, 0, 1, numbers, np.zeros((1, TOPIC_SIZE_BYTES_MAX_V1), dtype=np.uint8), numbers)
    has_hash(data, 0, 1, numbers)
