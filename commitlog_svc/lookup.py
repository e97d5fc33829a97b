"""Finding a record by its offset: telling a record from the middle of one, and either from damage."""

from commitlog_svc.frame_starts import FrameStarts
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import Record, decode_header
from store.readers.record_reader import read_record_at

HEADER_BYTES_MAX = 128  # more than the longest frame head


def read_record(files: MappedFileQueue, starts: FrameStarts, commit_log_offset: int, end_offset: int) -> Record:
    """The record that starts at an offset of a log that ends at `end_offset`.

    Raises:
        OffsetOutOfRangeError: outside the log.
        RecordNotFoundError: inside the log, but no record starts there.
        RecordCorruptedError: a record starts there and is damaged.
    """
    file = find_file(files, commit_log_offset, end_offset)
    size_bytes_max = min(end_offset, file.last_offset) - commit_log_offset
    try:
        return read_record_at(file.read, commit_log_offset, size_bytes_max)
    except RecordCorruptedError as error:
        head = file.read(commit_log_offset, min(HEADER_BYTES_MAX, size_bytes_max))
        if not starts.is_start(file, commit_log_offset) or _is_blank(head):
            raise _no_start(commit_log_offset) from None
        error.metadata["file"] = str(file.path)
        error.metadata["commitLogOffset"] = str(commit_log_offset)
        raise


def find_file(files: MappedFileQueue, commit_log_offset: int, end_offset: int) -> MappedFile:
    """The file that holds an offset of a log that ends at `end_offset`; OffsetOutOfRangeError outside the log."""
    file = files.find(commit_log_offset)
    first_offset = files.first_offset
    if not first_offset <= commit_log_offset < end_offset or file is None:
        raise OffsetOutOfRangeError(
            f"commit-log offset {commit_log_offset} is outside the log, which has {first_offset} to {end_offset}",
            offset=commit_log_offset,
            firstOffset=first_offset,
            lastOffset=end_offset,
        )
    return file


def check_start(files: MappedFileQueue, starts: FrameStarts, start_offset: int, flushed_offset: int) -> int:
    """Where a follower begins: `start_offset`, or for -1 the log's first record.

    Raises:
        OffsetOutOfRangeError: the start is outside the flushed log.
        RecordNotFoundError: no record starts there.
        RecordCorruptedError: a record starts there and is damaged.
    """
    first_offset = files.first_offset
    start = first_offset if start_offset == -1 else start_offset
    if not first_offset <= start <= flushed_offset:
        raise OffsetOutOfRangeError(
            f"commit-log offset {start} is outside the flushed log, which has {first_offset} to {flushed_offset}",
            offset=start,
            firstOffset=first_offset,
            lastOffset=flushed_offset,
        )
    if start < flushed_offset:
        try:
            decode_header(files.read(start, HEADER_BYTES_MAX), 0, start)
        except RecordCorruptedError:
            file = files.find(start)
            if file is None or starts.is_start(file, start):
                raise
            raise _no_start(start) from None
    return start


def _no_start(commit_log_offset: int) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"no record starts at commit-log offset {commit_log_offset}", commitLogOffset=commit_log_offset
    )


def _is_blank(data: bytes) -> bool:
    try:
        return decode_header(data, 0).is_blank
    except RecordCorruptedError:
        return False
