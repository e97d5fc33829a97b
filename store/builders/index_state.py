"""IndexFileState: what an index file holds and how each key changes it, without any file.

Edge rules, all from `IndexFile` of RocketMQ 5.3.3:
- Entry 0 is never used, so a file with room for M entries takes M - 1; the header counts entries + 1.
- A file is born with the end of the file before it as its begin and end. Its first entry therefore holds the seconds
  since the *previous* file's last message; only then does the header's begin become the first message. In the first
  file of a store the first entry holds 0.
- Seconds are truncated and clamped to [0, 2^31-1]: a clock that stepped back gives 0.
- A slot head that is 0, negative or above the header's count is no head.

The slot heads of one file are an int32 array (20 MB for 5,000,000 slots, touched lazily): the only table kept in
memory.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from store.format.index_layout import TIME_DIFF_SECONDS_MAX, IndexHeader

Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[np.int32]
# One entry as it lies in the file: hash, commit-log offset, seconds, previous entry; big-endian, 20 bytes.
ENTRY_DTYPE = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

assert ENTRY_DTYPE.itemsize == 20


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries that may become part of a file, and what they change there.

    Attributes:
        first_number: number of the first entry.
        count: how many entries.
        data: their bytes.
        slots: the slots whose head changes.
        heads: their new heads.
        header: the header with these entries.
    """

    first_number: int
    count: int
    data: bytes
    slots: Ints
    heads: Ints
    header: IndexHeader


class IndexFileState:
    """The header and slot heads of one index file being filled.

    Args:
        slot_count: hash slots of the file.
        entry_count_max: RocketMQ's maxIndexNum; one less entries fit.
        header: what the file says so far; see `seeded` for a new one.
        heads: the slot heads so far, taken over; None when all are 0.
    """

    def __init__(self, slot_count: int, entry_count_max: int, header: IndexHeader, heads: Heads | None = None) -> None:
        assert slot_count > 0, slot_count
        assert entry_count_max > 1, entry_count_max
        self.slot_count = slot_count
        self.entry_count_max = entry_count_max
        self.heads: Heads = np.zeros(slot_count, dtype=np.int32) if heads is None else heads
        self.header = header._replace(entry_count=max(header.entry_count, 1))

    @classmethod
    def seeded(
        cls, slot_count: int, entry_count_max: int, *, end_time_millis: int = 0, end_commit_log_offset: int = 0
    ) -> "IndexFileState":
        """A new file behind one that ended at that store time and offset; zeros for the first file of a store."""
        time_millis, offset = max(end_time_millis, 0), max(end_commit_log_offset, 0)
        return cls(slot_count, entry_count_max, IndexHeader(time_millis, time_millis, offset, offset, 0, 1))

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self.room <= 0

    @property
    def key_count(self) -> int:
        """Entries held."""
        return self.header.entry_count - 1

    def head(self, slot: int) -> int:
        """The newest entry of a slot, 0 for none."""
        head = int(self.heads[slot])
        return head if 0 < head < self.header.entry_count else 0

    @property
    def room(self) -> int:
        """Entries that still fit."""
        return self.entry_count_max - self.header.entry_count

    def commit(self, run: EntryRun) -> None:
        """Makes a planned run part of the file; to be called when its bytes are written."""
        assert run.first_number == self.header.entry_count, (run.first_number, self.header)
        self.heads[run.slots] = run.heads
        self.header = run.header

    def plan(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> EntryRun:
        """What as many of the keys as fit would write, in order; changes nothing.

        Args:
            hashes: key hashes (`index_layout.key_hash`).
            offsets: each key's commit-log offset.
            times_millis: each key's store time.
        """
        first = self.header.entry_count
        count = min(len(hashes), self.room)
        if count <= 0:
            none = np.empty(0, dtype=np.int64)
            return EntryRun(first, 0, b"", none, none, self.header)
        hashes, offsets, times_millis = hashes[:count], offsets[:count], times_millis[:count]
        slots = hashes % self.slot_count
        # Equal slots side by side, in entry order: each key's previous is its left neighbour, or the slot's head.
        order = np.argsort(slots, kind="stable")
        grouped = slots[order]
        opens = np.empty(count, dtype=bool)
        opens[0] = True
        np.not_equal(grouped[1:], grouped[:-1], out=opens[1:])
        heads = self.heads[grouped]
        heads[(heads <= 0) | (heads >= first)] = 0
        numbers = order + first
        neighbours = np.empty(count, dtype=np.int64)
        neighbours[0] = 0
        neighbours[1:] = numbers[:-1]
        grouped_previous = np.where(opens, heads, neighbours)
        closes = np.append(opens[1:], True)

        entries = np.empty(count, dtype=ENTRY_DTYPE)
        entries["key_hash"] = hashes
        entries["offset"] = offsets
        entries["seconds"] = self._seconds(times_millis, first)
        previous = np.empty(count, dtype=np.int64)
        previous[order] = grouped_previous
        entries["previous"] = previous

        header = self.header
        begin_time, begin_offset = header.begin_time_millis, header.begin_commit_log_offset
        if first <= 1:
            begin_time, begin_offset = int(times_millis[0]), int(offsets[0])
        grown = IndexHeader(
            begin_time,
            int(times_millis[-1]),
            begin_offset,
            int(offsets[-1]),
            header.used_slot_count + int(np.count_nonzero(opens & (heads == 0))),
            first + count,
        )
        return EntryRun(first, count, entries.tobytes(), grouped[closes], numbers[closes], grown)

    def _seconds(self, times_millis: Ints, first: int) -> Ints:
        begin = self.header.begin_time_millis
        seconds = _seconds_since(begin, times_millis)
        if first <= 1 and len(times_millis) > 1:
            # Only the first entry is measured from where the file before ended.
            seconds[1:] = _seconds_since(int(times_millis[0]), times_millis[1:])
        return seconds


def heads_from_entries(slot_count: int, entries: bytes, first_number: int, heads: Heads) -> int:
    """Lays the heads that a run of entries leaves behind.

    Args:
        slot_count: hash slots of the file.
        entries: the run's bytes.
        first_number: number of its first entry.
        heads: changed in place.

    Returns:
        how many of the slots had no head before.
    """
    columns = np.frombuffer(entries, dtype=ENTRY_DTYPE)
    slots = columns["key_hash"].astype(np.int64) % slot_count
    # The last entry of each slot wins; found from the right, since repeated positions in one assignment have no order.
    unique, from_right = np.unique(slots[::-1], return_index=True)
    opened = int(np.count_nonzero(heads[unique] == 0))
    heads[unique] = first_number + len(slots) - 1 - from_right
    return opened


def _seconds_since(begin_millis: int, times_millis: Ints) -> Ints:
    if begin_millis <= 0:
        return np.zeros(len(times_millis), dtype=np.int64)
    return np.clip((times_millis - begin_millis) // 1000, 0, TIME_DIFF_SECONDS_MAX)
