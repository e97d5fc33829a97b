"""Reading the record at an offset of a log whose end is known; the commit log and other processes on its machine use it."""

from collections.abc import Callable

from store.format.record import FRAME_SIZE_BYTES_MIN, Record, decode_header, decode_record

FIRST_READ_BYTES = 8192  # most records are smaller: one read


def read_record_at(read: Callable[[int, int], bytes], commit_log_offset: int, size_bytes_max: int) -> Record:
    """The record that starts at an offset.

    Checked is that the record's bytes agree with one another and state this offset. Where they do not, only a walk from a
    known start tells damage from the middle of a record.

    Args:
        read: reads up to so many bytes from a commit-log offset on.
        commit_log_offset: inside the log.
        size_bytes_max: bytes from there to the end of the log or of its file.

    Raises:
        RecordCorruptedError: no record starts there, or a damaged one.
    """
    data = read(commit_log_offset, min(FIRST_READ_BYTES, size_bytes_max))
    size_bytes = int.from_bytes(data[:4], "big")
    if len(data) < size_bytes <= size_bytes_max and size_bytes >= FRAME_SIZE_BYTES_MIN:
        decode_header(data, 0, commit_log_offset)
        data = read(commit_log_offset, size_bytes)
    return decode_record(data, commit_log_offset=commit_log_offset)
