"""Finds the end of the log and of each queue after a start.

- From the snapshot if the log agrees with it, otherwise from the log's first record, every record is checked in full.
- Every CHECKPOINT_SECONDS the walked part is flushed and a snapshot of it is written: after a kill, recovery continues
  there, not at the start.
- A torn tail is cut: it is zeroed and later files are removed, and that is on the disk before anything is served. An
  incomplete request at the end is part of it (RequestEnds).
- Damage is not cut but reported with its byte: StoreCorruptedError. Damage is what lies before the durable mark, or has a
  whole record behind it. The exception: behind the durable mark of an unclean stop a power cut may have kept later pages and
  lost earlier ones. Nothing there was acknowledged as durable, so it is cut like any torn tail.
- A queue without a record in the log (all were removed with old files) continues where its ConsumeQueue ends.

RequestEnds: the end of the last whole request. A log whose last request was torn by a crash ends there.

Writes are sequential, and a recovery cuts what it does not keep. So only the last request of a log can be incomplete, and
only after an unclean stop. Its records have a mark (`store/format/request_mark.py`): the last record that is left says
whether records of its request are missing behind it, and where the request begins.

    ... | record | request: record 1 | record 2 | (record 3: torn) | zeros
                 ^ the log is cut here
"""

import logging
import time
import zlib
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from commitlog_svc.append.topics.light_offsets import NAME as LIGHT_POSITIONS_NAME
from commitlog_svc.append.topics.light_offsets import LightJournal, LightOffsets
from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.lookup import TailStarts
from commitlog_svc.recovery.safe_point import Snapshot, read_durable_mark, read_snapshot, write_snapshot
from store.derive.queue_placement import NO_UNIT_BIT
from store.errors import DiskFullError, RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem, drop_cached_pages
from store.files.mapped_files import MappedFileQueue
from store.format import paths
from store.format.derived.queue_unit import FILLER_SIZE_BYTES, UNIT
from store.format.record import Record, decode_header, decode_record
from store.format.record_layout import HEADER_BYTES_MAX
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, decode_request_mark
from store.format.topic import LIGHT_QUEUE_COUNT_MAX, is_light_queue
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from store.walk.record_runs import (
    RecordRun,
    RunCheck,
    light_places_of,
    note_batch_topics,
    note_light_places,
    note_next_offsets,
)
from store.walk.record_search import find_record_behind

if TYPE_CHECKING:
    from commitlog_svc.reput.recovery_feed import RecoveryFeed

_log = logging.getLogger("reput.commitlog")
Place = tuple[int, int]  # offset and size of a record


