"""The key filter of an index file in one pass over its entries: the compiled twin of `index_summary.py`."""

import numpy as np
import numpy.typing as npt

from store.compiled.compiling import Number, compiled
from store.format.derived.index_layout import TIME_DIFF_SECONDS_MAX
from store.format.derived.index_summary import SALTS

Words = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]

ENTRY_WORD_COUNT = 5
BLOCK_WORD_COUNT = 8
FACT_COUNT = 3
_SECONDS_MAX = np.int64(TIME_DIFF_SECONDS_MAX)
_SALTS = np.array(SALTS, dtype=np.uint32)


@compiled
def _big_endian(word: Number) -> Number:
    """A word in the other byte order, signed."""
    return np.int64(
        np.int32(
            word << np.uint32(24)
            | (word & np.uint32(0xFF00)) << np.uint32(8)
            | (word >> np.uint32(8)) & np.uint32(0xFF00)
            | word >> np.uint32(24)
        )
    )


@compiled
def add_entries(entries: Words, first_number: Number, words: Words, facts: Int64s) -> Number:
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
    count = len(entries) // ENTRY_WORD_COUNT
    block_count = len(words) // BLOCK_WORD_COUNT
    if block_count == 0 or len(facts) < FACT_COUNT or first_number < 1:
        return -1
    for index in range(count):
        at = index * ENTRY_WORD_COUNT
        number = first_number + index
        key_hash = _big_endian(entries[at])
        offset = _big_endian(entries[at + 1]) << 32 | (_big_endian(entries[at + 2]) & 0xFFFFFFFF)
        seconds = _big_endian(entries[at + 3])
        previous = _big_endian(entries[at + 4])
        if key_hash < 0 or offset < 0 or seconds < 0 or previous < 0 or previous >= number:
            return number
        if number > 1:
            facts[0] = max(facts[0], seconds)
            if seconds == 0:
                facts[1] = max(facts[1], offset)
            if seconds == _SECONDS_MAX:
                facts[2] = 1
        bits = np.uint64(key_hash) + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
        block = ((bits >> np.uint64(32)) * np.uint64(block_count)) >> np.uint64(32)
        low = np.uint32(bits & np.uint64(0xFFFFFFFF))
        word = block * np.uint64(BLOCK_WORD_COUNT)
        for place in range(BLOCK_WORD_COUNT):
            bit = np.uint32(low * _SALTS[place]) >> np.uint32(27)
            words[word + np.uint64(place)] |= np.uint32(1) << bit
    return 0


def touch() -> None:
    """Compile what is called from outside."""
    entries = np.zeros(ENTRY_WORD_COUNT, dtype=np.uint32)
    entries.flags.writeable = False
    add_entries(entries, 1, np.zeros(BLOCK_WORD_COUNT, dtype=np.uint32), np.zeros(FACT_COUNT, dtype=np.int64))
