"""All index files of a root, oldest first; only the newest is being filled.

`store/derive/index_state.py` says when the next file begins. Names are wall-clock times, yyyyMMddHHmmssSSS, as in
`IndexService` of RocketMQ 5.3.3; a name that would not be the newest is moved up by milliseconds.

`search_key` searches the index for a key, one page at a time. The cursor is a commit-log offset: a page holds candidates with
smaller offsets, strictly falling. So the cursor stays valid when files are added or removed, and it tells the caller nothing
that the page before did not tell.
"""

import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from index_svc.index_file import IndexFile
from index_svc.index_summaries import IndexSummaries
from index_svc.unexplained import ALL, Keeper
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import Ints, is_followed
from store.errors import InvalidArgumentError, InvalidPageTokenError, StoreCorruptedError, StoreError
from store.files.checksums import ChecksumTable, Extent
from store.files.file_system import FileSystem, drop_cached_pages
from store.files.open_files import OpenFiles, make_way
from store.format.derived.index_layout import HEADER_SIZE, IndexHeader, encode_index_header, index_key, key_hash
from store.format.paths import index_dir, index_file_name, own_state_dir
from store.readers.index_reader import TIME_MILLIS_MAX, IndexFileView, IndexLayout, Walk, list_index_files, search_views

WRITE_KEY_COUNT = 65_536
DAMAGED = "it is damaged, and is built again"


class Seal(NamedTuple):
    """The contents that a sealed file must have: checksums, header, and keys of its first record in files before."""

    extents: tuple[Extent, ...]
    header: IndexHeader
    skipped_count: int


