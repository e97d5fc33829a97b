"""Walking the log record by record, and telling a torn tail from damage.

A record counts only if its lengths add up, its magic is right, it says that it stands where it stands, its body has its CRC
and, where there is one, the whole frame its `__CRC32#`. The walk ends at the first place where that is not so:

- zeros behind which nothing was ever written: the end of the log;
- bytes that are no record, and behind them no record either: a torn write, the tail that a crash may leave;
- a record without `__CRC32#` that cannot be what was written, and behind it nothing of the log: a torn write too;
- bytes that are no record, and behind them a record that knows its place: damage. Nothing is cut then.

Who needs no record itself, only the ends of the queues, gets runs of plainly good records from a kernel, without Python
for each of them (`record_runs.py`). Whatever is not plainly good is judged here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from store.errors import RecordCorruptedError
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import (
    BLANK_SIZE_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    IncompleteRecordError,
    Record,
    decode_header,
    decode_record,
)
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES
from store.readers.record_runs import QueueOffsets, RecordRuns, SeeStretch

CHUNK_BYTES = 1 << 20  # a piece that is still in the CPU's cache when it is checked
HEADER_BYTES_MAX = 128  # more than the longest frame head
TEAR_WINDOW_BYTES = 65_536  # behind the end of a log that was not torn all of this is zeros
MAGICS = (MAGIC_V1.to_bytes(4, "big", signed=True), MAGIC_V2.to_bytes(4, "big", signed=True))
MAGIC_PREFIX = MAGICS[0][:3]
assert MAGICS[1].startswith(MAGIC_PREFIX)


@dataclass(slots=True)
class WalkEnd:
    """Where a walk ended and why.

    Attributes:
        end_offset: the first byte behind the last good record or blank.
        why: what is wrong with the bytes there; None when they are zeros or the files end.
        last_record: offset and size of the last record seen, or None.
        last_store_time_millis: the greatest store time seen.
        record_count: how many records were seen.
        is_guarded: whether the last record, seen or before the begin, carries a `__CRC32#`.
    """

    end_offset: int
    why: RecordCorruptedError | None = None
    last_record: tuple[int, int] | None = None
    last_store_time_millis: int = 0
    record_count: int = field(default=0)
    is_guarded: bool = False


def walk_log(
    files: MappedFileQueue,
    begin_offset: int,
    see: Callable[[Record], None],
    pulse: Callable[[WalkEnd], None] = lambda end: None,
    see_run: Callable[[QueueOffsets], None] | None = None,
    see_stretch: SeeStretch | None = None,
) -> WalkEnd:
    """Shows every good record from `begin_offset` (a record's start) on to `see`; never raises for bad bytes.

    Args:
        files: the log's.
        begin_offset: where to begin.
        see: takes a record.
        pulse: called between records, once for each piece of the log that is read, with how far the walk is.
        see_run: takes runs of records instead of `see`, as the queue offset of the last record of each queue in the run
            (without prepared and rolled-back messages, which stand in no queue); in log order with what `see` takes.
        see_stretch: takes the bytes of each of these runs too.
    """
    end = WalkEnd(begin_offset)
    runs = RecordRuns(see_run, see_stretch) if see_run is not None else None
    before = files.find(begin_offset - CRC_PROPERTY_SIZE_BYTES)
    if before is not None and begin_offset <= before.last_offset:
        end.is_guarded = before.read(begin_offset - CRC_PROPERTY_SIZE_BYTES, len(CRC_MARKER)) == CRC_MARKER
    while (file := files.find(end.end_offset)) is not None:
        if not _walk_file(files, file, end, see, pulse, runs):
            break
    return end


def _walk_file(
    files: MappedFileQueue,
    file: MappedFile,
    end: WalkEnd,
    see: Callable[[Record], None],
    pulse: Callable[[WalkEnd], None],
    runs: RecordRuns | None,
) -> bool:
    """Walks to the file's end (True) or to the end of the log (False)."""
    base, chunk, at = end.end_offset, b"", 0
    while True:
        offset = base + at
        if len(chunk) - at < BLANK_SIZE_BYTES and base + len(chunk) < file.last_offset:
            pulse(end)
            chunk, base, at = file.read(offset, CHUNK_BYTES), offset, 0
        if offset >= file.last_offset:
            return True
        if runs is not None and (behind := _skip_run(runs, chunk, at, base, end)) > at:
            at, offset = behind, base + behind
            if len(chunk) - at < BLANK_SIZE_BYTES:
                continue
        head = chunk[at : at + BLANK_SIZE_BYTES]
        if not any(head):
            return False
        try:
            header = decode_header(chunk, at)
            if header.is_blank:
                if offset + header.size_bytes != file.last_offset:
                    raise RecordCorruptedError(
                        f"a blank of {header.size_bytes} bytes at {offset} does not close its file",
                        commitLogOffset=offset,
                    )
                end.end_offset = file.last_offset
                return True
            if offset + header.size_bytes > file.last_offset:
                raise RecordCorruptedError(
                    f"a record of {header.size_bytes} bytes at {offset} does not fit its file", commitLogOffset=offset
                )
            if at + header.size_bytes > len(chunk) and base + len(chunk) < file.last_offset:
                if at == 0 and len(chunk) >= header.size_bytes:
                    raise IncompleteRecordError(f"the file ends inside the record at {offset}", commitLogOffset=offset)
                pulse(end)
                fresh = file.read(offset, max(CHUNK_BYTES, header.size_bytes))
                if at == 0 and len(fresh) <= len(chunk):
                    raise IncompleteRecordError(f"the file ends inside the record at {offset}", commitLogOffset=offset)
                chunk, base, at = fresh, offset, 0
                continue
            record = decode_record(chunk, at=at, commit_log_offset=offset)
            if not record.is_guarded and _is_torn(record, files, file, follows_guarded=end.is_guarded):
                raise IncompleteRecordError(
                    f"the properties of the record at {offset}, the last one, are not whole", commitLogOffset=offset
                )
        except IncompleteRecordError as error:
            if at > 0 and base + len(chunk) < file.last_offset and len(chunk) - at < HEADER_BYTES_MAX:
                pulse(end)
                chunk, base, at = file.read(offset, CHUNK_BYTES), offset, 0
                continue
            end.why = error
            return False
        except RecordCorruptedError as error:
            end.why = error
            return False
        see(record)
        end.record_count += 1
        end.last_record = (offset, record.store_size_bytes)
        end.is_guarded = record.is_guarded
        end.last_store_time_millis = max(end.last_store_time_millis, record.store_time_millis)
        at += record.store_size_bytes
        end.end_offset = base + at


def _skip_run(runs: RecordRuns, chunk: bytes, at: int, base: int, end: WalkEnd) -> int:
    """Lets a run of good records through; where the first behind it starts in `chunk`."""
    run = runs.check(chunk, at, base + at, is_guarded=end.is_guarded)
    if run is None:
        return at
    end.record_count += run.record_count
    end.last_record = (base + run.last_at, run.next_at - run.last_at)
    end.is_guarded = run.is_guarded
    end.last_store_time_millis = max(end.last_store_time_millis, run.store_time_millis_max)
    end.end_offset = base + run.next_at
    return run.next_at


def _is_torn(record: Record, files: MappedFileQueue, file: MappedFile, *, follows_guarded: bool) -> bool:
    """Whether a record without `__CRC32#` is the log's last and its properties are not what was written.

    That is so when they cannot be what a writer meant, or when the record before carries a `__CRC32#` and behind this one
    lie bytes that are neither zeros nor the log's: then this one lost its own to a tear. A store that was told to write
    none from here on has zeros behind its last record.
    """
    looks_torn = _looks_torn(record)
    if not looks_torn and not follows_guarded:
        return False
    behind = file.read(record.next_offset, TEAR_WINDOW_BYTES)
    return (looks_torn or any(behind)) and not _goes_on(behind, files, file, record.next_offset)


def _goes_on(head: bytes, files: MappedFileQueue, file: MappedFile, offset: int) -> bool:
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
    behind = files.read(file.last_offset, HEADER_BYTES_MAX)
    if not any(behind[:BLANK_SIZE_BYTES]):
        return True
    try:
        return not decode_header(behind, 0, file.last_offset).is_blank
    except RecordCorruptedError:
        return False


def _looks_torn(record: Record) -> bool:
    """Whether topic or properties cannot be what a writer meant: they have no CRC of their own.

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


def find_record_behind(files: MappedFileQueue, offset: int) -> int | None:
    """The first place behind `offset` where a whole, good record stands that knows its place; None without one."""
    file = files.find(offset)
    while file is not None:
        found = find_record_in(file, offset)
        if found is not None:
            return found
        file = files.find(file.last_offset)
    return None


def find_record_in(file: MappedFile, offset: int) -> int | None:
    """The same in one file."""
    for begin, end in file.data_ranges(max(offset, file.first_offset)):
        for position in range(begin, end, CHUNK_BYTES):
            # A head that lies across two pieces is seen whole in the first.
            chunk = file.read(position, min(CHUNK_BYTES, end - position) + HEADER_BYTES_MAX)
            at = chunk.find(MAGIC_PREFIX)
            while at >= 0:
                candidate = position + at - 4
                if chunk[at : at + 4] in MAGICS and candidate > offset and _is_record(file, candidate):
                    return candidate
                at = chunk.find(MAGIC_PREFIX, at + 1)
    return None


def _is_record(file: MappedFile, offset: int) -> bool:
    if offset < file.first_offset:
        return False
    head = file.read(offset, HEADER_BYTES_MAX)
    try:
        size_bytes = decode_header(head, 0, offset).size_bytes
        decode_record(file.read(offset, size_bytes), commit_log_offset=offset)
    except RecordCorruptedError:
        return False
    return True
