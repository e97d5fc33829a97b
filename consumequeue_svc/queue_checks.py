"""The queue files as checked files (`services/following/file_check.py`), and a full file made again from the log.

The units of a full file are collected from the log, from the record of the unit before them on, and replace the file. Where
retention has removed a record meanwhile, a filler stands for its unit: both are before the queue's first message. A file that
the log does not give back as it was, and one that is being filled, is left to a replay of the log over all queues.
"""

import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from consumequeue_svc.consume_queue import ConsumeQueue
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.queue_ext_files import QueueExtFiles
from services.following.file_check import CheckedFile, GoesOn, Repair
from services.following.follower_progress import FollowerProgress
from store.derive.queue_placement import FILLER_BYTES, Placement, QueuePlacement
from store.derive.read_log import ReadLog
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreCorruptedError
from store.files.checksums import ChecksumTable, Extent
from store.format.derived.queue_unit import UNIT_SIZE_BYTES

# Each damaged file is made again from its own part of the log. With more of them, one replay of the log is cheaper.
DAMAGED_FILE_COUNT_MAX = 16


class FileKey(NamedTuple):
    """A file while it holds the same units, or gets more of them."""

    files: ConsumeQueue | QueueExtFiles
    first_byte: int
    is_open: bool
    generation: int


class QueueChecks:
    """Gives the files of all queues to a FileChecker.

    Args:
        table: the queues.
        checksums: of their files.
        read_log: see ReadLog.
        progress: of the builder.
        is_replay: whether the builder compares all files with the log itself.
        replay_all: has the builder begin that.
    """

    def __init__(
        self,
        table: ConsumeQueueTable,
        checksums: ChecksumTable,
        read_log: ReadLog,
        progress: FollowerProgress,
        is_replay: Callable[[], bool],
        replay_all: Repair,
    ) -> None:
        self.checksums = checksums
        self.read_log = read_log
        self.progress = progress
        self._table = table
        self._is_replay = is_replay
        self._replay_all = replay_all
        self._files: dict[FileKey, CheckedFile] = {}
        self._wrong: set[str] = set()

    def are_many_wrong(self, name: str) -> bool:
        """Whether, with this file, too many were found wrong since no file was in doubt."""
        if sum(len(queue.doubtful_files) for _, queue in self._table.items()) <= 1:
            self._wrong.clear()
        self._wrong.add(name)
        return len(self._wrong) > DAMAGED_FILE_COUNT_MAX

    def replay(self) -> bool:
        """Have the builder compare all files with the log; what is known of them is forgotten, for it may be wrong itself."""
        self.checksums.keep_only(())
        self.checksums.save()
        return self._replay_all()

    def replay_for(self, file: CheckedFile, queue: ConsumeQueue) -> Repair:
        """The replay that repairs a file.

        Raises:
            StoreCorruptedError: there was one just now.
        """
        if queue.was_replayed and not file.was_right:
            raise StoreCorruptedError(
                f"{file.path} is damaged again just after it was compared with the log: check the disk, then restart",
                file=file.path,
                offset=0,
            )
        return lambda: self.replay() if file.is_wanted else True

    def files(self) -> list[CheckedFile]:
        """All files; none during a replay."""
        found: dict[FileKey, CheckedFile] = {}
        for (topic, queue_id), queue in self._table.items() if not self._is_replay() else ():
            generation = queue.generation
            for offset in queue.file_offsets():
                is_open = queue.is_open(offset)
                if is_open is None:
                    continue
                key = FileKey(queue, offset, is_open, generation)
                known = self._files.get(key)
                found[key] = known or QueueFile(self, f"{topic}/{queue_id}/{offset}", topic, queue_id, key)
            ext = queue.ext_files
            for offset in ext.file_offsets() if ext is not None else ():
                assert ext is not None
                is_open = ext.is_open(offset)
                if is_open is not None:
                    key = FileKey(ext, offset, is_open, generation)
                    name = f"ext/{topic}/{queue_id}/{offset}"
                    found[key] = self._files.get(key) or QueueExtFile(self, name, queue, ext, key)
        if self._is_replay():  # it may have begun meanwhile
            found = {}
        if not found or found.keys() != self._files.keys():
            self._files = found
            self.checksums.keep_only({file.name for key, file in found.items() if not key.is_open})
        return list(found.values())