class IndexFileSet:
    """The index files of a root. One thread writes, any may search.

    Args:
        root: the store root.
        fs: the file system.
        layout: how the files are divided.
        clock_millis: wall clock, for names.
        summaries: makes the summaries of sealed files, and is closed with the set; None: there are none.
        checksums: of the sealed files; None: there are none.
        keeper: judges files that must be built again, and keeps those that are not ours and that the log does not explain;
            None: nothing is kept.

    A sealed file is one that is not written any more: all but the newest.

    Attributes:
        generation: how often files that end an index were removed, to be built again.
        live: the newest file; None before the first record.
        applied_offset: the record whose keys were written last (bytes); -1 for none.
        applied_key_count: how many of its keys are written.
        seals: of files that were sealed since the start, until they are taken from here.
    """

    def __init__(
        self,
        root: Path,
        fs: FileSystem,
        layout: IndexLayout,
        clock_millis: Callable[[], int],
        *,
        summaries: IndexSummaries | None = None,
        checksums: ChecksumTable | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.keeper = keeper or Keeper()
        self.fs = fs
        self.layout = layout
        self.live: IndexFile | None = None
        self.applied_offset = -1
        self.applied_key_count = 0
        self._tags_from: int | None = None
        self.files = OpenFiles(fs)
        self.generation = 0
        self.summaries = summaries
        self.checksums = checksums
        self.seals: dict[Path, Seal] = {}
        self._root = root
        self.directory = Path(index_dir(str(root)))
        self._rebuild_folder = Path(own_state_dir(str(root), "index")) / "rebuild"
        self._clock_millis = clock_millis
        self._sealed: list[IndexFileView] = []
        self._sealed_key_count = 0
        self._header_crcs: dict[Path, int] = {}

    @property
    def tags_from(self) -> int | None:
        """From this offset (bytes) on records have an entry for their tags, as in RocketMQ 5.5.0; None: none is written."""
        return self._tags_from

    @tags_from.setter
    def tags_from(self, offset: int | None) -> None:
        self._tags_from = offset
        self.keeper.has_tags = offset is not None

    def paths(self) -> list[Path]:
        """The files on the disk, oldest first."""
        return list_index_files(self.fs, self._root)

    def has_full_length(self, path: Path) -> bool:
        """Whether a file is as long as the layout says."""
        return self.fs.stat_size(path) == self.layout.file_size_bytes

    def drop_cache(self) -> None:
        """Drops the files from the page cache, so that they are read from the disk: a flush failed before."""
        drop_cached_pages(self.fs, self.paths())

    def views(self) -> list[IndexFileView]:
        """All files to search in, oldest first."""
        live = self.live
        sealed = list(self._sealed)
        return sealed if live is None else [*(view for view in sealed if view.path != live.path), live.view()]

    def is_sealed(self, view: IndexFileView) -> bool:
        """Whether a file is one of the sealed files."""
        return view in self._sealed

    def sealed_views(self) -> list[IndexFileView]:
        """The sealed files, oldest first."""
        return list(self._sealed)

    @property
    def key_count(self) -> int:
        """Keys in all files."""
        return self._sealed_key_count + (self.live.state.key_count if self.live else 0)

    def adopt_sealed(self, paths: Sequence[Path], damaged: Collection[Path] = ()) -> None:
        """Takes over sealed files; those that are damaged have their header in the checksums."""
        self._sealed = [IndexFileView(self.files, path, self.layout) for path in paths]
        for view in self._sealed:
            view.known_header = self.sealed_header(view.path)
            view.is_doubtful = view.path in damaged
        self._sealed_key_count = sum(max(view.header().entry_count - 1, 0) for view in self._sealed)
        if self.summaries is not None:
            self.summaries.want(self._sealed)

    def sealed_header(self, path: Path) -> IndexHeader | None:
        """The header of a sealed file as its checksum notes it; None without one."""
        row = self.checksums.get(path.name) if self.checksums is not None else None
        count = len(IndexHeader._fields)
        return IndexHeader._make(row.note[:count]) if row is not None and len(row.note) > count else None

    def restore_room(self, path: Path, header: IndexHeader) -> None:
        """Gives a damaged or missing sealed file its full length; its header is known."""
        self.files.create(path, self.layout.file_size_bytes)
        self._header_crcs[path] = zlib.crc32(encode_index_header(header))

    def keys_before(self, path: Path, offset: int) -> int:
        """How many keys of the record at an offset lie in the sealed files before one."""
        count = 0
        for view in reversed([view for view in self._sealed if view.path.name < path.name]):
            header = view.header()
            found = IndexFile.trailing_count(view, header) if header.end_commit_log_offset == offset else 0
            count += found
            if found < header.entry_count - 1:
                break
        return count

    def header_before(self, view: IndexFileView) -> IndexHeader | None:
        """The header of the file before a sealed one; None for the first."""
        at = self._sealed.index(view)
        return self._sealed[at - 1].header() if at else None

    def rebuild_path(self, name: str) -> Path:
        """The path at which a file is made again, before it takes its place."""
        return self._rebuild_folder / name

    def empty_rebuild_folder(self) -> None:
        """Removes what a stopped rebuild left: up to a file's size for each."""
        for name in self.fs.listdir(self._rebuild_folder):
            self.fs.unlink(self._rebuild_folder / name)

    def replace_sealed(self, view: IndexFileView, made: IndexFile, *, is_equal: bool) -> None:
        """Puts a file that was made again, and is on the disk, into the place of a sealed one.

        Args:
            view: the sealed file.
            made: the other.
            is_equal: it has all that the sealed file had before it was damaged; otherwise the keeper is asked.
        """
        self.fs.mkdirs(self.directory)
        if not is_equal and self.fs.is_file(view.path):
            self.keeper.move(self.files, view.path, self.layout, DAMAGED)
        make_way(self.files.fs, view.path)
        self.fs.rename(made.path, view.path)
        self.fs.fsync_dir(self.directory)
        self.files.forget(made.path)
        self.files.forget(view.path)
        self.keeper.own_counts[view.path.name] = ALL
        self._header_crcs[view.path] = zlib.crc32(encode_index_header(made.state.header))
        view.is_doubtful = False
        if self.summaries is not None:
            # Made from the file that was damaged, perhaps.
            self.summaries.forget(view.path)
            view.summary = None
            self.summaries.want([view], made.time_span)

    def reopen_last(self) -> IndexFile | None:
        """The last sealed file, to be followed on; None when its header and slots are not certainly those of its checksum."""
        last = self._sealed[-1] if self._sealed else None
        row = self.checksums.get(last.path.name) if last is not None and self.checksums is not None else None
        if last is None or row is None or len(row.extents) != 2 or last.is_doubtful or not last.exists():
            return None
        head, entries = row.extents
        if zlib.crc32(self.files.get(last.path).read(head.position, head.size_bytes)) != head.crc:
            return None
        full = IndexFile.reopen(self.files, last.path, self.layout, last.header())
        full.entries = (full.entries[0], entries.crc)
        return full

    def drop_live(self, full: IndexFile) -> None:
        """Removes the newest file, which is to be filled again behind the last sealed one, as `reopen_last` gave it."""
        assert self.live is not None
        path, end_offset = self.live.path, full.state.header.end_commit_log_offset
        count = self.keys_before(path, end_offset)
        self.generation += 1
        self.adopt_live(full, end_offset, count)
        self._sealed = self._sealed[:-1]
        self._sealed_key_count -= full.state.key_count
        self.remove([path], DAMAGED)

    def adopt_live(self, live: IndexFile | None, applied_offset: int, applied_key_count: int) -> None:
        """Takes over the newest file, and which keys were written last; see the attributes."""
        self.live = live
        self.applied_offset = applied_offset
        self.applied_key_count = applied_key_count

    def remove(self, paths: Sequence[Path], why_aside: str = "") -> None:
        """Removes files that are to be built again, or that expired.

        Args:
            paths: the files.
            why_aside: why they leave their place, for those that the keeper keeps; empty: they are ours, and the log gives
                all of their entries again.
        """
        for path in paths:
            self.files.forget(path)
            self._header_crcs.pop(path, None)
            self.seals.pop(path, None)
            if self.checksums is not None:
                self.checksums.remove(path.name)
            with suppress(FileNotFoundError):
                if not why_aside or not self.keeper.move(self.files, path, self.layout, why_aside):
                    self.fs.unlink(path)
            self.files.forget(path)
            self.keeper.own_counts.pop(path.name, None)
            if self.summaries is not None:
                self.summaries.forget(path)
        if paths:
            self.fs.fsync_dir(self.directory)

    def marks(self) -> list[tuple[str, int]]:
        """Name and CRC-32 of the header of each file, oldest first; 0 for the newest, because its header changes."""
        live = self.live
        sealed = [(view.path.name, self._mark_of(view)) for view in self._sealed]
        return sealed if live is None else [*sealed, (live.path.name, 0)]

    def own_counts(self) -> dict[str, int]:
        """How many entries of each file Reput wrote alone, from the first on; see `Keeper`."""
        live, counts = self.live, self.keeper.own_counts
        names = [view.path.name for view in self._sealed]
        rows = {name: counts[name] for name in names if name in counts}
        if live is not None and live.path.name in counts:
            rows[live.path.name] = min(counts[live.path.name], live.state.header.entry_count)
        return rows

    def _mark_of(self, view: IndexFileView) -> int:
        known = view.known_header
        return zlib.crc32(encode_index_header(known)) if known is not None else self.header_crc(view.path)

    def header_crc(self, path: Path) -> int:
        """CRC-32 of the header of a sealed file; read once."""
        if path not in self._header_crcs:
            self._header_crcs[path] = zlib.crc32(self.files.get(path).read(0, HEADER_SIZE))
        return self._header_crcs[path]

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files that end before the log's first record out of the set, at most so many, never the newest.

        Remove them (`remove`) when a checkpoint without them is written.
        """
        expired = []
        for view in self._sealed[:file_count_max]:
            header = view.header()
            # A sealed file without entries has a damaged header, which says nothing.
            if header.entry_count <= 1 or header.end_commit_log_offset >= log_first_offset:
                break
            expired.append(view.path)
            self._sealed_key_count -= max(header.entry_count - 1, 0)
        self._sealed = self._sealed[len(expired) :]
        return expired

    def clear(self, why_aside: str = "") -> None:
        """Removes all files; `why_aside`: see `remove`."""
        self.generation += 1
        self.live = None
        self._sealed = []
        self._sealed_key_count = 0
        self.applied_offset, self.applied_key_count = -1, 0
        self.remove(self.paths(), why_aside)

    def apply(self, columns: DispatchColumns) -> None:
        """Indexes records, given in log order; keys that were applied already are skipped."""
        columns = columns.behind(self.applied_offset)
        if self.tags_from is not None:
            columns = columns.with_tags()
        hashes = columns.key_hashes.astype(np.int64)
        offsets = columns.commit_log_offsets[columns.key_records]
        times_millis = columns.store_times_millis[columns.key_records]
        begin = 0
        record_count = len(columns)
        if record_count and int(columns.commit_log_offsets[0]) == self.applied_offset:
            key_count = int(np.searchsorted(columns.key_records, 1))
            begin = min(self.applied_key_count, key_count)
            record_count -= begin == key_count  # all of its keys are applied
        if not record_count:
            return
        if self._room <= 0:
            self._roll()
        while begin < len(hashes):
            if self._room <= 0:
                self._roll()
            end = min(begin + self._room, begin + WRITE_KEY_COUNT, len(hashes))
            self._write(hashes[begin:end], offsets[begin:end], times_millis[begin:end])
            begin = end
        last_key_offset = int(offsets[-1]) if len(offsets) else -1
        if self._room <= 0 and is_followed(int(columns.commit_log_offsets[-1]), last_key_offset):
            self._roll()

    def flush(self) -> None:
        """Brings everything applied to the disk.

        Raises:
            FlushFailedError: the disk refused.
        """
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """A function that flushes everything applied so far; any thread may call it while more is applied."""
        return self.live.prepare_flush() if self.live is not None else lambda: None

    def close(self) -> None:
        """Closes all files."""
        if self.summaries is not None:
            self.summaries.close()
        self.files.close()

    @property
    def _room(self) -> int:
        """Entries that still fit into the newest file; 0 if there is none."""
        return self.live.state.room if self.live is not None else 0

    def _write(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> None:
        assert self.live is not None
        count = self.live.put(hashes, offsets, times_millis)
        assert count == len(hashes), (count, len(hashes))
        last = int(offsets[-1])
        of_last = count - int(np.searchsorted(offsets, last))
        self.applied_key_count = of_last + (self.applied_key_count if last == self.applied_offset else 0)
        self.applied_offset = last

    def _roll(self) -> None:
        """Begins the next file."""
        before: IndexHeader | None = None
        full = self.live
        if full is not None:
            full.flush()
            before = full.state.header
        path = self._next_path()
        try:
            live = IndexFile.create(self.files, path, self.layout, before)
            self.fs.fsync_dir(self.directory)
        except BaseException:
            # The next try uses a new name, so the half-made file must go.
            with suppress(OSError, StoreError):
                if self.fs.exists(path):
                    self.remove([path])
            raise
        if full is not None:
            view = IndexFileView(self.files, full.path, self.layout)
            skipped_count = self.keys_before(full.path, before.begin_commit_log_offset) if before is not None else 0
            view.is_doubtful, view.known_header = full.is_doubtful, before
            if self.checksums is not None:
                self.seals[full.path] = Seal(full.extents(sealed=True), full.state.header, skipped_count)
            self._sealed.append(view)
            self._sealed_key_count += full.state.key_count
            if self.summaries is not None:
                self.summaries.want([view], full.time_span)
        self.live = live
        self.keeper.own_counts[path.name] = ALL

    def _next_path(self) -> Path:
        name = index_file_name(self._clock_millis())
        paths = self.paths()
        if paths and name <= paths[-1].name:
            name = _name_behind(paths[-1].name)
        return self.directory / name


def _name_behind(last: str) -> str:
    """The next name that sorts behind `last`; digits that are no date are counted up by 1."""
    try:
        moment = datetime.strptime(last[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(last[14:]) + 1)
    except (ValueError, OverflowError):
        if not last.strip("9"):
            raise StoreCorruptedError(
                f"no name sorts behind {last}: rename that index file to the time it was made", file=last, offset=0
            ) from None
        return f"{int(last) + 1:0{len(last)}d}"
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Candidates, and how they were found.

    Attributes:
        commit_log_offsets: where they start (bytes), strictly falling.
        next_page_token: of the next page; empty if there is none.
        key_hash: hash of `topic#key`.
        walk: what the search read.
    """

    commit_log_offsets: list[int]
    next_page_token: str
    key_hash: int
    walk: Walk

    @property
    def damaged_chain_count(self) -> int:
        """Damaged chains that the search found."""
        return self.walk.damaged_chain_count


def search_key(
    files: IndexFileSet,
    topic: str,
    key: str,
    *,
    begin_millis: int | None = None,
    end_millis: int | None = None,
    page_size: int = 0,
    page_token: str = "",
    explain: bool = False,
) -> KeyPage:
    """One page of candidates for a key, newest first.

    Args:
        files: the index.
        topic: topic name.
        key: a business key or a unique key, whole.
        begin_millis: only records that may be stored at or after this; None for no limit.
        end_millis: only records that may be stored at or before this; None for no limit.
        page_size: candidates of a page; 0 = 64, more than 1,000 = 1,000.
        page_token: from the page before.
        explain: also note what the search did with each file.

    Raises:
        InvalidArgumentError: the page size is negative.
        InvalidPageTokenError: the token is not an offset.
    """
    if page_size < 0:
        raise InvalidArgumentError(f"page_size {page_size} is negative: 0 to 1000 are possible", field="page_size")
    count = min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    walk = Walk(visits=[] if explain else None)
    hash_ = key_hash(index_key(topic, key))
    found = search_views(
        files.views(),
        hash_,
        below_offset=_cursor(page_token),
        begin_millis=begin_millis if begin_millis is not None else -TIME_MILLIS_MAX,
        end_millis=end_millis if end_millis is not None else TIME_MILLIS_MAX,
        count=count + 1,
        walk=walk,
    )
    has_more = len(found) > count
    page = found[:count]
    return KeyPage(page, str(page[-1]) if has_more else "", hash_, walk)


def _cursor(page_token: str) -> int | None:
    if not page_token:
        return None
    if not (page_token.isascii() and page_token.isdecimal() and len(page_token) <= 19):
        raise InvalidPageTokenError(f"page_token {page_token!r} was not made by this service", pageToken=page_token)
    return int(page_token)