class RequestEnds:
    """Follows a walk and knows where the last whole request before its position ends.

    Args:
        files: the log's files.
        begin_offset: where the walk begins; a request ends there.
        last_record: the record before it; None when not known.
    """

    def __init__(self, files: MappedFileQueue, begin_offset: int, last_record: Place | None) -> None:
        self._files = files
        self._begin_offset = self._known_end = begin_offset
        self._known_record = last_record

    def end_before(self, offset: int, last_record: Place | None) -> int:
        """The end of the last request that is known to be whole before `offset`; never before an earlier answer.

        Args:
            offset: the walk's position.
            last_record: the last record that the walk has seen; None before the first.
        """
        if self._unfinished_mark(offset, last_record) is not None:
            return self._known_end  # not what the mark says: the record may not stand in its request any more
        self._known_end, self._known_record = offset, last_record or self._known_record
        return offset

    def incomplete_request(self, end_offset: int, last_record: Place | None) -> list[Record]:
        """The records of the request that the log's end at `end_offset` cuts apart; empty when there is none.

        Marks that contradict one another were written by another program; they are ignored.
        """
        mark = self._unfinished_mark(end_offset, last_record)
        if mark is None or last_record is None:
            return []
        begin_offset = offset = last_record[0] - mark.before_bytes
        request_bytes = mark.before_bytes + last_record[1] + mark.behind_bytes
        records = []
        try:
            while offset < end_offset:
                size_bytes = self._read_size(offset)
                before_bytes = offset - begin_offset
                expected = RequestMark(before_bytes, request_bytes - before_bytes - size_bytes)
                if self._read_mark((offset, size_bytes)) != expected:
                    return []
                records.append(decode_record(self._files.read(offset, size_bytes), commit_log_offset=offset))
                offset += size_bytes
        except RecordCorruptedError:
            return []
        return records

    def last_record_before(self, end_offset: int) -> Place | None:
        """The record before the end of a whole request; None when not known."""
        offset, found = self._known_end, self._known_record
        while offset < end_offset:
            file = self._files.find(offset)
            assert file is not None, offset
            if decode_header(file.read(offset, HEADER_BYTES_MAX), 0, offset).is_blank:
                offset = file.last_offset
            else:
                found = offset, self._read_size(offset)
                offset += found[1]
        return found

    def _unfinished_mark(self, end_offset: int, last_record: Place | None) -> RequestMark | None:
        """The last record's mark, when it says that the request goes on behind `end_offset`."""
        if last_record is None or sum(last_record) != end_offset:
            return None
        mark = self._read_mark(last_record)
        if mark is None or mark.behind_bytes == 0 or last_record[0] - mark.before_bytes < self._begin_offset:
            return None
        record = decode_record(self._files.read(*last_record), commit_log_offset=last_record[0])
        return None if record.has_copied_crc else mark  # a broker's copy of a record has the mark of that one

    def _read_mark(self, place: Place) -> RequestMark | None:
        return decode_request_mark(self._files.read(sum(place) - TAIL_SIZE_BYTES, TAIL_SIZE_BYTES))

    def _read_size(self, offset: int) -> int:
        return decode_header(self._files.read(offset, HEADER_BYTES_MAX), 0, offset).size_bytes


def forget_queue_offsets(records: Iterable[Record], queue_offsets: MutableMapping[QueueKey, int]) -> None:
    """Sets the next offsets of queues back to before these records, which are the last of the log, in log order."""
    seen: set[QueueKey] = set()
    for record in records:
        queue = record.topic, record.queue_id
        if queue in seen or record.sys_flag & NO_UNIT_BIT:
            continue
        seen.add(queue)
        queue_offsets[queue] = record.queue_offset
        if record.queue_offset == 0:
            del queue_offsets[queue]


def forget_light_places(records: Iterable[Record], light: LightOffsets) -> None:
    """Sets the next positions of light queues back to before these records, which are the last of the log, in log order."""
    seen: set[str] = set()
    for record in records:
        for place in light_places_of(record):
            if place.queue not in seen:
                seen.add(place.queue)
                light.note(place.queue, place.queue_offset, record.commit_log_offset)


SCAN_CHUNK_BYTES = 1 << 20
# A shorter log is checked before its followers could have read ahead.
LONG_LOG_BYTES_MIN = 32 << 20
PROBE_BYTES = 64 << 10  # after so many zeros the log has most likely ended
READ_ONLY_FILE_COUNT = 3  # RocketMQ also looks at the last three after a clean stop


# A kill loses at most this much work and one piece of the walk: well below the timeout of a liveness probe.
CHECKPOINT_SECONDS = 2.0


@dataclass(slots=True)
class RecoveryProgress:
    """How far a recovery is. Offsets are bytes of the log; the end is that of the files, which the log may not fill."""

    begin_offset: int = 0
    next_offset: int = 0
    end_offset: int = 0
    record_count: int = 0


@dataclass(slots=True)
class RecoveredLog:
    """The log as recovery found it.

    Attributes:
        end_offset: the next record goes here.
        queue_offsets: the next offset of each queue.
        last_record: offset and size of the last record, or None.
        last_store_time_millis: the greatest store time seen.
        cut_offset: where a torn tail was cut; None when there was none.
        cut_why: what was wrong with the tail.
        walked_from_offset: where the walk began.
        record_count: number of records walked.
        batch_topics: topics that have an inner batch in the log, each with the commit-log offset of the last one.
        light: the next position of each light queue; nothing in a log that is only read.
        light_journal: has it on the disk; None: nothing has.
        tail_starts: some record starts before the end.
    """

    end_offset: int = 0
    queue_offsets: dict[QueueKey, int] = field(default_factory=dict)
    last_record: tuple[int, int] | None = None
    last_store_time_millis: int = 0
    cut_offset: int | None = None
    cut_why: str = ""
    walked_from_offset: int = 0
    record_count: int = 0
    batch_topics: dict[str, int] = field(default_factory=dict)
    light: LightOffsets = field(default_factory=LightOffsets)
    light_journal: LightJournal | None = None
    tail_starts: TailStarts = field(default_factory=TailStarts)


