"""Where to go on after a start.

- Our own checkpoint fits the files: newer files are removed, the file that it names is cut back to the entries that it
  counts (all of them were flushed), and the log is followed from its offset.
- A foreign store: full files are taken over as long as each begins where the one before ended (the log is asked for the
  first record with keys behind it: RocketMQ can lose a whole file in a crash). The newest file is taken over too when
  the store was stopped cleanly, else it is built again.
- Nothing fits: the index is built again from the log's first record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index_svc.index_file import IndexFile
from index_svc.index_file_set import IndexFileSet
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.index_layout import IndexHeader
from store.readers.index_reader import IndexFileView

VERSION = 1

# Offset of the first record with keys whose offset is greater than the one given (bytes; -1: the first of the log).
# None when there is none, or when the log no longer reaches back so far.
FirstIndexed = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to follow the log from (bytes; -1 = its first record)."""

    next_offset: int
    store_time_millis: int


def save_checkpoint(
    fs: FileSystem, path: Path, files: IndexFileSet, next_offset: int, store_time_millis: int, *, is_clean: bool
) -> None:
    """Writes down that everything before an offset is applied and flushed."""
    paths = files.paths()
    live = files.live
    state = {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "clean": is_clean,
        "slot_count": files.layout.slot_count,
        "entry_count_max": files.layout.entry_count_max,
        "files": [file.name for file in paths] if live is not None else [],
        "header": list(live.state.header) if live is not None else [],
        "applied_offset": files.applied_offset,
        "applied_key_count": files.applied_key_count,
    }
    write_json_state(fs, path, state)


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
    return _resume_foreign(files, is_clean_store=is_clean_store, first_indexed=first_indexed)


def _resume_own(state: dict[str, Any], files: IndexFileSet) -> Resume | None:
    try:
        layout = (int(state["slot_count"]), int(state["entry_count_max"]))
        names = [str(name) for name in state["files"]]
        found = Resume(int(state["next_offset"]), int(state["store_time_millis"]))
        header = IndexHeader._make(map(int, state["header"])) if names else None
        applied = (int(state["applied_offset"]), int(state["applied_key_count"]))
        is_clean = bool(state["clean"])
    except (KeyError, TypeError, ValueError):
        return None
    paths = files.paths()
    sizes_fit = all(files.fs.stat_size(path) == files.layout.file_size_bytes for path in paths)
    if (
        state.get("version") != VERSION
        or layout != (files.layout.slot_count, files.layout.entry_count_max)
        or [path.name for path in paths[: len(names)]] != names
        or not sizes_fit
        or found.next_offset < 0
    ):
        return None
    kept = paths[: len(names)]
    if header is None:
        files.remove(paths)
        return found
    present = IndexFileView(files.files, kept[-1], files.layout).header()
    if is_clean and (len(paths) > len(names) or present != header):
        return None  # someone else went on writing
    files.remove(paths[len(names) :])
    files.adopt_sealed(kept[:-1])
    open_live = IndexFile.reopen if is_clean else IndexFile.cut_back
    files.adopt_live(open_live(files.files, kept[-1], files.layout, header), *applied)
    return found


def _resume_foreign(files: IndexFileSet, *, is_clean_store: bool, first_indexed: FirstIndexed) -> Resume:
    paths = files.paths()
    kept: list[Path] = []
    before: IndexHeader | None = None
    for path in paths:
        if files.fs.stat_size(path) != files.layout.file_size_bytes:
            break
        header = IndexFileView(files.files, path, files.layout).header()
        is_last = path == paths[-1]
        if (is_last and not is_clean_store) or header.entry_count > files.layout.entry_count_max:
            break
        if header.entry_count < files.layout.entry_count_max and not is_last:
            break
        if header.entry_count > 1 and not _connects(before, header, first_indexed):
            break
        kept.append(path)
        before = header
    files.remove(paths[len(kept) :])
    if not kept:
        return Resume(-1, 0)
    assert before is not None
    if before.entry_count <= 1 and len(kept) == 1:
        files.remove(kept)  # an empty first file: made again by the first message
        return Resume(-1, 0)
    files.adopt_sealed(kept[:-1])
    live = IndexFile.reopen(files.files, kept[-1], files.layout, before)
    # An empty newest file says where the one before it ended; that one knows how many keys of the record it holds.
    source = live
    if before.entry_count <= 1:
        view = IndexFileView(files.files, kept[-2], files.layout)
        source = IndexFile.reopen(files.files, kept[-2], files.layout, view.header())
    applied_offset = source.state.header.end_commit_log_offset
    files.adopt_live(live, applied_offset, source.trailing_key_count())
    return Resume(applied_offset, source.state.header.end_time_millis)


def _connects(before: IndexHeader | None, header: IndexHeader, first_indexed: FirstIndexed) -> bool:
    """Whether no record with keys is missing between two files, or before the first."""
    begin = header.begin_commit_log_offset
    if before is None:
        first = first_indexed(-1)
        return first is None or begin <= first
    if begin == before.end_commit_log_offset:
        return True  # the keys of one record in two files
    first = first_indexed(before.end_commit_log_offset)
    return first is None or begin == first
