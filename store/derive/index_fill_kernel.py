# cython: boundscheck=True, wraparound=False, cdivision=True
"""The entries of one index file in one pass: the compiled twin of `IndexFileState.plan` and `commit`."""

import cython

from store.format.derived.index_layout import TIME_DIFF_SECONDS_MAX

ENTRY_WORD_COUNT = 5
_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_WORD_COUNT)
_SECONDS_MAX = cython.declare(cython.longlong, TIME_DIFF_SECONDS_MAX)
_NUMBER_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_LOW_31 = cython.declare(cython.longlong, 0x7FFFFFFF)
_LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _big_endian(value: cython.longlong) -> cython.uint:
    """The low 32 bits, in the other byte order."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | (value >> 24) & 0xFF


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _seconds_since(begin_millis: cython.longlong, time_millis: cython.longlong) -> cython.longlong:
    if begin_millis <= 0:
        return 0
    difference: cython.longlong = time_millis - begin_millis
    if not cython.compiled:  # 64 bits wrap, as in the compiled code and in Java
        difference = (difference + _INT64_MAX + 1) % (2 * (_INT64_MAX + 1)) - _INT64_MAX - 1
    return min(difference // 1000, _SECONDS_MAX) if difference > 0 else 0


@cython.locals(
    count=cython.Py_ssize_t, slot_count=cython.Py_ssize_t, index=cython.Py_ssize_t, at=cython.Py_ssize_t,
    slot=cython.Py_ssize_t, opened=cython.longlong, number=cython.longlong, previous=cython.longlong,
    begin=cython.longlong, offset=cython.longlong, time_millis=cython.longlong, seconds=cython.longlong,
    hash_=cython.longlong,
)  # fmt: skip
def fill_entries(
    hashes: cython.const[cython.int][::1],
    offsets: cython.const[cython.longlong][::1],
    times_millis: cython.const[cython.longlong][::1],
    first_number: cython.longlong,
    begin_millis: cython.longlong,
    heads: cython.int[::1],
    entries: cython.uint[::1],
) -> cython.longlong:
    """Writes the entries of keys, and sets the slot heads.

    Args:
        hashes: of the keys, none negative.
        offsets: each key's commit-log offset.
        times_millis: each key's store time.
        first_number: number of the first entry.
        begin_millis: the file's seconds count from here; behind the first entry of a file they count from its time.
        heads: the newest entry of each slot, 0 for none; all are below `first_number`.
        entries: filled, five words for an entry, each big-endian.

    Returns:
        How many slots had no head before; -1 if an argument does not fit, then nothing is changed.
    """
    if not cython.compiled:
        hashes, offsets, times_millis, heads, entries = map(memoryview, (hashes, offsets, times_millis, heads, entries))
    count = len(hashes)
    slot_count = len(heads)
    if slot_count == 0 or len(offsets) != count or len(times_millis) != count:
        return -1
    if len(entries) < _WORDS * count or first_number < 1 or first_number + count > _NUMBER_MAX:
        return -1
    opened = 0
    at = 0
    begin = begin_millis
    with cython.nogil:
        for index in range(count):
            number = first_number + index
            hash_ = hashes[index]
            slot = (hash_ & _LOW_31) % slot_count
            previous = heads[slot]
            if previous <= 0:
                previous = 0
                opened += 1
            heads[slot] = number
            time_millis = times_millis[index]
            offset = offsets[index]
            seconds = _seconds_since(begin, time_millis)
            if number == 1:
                begin = time_millis
            entries[at] = _big_endian(hash_)
            entries[at + 1] = _big_endian(offset >> 32)
            entries[at + 2] = _big_endian(offset & _LOW_32)
            entries[at + 3] = _big_endian(seconds)
            entries[at + 4] = _big_endian(previous)
            at += _WORDS
    return opened
