"""Where tasks may begin to read in a log file of an object store, without reading the file first.

    file   |-----------------|==-------------|==-------------|==--------|
                             ^ a probe reads some 100 KiB at each wanted end, one request, and finds the next record

A record states its own commit-log offset. A probe takes the first place where a whole record with right CRCs stands that
does so, and behind which the next record (or the blank) begins. Only a producer who foresees an offset can make another
place look like that. Even then no row is wrong: each task proves that its records end where the next task's begin, and
reports SplitBoundaryError otherwise.
"""

from pipeline.scan.boundaries import FileWalk, Mark
from pipeline.scan.log_files import LogFile
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile
from store.format.record import decode_header, decode_record
from store.walk.checks import SizeCheck
from store.walk.cursor import OneFile, RecordCursor
from store.walk.record_search import MAGIC_PREFIX
from store.walk.scan_layout import INT64_MAX, INT64_MIN

PROBED = -1  # in place of a walk's check, where probes are kept
# Some records of usual size; when it holds none, records are large, and the second read holds two of RocketMQ's largest.
PROBE_BYTES, PROBE_BYTES_MAX = 128 << 10, 12 << 20
# Behind the place where the end of a file is looked for; two reads.
TAIL_BYTES = 1 << 20
# Of a file; more tasks would spend their time on round trips.
PROBE_COUNT_MAX = 64


def probe_file(fs: FileSystem, file: LogFile, every_bytes: int) -> FileWalk:
    """Records that begin about `every_bytes` behind one another, as marks; the times of their records are not known.

    Raises:
        LogFileGoneError: the file was deleted since it was listed.
    """
    every_bytes = max(every_bytes, -(-(file.last_offset - file.first_offset) // PROBE_COUNT_MAX))
    opened = file.open(fs)
    begins = [file.first_offset]
    try:
        wanted = file.first_offset + every_bytes
        while wanted < file.last_offset:
            found = find_record_at(opened, wanted)
            if found is not None:
                begins.append(found)
            wanted = (wanted if found is None else found) + every_bytes
    except FileNotFoundError:
        raise file.gone() from None
    finally:
        opened.close()
    # Nothing is known of the records: bounds of time that rule out nothing.
    marks = tuple(Mark(begin, 1, INT64_MIN, INT64_MAX) for begin in begins)
    return FileWalk(marks, file.last_offset, is_complete=True)


def ends_complete(fs: FileSystem, file: LogFile) -> bool:
    """Whether records reach to the file's end, or to the blank there: then the file is full, and needs no walk."""
    opened = file.open(fs)
    try:
        tail = file.last_offset - TAIL_BYTES
        begin = find_record_at(opened, tail) if tail > file.first_offset else file.first_offset
        if begin is None:
            return False
        cursor = RecordCursor(OneFile(opened), begin, SizeCheck())
        for _ in cursor:
            pass
    except FileNotFoundError:
        raise file.gone() from None
    finally:
        opened.close()
    return cursor.offset == file.last_offset


def find_record_at(file: MappedFile, offset: int) -> int | None:
    """The first commit-log offset at or behind `offset` where a record stands that another one follows; None without one."""
    for size_bytes in (PROBE_BYTES, PROBE_BYTES_MAX):
        piece = file.read(offset, size_bytes)
        at = piece.find(MAGIC_PREFIX)
        while at >= 0:
            if at >= 4 and _is_followed(piece, at - 4, offset, file.last_offset):
                return offset + at - 4
            at = piece.find(MAGIC_PREFIX, at + 1)
        if len(piece) < size_bytes:
            break
    return None


def _is_followed(piece: bytes, at: int, offset: int, file_end: int) -> bool:
    """Whether a record stands at piece[at], and behind it a record's head, the file's blank, or the file's end.

    Args:
        piece: bytes of the file.
        at: a place in them.
        offset: commit-log offset of the first of them.
        file_end: commit-log offset behind the file.
    """
    try:
        end = at + decode_record(piece, at=at, commit_log_offset=offset + at).store_size_bytes
        if offset + end == file_end:
            return True
        header = decode_header(piece, end, offset + end)
    except RecordCorruptedError:
        return False
    return not header.is_blank or offset + end + header.size_bytes == file_end
