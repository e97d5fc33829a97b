"""Telling a torn record without `__CRC32#` from a whole one: by its text, and by what follows it.

A power cut may keep some pages of the last write and lose others. The CRC of the body shows a torn body, and `__CRC32#` any
tear. A record without `__CRC32#` has no CRC over its topic and properties: they are judged here.
"""

from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFile
from store.format.record import Record, decode_header
from store.format.record_layout import BLANK_SIZE_BYTES, HEADER_BYTES_MAX
from store.walk.record_search import LogBytes

TEAR_WINDOW_BYTES = 65_536  # behind the end of a log that was not torn all of this is zeros


def is_torn(files: LogBytes, record: Record, *, follows_guarded: bool) -> bool:
    """Whether a record without `__CRC32#` is the log's last and its properties are not what was written.

    That is so when its text shows it, or when the record before carries a `__CRC32#` and behind this one lie bytes that are
    neither zeros nor the log's: then this one lost its own to a tear. A store that was told to write none from here on has
    zeros behind its last record.

    Args:
        files: the log.
        record: with lengths and CRC of the body in order.
        follows_guarded: whether the record before carries a `__CRC32#`.
    """
    looks_torn = _looks_torn(record)
    if not looks_torn and not follows_guarded:
        return False
    file = files.find(record.commit_log_offset)
    assert file is not None
    behind = file.read(record.next_offset, TEAR_WINDOW_BYTES)
    return (looks_torn or any(behind)) and not _goes_on(behind, files, file, record.next_offset)


def _goes_on(head: bytes, files: LogBytes, file: MappedFile, offset: int) -> bool:
    """Whether these first bytes at `offset` are the log's: a head that knows its place, or the blank of its file.

    A blank knows no place: an older log may have left it. Then what it leads to is no record of this log either.
    """
    try:
        header = decode_header(head, 0, offset)
    except RecordCorruptedError:
        return False
    if not header.is_blank:
        return True
    if offset + header.size_bytes != file.last_offset:
        return False
    next_file = files.find(file.last_offset)
    behind = next_file.read(file.last_offset, HEADER_BYTES_MAX) if next_file is not None else b""
    if not any(behind[:BLANK_SIZE_BYTES]):
        return True
    try:
        return not decode_header(behind, 0, file.last_offset).is_blank
    except RecordCorruptedError:
        return False


def _looks_torn(record: Record) -> bool:
    """Whether topic or properties cannot be what a writer meant.

    Java writes valid UTF-8, never ends a property with NUL, and leaves no name without a value behind the last separator.
    A topic is never empty and has no NUL.
    """
    if not record.topic or "\0" in record.topic or "\ufffd" in record.topic:
        return True
    try:
        last = record.properties_bytes.decode().rpartition("\x02")[2]
    except UnicodeDecodeError:
        return True
    name, _, value = last.partition("\x01")
    return record.ends_in_zero or (last != "" and not (name and value))
