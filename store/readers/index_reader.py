"""Read-only access to index files: from a key hash to candidate records, newest first.

Rules:
- A candidate only has the key's hash; the caller compares topic and key with the log.
- An entry is left out because of its time only if its seconds *prove* that its record is outside the window. The first
  entry of a file counts from another begin, and seconds of 0 or of the largest value may be clamped: these prove nothing.
  Time never ends the walk along a chain.
- The entries of a chain must point to older ones. A chain that breaks this rule is abandoned, and counted as damaged.
- A file is passed over if its summary proves that it holds nothing wanted. A caller that compares topic, key and time with
  the log gets the same result with summaries and without.

detect_index_layout finds out how the index files of an existing store are divided into slots and entries.

The size of a file is not enough (slots * 4 + entries * 20 + 40 has many solutions), but its bytes are: the last byte that
is not zero belongs to the last entry, the header has the number of that entry, and the head of its slot is that number.

IndexSummaryReader reads the summary of a sealed index file (`store/format/derived/index_summary.py`), one page at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from pathlib import Path

from store.errors import RecordNotFoundError, StoreCorruptedError
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
from store.format.derived.index_summary import (
    BLOCK_SIZE,
    PAGE_SIZE,
    SummaryHeader,
    block_holds,
    block_of,
    block_place,
    decode_summary_header,
    key_bits,
    page_is_sound,
)
from store.format.paths import index_dir, is_index_file_name


class IndexSummaryReader:
    """A summary with a valid header.

    Args:
        files: opens it.
        path: the summary file.
        header: of the summary.
        on_damaged: called when a page is damaged; the answer for the keys of that page is then "maybe".
    """

    def __init__(self, files: OpenFiles, path: Path, header: SummaryHeader, on_damaged: Callable[[], None]) -> None:
        self.path = path
        self.header = header
        self._files = files
        self._on_damaged = on_damaged

    def may_hold(self, key_hash: int) -> bool:
        """Whether the index file may have an entry with this hash; False only if it has none."""
        key = key_bits(key_hash)
        number, place = block_place(block_of(key.bits, self.header.block_count))
        try:
            page = self._files.get(self.path).read(number * PAGE_SIZE, PAGE_SIZE)
        except FileNotFoundError:  # it was removed: the file is searched, and the summary is made again
            page = b""
        if not page_is_sound(page, number):
            self._on_damaged()
            return True
        return block_holds(page[place : place + BLOCK_SIZE], key)

    def pages(self, first: int, count_max: int) -> bytes:
        """Pages of the filter, from number `first` on (the first is 1), at most `count_max`; empty behind the last.

        Raises:
            RecordNotFoundError: one of them is damaged; the summary is made again.
        """
        page_count = self.header.size_bytes // PAGE_SIZE
        count = min(count_max, page_count - first)
        if count <= 0:
            return b""
        data = self._files.get(self.path).read(first * PAGE_SIZE, count * PAGE_SIZE)
        for number in range(count):
            if not page_is_sound(data[number * PAGE_SIZE : (number + 1) * PAGE_SIZE], first + number):
                self._on_damaged()
                raise RecordNotFoundError(
                    f"{self.path} is damaged: it is being made again, try again soon", file=self.path
                )
        return data


def read_summary_header(files: OpenFiles, path: Path, index_header_crc: int) -> SummaryHeader | None:
    """The header of a summary that has its full size and belongs to the index file whose header has this CRC.

    None if there is no summary, or if it is damaged, of another version, or of another file.
    """
    try:
        header = decode_summary_header(files.get(path).read(0, PAGE_SIZE))
        size_bytes = files.fs.stat_size(path)
    except FileNotFoundError:
        return None
    if header is None or header.index_header_crc != index_header_crc or header.size_bytes != size_bytes:
        return None
    return header


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
    """The course of a search in one file.

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


CHUNK_BYTES = 1 << 20
CHECKED_ENTRY_COUNT = 64


def detect_index_layout(fs: FileSystem, root: Path, preferred: IndexLayout) -> IndexLayout | None:
    """The layout of the files of a root; None if no file has entries, or if no layout fits.

    Args:
        fs: the file system.
        root: the store root.
        preferred: tried first.
    """
    files = OpenFiles(fs)
    for path in list_index_files(fs, root):
        size = fs.stat_size(path)
        if size <= HEADER_SIZE:
            continue
        header = decode_index_header(files.get(path).read(0, HEADER_SIZE))
        if header.entry_count <= 1:
            continue
        for layout in chain([preferred], _candidates(files, path, size, header)):
            if layout.file_size_bytes == size and _fits(IndexFileView(files, path, layout), header):
                return layout
    return None


def _candidates(files: OpenFiles, path: Path, size: int, header: IndexHeader) -> Iterator[IndexLayout]:
    last = _last_byte(files, path, size)
    # The last entry holds that byte; it starts at a multiple of 4.
    for position in range(last - last % 4, last - ENTRY_SIZE, -4):
        slot_bytes = position - HEADER_SIZE - (header.entry_count - 1) * ENTRY_SIZE
        entry_bytes = size - HEADER_SIZE - slot_bytes
        if slot_bytes > 0 and slot_bytes % SLOT_SIZE == 0 and entry_bytes > 0 and entry_bytes % ENTRY_SIZE == 0:
            yield IndexLayout(slot_bytes // SLOT_SIZE, entry_bytes // ENTRY_SIZE)


def _last_byte(files: OpenFiles, path: Path, size: int) -> int:
    """Position of the last byte that is not zero; -1 if all are zero."""
    file = files.get(path)
    end = size
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        data = file.read(begin, end - begin).rstrip(b"\0")
        if data:
            return begin + len(data) - 1
        end = begin
    return -1


def _fits(view: IndexFileView, header: IndexHeader) -> bool:
    count = header.entry_count
    if count > view.layout.entry_count_max or not 0 < header.used_slot_count <= view.layout.slot_count:
        return False
    numbers = [*range(1, min(count, CHECKED_ENTRY_COUNT)), count - 1]
    for number in numbers:
        entry = view.entry(number)
        if (
            entry is None
            or entry.key_hash < 0
            or not 0 <= entry.previous < number
            or not header.begin_commit_log_offset <= entry.commit_log_offset <= header.end_commit_log_offset
        ):
            return False
    last = view.entry(count - 1)
    return last is not None and view.head(slot_of(last.key_hash, view.layout.slot_count)) == count - 1