def recover_log(
    fs: FileSystem,
    root: Path,
    files: MappedFileQueue,
    *,
    was_aborted: bool,
    read_only: bool,
    progress: RecoveryProgress | None = None,
    clock: Callable[[], float] = time.monotonic,
    open_feed: Callable[[int], "RecoveryFeed"] | None = None,
    light_queue_count_max: int = LIGHT_QUEUE_COUNT_MAX,
) -> RecoveredLog:
    """Walks the log's loaded files and cuts a torn tail (read-only: leaves it and ignores it).

    Args:
        fs: the disk port.
        root: the store root.
        files: the log's files, loaded.
        was_aborted: whether the last owner did not end cleanly.
        read_only: change nothing.
        progress: gets how far the walk is.
        clock: seconds, rising.
        open_feed: called with the offset at which a long walk begins; the feed that it returns gets the checked records.
        light_queue_count_max: see LightOffsets.

    Raises:
        StoreCorruptedError: the log is damaged; nothing was changed.
        FlushFailedError: the cut could not be made durable.
    """
    own_directory = Path(paths.own_state_dir(str(root), "commitlog"))
    found = RecoveredLog(end_offset=files.first_offset, light=LightOffsets(light_queue_count_max))
    snapshot = read_snapshot(fs, own_directory, files)
    if not read_only:
        found.light_journal = LightJournal(fs, own_directory)
        if snapshot is not None and not _load_light(fs, root, snapshot, found.light_journal, found.light):
            snapshot = None
        if snapshot is None:
            found.light_journal.load_newest(found.light)
            found.light.begin_at(files.first_offset)
    if snapshot is not None:
        found.queue_offsets = snapshot.queue_offsets
        found.batch_topics = dict(snapshot.batch_topics)
        found.last_record = snapshot.last_record
        found.last_store_time_millis = snapshot.last_store_time_millis
        begin = snapshot.commit_log_offset
        for offset in snapshot.tail_starts:
            found.tail_starts.note(offset)
    else:
        skip = read_only and not was_aborted
        begin = files.files[-READ_ONLY_FILE_COUNT:][0].first_offset if files.files and skip else files.first_offset
    found.walked_from_offset = begin
    durable_offset = read_durable_mark(fs, own_directory)
    if was_aborted and not read_only:
        # After a failed flush the page cache may differ from the disk, except in the part that was flushed before.
        doubtful_offset = max(begin, durable_offset or 0)
        drop_cached_pages(fs, (file.path for file in files.files if file.last_offset > doubtful_offset))

    progress = progress if progress is not None else RecoveryProgress()
    progress.begin_offset = progress.next_offset = begin
    progress.end_offset = files.last_offset
    checkpoint = _Checkpoint(fs, own_directory, files, found, clock)
    ends = RequestEnds(files, begin, found.last_record)

    full = FullCheck(files)
    feed: RecoveryFeed | None = None

    def pulse(offset: int) -> None:
        whole_end = ends.end_before(offset, full.last_record)
        if feed is not None:
            feed.see_walked(whole_end)
        progress.next_offset, progress.record_count = offset, full.record_count
        if not read_only and whole_end == offset:
            checkpoint.write_when_due(offset, full)

    is_long = bool(files.read(begin + LONG_LOG_BYTES_MIN, PROBE_BYTES).strip(b"\0"))
    if is_long and open_feed is not None and not read_only:
        # No process writes to the files meanwhile: what is read from now on is on the disk.
        _flush(files, begin)
        feed = open_feed(begin)
    cursor = RecordCursor(files, begin, RunCheck(full), on_piece=pulse)
    for taken in cursor:
        found.tail_starts.note(taken.commit_log_offset)
        note_next_offsets(taken, found.queue_offsets)
        note_batch_topics(taken, found.batch_topics)
        if not read_only:
            note_light_places(taken, found.light.see)
        if feed is not None and isinstance(taken, RecordRun):
            feed.see_stretch(taken.piece, taken.at, taken.next_at, taken.commit_log_offset)
    end_offset = cursor.offset
    incomplete = ends.incomplete_request(end_offset, full.last_record) if was_aborted else []
    if incomplete and incomplete[0].commit_log_offset < (durable_offset or 0):
        incomplete = []  # another program cut it apart: our durable mark only stands at ends of requests
    if feed is not None:
        feed.see_end(incomplete[0].commit_log_offset if incomplete else end_offset)
    progress.next_offset, progress.record_count = end_offset, full.record_count
    found.end_offset = end_offset
    found.record_count = full.record_count
    if full.last_record is not None:
        found.last_record = full.last_record
        found.last_store_time_millis = max(found.last_store_time_millis, full.last_store_time_millis)
    written_offset = _find_written_behind(files, end_offset)
    _judge_tail(files, cursor, written_offset, durable_offset, was_aborted=was_aborted)
    if written_offset is not None:
        found.cut_offset = end_offset
        found.cut_why = cursor.why.message if cursor.why is not None else "bytes behind the end of the log"
    if incomplete:
        found.end_offset = found.cut_offset = incomplete[0].commit_log_offset
        found.cut_why = f"the request that begins there has {len(incomplete)} whole records, the others are missing"
        found.record_count -= len(incomplete)
        found.last_record = ends.last_record_before(found.end_offset)
        forget_queue_offsets(incomplete, found.queue_offsets)
        forget_light_places(incomplete, found.light)
        found.tail_starts.cut(found.end_offset)
    if found.cut_offset is not None and not read_only:
        files.truncate(found.cut_offset)
    if not read_only:
        _flush(files, begin)
        if snapshot is None or not snapshot.is_whole:
            _add_queues_without_records(fs, root, found)
    return found


