"""LogWatch: how far a log is whole that another process appends to; one look at a time, no thread.

    ... | record | record | record | half a record | zeros
        shown    ^ a whole record of the last look  ^ waits
                 until it has settled

The owner maps its files, so bytes of a record may appear in any order: the size before the body, the body before the
properties. Its records come one behind the other. So what is shown is decided in two steps:

1. A look walks the records with the full check (size, magic, own offset, CRC of the body, text of the properties). It ends
   where no whole record stands: zeros, or a record that is half written. That is waited for, it is not damage.
2. What the look found new is shown when its bytes are the same SETTLE_SECONDS later. Nothing but the quiet tells that the
   parts of a header that no CRC covers are there. What has HOT_BYTES of whole records behind it was finished long ago; it
   is shown at once.

Damage is a place where no whole record stands while a whole record stands behind it, for DAMAGE_SECONDS: the owner would have
finished the first before it began the second.

The owner may cut its log: RocketMQ does so after a crash, and when it becomes a slave. Then bytes that were shown change, or
their file goes: LogChangedError. RocketMQ leaves old bytes behind the cut until it writes over them, so the last WITNESS_BYTES
that were shown are compared at each look.
"""

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from commitlog_svc.append.topics.queue_offsets import QueueKey
from store.errors import LogChangedError, RecordCorruptedError, StoreCorruptedError
from store.files.owners_files import OwnersFiles
from store.format.record import Record, decode_header
from store.format.record_layout import HEADER_BYTES_MAX
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from store.walk.record_runs import RecordRun, RunCheck, note_batch_topics, note_next_offsets
from store.walk.record_search import find_record_in, is_record

# A broker writes a record within microseconds, and a page fault or a busy machine may stop it in between.
SETTLE_SECONDS = 0.02
HOT_BYTES = 1 << 20
# One look walks no more, so that what it found settles soon.
LOOK_BYTES_MAX = 256 << 20
REFRESH_SECONDS = 0.2  # the directory is read no more often while a log file has room
DAMAGE_SECONDS = 5.0
# How far behind a place a whole record is searched: twice RocketMQ's largest message.
SEARCH_BYTES_MAX = 8 << 20
SEARCH_SECONDS_MIN, SEARCH_SECONDS_MAX = 1.0, 30.0
WITNESS_BYTES = 64 << 10
READ_BYTES = 1 << 20


