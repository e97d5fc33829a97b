"""Audits one index file: are its entries, chains, slots and header right for the keys of its entries?

`IndexFileState`, with which the index is built, gets the same keys in the same order and computes which bytes the file must
have. Each difference is reported. A chain has no cycle if each of its entries points to an older one, as the right ones do.
"""

import numpy as np

from store.audit.findings import Findings
from store.audit.index_entries import IndexFileOnDisk, Rows
from store.derive.index_state import ENTRY_DTYPE, IndexFileState, Ints, seconds_since
from store.format.derived.index_layout import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    entry_position,
    slot_position,
)
from store.readers.index_reader import IndexLayout

SLOT_PIECE_COUNT = 1 << 18
TOLD_PER_FILE_MAX = 100
_ENTRY_FIELDS = ("key_hash", "offset", "seconds", "previous")
_ENTRY_WORDS = ("key hash", "commit-log offset", "seconds", "previous entry")
_HEADER_WORDS = ("begin time", "end time", "begin offset", "end offset", "used slots", "entries + 1")


class IndexFileAudit:
    """Follows one file, entry by entry.

    Args:
        file: the file.
        layout: how it is divided.
        findings: gets what is wrong.
        before: the header that the file before must have; None for a store's first.
        before_on_disk: the header that the file before has; after a crash this file may have been started behind it.
        is_first: whether older files may have been removed by retention.
    """

    def __init__(
        self,
        file: IndexFileOnDisk,
        layout: IndexLayout,
        findings: Findings,
        *,
        before: IndexHeader | None,
        before_on_disk: IndexHeader | None,
        is_first: bool,
    ) -> None:
        self.file = file
        self._layout = layout
        self._findings = findings
        self._is_first = is_first
        self._told = 0
        self._end_is_known = True
        self._begin_is_known = True
        self._seeds = [seed for seed in (before, before_on_disk) if seed is not None]
        self.state = IndexFileState.behind(layout.slot_count, layout.entry_count_max, before)

    @property
    def header(self) -> IndexHeader:
        """The header that the file must have with the entries seen."""
        return self.state.header

    def accept(self, rows: Rows, hashes: Ints, offsets: Ints, times_millis: Ints | None) -> None:
        """The next entries, and what they must hold.

        Args:
            rows: the entries as in the file.
            hashes: of their keys.
            offsets: of their records (bytes of the log).
            times_millis: of their records; None if there is no record: then the seconds of the entries are used.
        """
        first = self.state.header.entry_count
        self._end_is_known = times_millis is not None
        if times_millis is None:
            if first <= 1:
                self._begin_is_known = False
            begin = self.file.header.begin_time_millis if first <= 1 else self.state.header.begin_time_millis
            times_millis = begin + rows["seconds"].astype(np.int64) * 1000
            if first <= 1 and len(times_millis):
                times_millis[0] = begin
        run = self.state.plan(hashes, offsets, times_millis)
        expected = np.frombuffer(run.data, dtype=ENTRY_DTYPE)
        if expected.tobytes() != rows[: run.count].tobytes():
            for row in np.flatnonzero(expected != rows[: run.count]):
                self._judge(first + int(row), rows[row], expected[row], int(times_millis[row]))
        self.state.commit(run)

    def finish(self) -> None:
        """Compares slots and header; call it when all entries were seen."""
        self._check_slots()
        self._check_header()
        if self._told > TOLD_PER_FILE_MAX:
            more = self._told - TOLD_PER_FILE_MAX
            self._findings.add(
                "INDEX_ENTRY_WRONG", self.file.path, HEADER_SIZE, f"{more} more entries or slots are wrong", count=more
            )

    def _judge(self, number: int, found: np.void, expected: np.void, time_millis: int) -> None:
        there = IndexEntry(*(int(found[name]) for name in _ENTRY_FIELDS))
        wanted = IndexEntry(*(int(expected[name]) for name in _ENTRY_FIELDS))
        seconds = there.time_diff_seconds
        if number == 1 and there == wanted._replace(time_diff_seconds=seconds) and self._may_seed(seconds, time_millis):
            return
        position = entry_position(number, self._layout.slot_count)
        if there.previous >= number:
            self._tell(
                "INDEX_CYCLE", position + 16, f"entry {number} points to entry {there.previous}, not to an older one", wanted
            )  # fmt: skip
            there = there._replace(previous=wanted.previous)
        elif there.previous != wanted.previous:
            self._tell(
                "INDEX_CHAIN_WRONG", position + 16,
                f"entry {number} points to entry {there.previous} instead of {wanted.previous}", wanted,
            )  # fmt: skip
            there = there._replace(previous=wanted.previous)
        words = [
            f"{word} {is_there} instead of {is_wanted}"
            for word, is_there, is_wanted in zip(_ENTRY_WORDS, there, wanted, strict=True)
            if is_there != is_wanted
        ]
        if words:
            self._tell("INDEX_ENTRY_WRONG", position, f"entry {number}: {', '.join(words)}", wanted)

    def _may_seed(self, seconds: int, time_millis: int) -> bool:
        """Whether the first entry may hold these seconds: they count from the end of the previous file, perhaps removed."""
        if self._is_first or not self._begin_is_known:
            return seconds >= 0
        time = np.array([time_millis])
        return any(seconds == int(seconds_since(seed.end_time_millis, time)[0]) for seed in self._seeds)

    def _check_slots(self) -> None:
        count = self._layout.slot_count
        for first in range(0, count, SLOT_PIECE_COUNT):
            size = min(SLOT_PIECE_COUNT, count - first)
            data = self.file.file.read(slot_position(first), size * SLOT_SIZE).ljust(size * SLOT_SIZE, b"\0")
            found = np.frombuffer(data, dtype=">i4")
            wanted = self.state.heads[first : first + size]
            for row in np.flatnonzero(found != wanted):
                self._tell(
                    "INDEX_SLOT_WRONG", slot_position(first + int(row)),
                    f"slot {first + int(row)} points to entry {int(found[row])} instead of {int(wanted[row])}", None,
                )  # fmt: skip

    def _check_header(self) -> None:
        found, wanted = self.file.header, self.state.header
        if wanted.entry_count <= 1 and found.entry_count in (0, 1):
            return  # the file has no entry yet
        if not self._begin_is_known:
            wanted = wanted._replace(
                begin_time_millis=found.begin_time_millis, begin_commit_log_offset=found.begin_commit_log_offset
            )
        if not self._end_is_known:
            wanted = wanted._replace(end_time_millis=found.end_time_millis)
        words = [
            f"{word} {is_there} instead of {is_wanted}"
            for word, is_there, is_wanted in zip(_HEADER_WORDS, found, wanted, strict=True)
            if is_there != is_wanted
        ]
        if words:
            self._findings.add("INDEX_HEADER_WRONG", self.file.path, 0, f"the header says {', '.join(words)}")
        data = self.file.file.read(entry_position(0, self._layout.slot_count), 20)
        if data.strip(b"\0"):
            self._findings.add(
                "INDEX_ENTRY_WRONG", self.file.path, entry_position(0, self._layout.slot_count),
                "entry 0, which is never used, has bytes",
            )  # fmt: skip

    def _tell(self, code: str, byte: int, what: str, wanted: IndexEntry | None) -> None:
        self._told += 1
        if self._told <= TOLD_PER_FILE_MAX or code == "INDEX_CYCLE":
            offset = wanted.commit_log_offset if wanted is not None else None
            self._findings.add(code, self.file.path, byte, what, commit_log_offset=offset)
