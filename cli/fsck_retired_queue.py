"""Mending a queue whose records are all retired: no log can say what stood there, only how far the queue went.

Its units point to nothing that can be read any more; what counts is its end, from which the next message goes on. So a
unit that cannot be right becomes a filler, and the end stays behind the last one that can, and what directly follows it.
"""

from pathlib import Path

from cli.fsck_aside import Aside
from store.files.file_system import FileSystem
from store.format.paths import log_file_name
from store.format.queue_unit import FILLER, UNIT_SIZE_BYTES, decode_queue_units, encode_queue_unit
from store.readers.open_files import OpenFiles
from store.readers.queue_reader import file_offsets

FILLER_BYTES = encode_queue_unit(FILLER)


def mend_retired_queue(
    fs: FileSystem, directory: Path, file_size_bytes: int, log_first_offset: int, aside: Aside
) -> None:
    """Rewrites a queue's files in place; what they were is kept aside.

    Args:
        fs: the door to the disk.
        directory: the queue's folder.
        file_size_bytes: what its files must have.
        log_first_offset: units must point before it (bytes).
        aside: keeps the files as they were.
    """
    files = OpenFiles(fs)
    offsets = file_offsets(fs, directory)
    kept: list[int] = []  # the last stretch of files without a gap in which a unit can be right
    for offset in reversed(offsets):
        if kept and offset != kept[-1] - file_size_bytes:
            break
        data = files.get(directory / log_file_name(offset)).read(0, file_size_bytes)
        if offset % file_size_bytes == 0 and (kept or _last_right(data, log_first_offset) >= 0):
            kept.append(offset)
    for offset in offsets:
        if offset not in kept:
            aside.move(directory / log_file_name(offset))
    before = -1
    end_is_found = False
    tail_last = {
        offset: _last_right(_read(files, directory, offset, file_size_bytes), log_first_offset) for offset in kept
    }
    last_file = max((offset for offset in kept if tail_last[offset] >= 0), default=-1)
    for offset in sorted(kept):
        data = _read(files, directory, offset, file_size_bytes)
        parts = []
        for number, unit in enumerate(decode_queue_units(data)):
            found = data[number * UNIT_SIZE_BYTES : (number + 1) * UNIT_SIZE_BYTES]
            is_behind = offset > last_file or (offset == last_file and number > tail_last[offset])
            end_is_found |= is_behind and unit.is_empty
            if end_is_found:
                parts.append(bytes(UNIT_SIZE_BYTES))
            elif unit.is_filler or _is_right(unit.commit_log_offset, unit.record_size_bytes, before, log_first_offset):
                before = before if unit.is_filler else unit.commit_log_offset
                parts.append(found)
            else:
                parts.append(FILLER_BYTES)
        path, mended = directory / log_file_name(offset), b"".join(parts)
        if files.get(path).read(0, file_size_bytes + 1) != mended:
            aside.copy(path)
            file = files.create(path, file_size_bytes)
            file.write(0, mended)
            file.flush()


def _read(files: OpenFiles, directory: Path, offset: int, size_bytes: int) -> bytes:
    return files.get(directory / log_file_name(offset)).read(0, size_bytes).ljust(size_bytes, b"\0")


def _is_right(offset: int, size_bytes: int, before: int, log_first_offset: int) -> bool:
    return size_bytes > 0 and before < offset < log_first_offset


def _last_right(data: bytes, log_first_offset: int) -> int:
    """The last unit of a file that can be right; -1 for none."""
    whole = data[: len(data) // UNIT_SIZE_BYTES * UNIT_SIZE_BYTES]
    return max(
        (
            number
            for number, unit in enumerate(decode_queue_units(whole))
            if unit.is_filler or _is_right(unit.commit_log_offset, unit.record_size_bytes, -1, log_first_offset)
        ),
        default=-1,
    )
