"""Read-only access to index files: from a key hash to candidate records, newest first.

Rules:
- A candidate only has the key's hash; the caller compares topic and key with the log.
- An entry is left out for its time only when its second *proves* that it lies outside. The first entry of a file counts
  from another begin, and a difference of 0 or the largest one may be clamped: they prove nothing. Time never ends a
  walk.
- A walk takes at most as many steps as the file has entries: a chain that runs in a circle, points forward or at
  nothing is left and counted as damaged.
- A file is passed over when its summary, where it has one, proves that it holds nothing wanted. Whoever compares topic, key
  and time with the log gets the same with summaries and without.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    TIME_DIFF_SECONDS_MAX,
    IndexEntry,
    IndexHeader,
    decode_index_entry,
    decode_index_header,
    entry_position,
    file_size_bytes,
    index_key,
    key_hash,
    slot_of,
    slot_position,
)
from store.format.index_summary import PAGE_SIZE
from store.format.paths import index_dir, is_index_file_name
from store.readers.index_summary_reader import IndexSummaryReader
from store.readers.open_files import OpenFiles

TIME_MILLIS_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How the index files of a store are divided: hash slots, and RocketMQ's maxIndexNum (one more than entries
    fit)."""

    slot_count: int
    entry_count_max: int

    @property
    def file_size_bytes(self) -> int:
        """Size of a file."""
        return file_size_bytes(self.slot_count, self.entry_count_max)


class Passed(Enum):
    """Why a file was passed over."""

    NOT = ""
    CURSOR = "cursor"
    TIME = "time"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class FileVisit:
    """What a search did with one file.

    Attributes:
        name: the file's.
        passed: why it was passed over; NOT when its chain was walked.
        entry_count: entries that it holds.
        chain_entry_count: entries of the slot's chain that were read.
        same_hash_count: those of them with the key's hash.
        outside_count: those of these whose second proves them outside the window.
        candidate_count: candidates that came from it.
        is_damaged: the chain had to be left.
        read_bytes: read of the file and its summary.
    """

    name: str
    passed: Passed
    entry_count: int
    chain_entry_count: int = 0
    same_hash_count: int = 0
    outside_count: int = 0
    candidate_count: int = 0
    is_damaged: bool = False
    read_bytes: int = 0


@dataclass(slots=True)
class Walk:
    """What a search met besides candidates; counted while it runs.

    Attributes:
        damaged_chain_count: chains that had to be left.
        chain_entry_count: entries read.
        same_hash_count: those of them with the key's hash.
        outside_count: those of these whose second proves them outside the window.
        read_bytes: read of index files and summaries.
        visits: takes what was done with each file, newest first; None when nobody asks.
    """

    damaged_chain_count: int = 0
    chain_entry_count: int = 0
    same_hash_count: int = 0
    outside_count: int = 0
    read_bytes: int = 0
    visits: list[FileVisit] | None = None


