"""Entries of one index file, written in one pass; see `index_fill.py`, whose plain twin says what they must be."""

import numpy as np
import numpy.typing as npt

from store.format.index_layout import TIME_DIFF_SECONDS_MAX
from store.kernels.compiling import Bytes, Number, compiled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]  # an entry is five of them, each big-endian

ENTRY_WORD_COUNT = 5
_SECONDS_MAX = int(TIME_DIFF_SECONDS_MAX)


@compiled
def _big_endian(value: Number) -> Number:
    """The low 32 bits, bytes turned round."""
    word = np.uint32(value)
    return np.uint32(
        word << np.uint32(24)
        | (word & np.uint32(0xFF00)) << np.uint32(8)
        | (word >> np.uint32(8)) & np.uint32(0xFF00)
        | word >> np.uint32(24)
    )


@compiled
def _seconds_since(begin_millis: Number, time_millis: Number) -> Number:
    if begin_millis <= 0:
        return 0
    return min(max((time_millis - begin_millis) // 1000, 0), _SECONDS_MAX)


@compiled
def fill_entries(
    hashes: Int32s,
    offsets: Int64s,
    times_millis: Int64s,
    first_number: Number,
    begin_millis: Number,
    heads: Int32s,
    entries: Words,
) -> Number:
    """Fills the entries of as many keys as all columns have room for, and lays the heads that they leave.

    Args:
        hashes: of the keys, none negative.
        offsets: each key's commit-log offset.
        times_millis: each key's store time.
        first_number: number of the first entry.
        begin_millis: where the file's seconds begin; a file's first entry makes its own time the beginning for the rest.
        heads: the newest entry of each slot, 0 for none; none is `first_number` or more.
        entries: taken in groups of five.

    Returns:
        How many slots had no head before; -1 when an argument does not fit, and nothing was done.
    """
    count = len(hashes)
    slot_count = len(heads)
    if slot_count == 0 or len(offsets) != count or len(times_millis) != count:
        return -1
    if len(entries) < ENTRY_WORD_COUNT * count or first_number < 1 or first_number + count > 0x7FFFFFFF:
        return -1
    opened: Number = 0
    at = np.uint64(0)
    for index in range(np.uint64(count)):
        number = first_number + np.int64(index)
        hash_ = np.int64(hashes[index])
        slot = np.uint64(hash_ & 0x7FFFFFFF) % np.uint64(slot_count)
        previous = heads[slot]
        if previous <= 0:
            previous = np.int32(0)
            opened += 1
        heads[slot] = number
        time_millis = times_millis[index]
        offset = offsets[index]
        seconds = _seconds_since(begin_millis, time_millis)
        if number == 1:
            begin_millis = time_millis
        entries[at] = _big_endian(hash_)
        entries[at + np.uint64(1)] = _big_endian(offset >> 32)
        entries[at + np.uint64(2)] = _big_endian(offset & 0xFFFFFFFF)
        entries[at + np.uint64(3)] = _big_endian(seconds)
        entries[at + np.uint64(4)] = _big_endian(previous)
        at += np.uint64(ENTRY_WORD_COUNT)
    return opened


@compiled
def hash_texts(data: Bytes, ends: Int64s, hashes: Int32s) -> Number:
    """The index hashes of ASCII texts that lie one behind the other.

    Args:
        data: the texts.
        ends: where each ends, rising.
        hashes: filled.

    Returns:
        How many texts are done: all, or those before the first that is not ASCII or does not lie inside `data`.
    """
    begin: Number = 0
    for index in range(min(len(ends), len(hashes))):
        end = ends[index]
        if end < begin or end > len(data):
            return index
        value = np.uint32(0)
        seen = np.uint8(0)
        first = np.uint64(begin)
        for at in range(np.uint64(end - begin)):
            byte = data[first + at]
            value = np.uint32(value * np.uint32(31) + byte)
            seen |= byte
        if seen > 0x7F:
            return index
        signed = np.int32(value)
        if signed < 0:
            signed = np.int32(0) if value == np.uint32(0x80000000) else np.int32(-signed)
        hashes[index] = signed
        begin = end
    return min(len(ends), len(hashes))


def touch() -> None:
    """Compile what is called from outside."""
    fill_entries(
        np.zeros(1, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        1,
        0,
        np.zeros(1, dtype=np.int32),
        np.zeros(ENTRY_WORD_COUNT, dtype=np.uint32),
    )
    data = np.zeros(1, dtype=np.uint8)
    data.flags.writeable = False
    hash_texts(data, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32))