def _load_light(fs: FileSystem, root: Path, snapshot: Snapshot, journal: LightJournal, light: LightOffsets) -> bool:
    """Whether the positions in light queues at a snapshot are known."""
    if snapshot.light is None:  # of an older version, or of a log that another process owned
        folders = fs.listdir(Path(paths.consume_queue_dir(str(root))))
        own = fs.listdir(Path(paths.own_state_dir(str(root), "consumequeue")) / "light")
        if not folders:  # the queues lie elsewhere, or nowhere: a mirror's log may have a broker's light queues
            light.begin_at(snapshot.commit_log_offset)
        return not own and not any(is_light_queue(topic) for topic in folders)
    if journal.load(snapshot.light, light):
        return True
    _log.warning(
        "the positions of light queues (%s%d) are damaged or lost: the whole log is read",
        LIGHT_POSITIONS_NAME,
        snapshot.light[0],
    )
    return False


def _flush(files: MappedFileQueue, begin_offset: int) -> None:
    for file in files.files:
        if file.last_offset > begin_offset:
            file.flush()


class _Checkpoint:
    """Snapshots of a walk that is under way."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        files: MappedFileQueue,
        found: RecoveredLog,
        clock: Callable[[], float],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._files = files
        self._found = found
        self._clock = clock
        self._written_at = clock()
        self._flushed_offset = found.walked_from_offset

    def write_when_due(self, walked_offset: int, walked: FullCheck) -> None:
        """Flushes the walked part and writes a snapshot of it every CHECKPOINT_SECONDS; a full disk does not end the walk."""
        if self._clock() - self._written_at < CHECKPOINT_SECONDS or walked.last_record is None:
            return
        for file in self._files.files:
            if file.last_offset > self._flushed_offset and file.first_offset < walked_offset:
                file.flush()
        self._flushed_offset = walked_offset
        offset, size_bytes = walked.last_record
        snapshot = Snapshot(
            offset + size_bytes,
            self._files.first_offset,
            walked.last_record,
            zlib.crc32(self._files.read(offset, size_bytes)),
            max(self._found.last_store_time_millis, walked.last_store_time_millis),
            self._found.queue_offsets,
            self._found.batch_topics,
            is_whole=False,
            tail_starts=self._found.tail_starts.offsets,
        )
        changes = self._found.light.take_changes()
        try:
            if self._found.light_journal is not None:
                self._found.light_journal.write(changes, snapshot.commit_log_offset)
                snapshot = replace(snapshot, light=self._found.light_journal.place)
            write_snapshot(self._fs, self._directory, snapshot)
        except DiskFullError:
            self._found.light.give_back(changes)
        self._written_at = self._clock()


def _judge_tail(
    files: MappedFileQueue,
    cursor: RecordCursor[Record | RecordRun],
    written_offset: int | None,
    durable_offset: int | None,
    *,
    was_aborted: bool,
) -> None:
    offset = cursor.offset
    record_offset = None
    if written_offset is not None:
        # A header may begin with zeros in the previous piece; the damaged record itself does not count.
        record_offset = find_record_behind(files, max(offset, written_offset - HEADER_BYTES_MAX))
    before_mark = durable_offset is not None and offset < durable_offset
    may_be_lost = was_aborted and durable_offset is not None and offset >= durable_offset
    if not before_mark and (record_offset is None or may_be_lost):
        return
    file = files.find(offset)
    path = file.path if file is not None else files.path_of(offset)
    position = offset - file.first_offset if file is not None else 0
    what = cursor.why.message if cursor.why is not None else "zeros"
    behind = f"a whole record follows at {record_offset}" if record_offset is not None else "more was on the disk"
    raise StoreCorruptedError(
        f"{path} is damaged at byte {position} (commit-log offset {offset}): {what}; {behind}. "
        "Bring the file back from a copy; `reput fsck` shows all damage, `reput fsck --repair-log` cuts the log there",
        file=path,
        offset=position,
        commitLogOffset=offset,
    )


def _find_written_behind(files: MappedFileQueue, offset: int) -> int | None:
    """An offset from `offset` on: all bytes before it are zeros, and the next SCAN_CHUNK_BYTES are not all zeros."""
    zeros = bytes(SCAN_CHUNK_BYTES)
    file = files.find(offset)
    while file is not None:
        for begin, end in file.data_ranges(max(offset, file.first_offset)):
            for position in range(begin, end, SCAN_CHUNK_BYTES):
                chunk = file.read(position, min(SCAN_CHUNK_BYTES, end - position))
                # Compared, not stripped: a copied log ends in a gigabyte of zeros, and comparing is eight times as fast.
                if chunk != (zeros if len(chunk) == len(zeros) else bytes(len(chunk))):
                    return position
        file = files.find(file.last_offset)
    return None


def _add_queues_without_records(fs: FileSystem, root: Path, found: RecoveredLog) -> None:
    directory = Path(paths.consume_queue_dir(str(root)))
    for topic in fs.listdir(directory):
        if is_light_queue(topic):
            continue  # a broker's: no record of ours continues it
        for name in fs.listdir(directory / topic) if fs.is_dir(directory / topic) else ():
            if name.isascii() and name.isdigit() and (topic, int(name)) not in found.queue_offsets:
                end = consume_queue_end(fs, directory / topic / name, found.walked_from_offset)
                if end:
                    found.queue_offsets[topic, int(name)] = end


def consume_queue_end(fs: FileSystem, directory: Path, log_first_offset: int) -> int:
    """The queue offset behind the last unit that points before `log_first_offset`; 0 without one."""
    names = [name for name in fs.listdir(directory) if paths.parse_log_file_name(name) is not None]
    if not names:
        return 0
    sizes = [fs.stat_size(directory / name) for name in names]
    files = MappedFileQueue(fs, directory, max(sizes), writable=False)
    try:
        files.load()
        for file in reversed(files.files):
            data = file.read(file.first_offset, file.size_bytes)
            for at in range(len(data) // UNIT.size * UNIT.size - UNIT.size, -1, -UNIT.size):
                commit_log_offset, size_bytes, _ = UNIT.unpack_from(data, at)
                if size_bytes > 0 and (commit_log_offset < log_first_offset or size_bytes == FILLER_SIZE_BYTES):
                    return (file.first_offset + at) // UNIT.size + 1
    except StoreCorruptedError:
        return 0  # the queue's owner will rebuild it
    finally:
        files.close()
    return 0
