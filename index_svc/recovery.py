"""Decides at start from which offset the builder follows the log.

- The builder's own checkpoint fits the files: newer files are removed, the last file that it names is cut back to the
  entries that it counts (all of them were flushed), and the log is followed from the checkpoint's offset.
- A foreign store, or a checkpoint that does not fit: full files are kept as long as each begins where the one before
  ended. The log is asked for the first record with keys behind each file, because RocketMQ can lose a whole file in a
  crash. The newest file is kept too if the store was stopped cleanly; otherwise it is built again.
- No file can be kept: the index is built again from the log's first record.

A file that must be built again is removed when it is ours, or when the log gives all of its entries again; any other is kept
aside (`unexplained.py`).

Before files are removed to be built again, a checkpoint is written that fits nothing, because an older checkpoint must
not fit the files of a build that was killed.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from index_svc.index_file import IndexFile, tail_crc_of
from index_svc.index_file_set import IndexFileSet
from index_svc.unexplained import ALL, saved_counts
from store.derive.dispatch import LastRecord
from store.errors import OffsetOutOfRangeError, RecordNotFoundError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.derived.index_layout import IndexHeader, encode_index_header, entry_position
from store.format.derived.index_summary import TimeSpan
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files
from store.readers.tag_entries import TagEntries

VERSION = 2
UNFIT = "it does not fit to the log or to the file before it, and is built again"
NOT_OURS = "our checkpoint does not name it"
ADDED = "entries behind those that our checkpoint counts, which the log does not give"
NONE: Mapping[str, int] = MappingProxyType({})

# Whether an index has entries of tags: as its files have them, or a new one by default; the setting (ADR 0147).
TagsWanted = Literal["auto", "on", "off"]
NEW_STORES_HAVE_TAGS = False

# Returns the offset (bytes) of the first record with keys behind the given offset; -1 asks for the log's first one. None
# if there is none, or if the log no longer reaches back so far. Raises OffsetOutOfRangeError or RecordNotFoundError if
# the log has no record at the given offset.
FirstIndexed = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Resume:
    """From which offset to follow the log.

    Attributes:
        next_offset: everything before it is applied (bytes); -1: begin at the log's first record.
        store_time_millis: of the newest record applied; 0 if there is none.
        is_marked: the checkpoint already says that the files may be ahead of it.
        last_record: the newest record applied; None if unknown.
    """

    next_offset: int
    store_time_millis: int
    is_marked: bool = False
    last_record: LastRecord | None = None


def saved_layout(fs: FileSystem, checkpoint: Path) -> IndexLayout | None:
    """The layout of the files at the last checkpoint; None if there is no checkpoint."""
    state = read_json_state(fs, checkpoint) or {}
    slot_count, entry_count_max = state.get("slot_count"), state.get("entry_count_max")
    if not (isinstance(slot_count, int) and isinstance(entry_count_max, int)):
        return None
    return IndexLayout(slot_count, entry_count_max) if slot_count > 0 and entry_count_max > 1 else None


def own_layout(fs: FileSystem, checkpoint: Path, root: Path) -> IndexLayout | None:
    """The layout of the last checkpoint, if the newest file that it names is there and has the length of the layout.

    After a crash the layout cannot be found in the bytes of that file, because its slots are newer than its header.
    """
    layout = saved_layout(fs, checkpoint)
    named = (read_json_state(fs, checkpoint) or {}).get("files")
    if layout is None or not isinstance(named, list) or not named or not isinstance(named[-1], list):
        return None
    sizes = {path.name: fs.stat_size(path) for path in list_index_files(fs, root)}
    return layout if sizes.get(str(named[-1][0])) == layout.file_size_bytes else None


def checkpoint_state(
    files: IndexFileSet,
    next_offset: int,
    store_time_millis: int,
    *,
    last_record: LastRecord | None,
    is_clean: bool,
) -> dict[str, Any]:
    """A checkpoint: everything before an offset is applied. Write it when everything written so far is flushed."""
    live = files.live
    return {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "last_record": [last_record.commit_log_offset, last_record.fingerprint] if last_record else None,
        "clean": is_clean,
        "slot_count": files.layout.slot_count,
        "entry_count_max": files.layout.entry_count_max,
        "files": files.marks(),
        "header": list(live.state.header) if live is not None else [],
        "tail_crc": live.tail_crc() if live is not None else 0,
        "slots_crc": live.slots_crc() if live is not None else 0,
        "entries_crc": live.entries[1] if live is not None else None,
        "time_span": list(live.time_span) if live is not None and live.time_span is not None else None,
        "own": files.own_counts(),
        "tags_from": files.tags_from,
        "applied_offset": files.applied_offset,
        "applied_key_count": files.applied_key_count,
    }


def save_rebuild_mark(
    fs: FileSystem,
    path: Path,
    layout: IndexLayout,
    own_counts: Mapping[str, int] = NONE,
    *,
    tags_from: int | None = None,
) -> None:
    """Writes a checkpoint that fits no files; it still says which entries Reput wrote, see `Keeper`, and whether of tags."""
    state = {"version": VERSION, "next_offset": -1, "own": dict(own_counts), "tags_from": tags_from}
    write_json_state(fs, path, state | {"slot_count": layout.slot_count, "entry_count_max": layout.entry_count_max})


def resume(
    fs: FileSystem,
    checkpoint: Path,
    files: IndexFileSet,
    *,
    is_clean_store: bool,
    first_indexed: FirstIndexed,
    find_tags: Callable[[], TagEntries] = lambda: TagEntries(None, None),
    tags: TagsWanted = "auto",
) -> Resume:
    """Brings the files to the state at an offset from which the log can be followed, and decides on entries of tags.

    Args:
        fs: the file system.
        checkpoint: the builder's checkpoint file.
        files: the files, not loaded yet.
        is_clean_store: there is no abort marker.
        first_indexed: see FirstIndexed.
        find_tags: says which entries of tags the files have; for files that a checkpoint of ours does not describe.
        tags: the setting.
    """
    state = read_json_state(fs, checkpoint)
    saved = saved_tags_from(state or {})
    if state is not None:
        files.keeper.adopt_counts(saved_counts(state))
        files.keeper.other_layout = saved_layout(fs, checkpoint)
        files.tags_from = saved
        found = _resume_own(state, files)
        if found is not None:
            # A version before wrote no entries of tags, but may have followed a broker that did.
            had = find_tags() if "tags_from" not in state else TagEntries(saved is not None, saved)
            files.tags_from = tags_from(tags, had, found.next_offset)
            return found
    # Before a file goes: what the store had is built again.
    had = find_tags()
    if saved is not None:
        had = had._replace(are_written=True)
    files.tags_from = tags_from(tags, had, -1)
    # If a checkpoint does not fit, the newest file is not as a clean stop left it.
    found = _resume_foreign(
        fs, checkpoint, files, is_clean_store=is_clean_store and state is None, first_indexed=first_indexed
    )
    files.tags_from = tags_from(tags, had, found.next_offset)
    return found


def saved_tags_from(state: Mapping[str, Any]) -> int | None:
    """`IndexFileSet.tags_from` by a checkpoint; None for one of an earlier version."""
    offset = state.get("tags_from")
    return offset if isinstance(offset, int) and offset >= 0 else None


def tags_from(wanted: TagsWanted, had: TagEntries, next_offset: int) -> int | None:
    """From which offset (bytes) on the index has entries of tags; None: it gets none.

    Args:
        wanted: the setting.
        had: what the files had.
        next_offset: from where the log is followed; -1: all files are built again.
    """
    are_written = had.are_written if had.are_written is not None else NEW_STORES_HAVE_TAGS
    if wanted == "off" or (wanted == "auto" and not are_written):
        return None
    if next_offset <= 0:
        return 0
    # What is written behind `next_offset` has them.
    return min(next_offset, had.complete_from) if had.complete_from is not None else next_offset


def _resume_own(state: dict[str, Any], files: IndexFileSet) -> Resume | None:
    try:
        layout = IndexLayout(int(state["slot_count"]), int(state["entry_count_max"]))
        names = [str(name) for name, _ in state["files"]]
        header_crcs = [int(crc) for _, crc in state["files"]]
        last_record = LastRecord(*map(int, state["last_record"])) if state["last_record"] else None
        is_clean = bool(state["clean"])
        found = Resume(int(state["next_offset"]), int(state["store_time_millis"]), not is_clean, last_record)
        header = IndexHeader._make(map(int, state["header"])) if names else None
        applied = (int(state["applied_offset"]), int(state["applied_key_count"]))
        tail_crc = int(state["tail_crc"])
        slots_crc = int(state["slots_crc"]) if "slots_crc" in state else None  # a version before did not write it
        time_span = TimeSpan(*map(int, state["time_span"])) if state.get("time_span") else None  # nor this
        entries_crc = int(state["entries_crc"]) if state.get("entries_crc") is not None else None  # nor this
        if state["version"] != VERSION or layout != files.layout or found.next_offset < 0:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    paths = files.paths()
    if header is None:
        if is_clean and paths:
            return None  # another program has written since the checkpoint
        files.remove(paths, NOT_OURS)
        return found
    kept = [files.directory / name for name in names]
    if kept[-1] not in paths or not files.has_full_length(kept[-1]):
        return None
    damaged = _unsound(files, kept[:-1], set(paths), header_crcs)
    if damaged is None:
        return None
    if tail_crc_of(files.files, kept[-1], files.layout, header) != tail_crc:
        return None
    count = max(header.entry_count, 1)
    if is_clean and (
        any(path.name > names[-1] for path in paths)
        or IndexFileView(files.files, kept[-1], files.layout).header() != header
        or files.files.get(kept[-1]).has_bytes(entry_position(count, files.layout.slot_count))
    ):
        return None  # another program went on writing
    live = IndexFile.reopen(files.files, kept[-1], files.layout, header)
    if not is_clean:
        files.keeper.copy_from(files.files, kept[-1], files.layout, count, ADDED)
    if not is_clean or (slots_crc is not None and live.slots_crc() != slots_crc):
        live = IndexFile.cut_back(files.files, kept[-1], files.layout, header, slots_crc)
    live.time_span = time_span
    if entries_crc is not None:
        live.entries = (live.entries[0], entries_crc)
    # Older files go, too: they had expired, and a crash came before they were removed.
    files.remove([path for path in paths if path not in kept], NOT_OURS)
    files.adopt_sealed(kept[:-1], damaged)
    files.adopt_live(live, *applied)
    if files.keeper.own_counts.get(names[-1]) == header.entry_count:
        files.keeper.own_counts[names[-1]] = ALL  # it is cut back to what we wrote
    return found


def _unsound(
    files: IndexFileSet, sealed: list[Path], present: set[Path], header_crcs: list[int]
) -> dict[Path, IndexHeader] | None:
    """The sealed files that are missing or have another length or header than the checkpoint says, with their headers.

    Each of them can be built again by itself, because its header is noted with its checksum; None when one cannot.
    """
    damaged = {}
    for path, crc in zip(sealed, header_crcs[:-1], strict=True):
        if path in present and files.has_full_length(path) and files.header_crc(path) == crc:
            continue
        header = files.sealed_header(path)
        if header is None or zlib.crc32(encode_index_header(header)) != crc:
            return None
        damaged[path] = header
    for path, header in damaged.items():
        files.restore_room(path, header)
    return damaged


def _resume_foreign(
    fs: FileSystem,
    checkpoint: Path,
    files: IndexFileSet,
    *,
    is_clean_store: bool,
    first_indexed: FirstIndexed,
) -> Resume:
    paths = files.paths()
    kept: list[Path] = []
    before: IndexHeader | None = None
    for path in paths:
        if not files.has_full_length(path):
            break
        view = IndexFileView(files.files, path, files.layout)
        header = view.header()
        is_last = path == paths[-1]
        if (is_last and not is_clean_store) or not _is_consistent(view, header):
            break
        if header.entry_count < files.layout.entry_count_max and not is_last:
            break
        if header.entry_count > 1 and not _connects(before, header, first_indexed):
            break
        kept.append(path)
        before = header
        if files.checksums is not None and files.sealed_header(path) not in (None, header):
            files.checksums.remove(path.name)  # of a file that had this name before
    # The first record creates an empty first file again.
    if before is not None and before.entry_count <= 1 and len(kept) == 1:
        kept = []
    removed = paths[len(kept) :]
    if removed:
        save_rebuild_mark(fs, checkpoint, files.layout, files.keeper.own_counts, tags_from=files.tags_from)
        files.remove(removed, UNFIT)
    if not kept:
        return Resume(-1, 0)
    assert before is not None
    files.adopt_sealed(kept[:-1])
    for path in kept[:-1]:
        files.files.get(path, writing=True).flush()
    live = IndexFile.reopen(files.files, kept[-1], files.layout, before)
    # The header of an empty newest file says where the file before ends; that file holds the keys of the record there.
    source = live
    if before.entry_count <= 1:
        view = IndexFileView(files.files, kept[-2], files.layout)
        source = IndexFile.reopen(files.files, kept[-2], files.layout, view.header())
    applied_offset = source.state.header.end_commit_log_offset
    files.adopt_live(live, applied_offset, _applied_key_count(files, kept, applied_offset))
    return Resume(applied_offset, source.state.header.end_time_millis)


def _applied_key_count(files: IndexFileSet, kept: list[Path], offset: int) -> int:
    """How many keys of the newest record, at `offset`, the files hold; they may lie in several files."""
    count = 0
    for path in reversed(kept):
        header = IndexFileView(files.files, path, files.layout).header()
        found = 0
        if header.end_commit_log_offset == offset:
            found = IndexFile.reopen(files.files, path, files.layout, header).trailing_key_count()
        count += found
        if found < header.entry_count - 1:
            break
    return count


def _is_consistent(view: IndexFileView, header: IndexHeader) -> bool:
    """Whether a header's count is possible, and its offsets are those of its first and its last entry."""
    if not 0 <= header.entry_count <= view.layout.entry_count_max:
        return False
    if header.entry_count <= 1:
        return True
    first, last = view.entry(1), view.entry(header.entry_count - 1)
    return (
        first is not None
        and last is not None
        and first.commit_log_offset == header.begin_commit_log_offset
        and last.commit_log_offset == header.end_commit_log_offset
    )


def _connects(before: IndexHeader | None, header: IndexHeader, first_indexed: FirstIndexed) -> bool:
    """Whether no record with keys is missing between two files, or before the first file."""
    begin = header.begin_commit_log_offset
    try:
        if before is None:
            first = first_indexed(-1)
            return first is None or begin <= first
        if begin == before.end_commit_log_offset:
            return True  # the keys of one record in two files
        first = first_indexed(before.end_commit_log_offset)
    except (OffsetOutOfRangeError, RecordNotFoundError):
        return False  # the header says where no record is
    return first is None or begin == first
