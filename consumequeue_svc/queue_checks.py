"""The queue files as checked files (`services/following/checked_file.py`), and a single file made again from the log.

The units of one file are collected from the log, from the record of the unit before them on, and written over the file. Where
retention has removed a record meanwhile, a filler stands for its unit: both are before the queue's first message.
"""

import zlib
from collections.abc import Callable, Sequence

from consumequeue_svc.consume_queue import ConsumeQueue
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from services.following.checked_file import CheckedFile, GoesOn, ReadLog, Repair
from services.following.follower_progress import FollowerProgress
from store.derive.queue_placement import FILLER_BYTES, QueuePlacement, Verdict
from store.files.checksums import ChecksumTable, Extent
from store.format.queue_unit import UNIT_SIZE_BYTES

# Each damaged file is made again from its own part of the log. With more of them, one replay of the log is cheaper.
DAMAGED_FILE_COUNT_MAX = 16


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
        self.replay_all = replay_all
        self.checksums = checksums
        self.read_log = read_log
        self.progress = progress
        self._table = table
        self._is_replay = is_replay
        self._files: dict[tuple[ConsumeQueue, int, bool], QueueFile] = {}

    def doubtful_count(self) -> int:
        """Files that are known to be damaged, or may be."""
        return sum(len(queue.doubtful_files) for _, queue in self._table.items())

    def files(self) -> list[CheckedFile]:
        """All files; none during a replay."""
        if self._is_replay():
            return []
        found: dict[tuple[ConsumeQueue, int, bool], QueueFile] = {}
        for (topic, queue_id), queue in self._table.items():
            for offset in queue.file_offsets():
                is_open = queue.is_open(offset)
                if is_open is None:
                    continue
                key = queue, offset, is_open
                known = self._files.get(key)
                found[key] = known or QueueFile(self, f"{topic}/{queue_id}/{offset}", topic, queue_id, key)
        if found.keys() != self._files.keys():
            self._files = found
            self.checksums.keep_only({file.name for file in found.values()})
        return list(found.values())


class QueueFile(CheckedFile):
    """One file of a queue; the last one is open, until it is full."""

    def __init__(
        self, checks: QueueChecks, name: str, topic: str, queue_id: int, key: tuple[ConsumeQueue, int, bool]
    ) -> None:
        self._queue, self._first_byte, self._is_open = key
        super().__init__(name, self._queue.units.path_of(self._first_byte))
        self._checks = checks
        self._topic = topic
        self._queue_id = queue_id
        self._crc: int | None = None
        if not self._is_open:
            row = checks.checksums.get(name)
            self._crc = self._queue.sealed_crcs.pop(self._first_byte, None)
            if self._crc is None and row is not None and len(row.extents) == 1:
                self._crc = row.extents[0].crc

    @property
    def is_wanted(self) -> bool:
        """See CheckedFile."""
        return self._queue.is_open(self._first_byte) is self._is_open

    @property
    def write_count(self) -> int:
        """See CheckedFile."""
        return self._queue.write_count if self._is_open else 0

    def extents(self) -> Sequence[Extent]:
        """See CheckedFile."""
        if not self._is_open:
            return (Extent(0, self._queue.units.file_size_bytes, self._crc),)
        size_bytes, crc = self._queue.written(self._first_byte)
        return (Extent(0, size_bytes, crc),)

    def learn(self, extents: Sequence[Extent]) -> Repair | None:
        """See CheckedFile."""
        ((_, size_bytes, crc),) = extents
        if not self._is_open:
            self._crc = crc
            return None

        def learn() -> bool:
            assert crc is not None
            self._queue.learn(self._first_byte, size_bytes, crc)
            return True

        return learn

    def doubt(self, is_doubtful: bool) -> None:
        """See CheckedFile."""
        (self._queue.doubtful_files.add if is_doubtful else self._queue.doubtful_files.discard)(self._first_byte)

    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """See CheckedFile."""
        if self._checks.doubtful_count() > DAMAGED_FILE_COUNT_MAX:
            return self._checks.replay_all
        size_bytes, _ = self._queue.written(self._first_byte)
        data = self._from_log(size_bytes // UNIT_SIZE_BYTES, goes_on)
        if data is None:
            return None

        def put_in_place() -> bool:
            if self._first_byte in self._queue.file_offsets():
                self._queue.rewrite(self._first_byte, data)
                if not self._is_open:
                    self._crc = zlib.crc32(data)
            return True

        return put_in_place

    def _from_log(self, unit_count: int, goes_on: GoesOn) -> bytes | None:
        """The first units of the file; None when stopped."""
        from store.derive.queue_runs import place_runs  # not before there is a record: numpy takes memory

        units = self._queue.units
        first = self._first_byte // UNIT_SIZE_BYTES
        before_file = self._first_byte - units.file_size_bytes
        begin = -1
        if before_file in self._queue.file_offsets() and before_file not in self._queue.doubtful_files:
            begin = units.next_log_offset_before(first) or -1
        if begin < self._checks.progress.log_first_offset:
            begin = -1
        placement = QueuePlacement(units.file_size_bytes // UNIT_SIZE_BYTES, first if begin >= 0 else None)
        data = bytearray(FILLER_BYTES * unit_count)
        end_offset = self._checks.progress.next_offset
        with self._checks.read_log(begin) as batches:
            for batch in batches:
                if not goes_on():
                    return None
                for topic, queue_id, runs in place_runs(batch.columns) if batch.columns is not None else ():
                    if (topic, queue_id) != (self._topic, self._queue_id):
                        continue
                    for placed in placement.place(runs):
                        if placed.verdict is Verdict.ANEW:
                            data[:] = FILLER_BYTES * unit_count
                        _copy(placed.queue_offset - first, placed.units, data)
                # Without the unit before it, a later record may be number 0 again: the queue began anew.
                is_full = begin >= 0 and (placement.end or 0) >= first + unit_count
                if is_full or batch.next_offset >= end_offset:
                    return bytes(data)
        return None


def _copy(position: int, units: bytes | memoryview, data: bytearray) -> None:
    """Copies units that begin at a position of the data, which may lie before it, as far as they lie inside."""
    begin = position * UNIT_SIZE_BYTES
    part = memoryview(units)[max(-begin, 0) : max(len(data) - begin, 0)]
    at = max(begin, 0)
    data[at : at + len(part)] = part
