"""Makes the summary of an index file (`store/format/derived/index_summary.py`) from its entries, a run at a time.

The entries prove this about store times: the record of the first entry was stored at the header's begin. A record of
another entry with n seconds, 0 < n < largest, was stored in [begin + n s, begin + n s + 999 ms]. With 0 seconds it was
stored before begin + 1 s; if a clock stepped back, nothing says how long before. With the largest value it was stored at
that time or later. If entries with 0 seconds make the earliest time unknown, `unproven_offset` says up to which record the
log must be read to learn it.
"""

import numpy as np

from store.compiled import loading
from store.derive.index_state import ENTRY_DTYPE, Ints
from store.format.derived.index_layout import ENTRY_SIZE, TIME_DIFF_SECONDS_MAX, IndexHeader
from store.format.derived.index_summary import (
    BLOCK_WORD_COUNT,
    SALTS,
    TIME_UNKNOWN_EARLY,
    TIME_UNKNOWN_LATE,
    SummaryHeader,
    TimeSpan,
    block_count_of,
    encode_summary,
    index_header_crc,
)

KERNEL = "store.derive.index_summary_kernel"


class SummaryMaker:
    """Takes all entries of a sealed file, in order.

    Args:
        header: the file's.
    """

    def __init__(self, header: IndexHeader) -> None:
        self._header = header
        self._key_count = max(header.entry_count - 1, 0)
        self._next_number = 1
        self._words = np.zeros(block_count_of(self._key_count) * BLOCK_WORD_COUNT, dtype=np.uint32)
        # Of the entries behind the first: most seconds, last offset with 0 of them (-1: none), whether one has the most.
        self._facts = np.array([0, -1, 0], dtype=np.int64)

    def add(self, entries: bytes) -> int:
        """Takes a run of entries; returns the number of the first impossible one, 0 if all are possible."""
        assert not len(entries) % ENTRY_SIZE, len(entries)
        kernel = loading.load(KERNEL)
        if kernel is None:
            damaged = self._add_plainly(entries)
        else:
            words = np.frombuffer(entries, dtype=np.uint32)
            damaged = int(kernel.add_entries(words, self._next_number, self._words, self._facts))
            assert damaged >= 0, self._next_number
        self._next_number += len(entries) // ENTRY_SIZE
        return damaged

    @property
    def unproven_offset(self) -> int:
        """Offset (bytes) of the last record for which no earliest store time is proven; -1 if there is none."""
        return int(self._facts[1])

    def span(self) -> TimeSpan:
        """The store times that the entries prove."""
        header = self._header
        seconds, unproven, is_clamped = map(int, self._facts)
        if header.begin_time_millis <= 0:  # nothing was measured from it
            return TimeSpan(TIME_UNKNOWN_EARLY, TIME_UNKNOWN_LATE)
        begin = TIME_UNKNOWN_EARLY if unproven >= 0 else header.begin_time_millis
        end = header.begin_time_millis + (seconds * 1000 + 999 if self._key_count > 1 else 0)
        return TimeSpan(begin, TIME_UNKNOWN_LATE if is_clamped else end)

    def encode(self, span: TimeSpan) -> bytes:
        """The bytes of the summary file; call it when all entries are added."""
        assert self._next_number == self._key_count + 1, (self._next_number, self._key_count)
        header = SummaryHeader(
            index_header_crc(self._header),
            span.begin_millis,
            span.end_millis,
            self._header.begin_commit_log_offset,
            self._header.end_commit_log_offset,
            self._key_count,
            len(self._words) // BLOCK_WORD_COUNT,
        )
        return encode_summary(header, self._words.astype("<u4", copy=False).data.cast("B"))

    def _add_plainly(self, data: bytes) -> int:
        entries = np.frombuffer(data, dtype=ENTRY_DTYPE)
        numbers = np.arange(self._next_number, self._next_number + len(entries), dtype=np.int64)
        hashes, previous = entries["key_hash"].astype(np.int64), entries["previous"].astype(np.int64)
        seconds, offsets = entries["seconds"].astype(np.int64), entries["offset"].astype(np.int64)
        cannot_be = (hashes < 0) | (offsets < 0) | (seconds < 0) | (previous < 0) | (previous >= numbers)
        damaged = int(numbers[np.argmax(cannot_be)]) if cannot_be.any() else 0
        if damaged:
            kept = damaged - self._next_number
            hashes, seconds, offsets, numbers = hashes[:kept], seconds[:kept], offsets[:kept], numbers[:kept]
        self._learn(seconds[numbers > 1], offsets[numbers > 1])
        bits = _spread(hashes)
        blocks = (bits >> np.uint64(32)) * np.uint64(len(self._words) // BLOCK_WORD_COUNT) >> np.uint64(32)
        low = bits.astype(np.uint32)
        for place, salt in enumerate(SALTS):
            words = blocks.astype(np.int64) * BLOCK_WORD_COUNT + place
            masks = np.uint32(1) << (low * np.uint32(salt) >> np.uint32(27))
            np.bitwise_or.at(self._words, words, masks)
        return damaged

    def _learn(self, seconds: Ints, offsets: Ints) -> None:
        if len(seconds):
            self._facts[0] = max(self._facts[0], seconds.max())
            self._facts[1] = max(self._facts[1], offsets[seconds == 0].max(initial=-1))
            self._facts[2] |= bool((seconds == TIME_DIFF_SECONDS_MAX).any())


def _spread(hashes: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """`index_summary.spread` of many."""
    bits = hashes.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    spread: np.ndarray[tuple[int], np.dtype[np.uint64]] = bits ^ bits >> np.uint64(31)
    return spread
