"""The entries of an index file: how each key changes the file. It knows no file.

Rules, from `IndexFile` of RocketMQ 5.3.3:
- Entry 0 is never used, so a file with maxIndexNum M takes M - 1 entries; the header counts entries + 1.
- A new file starts with the end of the file before it as its begin and end. So its first entry holds the seconds since
  the last record of the file *before*; then the header's begin becomes the first record of this file. In the first file
  of a store the first entry holds 0.
- Seconds are rounded down and limited to [0, 2^31-1]. A clock that stepped back gives 0.
- An entry's `previous` is its slot's head before it. A head that is 0, negative or not below the header's count means
  that the slot is empty.

`index_fill_kernel.py` is the compiled twin of `plan` and `commit`. The heads of one file are an int32 array (20 MB for
5,000,000 slots), the only table that is kept in memory.

index_file_count: how the index entries of a log are divided into files.

Rules, from `IndexService` of RocketMQ 5.3.3:
- A file takes one entry less than its maxIndexNum, because entry 0 is never used.
- The next file is created by the next *record* after the newest file is full, also by a record without keys. The first
  record of a store creates the first file in the same way.
- The entries of one record may lie in two files.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from store.format.derived.index_layout import ENTRY_SIZE, TIME_DIFF_SECONDS_MAX, IndexHeader


def entries_per_file(entry_count_max: int) -> int:
    """Entries that fit into a file; `entry_count_max` is RocketMQ's maxIndexNum."""
    return entry_count_max - 1


def is_followed(last_record_offset: int, last_key_offset: int) -> bool:
    """Whether a record without keys follows the last record with keys.

    Args:
        last_record_offset: where the log's last record starts (bytes); -1 if there is none.
        last_key_offset: where the last record with keys starts (bytes); -1 if there is none.
    """
    return last_record_offset > last_key_offset


def index_file_count(entry_count: int, entry_count_max: int, *, is_followed: bool) -> int:
    """How many files the entries of a whole log make.

    Args:
        entry_count: of the log.
        entry_count_max: RocketMQ's maxIndexNum.
        is_followed: whether a record without keys follows the last record with keys.
    """
    per_file = entries_per_file(entry_count_max)
    file_count = -(-entry_count // per_file)
    is_full = entry_count == file_count * per_file
    return file_count + (is_full and is_followed)


Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[np.int32]
# One entry as in the file: hash, commit-log offset, seconds, previous entry; big-endian, 20 bytes.
ENTRY_DTYPE = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

assert ENTRY_DTYPE.itemsize == ENTRY_SIZE


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries to be added to a file, and what they change there.

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
        header: of the file; see `seeded` for a new file.
        heads: the slot heads, changed in place; None if all are 0.
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
        """A new file behind one whose last entry has this store time and offset; zeros for the first of a store."""
        time_millis, offset = max(end_time_millis, 0), max(end_commit_log_offset, 0)
        return cls(slot_count, entry_count_max, IndexHeader(time_millis, time_millis, offset, offset, 0, 1))

    @classmethod
    def behind(cls, slot_count: int, entry_count_max: int, before: IndexHeader | None) -> "IndexFileState":
        """A new file behind one with this header; None for the first of a store."""
        if before is None:
            return cls.seeded(slot_count, entry_count_max)
        return cls.seeded(
            slot_count,
            entry_count_max,
            end_time_millis=before.end_time_millis,
            end_commit_log_offset=before.end_commit_log_offset,
        )

    @property
    def key_count(self) -> int:
        """Entries held."""
        return self.header.entry_count - 1

    def head(self, slot: int) -> int:
        """The number of the newest entry of a slot; 0 if there is none."""
        head = int(self.heads[slot])
        return head if 0 < head < self.header.entry_count else 0

    @property
    def room(self) -> int:
        """Entries that still fit."""
        return self.entry_count_max - self.header.entry_count

    def commit(self, run: EntryRun) -> None:
        """Adds a planned run to the state; call it when the run's bytes are written."""
        assert run.first_number == self.header.entry_count, (run.first_number, self.header)
        self.heads[run.slots] = run.heads
        self.header = run.header

    def plan(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> EntryRun:
        """The entries of the keys, in order, as many as fit; changes nothing.

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
        # Sort by slot, keeping the entry order: `previous` is the left neighbour in the same slot, or the slot's head.
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
        seconds = seconds_since(begin, times_millis)
        if first <= 1 and len(times_millis) > 1:
            # Only the first entry counts from the end of the file before.
            seconds[1:] = seconds_since(int(times_millis[0]), times_millis[1:])
        return seconds


def heads_from_entries(slot_count: int, entries: bytes, first_number: int, heads: Heads) -> int:
    """Sets the heads to what they are behind a run of entries.

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
    # The last entry of each slot wins. numpy gives no order for repeated indexes, so search from the right.
    unique, from_right = np.unique(slots[::-1], return_index=True)
    opened = int(np.count_nonzero(heads[unique] == 0))
    heads[unique] = first_number + len(slots) - 1 - from_right
    return opened


def heads_before_entries(slot_count: int, entries: bytes, entry_count: int, heads: Heads) -> None:
    """Undoes what a run of entries did to the heads: the first entry of each slot says in `previous` what the head was.

    Args:
        slot_count: hash slots of the file.
        entries: the run's bytes, maybe damaged.
        entry_count: the header's count before the run.
        heads: changed in place.
    """
    columns = np.frombuffer(entries, dtype=ENTRY_DTYPE, count=len(entries) // ENTRY_SIZE)
    is_first = (columns["previous"] < entry_count) & (columns["key_hash"] >= 0)
    slots = columns["key_hash"][is_first].astype(np.int64) % slot_count
    heads[slots] = columns["previous"][is_first]


def seconds_since(begin_millis: int, times_millis: Ints) -> Ints:
    """What entries hold of their store times, in a file whose seconds count from `begin_millis`; 0 if that is unknown."""
    if begin_millis <= 0:
        return np.zeros(len(times_millis), dtype=np.int64)
    return np.clip((times_millis - begin_millis) // 1000, 0, TIME_DIFF_SECONDS_MAX)
