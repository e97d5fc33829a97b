"""The entries of one index file in one pass: the compiled twin of `IndexFileState.plan` and `commit`."""

import numpy as np
import numpy.typing as npt

from store.compiled.compiling import Number, compiled
from store.format.derived.index_layout import TIME_DIFF_SECONDS_MAX

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]  # an entry is five of them, each big-endian

ENTRY_WORD_COUNT = 5
_SECONDS_MAX = int(TIME_DIFF_SECONDS_MAX)


@compiled
def _big_endian(value: Number) -> Number:
    """The low 32 bits, in the other byte order."""
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
    """Writes the entries of keys, and sets the slot heads.

    Args:
        hashes: of the keys, none negative.
        offsets: each key's commit-log offset.
        times_millis: each key's store time.
        first_number: number of the first entry.
        begin_millis: the file's seconds count from here; behind the first entry of a file they count from its time.
        heads: the newest entry of each slot, 0 for none; all are below `first_number`.
        entries: filled, five words for an entry.

    Returns:
        How many slots had no head before; -1 if an argument does not fit, then nothing is changed.
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


def touch() -> None:
    """Compile what is called from outside."""
    hashes, offsets = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    hashes.flags.writeable = offsets.flags.writeable = False  # as a rebuild reads them from its files
    fill_entries(
        hashes,
        offsets,
        offsets,
        1,
        0,
        np.zeros(1, dtype=np.int32),
        np.zeros(ENTRY_WORD_COUNT, dtype=np.uint32),
    )