@dataclass(slots=True)
class WatchedLog:
    """The state of the log up to `end_offset`.

    Attributes:
        end_offset: everything before it is whole (bytes); a record begins there.
        last_record: offset and size of the record before it; None when not known.
        last_store_time_millis: the greatest store time; 0 without a record.
        queue_offsets: the next offset of each queue.
        batch_topics: topics that have an inner batch, each with the commit-log offset of the last one.
    """

    end_offset: int
    last_record: tuple[int, int] | None = None
    last_store_time_millis: int = 0
    queue_offsets: dict[QueueKey, int] = field(default_factory=dict)
    batch_topics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Whole records behind the end that have to settle.

    Attributes:
        log: what is known with them; its queue offsets and batch topics are those of their queues only.
        begin_offset: where the bytes that are not shown yet begin.
        crc: of these bytes.
        seen_at: when it was taken (seconds).
    """

    log: WatchedLog
    begin_offset: int
    crc: int
    seen_at: float


@dataclass(slots=True)
class _Stuck:
    """A place where no whole record stands: since when, when to search behind it, and since when a record stands there."""

    offset: int
    since: float
    search_at: float
    pause_seconds: float = SEARCH_SECONDS_MIN
    behind_since: float | None = None


class LogWatch:
    """See the top of this file; one thread.

    Args:
        files: the log, loaded.
        known: where to begin; a record or a file begins at its end.
        on_shown: called with the offset up to which the log may be shown (bytes), each time that it moves.
        on_removed: called with the first offset before and after files were removed at the front, and their number.
        clock: seconds, rising.

    Attributes:
        log: the log as far as it has settled.
        shown_offset: everything before it may be shown (bytes); at or behind the end of `log`.
        known_end_offset: how far the owner is at least (bytes).
        is_at_end: whether the last look came to where no whole record stands.
        record_count: records walked.
        damage: what is wrong at the end of the log; None while nothing is.
    """

    def __init__(
        self,
        files: OwnersFiles,
        known: WatchedLog,
        on_shown: Callable[[int], None] = lambda offset: None,
        on_removed: Callable[[int, int, int], None] = lambda begin, end, count: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log = known
        self.shown_offset = self.known_end_offset = known.end_offset
        self.is_at_end = False
        self.record_count = 0
        self.damage: StoreCorruptedError | None = None
        self._files = files
        self._on_shown = on_shown
        self._on_removed = on_removed
        self._clock = clock
        self._candidate: _Candidate | None = None
        self._stuck: _Stuck | None = None
        self._witness: tuple[int, bytes] = (known.end_offset, b"")
        self._refresh_at = clock()
        self._take_witness()

    def look(self) -> bool:
        """One look at the log; returns whether another one is worth it soon.

        Raises:
            LogChangedError: the owner cut the log before `shown_offset`, or began another one.
            OSError: the files cannot be read.
        """
        now = self._clock()
        self._refresh(now)
        self._check_witness()
        shown_before = self.shown_offset
        candidate = self._candidate
        if candidate is not None:
            if now - candidate.seen_at < SETTLE_SECONDS:
                return True
            self._candidate = None
            if self._crc(candidate.begin_offset, candidate.log.end_offset) == candidate.crc:
                self.log.queue_offsets.update(candidate.log.queue_offsets)
                self.log.batch_topics.update(candidate.log.batch_topics)
                self.log = replace(
                    candidate.log, queue_offsets=self.log.queue_offsets, batch_topics=self.log.batch_topics
                )
                self._show(self.log.end_offset)
        self._walk()
        if self.shown_offset > shown_before:
            self._take_witness()
        return self._candidate is not None or self.shown_offset > shown_before

    def _refresh(self, now: float) -> None:
        file = self._files.find(self.log.end_offset)
        if file is not None and now < self._refresh_at:
            return
        self._refresh_at = now + REFRESH_SECONDS
        first_offset = self._files.first_offset
        change = self._files.refresh()
        for gone in change.vanished:
            if gone.first_offset < self.shown_offset:
                raise LogChangedError(
                    f"{gone.path} was removed or replaced by its owner: the log was cut, or it is another one",
                    file=gone.path,
                    commitLogOffset=gone.first_offset,
                )
        if change.removed:
            self._on_removed(first_offset, self._files.first_offset, len(change.removed))
        if self.log.end_offset < self._files.first_offset:  # removed before it was shown
            self._candidate = self._stuck = None
            self.log = replace(self.log, end_offset=self._files.first_offset, last_record=None)
            self._show(self.log.end_offset)
            self._take_witness()

    def _walk(self) -> None:
        """Walks what is new; leaves a candidate when whole records were found."""
        begin = self.log.end_offset
        full = FullCheck(self._files)
        queue_offsets: dict[QueueKey, int] = {}
        batch_topics: dict[str, int] = {}
        settled_offset = noted_offset = begin

        def pulse(offset: int) -> None:
            nonlocal settled_offset, noted_offset
            if offset - noted_offset >= HOT_BYTES:
                settled_offset, noted_offset = noted_offset, offset
                self._show(settled_offset)

        cursor: RecordCursor[Record | RecordRun] = RecordCursor(self._files, begin, RunCheck(full), on_piece=pulse)
        for taken in cursor:
            note_next_offsets(taken, queue_offsets)
            note_batch_topics(taken, batch_topics)
            self.is_at_end = cursor.offset - begin < LOOK_BYTES_MAX
            if not self.is_at_end:
                break
        else:
            self.is_at_end = True
            self._judge(cursor)
        self.record_count += full.record_count
        self.known_end_offset = max(self.known_end_offset, cursor.offset)
        if cursor.offset > begin:
            self._candidate = _Candidate(
                WatchedLog(
                    cursor.offset,
                    full.last_record or self.log.last_record,
                    max(self.log.last_store_time_millis, full.last_store_time_millis),
                    queue_offsets,
                    batch_topics,
                ),
                self.shown_offset,
                self._crc(self.shown_offset, cursor.offset),
                self._clock(),
            )

    def _show(self, offset: int) -> None:
        if offset > self.shown_offset:
            self.shown_offset = offset
            self.known_end_offset = max(self.known_end_offset, offset)
            self._on_shown(offset)

    # -- where no whole record stands

    def _judge(self, cursor: RecordCursor[Record | RecordRun]) -> None:
        offset, now = cursor.offset, self._clock()
        stuck = self._stuck
        if stuck is None or stuck.offset != offset:
            self._stuck = _Stuck(offset, now, now + SEARCH_SECONDS_MIN)
            self.damage = None
            self.known_end_offset = offset + self._half_record_bytes(offset)
            return
        if now < stuck.search_at:
            return
        behind = self._find_behind(offset)
        if behind is None:
            stuck.behind_since, self.damage = None, None
            stuck.pause_seconds = min(2 * stuck.pause_seconds, SEARCH_SECONDS_MAX)
            self.known_end_offset = offset + self._half_record_bytes(offset)
        else:
            stuck.pause_seconds = SEARCH_SECONDS_MIN
            stuck.behind_since = now if stuck.behind_since is None else stuck.behind_since
            self.known_end_offset = max(self.known_end_offset, behind)
            if now - stuck.behind_since >= DAMAGE_SECONDS:
                self.damage = self._damage_at(offset, behind, cursor.why)
        stuck.search_at = now + stuck.pause_seconds

    def _half_record_bytes(self, offset: int) -> int:
        """The size that the head of a half-written record says (bytes); 0 when it says none."""
        file = self._files.find(offset)
        if file is None:
            return 0
        try:
            return min(
                decode_header(file.read(offset, HEADER_BYTES_MAX), 0, offset).size_bytes, file.last_offset - offset
            )
        except RecordCorruptedError:
            return 0

    def _find_behind(self, offset: int) -> int | None:
        """A whole record behind a place, near it or at the begin of a later file; None without one."""
        file = self._files.find(offset)
        if file is None:
            gap_offset = self._files.gap_offset
            return gap_offset if gap_offset == offset else None
        found = find_record_in(file, offset, min(offset + SEARCH_BYTES_MAX, file.last_offset))
        if found is not None:
            return found
        next_file = self._files.find(file.last_offset)
        return file.last_offset if next_file is not None and is_record(next_file, next_file.first_offset) else None

    def _damage_at(self, offset: int, behind: int, why: RecordCorruptedError | None) -> StoreCorruptedError:
        file = self._files.find(offset)
        path = file.path if file is not None else self._files.path_of(offset)
        position = offset - file.first_offset if file is not None else 0
        if file is None:
            what = "it is missing, and there are files behind it"
        else:
            what = f"{why.message if why is not None else 'zeros'}; a whole record follows at {behind}"
        return StoreCorruptedError(
            f"{path} is damaged at byte {position} (commit-log offset {offset}): {what}. Nothing behind it is shown: bring the "
            "file back from a copy; `reput fsck` shows all damage",
            file=path,
            offset=position,
            commitLogOffset=offset,
        )

    # -- bytes that must not change

    def _crc(self, begin_offset: int, end_offset: int) -> int:
        crc = 0
        for _, data in self._files.iterate(begin_offset, end_offset, READ_BYTES):
            crc = zlib.crc32(data, crc)
        return crc

    def _take_witness(self) -> None:
        """Remembers the last bytes that are shown."""
        file = self._files.find(self.shown_offset - 1)
        if file is None:
            self._witness = (self.shown_offset, b"")
            return
        begin = max(file.first_offset, self.shown_offset - WITNESS_BYTES)
        self._witness = (begin, file.read(begin, self.shown_offset - begin))

    def _check_witness(self) -> None:
        begin, data = self._witness
        file = self._files.find(begin) if data else None
        if file is not None and file.read(begin, len(data)) != data:
            raise LogChangedError(
                f"{file.path} has other bytes before byte {begin + len(data) - file.first_offset} than those that were shown: "
                "its owner cut the log there and went on",
                file=file.path,
                commitLogOffset=begin,
            )
