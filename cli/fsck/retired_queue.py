"""Repair of a queue whose records were all removed by retention: the log no longer has its content.

Its units point to records that cannot be read. What matters is its end, because the next message continues there. So a
unit that cannot be right becomes a filler, and the end stays behind the last plausible unit and what directly follows
it.
"""

from pathlib import Path

from store.files.aside import Aside
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.queue_unit import FILLER, UNIT_SIZE_BYTES, decode_queue_units, encode_queue_unit
from store.format.paths import log_file_name
from store.readers.queue_reader import file_offsets

FILLER_BYTES = encode_queue_unit(FILLER)


def mend_retired_queue(
    fs: FileSystem, directory: Path, file_size_bytes: int, log_first_offset: int, aside: Aside
) -> None:
    """Rewrite the files of a queue in place; copies of the old files are kept aside.

    Args:
        fs: the file system.
        directory: the queue's folder.
        file_size_bytes: proper size of its files.
        log_first_offset: units must point before it (bytes).
        aside: keeps the old files.
    """
    files = OpenFiles(fs)
    offsets = file_offsets(fs, directory)
    kept: list[int] = []  # the last run of files without a gap that has a plausible unit
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
    """The last plausible unit of a file; -1 for none."""
    whole = data[: len(data) // UNIT_SIZE_BYTES * UNIT_SIZE_BYTES]
    return max(
        (
            number
            for number, unit in enumerate(decode_queue_units(whole))
            if unit.is_filler or _is_right(unit.commit_log_offset, unit.record_size_bytes, -1, log_first_offset)
        ),
        default=-1,
    )
