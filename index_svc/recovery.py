"""Where to go on after a start.

- Our own checkpoint fits the files: newer files are removed, the file that it names last is cut back to the entries
  that it counts (all of them were flushed), and the log is followed from its offset. That file is kept whatever the
  stop was like.
- A foreign store, or files that the checkpoint does not fit: full files are taken over as long as each begins where the
  one before ended (the log is asked for the first record with keys behind it: RocketMQ can lose a whole file in a
  crash). The newest file is taken over too when the store was stopped cleanly, else it is built again.
- Nothing fits: the index is built again from the log's first record.

Before files are removed to be built again, a checkpoint is written that fits nothing: what was begun and killed must
not look like what an older checkpoint remembers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index_svc.index_file import IndexFile, tail_crc_of
from index_svc.index_file_set import IndexFileSet
from store.builders.last_record import LastRecord
from store.errors import OffsetOutOfRangeError, RecordNotFoundError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.index_layout import IndexHeader
from store.format.index_summary import TimeSpan
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files

VERSION = 2

# Offset of the first record with keys whose offset is greater than the one given (bytes; -1: the first of the log).
# None when there is none, or when the log no longer reaches back so far. OffsetOutOfRangeError or RecordNotFoundError
# when the log has no record at the one given.
FirstIndexed = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to follow the log from.

    Attributes:
        next_offset: everything before is applied (bytes; -1 = the log's first record is to be applied).
        store_time_millis: of the newest record applied; 0 for none.
        is_marked: the checkpoint says already that files may be ahead of it.
        last_record: the newest record applied, where known.
    """

    next_offset: int
    store_time_millis: int
    is_marked: bool = False
    last_record: LastRecord | None = None


def saved_layout(fs: FileSystem, checkpoint: Path) -> IndexLayout | None:
    """The layout of the files at the last checkpoint; None without one."""
    state = read_json_state(fs, checkpoint) or {}
    slot_count, entry_count_max = state.get("slot_count"), state.get("entry_count_max")
    if not (isinstance(slot_count, int) and isinstance(entry_count_max, int)):
        return None
    return IndexLayout(slot_count, entry_count_max) if slot_count > 0 and entry_count_max > 1 else None


def own_layout(fs: FileSystem, checkpoint: Path, root: Path) -> IndexLayout | None:
    """The layout of the last checkpoint, when the newest file that it names is there and as long as the layout says.

    Spares looking for it in the bytes: behind a crash they fit nothing, since slots are newer than the header.
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
    """What a checkpoint says: everything before an offset is applied; true once what is written now is flushed."""
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
        "time_span": list(live.time_span) if live is not None and live.time_span is not None else None,
        "applied_offset": files.applied_offset,
        "applied_key_count": files.applied_key_count,
    }


def save_rebuild_mark(fs: FileSystem, path: Path, layout: IndexLayout) -> None:
    """Writes down that the files cannot be relied on until the next checkpoint."""
    state = {"version": VERSION, "next_offset": -1}
    write_json_state(fs, path, state | {"slot_count": layout.slot_count, "entry_count_max": layout.entry_count_max})


def resume(
    fs: FileSystem, checkpoint: Path, files: IndexFileSet, *, is_clean_store: bool, first_indexed: FirstIndexed
) -> Resume:
    """Brings the files to a state from which the log can be followed.

    Args:
        fs: the door to the disk.
        checkpoint: our own checkpoint file.
        files: nothing of it is loaded yet.
        is_clean_store: there is no abort marker.
        first_indexed: asks the log.
    """
    state = read_json_state(fs, checkpoint)
    if state is not None:
        found = _resume_own(state, files)
        if found is not None:
            return found
    # Where there was a checkpoint that does not fit, the newest file is not what a clean stop left.
    return _resume_foreign(
        fs, checkpoint, files, is_clean_store=is_clean_store and state is None, first_indexed=first_indexed
    )


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
        if state["version"] != VERSION or layout != files.layout or found.next_offset < 0:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    paths = files.paths()
    if header is None:
        if is_clean and paths:
            return None  # someone else went on writing
        files.remove(paths)
        return found
    by_name = {path.name: path for path in paths}
    kept = [by_name[name] for name in names if name in by_name]
    if len(kept) != len(names) or not _are_sound(files, kept, header_crcs):
        return None
    if tail_crc_of(files.files, kept[-1], files.layout, header) != tail_crc:
        return None
    newer = [path for path in paths if path.name > names[-1]]
    if is_clean and (newer or IndexFileView(files.files, kept[-1], files.layout).header() != header):
        return None  # someone else went on writing
    live = IndexFile.reopen(files.files, kept[-1], files.layout, header)
    if not is_clean or (slots_crc is not None and live.slots_crc() != slots_crc):
        live = IndexFile.cut_back(files.files, kept[-1], files.layout, header, slots_crc)
    live.time_span = time_span
    # Also older ones: they had expired when a crash kept them from going.
    files.remove([path for path in paths if path not in kept])
    files.adopt_sealed(kept[:-1])
    files.adopt_live(live, *applied)
    return found


def _are_sound(files: IndexFileSet, kept: list[Path], header_crcs: list[int]) -> bool:
    """Whether files have their full length, and all but the last the header that they were left with."""
    return all(map(files.has_full_length, kept)) and all(
        files.header_crc(path) == crc for path, crc in zip(kept[:-1], header_crcs[:-1], strict=True)
    )


def _resume_foreign(
    fs: FileSystem, checkpoint: Path, files: IndexFileSet, *, is_clean_store: bool, first_indexed: FirstIndexed
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
    # An empty first file is made again by the first message.
    if before is not None and before.entry_count <= 1 and len(kept) == 1:
        kept = []
    removed = paths[len(kept) :]
    if removed:
        save_rebuild_mark(fs, checkpoint, files.layout)
        files.remove(removed)
    if not kept:
        return Resume(-1, 0)
    assert before is not None
    files.adopt_sealed(kept[:-1])
    for path in kept[:-1]:
        files.files.get(path, writing=True).flush()
    live = IndexFile.reopen(files.files, kept[-1], files.layout, before)
    # An empty newest file says where the one before it ended; that one knows how many keys of the record it holds.
    source = live
    if before.entry_count <= 1:
        view = IndexFileView(files.files, kept[-2], files.layout)
        source = IndexFile.reopen(files.files, kept[-2], files.layout, view.header())
    applied_offset = source.state.header.end_commit_log_offset
    files.adopt_live(live, applied_offset, _applied_key_count(files, kept, applied_offset))
    return Resume(applied_offset, source.state.header.end_time_millis)


def _applied_key_count(files: IndexFileSet, kept: list[Path], offset: int) -> int:
    """How many keys of the record at `offset`, the newest, the files hold at their end: they may lie in several."""
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
    """Whether a header can be, and says of the first and the last entry what they say of themselves."""
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
    """Whether no record with keys is missing between two files, or before the first."""
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
