"""Finding the next record behind bytes that are none: by its magic number, then checked whole."""

from typing import Protocol

from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFile
from store.format.record import MAGIC_V1, MAGIC_V2, decode_header, decode_record
from store.format.record_layout import HEADER_BYTES_MAX

SEARCH_BYTES = 1 << 20  # read at a time
MAGICS = (MAGIC_V1.to_bytes(4, "big", signed=True), MAGIC_V2.to_bytes(4, "big", signed=True))
MAGIC_PREFIX = MAGICS[0][:3]
assert MAGICS[1].startswith(MAGIC_PREFIX)
OFFSET_MAX = (1 << 63) - 1


class LogBytes(Protocol):
    """The files of a log, as far as a walk needs them."""

    def find(self, offset: int) -> MappedFile | None:
        """The file that covers a commit-log offset, or None."""


def find_record_behind(files: LogBytes, offset: int, end_offset: int = OFFSET_MAX) -> int | None:
    """The first commit-log offset behind `offset` at which a whole, good record stands that knows its place, or None.

    Args:
        files: the log.
        offset: where the search begins (commit-log offset).
        end_offset: a record that begins here or behind does not count.
    """
    file = files.find(offset)
    while file is not None and file.first_offset < end_offset:
        found = find_record_in(file, offset, end_offset)
        if found is not None:
            return found
        file = files.find(file.last_offset)
    return None


def find_record_in(file: MappedFile, offset: int, end_offset: int = OFFSET_MAX) -> int | None:
    """The same in one file."""
    for begin, end in file.data_ranges(max(offset, file.first_offset)):
        file.will_read(begin, min(end, end_offset))
        for position in range(begin, min(end, end_offset), SEARCH_BYTES):
            # A head that lies across two pieces is seen whole in the first.
            piece = file.read(position, min(SEARCH_BYTES, end - position) + HEADER_BYTES_MAX)
            at = piece.find(MAGIC_PREFIX)
            while at >= 0:
                candidate = position + at - 4
                if piece[at : at + 4] in MAGICS and offset < candidate and is_record(file, candidate):
                    return candidate if candidate < end_offset else None
                at = piece.find(MAGIC_PREFIX, at + 1)
    return None


def is_record(file: MappedFile, offset: int) -> bool:
    """Whether a whole, good record that knows its place stands at a commit-log offset of a file."""
    if offset < file.first_offset:
        return False
    head = file.read(offset, HEADER_BYTES_MAX)
    try:
        size_bytes = decode_header(head, 0, offset).size_bytes
        decode_record(file.read(offset, size_bytes), commit_log_offset=offset)
    except RecordCorruptedError:
        return False
    return True
