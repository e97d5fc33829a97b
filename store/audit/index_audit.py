"""Audits the indexes: compares the entries of all files with the keys of the log's records.

Both come in log order, so the audit walks through both at the same time. Where they differ, it looks for the nearest
place at which they agree again, and reports what lies before it: wrong entries, keys without an entry, or entries without
a key. `index_file_audit.py` checks whether the chains, slots and header of each file are right for its entries.

RocketMQ 5.5.0 writes one entry more for each record with tags. Where the files have such entries, they are compared like keys;
where they have none, none is missing: `_pending` has the hashes of keys and tags, `_window` those that are compared.

After a crash RocketMQ writes the keys of the newest record a second time: that is reported, but not as an error. Entries
of records that the log no longer has cannot be compared; their order and chains are checked.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.audit.findings import Findings
from store.audit.index_entries import EntryStream, IndexFileOnDisk, look_at
from store.audit.index_file_audit import IndexFileAudit
from store.audit.index_files import check_index_files
from store.derive.dispatch import DispatchRequest
from store.derive.index_keys import index_hashes, tags_hash
from store.derive.index_state import Ints
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import IndexHeader, entry_position
from store.format.paths import index_dir
from store.readers.index_reader import IndexLayout, list_index_files

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

    def see(self, request: DispatchRequest, tags: str = "") -> None:
        """See `log_audit.Observer`."""
        hashes = index_hashes(request)
        self._are_tags += [False] * len(hashes)
        of_tags = tags_hash(request, tags)
        if of_tags is not None:
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
            self._findings.add(
                "INDEX_ENTRIES_OF_TAGS", self._directory, 0,
                f"{self._tag_count} entries are of tags", count=self._tag_count,
            )  # fmt: skip
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
