"""Read-only access to index files: from a key hash to candidate records, newest first.

Rules:
- A candidate only has the key's hash; the caller compares topic and key with the log.
- An entry is left out because of its time only if its seconds *prove* that its record is outside the window. The first
  entry of a file counts from another begin, and seconds of 0 or of the largest value may be clamped: these prove nothing.
  Time never ends the walk along a chain.
- The entries of a chain must point to older ones. A chain that breaks this rule is abandoned, and counted as damaged.
- A file is passed over if its summary proves that it holds nothing wanted. A caller that compares topic, key and time with
  the log gets the same result with summaries and without.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, kind_of
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
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
    slot_of,
    slot_position,
)
from store.format.derived.index_summary import PAGE_SIZE
from store.format.paths import index_dir, is_index_file_name
from store.readers.index_summary_reader import IndexSummaryReader

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
        passed: why it was passed over; NOT if its chain was walked.
        entry_count: entries that it holds.
        chain_entry_count: entries of the slot's chain that were read.
        same_hash_count: of these, entries with the key's hash.
        outside_count: of these, entries whose seconds prove that their record is outside the window.
        candidate_count: candidates that came from it.
        is_damaged: the chain is damaged and was abandoned.
        read_bytes: bytes read of the file and its summary.
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
    """Counts what a search reads besides candidates.

    Attributes:
        damaged_chain_count: damaged chains that were abandoned, and doubtful files.
        chain_entry_count: entries read.
        same_hash_count: of these, entries with the key's hash.
        outside_count: of these, entries whose seconds prove that their record is outside the window.
        read_bytes: bytes read of index files and summaries.
        visits: what was done with each file, newest first; None to collect nothing.
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
        header_of: gives the current header; None reads it from the file.
        head_of: gives the current head of a slot; None reads it from the file.

    Attributes:
        summary: of a sealed file; None if there is none (yet).
        is_doubtful: the file is known to be damaged, or may be: what is found in it may not be all.
        known_header: of a sealed file, from its checksum; None: the header is read from the file.
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
        self.is_doubtful = False
        self.known_header: IndexHeader | None = None
        self._files = files
        self._header_of = header_of
        self._head_of = head_of

    def header(self) -> IndexHeader:
        """The header.

        Raises:
            StoreCorruptedError: the file is too short to have one.
        """
        if self._header_of is not None:
            return self._header_of()
        if self.known_header is not None:
            return self.known_header
        data = self._files.get(self.path).read(0, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            raise StoreCorruptedError(
                f"{self.path} is too short for an index file: remove it to have the index built again",
                file=self.path,
                offset=len(data),
            )
        return decode_index_header(data)

    def exists(self) -> bool:
        """Whether the file has its name still."""
        return self._files.fs.is_file(self.path)

    @property
    def key_count(self) -> int:
        """Entries that it holds."""
        return self.summary.header.key_count if self.summary is not None else max(self.header().entry_count - 1, 0)

    def head(self, slot: int) -> int:
        """The number of a slot's newest entry, as in the file."""
        if self._head_of is not None:
            return self._head_of(slot)
        data = self._files.get(self.path).read(slot_position(slot), SLOT_SIZE)
        return int.from_bytes(data, "big", signed=True) if len(data) == SLOT_SIZE else 0

    def entry(self, number: int) -> IndexEntry | None:
        """An entry; None if the file ends before it."""
        data = self._files.get(self.path).read(entry_position(number, self.layout.slot_count), ENTRY_SIZE)
        return decode_index_entry(data) if len(data) == ENTRY_SIZE else None

    def why_passed(self, hash_: int, limit: int, begin_millis: int, end_millis: int, walk: Walk) -> Passed:
        """Why the file has no candidate below an offset, with this hash, in this window; NOT if it may have one."""
        summary = self.summary
        if summary is None or self.is_doubtful:
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
        return HEADER_SIZE if self._header_of is None and self.known_header is None else 0

    def chain(self, hash_: int, walk: Walk) -> Iterator[tuple[int, IndexEntry, int]]:
        """Entries with this hash, newest first: number, entry, and the time (ms) from which its seconds count."""
        head = self.head(slot_of(hash_, self.layout.slot_count))
        header = self.header()  # read after the head, so that its count includes the head
        walk.read_bytes += self._header_read_bytes + (SLOT_SIZE if self._head_of is None else 0)
        below = max(header.entry_count, 1)
        number = head if head < below else 0  # a crash left a head above the count: like RocketMQ, treat it as empty
        while number > 0:
            if number >= below:  # an entry points to an older one; this one does not
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
    """Whether an entry's seconds prove that its record was stored outside [begin_millis, end_millis]."""
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
        count: the most candidates.
        walk: counts what the search reads.
    """
    found: list[int] = []
    limit = below_offset if below_offset is not None else TIME_MILLIS_MAX
    for view in reversed(views):
        before = replace(walk) if walk.visits is not None else walk
        found_before = len(found)
        if view.is_doubtful:
            walk.damaged_chain_count += 1
            if not view.exists():
                continue
        passed = view.why_passed(hash_, limit, begin_millis, end_millis, walk)
        for number, entry, file_begin_millis in view.chain(hash_, walk) if passed is Passed.NOT else ():
            offset = entry.commit_log_offset
            # A key twice in one record, or a record indexed twice, gives equal offsets; a damaged entry may be higher.
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
    """The index files of a root, oldest first; other names, and what is no regular file, are left out."""
    directory = Path(index_dir(str(root)))
    if not fs.is_dir(directory):
        return []
    return [
        directory / name for name in fs.listdir(directory) if is_index_file_name(name) and fs.is_file(directory / name)
    ]


def index_strangers(fs: FileSystem, root: Path) -> Iterator[tuple[Path, str]]:
    """Everything in `index/` that is no index file and is left alone, and what it is not."""
    directory = Path(index_dir(str(root)))
    for name in fs.listdir(directory) if fs.is_dir(directory) else ():
        if not is_index_file_name(name):
            yield directory / name, "this is not the name of an index file"
        elif not fs.is_file(directory / name):
            yield directory / name, f"it has the name of an index file and is {kind_of(fs, directory / name)}"