class _FileOfQueue(CheckedFile):
    """A file of a queue, or of its ConsumeQueueExt; the last one is open, until it is full.

    Args:
        checks: gives it to the checker.
        name: its key in the table of checksums.
        path: the file.
        size_bytes: when it is full.
        queue: has its generation and counts the writes.
        key: the files that it is one of, its first byte, and what it holds.
    """

    __slots__ = ("_checks", "_crc", "_files", "_first_byte", "_generation", "_is_open", "_queue", "_size_bytes")

    def __init__(
        self, checks: QueueChecks, name: str, path: Path, size_bytes: int, queue: ConsumeQueue, key: FileKey
    ) -> None:
        super().__init__(name, path)
        self._checks = checks
        self._size_bytes = size_bytes
        self._queue = queue
        self._files, self._first_byte, self._is_open, self._generation = key
        self._crc: int | None = None
        self.is_doubtful = self._first_byte in self._files.doubtful_files
        if not self._is_open:
            if self._generation:
                checks.checksums.remove(name)  # of the units that the file had before
            row = checks.checksums.get(name)
            self._crc = self._files.sealed_crcs.pop(self._first_byte, None)
            if self._crc is None and row is not None and len(row.extents) == 1:
                self._crc = row.extents[0].crc

    @property
    def is_wanted(self) -> bool:
        """See CheckedFile."""
        is_same = self._queue.generation == self._generation
        return is_same and self._files.is_open(self._first_byte) is self._is_open

    @property
    def write_count(self) -> int:
        """See CheckedFile."""
        return self._queue.write_count if self._is_open else 0

    @property
    def is_being_written(self) -> bool:
        """See CheckedFile."""
        return self._is_open and self._queue.write_count % 2 == 0

    def extents(self) -> Sequence[Extent]:
        """See CheckedFile."""
        return (Extent(0, *self._written()) if self._is_open else Extent(0, self._size_bytes, self._crc),)

    def learn(self, extents: Sequence[Extent]) -> Repair | None:
        """See CheckedFile."""
        ((_, size_bytes, crc),) = extents
        if not self._is_open:
            self._crc = crc
            return None

        def learn() -> bool:
            assert crc is not None
            self._learn(size_bytes, crc)
            return True

        return learn

    def doubt(self, is_doubtful: bool) -> None:
        """See CheckedFile."""
        if self.is_wanted:
            self._files.doubt(self._first_byte, is_doubtful)

    @abstractmethod
    def _written(self) -> tuple[int, int | None]:
        """How many bytes of the open file are written, and their CRC; None when it is not known."""

    @abstractmethod
    def _learn(self, size_bytes: int, crc: int) -> None:
        """The first bytes of the open file have this CRC."""


