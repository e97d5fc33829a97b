"""Audits the indexes: compares the entries of all files with the keys of the log's records.

Both come in log order, so the audit walks through both at the same time. Where they differ, it looks for the nearest
place at which they agree again, and reports what lies before it: wrong entries, keys without an entry, or entries without
a key. `IndexFileAudit` checks whether the chains, slots and header of each file are right for its entries.

RocketMQ 5.5.0 writes one entry more for each record with tags. Where the files have such entries, they are compared like keys;
where they have none, none is missing: `_pending` has the hashes of keys and tags, `_window` those that are compared.

After a crash RocketMQ writes the keys of the newest record a second time: that is reported, but not as an error. Entries
of records that the log no longer has cannot be compared; their order and chains are checked.

IndexFileAudit audits one index file: are its entries, chains, slots and header right for the keys of its entries?

`IndexFileState`, with which the index is built, gets the same keys in the same order and computes which bytes the file must
have. Each difference is reported. A chain has no cycle if each of its entries points to an older one, as the right ones do.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.audit.findings import Findings
from store.audit.index_files import EntryStream, IndexFileOnDisk, Rows, check_index_files, look_at
from store.derive.dispatch import DispatchRequest
from store.derive.index_keys import NO_TAGS, index_hashes, tags_hash
from store.derive.index_state import ENTRY_DTYPE, IndexFileState, Ints, seconds_since
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    entry_position,
    slot_position,
)
from store.format.paths import index_dir
from store.readers.index_reader import IndexLayout, list_index_files

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


Bools = npt.NDArray[np.bool_]
BUFFERED_KEY_COUNT = 65_536
LOOK_AHEAD_COUNT = 1024  # within so many keys or entries the two must agree again


class IndexAudit:
    """Compares the index files of a root with its log.

    Args:
        fs: the file system.
        root: the store root.
        layout: of the files; None if it cannot be found out: then the files are reported as unreadable.
        log_first_offset: the log's first byte. Entries that point before it cannot be compared.
        findings: gets what is wrong.
        resumes_at: offset (bytes) at which the builder of the index would continue; None if it is unknown.
        unflushed_from: name of the file that the builder had not flushed when it was killed, and which it will cut
            back; None if there is none.

    Attributes:
        entry_count: entries compared.
        key_count: keys of the log.
        file_count, total_bytes: files, and the length of all of them.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        layout: IndexLayout | None,
        log_first_offset: int,
        findings: Findings,
        *,
        resumes_at: int | None,
        unflushed_from: str | None,
    ) -> None:
        self.entry_count = 0
        self.key_count = 0
        self.layout = layout
        self._findings = findings
        self._log_first_offset = log_first_offset
        self._resumes_at = resumes_at
        self._unflushed_from = unflushed_from
        self._root = root
        self._directory = Path(index_dir(str(root)))
        self._lost: list[tuple[int, int]] = []
        self._hashes: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._are_tags: list[bool] = []
        none = np.empty(0, dtype=np.int64)
        self._pending: tuple[Ints, Ints, Ints, Bools] = (none, none, none, none.astype(bool))  # as below, tags as well
        self._window: tuple[Ints, Ints, Ints] = (none, none, none)  # keys not yet compared: hash, offset, store time
        self._compares_tags = False
        self._tag_count = 0
        self._last_offset = -1
        self._last_time = 0
        self._last_hashes: set[int] = set()
        self._twice = 0
        self._of_lost = 0
        self._missing: list[tuple[int, int, Path, int]] = []  # first offset, count, file, byte
        opened = OpenFiles(fs)
        paths = list_index_files(fs, root)
        self._files = [look_at(fs, opened, path, layout) for path in paths] if layout else []
        self.file_count = len(paths)
        self.total_bytes = sum(fs.stat_size(path) for path in paths)
        self._stream = EntryStream(self._files, layout or IndexLayout(1, 2))
        self._current: IndexFileAudit | None = None
        self._current_number = -1
        check_index_files(fs, root, layout, findings)

    def see(self, request: DispatchRequest) -> None:
        """See `log_audit.Observer`."""
        hashes = index_hashes(request)
        self._are_tags += [False] * len(hashes)
        of_tags = tags_hash(request)
        if of_tags != NO_TAGS:
            hashes.append(of_tags)
            self._are_tags.append(True)
        self._hashes += hashes
        self._offsets += [request.commit_log_offset] * len(hashes)
        self._times += [request.store_time_millis] * len(hashes)
        if len(self._hashes) >= BUFFERED_KEY_COUNT:
            self._see_buffered()

    def see_keys(self, hashes: Ints, offsets: Ints, times_millis: Ints, are_tags: Bools | None = None) -> None:
        """The next keys of the log: their hashes, commit-log offsets and store times; `are_tags`: which are tags."""
        if are_tags is None:
            are_tags = np.zeros(len(hashes), dtype=bool)
        self.key_count += int(np.count_nonzero(~are_tags))
        more = (hashes, offsets, times_millis, are_tags)
        joined = [np.concatenate(pair) for pair in zip(self._pending, more, strict=True)]
        self._pending = (joined[0], joined[1], joined[2], joined[3])
        self._cut_window()
        self._compare(is_end=False)

    def lose(self, begin_offset: int, end_offset: int) -> None:
        """See `log_audit.Observer`."""
        self._lost.append((begin_offset, end_offset))

    def finish(self, log_end_offset: int) -> None:
        """Compares the rest, and adds the findings."""
        self._see_buffered()
        self._compare(is_end=True)
        self._compare_tags(False)
        left = len(self._window[0])
        if left:
            self._miss(left)
        self._drop_surplus(log_end_offset)
        self._go_to(len(self._files))
        self._tell()

    # -- comparing keys and entries

    def _see_buffered(self) -> None:
        hashes, offsets, times = (np.array(new, dtype=np.int64) for new in (self._hashes, self._offsets, self._times))
        are_tags = np.array(self._are_tags, dtype=bool)
        self._hashes, self._offsets, self._times, self._are_tags = [], [], [], []
        self.see_keys(hashes, offsets, times, are_tags)

    def _compare_tags(self, compares: bool) -> None:
        """From here on entries of tags are expected, or not."""
        if compares != self._compares_tags:
            self._compares_tags = compares
            self._cut_window()

    def _cut_window(self) -> None:
        hashes, offsets, times, are_tags = self._pending
        kept = slice(None) if self._compares_tags else ~are_tags
        self._window = (hashes[kept], offsets[kept], times[kept])

    def _drop_pending(self, keys: int) -> None:
        """Drops the first keys of the window."""
        hashes, offsets, times, are_tags = self._pending
        count = keys
        if not self._compares_tags and keys:
            count = int(np.flatnonzero(~are_tags)[keys - 1]) + 1
        self._tag_count += int(np.count_nonzero(are_tags[:count])) if self._compares_tags else 0
        self._pending = (hashes[count:], offsets[count:], times[count:], are_tags[count:])
        self._window = (self._window[0][keys:], self._window[1][keys:], self._window[2][keys:])

    def _find_tags(self) -> bool:
        """Whether the first entry is one of tags that stand before the next key; then tags are compared from there on."""
        hashes, offsets, times, are_tags = self._pending
        keys = np.flatnonzero(~are_tags)
        stop = int(keys[0]) if len(keys) else len(are_tags)
        same = (hashes[:stop] == self._stream.hashes[0]) & (offsets[:stop] == self._stream.offsets[0])
        found = np.flatnonzero(same)
        if not len(found):
            return False
        at = int(found[0])
        self._pending = (hashes[at:], offsets[at:], times[at:], are_tags[at:])
        self._compare_tags(True)
        return True

    def _compare(self, *, is_end: bool) -> None:
        stream = self._stream
        while True:
            stream.fill(LOOK_AHEAD_COUNT)
            hashes, offsets, _ = self._window
            count = min(len(stream), len(hashes))
            if not count:
                if is_end and len(stream) and not self._compares_tags and self._find_tags():
                    continue
                return
            same = (stream.hashes[:count] == hashes[:count]) & (stream.offsets[:count] == offsets[:count])
            wrong = np.flatnonzero(~same)
            matched = int(wrong[0]) if len(wrong) else count
            if matched:
                self._accept(matched, matched)
                continue
            if not is_end and len(hashes) < LOOK_AHEAD_COUNT:
                return
            self._part()

    def _part(self) -> None:
        """The first entry does not belong to the first key: finds out why, and moves past it."""
        if self._compares_tags:
            self._compare_tags(False)
            return
        if self._find_tags():
            return
        stream = self._stream
        hashes, offsets, _ = self._window
        entry_hash, entry_offset = int(stream.hashes[0]), int(stream.offsets[0])
        if 0 <= entry_offset < self._log_first_offset and self._last_offset < self._log_first_offset:
            behind = np.flatnonzero(stream.offsets >= self._log_first_offset)
            self._accept(int(behind[0]) if len(behind) else len(stream), 0)
            return
        if entry_offset == self._last_offset and entry_hash in self._last_hashes:
            self._twice += 1
            self._accept(1, 0, time_millis=self._last_time)
            return
        if self._accept_lost():
            return
        size = min(len(stream), len(hashes), LOOK_AHEAD_COUNT)
        same = (stream.hashes[:size] == hashes[:size]) & (stream.offsets[:size] == offsets[:size])
        again = _first_pair(same)
        if again is not None:
            self._accept(again, again)
            return
        ahead = min(len(hashes), LOOK_AHEAD_COUNT)
        missing = np.flatnonzero((hashes[:ahead] == entry_hash) & (offsets[:ahead] == entry_offset))
        if len(missing):
            self._miss(int(missing[0]))
            return
        ahead = min(len(stream), LOOK_AHEAD_COUNT)
        surplus = np.flatnonzero((stream.hashes[:ahead] == hashes[0]) & (stream.offsets[:ahead] == offsets[0]))
        if len(surplus):
            self._surplus(int(surplus[0]), "no record of the log has such a key there")
            return
        is_rising = len(stream) < 3 or entry_offset <= stream.offsets[1] <= stream.offsets[2]
        if entry_offset > int(offsets[-1]) and is_rising:
            self._miss(len(hashes))
            return
        before = int(np.searchsorted(offsets, entry_offset))
        if is_rising and before > 0 and entry_offset > int(offsets[0]):
            self._miss(before)
            return
        self._accept(1, 1)

    def _accept(self, entries: int, keys: int, *, time_millis: int | None = None) -> None:
        """Takes entries from the stream, for as many keys, or for no key if `keys` is 0."""
        stream = self._stream
        hashes, offsets, times = self._window
        at = 0
        while at < entries:
            file_number = int(stream.file_numbers[at])
            stop = at + int(np.searchsorted(stream.file_numbers[at:entries], file_number, side="right"))
            self._go_to(file_number)
            assert self._current is not None
            rows = stream.rows[at:stop]
            if keys:
                self._current.accept(rows, hashes[at:stop], offsets[at:stop], times[at:stop])
            else:
                known = None if time_millis is None else np.full(stop - at, time_millis, dtype=np.int64)
                # A negative hash has no slot; the entry is reported as surplus.
                self._current.accept(rows, np.abs(stream.hashes[at:stop]), stream.offsets[at:stop], known)
            at = stop
        self.entry_count += entries
        if keys:
            last = int(offsets[keys - 1])
            same = slice(int(np.searchsorted(offsets[:keys], last)), keys)
            if last != self._last_offset:
                self._last_hashes = set()
            self._last_hashes.update(map(int, hashes[same]))
            self._last_offset, self._last_time = last, int(times[keys - 1])
            self._drop_pending(keys)
        stream.drop(entries)

    def _accept_lost(self) -> bool:
        """Takes the next entries that point into a damaged part of the log; returns whether there were any."""
        offsets = self._stream.offsets
        for begin, end in self._lost:
            if begin <= offsets[0] < end:
                others = np.flatnonzero((offsets < begin) | (offsets >= end))
                count = int(others[0]) if len(others) else len(offsets)
                self._of_lost += count
                self._accept(count, 0)
                return True
        return False

    def _miss(self, keys: int) -> None:
        """The first keys have no entry."""
        _, offsets, _ = self._window
        path, byte = self._place()
        if self._missing and self._missing[-1][2:] == (path, byte):
            first, count, _, _ = self._missing[-1]
            self._missing[-1] = (first, count + keys, path, byte)
        else:
            self._missing.append((int(offsets[0]), keys, path, byte))
            if len(self._missing) > BUFFERED_KEY_COUNT:
                self._tell_missing(is_end=False)
        self._drop_pending(keys)

    def _surplus(self, entries: int, why: str) -> None:
        """The first entries have no key."""
        path, byte = self._place()
        offset = int(self._stream.offsets[0])
        first = int(self._stream.numbers[0])
        names = f"entry {first}" if entries == 1 else f"{entries} entries from {first} on"
        self._findings.add(
            "INDEX_SURPLUS_ENTRIES", path, byte, f"{names}: pointing to {offset}, {why}",
            commit_log_offset=offset, count=entries,
        )  # fmt: skip
        self._accept(entries, 0)

    def _drop_surplus(self, log_end_offset: int) -> None:
        stream = self._stream
        while True:
            stream.fill(LOOK_AHEAD_COUNT)
            if not len(stream):
                return
            offset = int(stream.offsets[0])
            if 0 <= offset < self._log_first_offset and self._last_offset < self._log_first_offset:
                self._accept(1, 0)
            elif offset == self._last_offset and int(stream.hashes[0]) in self._last_hashes:
                self._twice += 1
                self._accept(1, 0, time_millis=self._last_time)
            elif not self._accept_lost():
                of_this = stream.file_numbers == stream.file_numbers[0]
                count = int(np.count_nonzero(of_this))
                self._surplus(count, "behind the log's end" if offset >= log_end_offset else "no record has such a key")

    def _place(self) -> tuple[Path, int]:
        """The file and byte of the first entry of the window, or of the entry that is missing there."""
        assert self.layout is not None or not self._files
        self._stream.fill(1)
        if self.layout is None or not self._files:
            return self._directory, 0
        if len(self._stream):
            file = self._files[int(self._stream.file_numbers[0])]
            return file.path, entry_position(int(self._stream.numbers[0]), self.layout.slot_count)
        file = self._files[-1]
        return file.path, entry_position(file.entry_count, self.layout.slot_count)

    # -- files

    def _go_to(self, number: int) -> None:
        """Finishes the files before this number and begins the file with it."""
        while self._current_number < number:
            before: IndexHeader | None = None
            before_on_disk: IndexHeader | None = None
            if self._current is not None:
                if self._is_unflushed(self._current.file):
                    self._findings.add(
                        "INDEX_UNFLUSHED", self._current.file.path, 0,
                        "its owner was killed while it filled this file: slots and header were not compared",
                    )  # fmt: skip
                else:
                    self._current.finish()
                before, before_on_disk = self._current.header, self._current.file.header
            self._current_number += 1
            self._current = None
            if self._current_number < len(self._files):
                assert self.layout is not None
                self._current = IndexFileAudit(
                    self._files[self._current_number], self.layout, self._findings,
                    before=before, before_on_disk=before_on_disk,
                    is_first=self._current_number == 0 and self._log_first_offset > 0,
                )  # fmt: skip

    def _is_unflushed(self, file: IndexFileOnDisk) -> bool:
        return self._unflushed_from is not None and file.path.name >= self._unflushed_from

    # -- reporting

    def _tell(self) -> None:
        self._tell_missing(is_end=True)
        if self._twice:
            self._findings.add(
                "INDEX_KEYS_TWICE",
                self._directory,
                0,
                f"{self._twice} entries repeat a key of their record",
                count=self._twice,
            )
        if self._tag_count:
            tell_tag_entries(self._findings, self._root, self._tag_count)
        if self._of_lost:
            self._findings.add(
                "INDEX_ENTRIES_OF_DAMAGED_RECORDS", self._directory, 0,
                f"{self._of_lost} entries point into damaged parts of the log", count=self._of_lost,
            )  # fmt: skip

    def _tell_missing(self, *, is_end: bool) -> None:
        for at, (offset, count, path, byte) in enumerate(self._missing):
            is_last = is_end and at == len(self._missing) - 1 and not len(self._stream)
            is_behind = is_last and self._resumes_at is not None and offset >= self._resumes_at
            keys = "a key" if count == 1 else f"{count} keys"
            self._findings.add(
                "INDEX_BEHIND_LOG" if is_behind else "INDEX_MISSING_KEYS", path, byte,
                f"{keys} of the record at {offset}{'' if count == 1 else ' and behind it'} should follow here",
                commit_log_offset=offset, count=count,
            )  # fmt: skip
        self._missing.clear()


def _first_pair(same: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    """The first place from 1 on where two neighbours agree, or one at the very end; None without one."""
    pairs = same[1:-1] & same[2:]
    found = np.flatnonzero(pairs)
    if len(found):
        return int(found[0]) + 1
    return len(same) - 1 if len(same) > 1 and same[-1] else None


def tell_tag_entries(findings: Findings, root: Path, count: int) -> None:
    """Adds the finding that so many entries of an index are of tags."""
    findings.add(
        "INDEX_ENTRIES_OF_TAGS", Path(index_dir(str(root))), 0, f"{count} entries are of tags", count=count
    )  # fmt: skip
