"""LogCopy: the log grows by the raw bytes of another writer, at the same offsets.

    settled                 received
       |===== settled =====|-- received, not shown --|
       the log's end        bytes of records or requests that are not whole yet

- Bytes come in order and in any pieces. They are written where they belong, and the end of the log moves over them when they
  are settled: every record up to there is checked in full (size, magic, its own offset, CRCs), so damage of another machine or
  of the network never becomes part of this log.
- With `whole_requests` the end of the log moves at ends of requests: of an atomic request that has not come whole nothing
  becomes part of the log. A broker knows no requests, and may have cut one apart: its bytes are settled record by record.
- What was received and not settled is no part of the log. It is zeroed when the bytes are wrong and when the copy ends; after
  a crash the recovery cuts it as it cuts any torn tail.
- While a copy is made nobody else may append: the caller refuses appends.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

from commitlog_svc.append.appender import Appender
from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.recovery.recovery import RequestEnds
from store.errors import DiskFullError, InvalidArgumentError, RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.record import IncompleteRecordError
from store.format.record_layout import BLANK_SIZE_BYTES, HEADER_BYTES_MAX
from store.walk.checks import FullCheck
from store.walk.cursor import OneFile, PieceBuffer, RecordCursor
from store.walk.record_runs import RunCheck, note_batch_topics, note_light_places, note_next_offsets
from store.walk.record_search import LogBytes

# Light queues that are kept of bytes that are no part of the log yet, some 300 bytes each. A file of a hostile log may name a
# hundred million.
LIGHT_QUEUE_COUNT_MAX = 200_000

Settled = Callable[[int, int, Mapping[QueueKey, int], Set[str]], None]


class LogCopy:
    """Writes bytes of another writer; for one thread.

    Args:
        files: the log's files.
        appender: the end of the log and of its queues; it appends nothing while the copy is made.
        on_settled: told the new end of the log (bytes), the greatest store time of the new records (milliseconds), the next
            offset of each queue that has grown, and the topics of inner batches. It has to have them flushed.

    Attributes:
        received_offset: the next byte to be received (commit-log offset).
    """

    def __init__(
        self,
        files: MappedFileQueue,
        appender: Appender,
        on_settled: Settled,
    ) -> None:
        self._files = files
        self._appender = appender
        self._on_settled = on_settled
        self.received_offset = appender.end_offset

    @property
    def settled_offset(self) -> int:
        """The end of the log (bytes)."""
        return self._appender.end_offset

    def receive(self, offset: int, data: bytes | memoryview) -> None:
        """Writes bytes behind those that were received.

        Args:
            offset: of the first byte: where the last call ended, or the begin of the next file when a blank closed the last
                one, or of any file when the log is empty.
            data: any number of bytes.

        Raises:
            InvalidArgumentError: the bytes belong elsewhere; nothing was written.
            DiskFullError: no room for the next file; nothing was written.
            FlushFailedError: the log is fenced.
        """
        may_begin = not self._files.files and offset % self._files.file_size_bytes == 0
        if offset not in (self.received_offset, self.settled_offset) and not may_begin:
            raise InvalidArgumentError(
                f"bytes of the log from {offset} on do not go on where the copy is ({self.received_offset})",
                field="offset",
                commitLogOffset=self.received_offset,
            )
        self._appender.write_copy(offset, data)
        self.received_offset = offset + len(data)

    def settle(self, end_offset: int) -> None:
        """Makes everything received before an offset part of the log.

        Args:
            end_offset: the end of a request or of a blank.

        Raises:
            StoreCorruptedError: these bytes are not whole, good records; they were zeroed, the log ends where it did.
        """
        if end_offset <= self.settled_offset:
            return
        walk = _Walk(self._files, self.settled_offset, min(end_offset, self.received_offset))
        if walk.end_offset < end_offset:
            raise self._damage(end_offset, walk)
        self._take(walk)

    def settle_records(self, *, whole_requests: bool = False) -> int:
        """Makes all whole records that were received part of the log.

        Args:
            whole_requests: except those of an atomic request that goes on behind them.

        Returns:
            The end of the log then (bytes).

        Raises:
            StoreCorruptedError: bytes behind the last good record can become no record; they were zeroed.
        """
        if self.received_offset > self.settled_offset:
            walk = _Walk(self._files, self.settled_offset, self.received_offset)
            self._take(self._up_to_whole_request(walk) if whole_requests else walk)
            if not walk.may_go_on:
                raise self._damage(self.received_offset, walk)
        return self.settled_offset

    def take_file(self, file: "CopiedFile") -> None:
        """Moves a whole file, checked and flushed, to the end of the log, as part of it.

        Raises:
            InvalidArgumentError: it does not begin where the log ends, or the copy is in the middle of something else.
        """
        goes_on = file.first_offset == self.settled_offset == self.received_offset
        if not goes_on and self._files.files:
            raise InvalidArgumentError(
                f"the file {file.first_offset} does not go on where the log ends ({self.settled_offset})",
                field="offset",
                commitLogOffset=self.settled_offset,
            )
        self._appender.take_file(file.path, file.first_offset)
        self._take(file.walk)
        self.received_offset = self.settled_offset

    def close(self) -> None:
        """Zeroes what was received and not settled, so that the next writer finds a clean end; errors as an append."""
        begin, end = self.settled_offset, self.received_offset
        self.received_offset = begin
        if begin < end:
            self._appender.zero_copy(begin, end)

    def _up_to_whole_request(self, walk: "_Walk") -> "_Walk":
        """The walk up to the request that goes on behind it: half of it would stay if no more came."""
        ends = RequestEnds(self._files, self.settled_offset, None)
        incomplete = ends.incomplete_request(walk.end_offset, walk.last_record)
        if not incomplete:
            return walk
        return _Walk(self._files, self.settled_offset, incomplete[0].commit_log_offset)

    def _take(self, walk: "_Walk") -> None:
        if walk.end_offset > self.settled_offset:
            self._appender.take_copied(
                walk.end_offset,
                walk.last_record,
                walk.last_store_time_millis,
                walk.queue_offsets,
                walk.batch_topics,
                walk.light_parts(self._files),
            )
            self._on_settled(walk.end_offset, walk.last_store_time_millis, walk.queue_offsets, walk.batch_topics.keys())

    def _damage(self, end_offset: int, walk: "_Walk") -> StoreCorruptedError:
        offset = self.settled_offset
        with contextlib.suppress(DiskFullError):  # the appender zeroes it before the next write
            self.close()
        return StoreCorruptedError(
            f"the bytes of the log [{offset}, {end_offset}) that another writer sent are not whole, good records: "
            f"{walk.damage.message}. They were not taken: check the store of the other writer with `reput fsck`",
            commitLogOffset=walk.end_offset,
        )


class CopiedFile:
    """A file of another writer's log that is no part of this one yet; every record of it is checked.

    Args:
        fs: the disk port.
        path: the file.
        first_offset: of the file (commit-log offset).
        size_bytes: of a log file.

    Attributes:
        end_offset: behind the file (commit-log offset).
        is_whole: whether it holds good records up to the blank that ends it.
    """

    def __init__(self, fs: FileSystem, path: Path, first_offset: int, size_bytes: int) -> None:
        self.path = path
        self.first_offset = first_offset
        self.end_offset = first_offset + size_bytes
        file = MappedFile(fs, path, first_offset, size_bytes, writable=False)
        try:
            self.walk = _Walk(OneFile(file), first_offset, self.end_offset)
        finally:
            file.close()
        self.is_whole = self.walk.end_offset == self.end_offset

    @property
    def damage(self) -> RecordCorruptedError:
        """The problem at the end of the good records."""
        return self.walk.damage

    def refuse_damage(self) -> None:
        """StoreCorruptedError when the file is not whole."""
        if not self.is_whole:
            raise StoreCorruptedError(
                f"the file {self.first_offset} of another writer's log is no whole log file: {self.damage.message}. It was not "
                "taken: check the store of the other writer with `reput fsck`",
                commitLogOffset=self.walk.end_offset,
            )


class _Walk:
    """The good records of `[begin_offset, limit_offset)`.

    Attributes:
        end_offset: behind the last one, or behind the blank that closes its file (bytes).
        last_record: offset and size of the last one; None without one.
        last_store_time_millis: the greatest store time; 0 without a record.
        queue_offsets: the next offset of each queue of these records.
        batch_topics: the topics of inner batches among them, each with the commit-log offset of the last one.
        light: light queues that have grown, each with its next position and the offset of its newest record (bytes); None
            when there are more than LIGHT_QUEUE_COUNT_MAX.
        may_go_on: whether the bytes behind the last one can be the first ones of another record.
        damage: what is wrong there, if they cannot.
    """

    def __init__(self, files: LogBytes, begin_offset: int, limit_offset: int) -> None:
        full = FullCheck(None)  # these bytes were sent: they are not torn by a power cut of this machine
        cursor = RecordCursor(files, begin_offset, RunCheck(full), end_offset=limit_offset, read=PieceBuffer().read)
        self.queue_offsets: dict[QueueKey, int] = {}
        self.batch_topics: dict[str, int] = {}
        light = _LightPart()
        self.light: dict[str, tuple[int, int]] | None = light.places
        self._begin_offset = begin_offset
        for taken in cursor:
            note_next_offsets(taken, self.queue_offsets)
            note_batch_topics(taken, self.batch_topics)
            if self.light is not None:
                note_light_places(taken, light.note)
                if light.is_full:
                    light.places = {}
                    self.light = None
        self.end_offset, self.last_record = cursor.offset, full.last_record
        self.last_store_time_millis = full.last_store_time_millis
        self.damage = cursor.damage
        left_bytes = limit_offset - cursor.offset
        if cursor.why is None:
            self.may_go_on = left_bytes < BLANK_SIZE_BYTES
        else:
            self.may_go_on = left_bytes < HEADER_BYTES_MAX or isinstance(cursor.why, IncompleteRecordError)

    def light_parts(self, files: LogBytes) -> Iterator[Mapping[str, tuple[int, int]]]:
        """`light`, or where there is too much for it, the same in parts: the records of `files` are walked again."""
        if self.light is not None:
            yield self.light
            return
        check = RunCheck(FullCheck(None))
        part = _LightPart()
        for taken in RecordCursor(
            files, self._begin_offset, check, end_offset=self.end_offset, read=PieceBuffer().read
        ):
            note_light_places(taken, part.note)
            if part.is_full:
                yield part.places
                part.places = {}
        yield part.places


class _LightPart:
    """Light queues that have grown in some records.

    Attributes:
        places: the next position of each, and the offset of its newest record (bytes).
    """

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, int]] = {}

    def note(self, queue: str, next_offset: int, commit_log_offset: int) -> None:
        """A record has a unit in a light queue."""
        if next_offset >= self.places.get(queue, (0,))[0]:
            self.places[queue] = (next_offset, commit_log_offset)

    @property
    def is_full(self) -> bool:
        """Whether it is to be used before more is noted. The records of one piece may go beyond the limit."""
        return len(self.places) > LIGHT_QUEUE_COUNT_MAX
