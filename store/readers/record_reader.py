"""Reading the record at an offset of a log whose end is known: what the log's owner and readers beside it share."""

from collections.abc import Callable

from store.format.record import FRAME_SIZE_BYTES_MIN, Record, decode_header, decode_record

FIRST_READ_BYTES = 8192  # most records are smaller: one read


def read_record_at(read: Callable[[int, int], bytes], commit_log_offset: int, size_bytes_max: int) -> Record:
    """The record that starts at an offset.

    That its bytes agree with one another and name this offset is all that is checked: where they do not, only a walk
    from a known start tells damage from the middle of a record.

    Args:
        read: up to so many bytes from a commit-log offset on.
        commit_log_offset: inside the log (bytes).
        size_bytes_max: from there to the end of the log or of its file.

    Raises:
        RecordCorruptedError: no record starts there, or a damaged one.
    """
    data = read(commit_log_offset, min(FIRST_READ_BYTES, size_bytes_max))
    size_bytes = int.from_bytes(data[:4], "big")
    if len(data) < size_bytes <= size_bytes_max and size_bytes >= FRAME_SIZE_BYTES_MIN:
        decode_header(data, 0, commit_log_offset)
        data = read(commit_log_offset, size_bytes)
    return decode_record(data, commit_log_offset=commit_log_offset)