class IndexFileView:
    """One index file to search in.

    Args:
        files: opens it.
        path: the file.
        layout: how it is divided.
        header_of: the header at this moment; None reads it from the file.
        head_of: the newest entry of a slot at this moment; None reads it from the file.

    Attributes:
        summary: of a file that is not written any more; None where there is none (yet).
    """

    def __init__(
        self,
        files: OpenFiles,
        path: Path,
        layout: IndexLayout,
        *,
        header_of: Callable[[], IndexHeader] | None = None,
        head_of: Callable[[int], int] | None = None,
    ) -> None:
        self.path = path
        self.layout = layout
        self.summary: IndexSummaryReader | None = None
        self._files = files
        self._header_of = header_of
        self._head_of = head_of

    def header(self) -> IndexHeader:
        """The header; StoreCorruptedError when the file is too short to have one."""
        if self._header_of is not None:
            return self._header_of()
        data = self._files.get(self.path).read(0, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            raise StoreCorruptedError(
                f"{self.path} is too short for an index file: remove it to have the index built again",
                file=self.path,
                offset=len(data),
            )
        return decode_index_header(data)

    @property
    def key_count(self) -> int:
        """Entries that it holds."""
        return self.summary.header.key_count if self.summary is not None else max(self.header().entry_count - 1, 0)

    def head(self, slot: int) -> int:
        """The newest entry of a slot, as written there."""
        if self._head_of is not None:
            return self._head_of(slot)
        data = self._files.get(self.path).read(slot_position(slot), SLOT_SIZE)
        return int.from_bytes(data, "big", signed=True) if len(data) == SLOT_SIZE else 0

    def entry(self, number: int) -> IndexEntry | None:
        """An entry; None when the file ends before it."""
        data = self._files.get(self.path).read(entry_position(number, self.layout.slot_count), ENTRY_SIZE)
        return decode_index_entry(data) if len(data) == ENTRY_SIZE else None

    def why_passed(self, hash_: int, limit: int, begin_millis: int, end_millis: int, walk: Walk) -> Passed:
        """Why the file holds nothing wanted: below an offset, of that hash, in that window; NOT when it may."""
        summary = self.summary
        if summary is None:
            header = self.header()
            walk.read_bytes += self._header_read_bytes
            is_behind = header.entry_count > 1 and header.begin_commit_log_offset >= limit
            return Passed.CURSOR if is_behind else Passed.NOT
        if summary.header.begin_commit_log_offset >= limit:
            return Passed.CURSOR  # every entry of this file is at or behind the cursor
        if not summary.header.overlaps(begin_millis, end_millis):
            return Passed.TIME
        walk.read_bytes += PAGE_SIZE
        return Passed.NOT if summary.may_hold(hash_) else Passed.FILTER

    @property
    def _header_read_bytes(self) -> int:
        return HEADER_SIZE if self._header_of is None else 0

    def chain(self, hash_: int, walk: Walk) -> Iterator[tuple[int, IndexEntry, int]]:
        """Entries with that hash, newest first: number, entry, and the begin that its seconds count from (ms)."""
        head = self.head(slot_of(hash_, self.layout.slot_count))
        header = self.header()  # after the head, so that it covers it
        walk.read_bytes += self._header_read_bytes + (SLOT_SIZE if self._head_of is None else 0)
        below = max(header.entry_count, 1)
        number = head if head < below else 0  # a head above the count was left by a crash: RocketMQ takes it for none
        while number > 0:
            if number >= below:  # entries only point to older ones: anything else is a circle or nonsense
                walk.damaged_chain_count += 1
                return
            entry = self.entry(number)
            if entry is None:
                walk.damaged_chain_count += 1
                return
            walk.chain_entry_count += 1
            walk.read_bytes += ENTRY_SIZE
            if entry.key_hash == hash_:
                walk.same_hash_count += 1
                yield number, entry, header.begin_time_millis
            below, number = number, entry.previous
        if number < 0:
            walk.damaged_chain_count += 1


def proven_outside(number: int, entry: IndexEntry, file_begin_millis: int, begin_millis: int, end_millis: int) -> bool:
    """Whether an entry's second shows that its record was stored outside [begin_millis, end_millis]."""
    seconds = entry.time_diff_seconds
    if number <= 1 or not 0 < seconds < TIME_DIFF_SECONDS_MAX:
        return False
    earliest = file_begin_millis + seconds * 1000
    return earliest > end_millis or earliest + 999 < begin_millis


def search_views(
    views: list[IndexFileView],
    hash_: int,
    *,
    below_offset: int | None,
    begin_millis: int,
    end_millis: int,
    count: int,
    walk: Walk,
) -> list[int]:
    """Commit-log offsets of candidates, strictly falling, at most `count`.

    Args:
        views: the files, oldest first.
        hash_: the key's hash.
        below_offset: only smaller offsets; None for no limit.
        begin_millis: only entries that may be stored at or after this.
        end_millis: only entries that may be stored at or before this.
        count: how many are wanted.
        walk: takes the count of damaged chains.
    """
    found: list[int] = []
    limit = below_offset if below_offset is not None else TIME_MILLIS_MAX
    for view in reversed(views):
        before = replace(walk) if walk.visits is not None else walk
        found_before = len(found)
        passed = view.why_passed(hash_, limit, begin_millis, end_millis, walk)
        for number, entry, file_begin_millis in view.chain(hash_, walk) if passed is Passed.NOT else ():
            offset = entry.commit_log_offset
            # A key twice in one record, or a record indexed twice, gives equal neighbours; a damaged entry may go up.
            if offset >= limit or offset < 0:
                continue
            if proven_outside(number, entry, file_begin_millis, begin_millis, end_millis):
                walk.outside_count += 1
                continue
            found.append(offset)
            limit = offset
            if len(found) == count:
                break
        if walk.visits is not None:
            walk.visits.append(_visit(view, passed, before, walk, len(found) - found_before))
        if len(found) == count:
            break
    return found


def _visit(view: IndexFileView, passed: Passed, before: Walk, walk: Walk, candidate_count: int) -> FileVisit:
    return FileVisit(
        name=view.path.name,
        passed=passed,
        entry_count=view.key_count,
        chain_entry_count=walk.chain_entry_count - before.chain_entry_count,
        same_hash_count=walk.same_hash_count - before.same_hash_count,
        outside_count=walk.outside_count - before.outside_count,
        candidate_count=candidate_count,
        is_damaged=walk.damaged_chain_count > before.damaged_chain_count,
        read_bytes=walk.read_bytes - before.read_bytes,
    )


def list_index_files(fs: FileSystem, root: Path) -> list[Path]:
    """The index files of a root, oldest first."""
    directory = Path(index_dir(str(root)))
    return [directory / name for name in fs.listdir(directory) if is_index_file_name(name)]


class IndexReader:
    """All index files of a store root, read-only; sees what their owner has flushed so far.

    Args:
        root: the store root.
        layout: how the files are divided.
        fs: the door to the disk.
    """

    def __init__(self, root: Path, layout: IndexLayout, fs: FileSystem | None = None) -> None:
        self._root = root
        self._layout = layout
        self._fs = fs or RealFileSystem()
        self._files = OpenFiles(self._fs)

    def views(self) -> list[IndexFileView]:
        """The files, oldest first."""
        return [IndexFileView(self._files, path, self._layout) for path in list_index_files(self._fs, self._root)]

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int = 0,
        end_millis: int = TIME_MILLIS_MAX,
        count: int = 64,
        walk: Walk | None = None,
    ) -> list[int]:
        """Candidates for a key; see `search_views`."""
        return search_views(
            self.views(),
            key_hash(index_key(topic, key)),
            below_offset=below_offset,
            begin_millis=begin_millis,
            end_millis=end_millis,
            count=count,
            walk=walk if walk is not None else Walk(),
        )