class QueueFile(_FileOfQueue):
    """One file of a queue; the last one is open, until it is full."""

    __slots__ = ("_queue_id", "_topic")

    def __init__(self, checks: QueueChecks, name: str, topic: str, queue_id: int, key: FileKey) -> None:
        assert isinstance(key.files, ConsumeQueue)
        units = key.files.units
        super().__init__(checks, name, units.path_of(key.first_byte), units.file_size_bytes, key.files, key)
        self._topic = topic
        self._queue_id = queue_id

    def _written(self) -> tuple[int, int | None]:
        return self._queue.written(self._first_byte)

    def _learn(self, size_bytes: int, crc: int) -> None:
        self._queue.learn(self._first_byte, size_bytes, crc)

    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """See CheckedFile."""
        # The builder writes to an open file meanwhile, so that nothing made beside it would be right.
        if self._is_open or self._checks.are_many_wrong(self.name):
            return self._checks.replay_for(self, self._queue)
        begin = self._record_behind_the_file_before()
        data = self._from_log(begin, goes_on)
        if data is None and begin >= 0 and goes_on():
            data = self._from_log(-1, goes_on)
        if not goes_on():
            return None
        if data is None:
            return self._checks.replay_for(self, self._queue)

        def put_in_place() -> bool:
            if self.is_wanted:
                self._queue.rewrite(self._first_byte, data)
                self._crc = zlib.crc32(data)
            return True

        return put_in_place

    def _record_behind_the_file_before(self) -> int:
        """The log position behind the last record of the file before; -1 when that cannot be relied on."""
        units = self._queue.units
        before_file = self._first_byte - units.file_size_bytes
        if before_file not in self._queue.file_offsets() or before_file in self._queue.doubtful_files:
            return -1
        begin = units.next_log_offset_before(self._first_byte // UNIT_SIZE_BYTES)
        return begin if begin and begin >= self._checks.progress.log_first_offset else -1

    def _from_log(self, begin: int, goes_on: GoesOn) -> bytes | None:
        """The file from the records of the log from a position on; None when stopped, or when they do not give it.

        Args:
            begin: of the record behind the unit before the file (bytes); -1: the log's first record.
            goes_on: see GoesOn.
        """
        from store.derive.queue_runs import place_ext_runs  # not before there is a record: numpy takes memory

        ext = self._queue.ext_files
        ext_size_bytes = ext.file_size_bytes if ext is not None else 0
        unit_count = self._queue.units.file_size_bytes // UNIT_SIZE_BYTES
        first = self._first_byte // UNIT_SIZE_BYTES
        placement = QueuePlacement(unit_count, first if begin >= 0 else None, log_end_offset=lambda: max(begin, 0))
        data = bytearray(FILLER_BYTES * unit_count)
        first_placed = first
        end_offset, log_first_offset = self._checks.progress.next_offset, self._checks.progress.log_first_offset
        try:
            with self._checks.read_log(begin) as batches:
                for batch in batches:
                    if not goes_on():
                        return None
                    queues = place_ext_runs(batch.columns, ext_size_bytes) if batch.columns is not None else ()
                    for topic, queue_id, runs, _ in queues:
                        if (topic, queue_id) != (self._topic, self._queue_id):
                            continue
                        for placed in placement.place(runs):
                            if placed.placement in (Placement.ANEW, Placement.FIRST):
                                data[:] = FILLER_BYTES * unit_count
                                first_placed = placed.queue_offset
                            _copy(placed.queue_offset - first, placed.units, data)
                    # Without the unit before it, a later record may be number 0 again: the queue began anew.
                    is_full = begin >= 0 and (placement.end or 0) >= first + unit_count
                    if is_full or batch.next_offset >= end_offset:
                        break
        except (OffsetOutOfRangeError, RecordNotFoundError):
            if begin < 0:
                raise
            return None  # the unit before the file is damaged, too
        if (placement.end or 0) < first + unit_count:
            return None
        has_expired = first_placed > first and log_first_offset > 0
        return bytes(data) if has_expired or self._crc in (None, zlib.crc32(data)) else None


class QueueExtFile(_FileOfQueue):
    """One file of ConsumeQueueExt; the last one is open, until the next one begins. A replay of the log repairs it."""

    __slots__ = ("_ext",)

    def __init__(self, checks: QueueChecks, name: str, queue: ConsumeQueue, ext: QueueExtFiles, key: FileKey) -> None:
        super().__init__(checks, name, ext.path_of(key.first_byte), ext.file_size_bytes, queue, key)
        self._ext = ext

    def _written(self) -> tuple[int, int | None]:
        return self._ext.written(self._first_byte, self._queue.units.end)

    def _learn(self, size_bytes: int, crc: int) -> None:
        self._ext.learn(self._first_byte, size_bytes, crc, self._queue.units.end)

    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """See CheckedFile."""
        return self._checks.replay_for(self, self._queue)


def _copy(position: int, units: bytes | memoryview, data: bytearray) -> None:
    """Copies units that begin at a position of the data, which may lie before it, as far as they lie inside."""
    begin = position * UNIT_SIZE_BYTES
    part = memoryview(units)[max(-begin, 0) : max(len(data) - begin, 0)]
    at = max(begin, 0)
    data[at : at + len(part)] = part
