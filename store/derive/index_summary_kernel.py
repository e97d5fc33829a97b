# cython: boundscheck=True, wraparound=False, cdivision=True
"""The key filter of an index file in one pass over its entries: the compiled twin of `index_summary.py`."""

import cython

from store.format.derived.index_layout import TIME_DIFF_SECONDS_MAX
from store.format.derived.index_summary import SALTS

ENTRY_WORD_COUNT = 5
BLOCK_WORD_COUNT = 8
FACT_COUNT = 3
_ENTRY_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_WORD_COUNT)
_BLOCK_WORDS = cython.declare(cython.Py_ssize_t, BLOCK_WORD_COUNT)
_SECONDS_MAX = cython.declare(cython.longlong, TIME_DIFF_SECONDS_MAX)
_SIGN_32 = cython.declare(cython.longlong, 0x80000000)
_LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_LOW_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_LOW_64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_FACTOR_1 = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_FACTOR_2 = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
_ONE = cython.declare(cython.ulonglong, 1)
_SALTS = cython.declare(cython.ulonglong[8])
_SALTS = tuple(SALTS)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _big_endian(word: cython.longlong) -> cython.longlong:
    """A word in the other byte order, signed."""
    word = (word & 0xFF) << 24 | (word & 0xFF00) << 8 | (word >> 8) & 0xFF00 | (word >> 24) & 0xFF
    return (word ^ _SIGN_32) - _SIGN_32


@cython.locals(
    count=cython.Py_ssize_t, block_count=cython.ulonglong, index=cython.Py_ssize_t, at=cython.Py_ssize_t,
    number=cython.longlong, key_hash=cython.longlong, offset=cython.longlong, seconds=cython.longlong,
    previous=cython.longlong, bits=cython.ulonglong, word=cython.Py_ssize_t, place=cython.Py_ssize_t,
    impossible=cython.longlong,
)  # fmt: skip
def add_entries(
    entries: cython.const[cython.uint][::1],
    first_number: cython.longlong,
    words: cython.uint[::1],
    facts: cython.longlong[::1],
) -> cython.longlong:
    """Adds entries to a filter, and to the facts about their times.

    Args:
        entries: as in the file, five big-endian words each.
        first_number: number of the first.
        words: the filter, eight words a block.
        facts: changed; of the entries behind number 1: the most seconds, the largest offset (bytes) of one that has 0
            seconds, and 1 where one has the most seconds there can be.

    Returns:
        The number of the first impossible entry, 0 if all are possible, -1 if an argument does not fit.
    """
    if not cython.compiled:
        entries, words, facts = memoryview(entries), memoryview(words), memoryview(facts)
    count = len(entries) // _ENTRY_WORDS
    block_count = len(words) // _BLOCK_WORDS
    if block_count == 0 or len(facts) < FACT_COUNT or first_number < 1:
        return -1
    impossible = 0
    with cython.nogil:
        for index in range(count):
            at = index * _ENTRY_WORDS
            number = first_number + index
            key_hash = _big_endian(entries[at])
            offset = _big_endian(entries[at + 1]) << 32 | (_big_endian(entries[at + 2]) & _LOW_32)
            seconds = _big_endian(entries[at + 3])
            previous = _big_endian(entries[at + 4])
            if key_hash < 0 or offset < 0 or seconds < 0 or previous < 0 or previous >= number:
                impossible = number
                break
            if number > 1:
                facts[0] = max(facts[0], seconds)
                if seconds == 0:
                    facts[1] = max(facts[1], offset)
                if seconds == _SECONDS_MAX:
                    facts[2] = 1
            bits = key_hash
            bits = bits + _GOLDEN & _LOW_64
            bits = (bits ^ (bits >> 30)) * _FACTOR_1 & _LOW_64
            bits = (bits ^ (bits >> 27)) * _FACTOR_2 & _LOW_64
            bits = bits ^ (bits >> 31)
            word = ((bits >> 32) * block_count >> 32) * _BLOCK_WORDS
            for place in range(_BLOCK_WORDS):
                words[word + place] |= _ONE << ((bits * _SALTS[place] & _LOW_WORD) >> 27)
    return impossible
