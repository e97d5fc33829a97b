"""Auditing the consume queues: every unit against the record that it is for.

Theory of operation: the log's records come by in order; for each queue they say which 20 bytes must stand at which place.
They are collected for all queues together, up to a fixed number, and compared with the files in one read for each queue.
At the end what no record has spoken for is looked at: places before a queue's first record, and behind its last.

A queue's findings wait until the end, because a queue may begin again at 0 (its topic was deleted and made anew).
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.audit.findings import Findings
from store.audit.queue_files import check_queue_files, tell_strangers
from store.builders.queue_units import place_unit
from store.dispatch import DispatchRequest
from store.errors import InvalidArgumentError
from store.files.file_system import FileSystem
from store.format.paths import consume_queue_dir, queue_dir
from store.format.queue_unit import FILLER, UNIT_SIZE_BYTES, QueueUnit, decode_queue_unit, encode_queue_unit
from store.format.record import FRAME_SIZE_BYTES_MIN
from store.readers.open_files import OpenFiles
from store.readers.queue_reader import QueueUnits, detect_queue_file_size, file_offsets, list_queue_ids

BUFFERED_UNIT_COUNT = 65_536
SCAN_UNIT_COUNT = 65_536
WRONG_PER_QUEUE_MAX = 100  # places told for one queue; the others are counted
DEFAULT_FILE_SIZE_BYTES = 6_000_000
BURNT_POSITION_COUNT_MAX = 4096  # RocketMQ uses up a position for a message that it refuses (#6570)
FILLER_BYTES = encode_queue_unit(FILLER)
_EMPTY = bytes(UNIT_SIZE_BYTES)

QueueId = tuple[str, int]


@dataclass(slots=True)
class _Wrong:
    """Units of one kind side by side."""

    code: str
    begin: int
    count: int
    what: str
    commit_log_offset: int | None


@dataclass(slots=True)
class _Queue:
    """What the log has said of a queue so far; numbers in units."""

    units: QueueUnits
    first: int = -1
    next: int = -1
    log_end: int = 0
    pending_at: int = 0
    pending: list[bytes] = field(default_factory=list)
    wrong: list[_Wrong] = field(default_factory=list)
    left_out: int = 0
    of_lost: int = 0


class QueueAudit:
    """Compares the queues of a root with its log.

    Args:
        fs: the door to the disk.
        root: the store root.
        log_first_offset: the log's first byte: units that point before it cannot be checked.
        findings: takes what is wrong.
        resumes_at: where the queues' owner would go on (bytes of the log); None when it does not know. A queue that
            lacks only records from there on is behind, not wrong.

    Attributes:
        wrong_queues: those with an error.
        unit_count: units compared.
        total_bytes: length of all files.
    """

    def __init__(
        self, fs: FileSystem, root: Path, log_first_offset: int, findings: Findings, *, resumes_at: int | None
    ) -> None:
        self.wrong_queues: set[QueueId] = set()
        self.unit_count = 0
        self.total_bytes = 0
        self.file_size_bytes = detect_queue_file_size(fs, root) or DEFAULT_FILE_SIZE_BYTES
        self._fs = fs
        self._root = root
        self._log_first_offset = log_first_offset
        self._findings = findings
        self._resumes_at = resumes_at
        self._files = OpenFiles(fs)
        self._queues: dict[QueueId, _Queue] = {}
        self._refused: set[QueueId] = set()
        self._pending_count = 0
        self._lost: list[tuple[int, int]] = []

    @property
    def queue_ids(self) -> set[QueueId]:
        """Queues with a record in the log."""
        return set(self._queues)

    def see(self, request: DispatchRequest) -> None:
        """See `log_audit.Observer`."""
        placed = place_unit(request)
        if placed is None:
            return
        topic, queue_id, position, unit = placed
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._first_seen(topic, queue_id, request)
            if queue is None:
                return
        if queue.next < 0:
            if not _can_be(request, 0, 0):
                return
            queue.first = queue.next = queue.pending_at = position
        elif position != queue.next:
            self._compare(queue)
            if position == 0:  # begun again: what stood there before was cleared
                queue.wrong.clear()
                queue.left_out = queue.first = 0
            elif position < queue.next:
                return  # its place is taken
            elif not _can_be(request, queue.next, queue.log_end):
                return
            else:
                for at in range(queue.next, position, SCAN_UNIT_COUNT):
                    count = min(SCAN_UNIT_COUNT, position - at)
                    self._compare_run(queue, at, [FILLER_BYTES] * count, is_gap=True)
            queue.next = queue.pending_at = position
        queue.pending.append(unit)
        queue.next += 1
        queue.log_end = request.next_offset
        self._pending_count += 1
        if self._pending_count >= BUFFERED_UNIT_COUNT:
            self._compare_all()

    def lose(self, begin_offset: int, end_offset: int) -> None:
        """See `log_audit.Observer`."""
        self._lost.append((begin_offset, end_offset))

    def finish(self, log_end_offset: int, only: set[QueueId] | None = None) -> None:
        """Looks at what no record has spoken for, and tells the findings.

        Args:
            log_end_offset: where the log ends (bytes).
            only: these queues and nothing else in `consumequeue/`; None for everything.
        """
        self._compare_all()
        present = set(list_queue_ids(self._fs, self._root))
        for queue_id in sorted(present | self._queues.keys() if only is None else only):
            queue = self._queues.get(queue_id)
            if queue is None:
                queue = _Queue(self._units(*queue_id))
            self._check_files(queue_id, queue)
            self._check_front(queue, log_end_offset)
            if queue.next >= 0:
                self._check_behind(queue, queue.next, log_end_offset)
            self._tell(queue_id, queue)
        if only is None:
            tell_strangers(self._fs, Path(consume_queue_dir(str(self._root))), present, self._findings)

    def _units(self, topic: str, queue_id: int) -> QueueUnits:
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        return QueueUnits(self._files, directory, self.file_size_bytes)

    def _first_seen(self, topic: str, queue_id: int, request: DispatchRequest) -> _Queue | None:
        if (topic, queue_id) in self._refused:
            return None
        try:
            queue = self._queues[topic, queue_id] = _Queue(self._units(topic, queue_id))
        except InvalidArgumentError as error:
            self._refused.add((topic, queue_id))
            self._findings.add(
                "LOG_TOPIC_REFUSED", "commitlog", 0, error.message, commit_log_offset=request.commit_log_offset
            )
            return None
        return queue

    # -- units that a record speaks for

    def _compare_all(self) -> None:
        for queue in self._queues.values():
            self._compare(queue)
        self._pending_count = 0

    def _compare(self, queue: _Queue) -> None:
        if queue.pending:
            self._compare_run(queue, queue.pending_at, queue.pending)
            queue.pending_at = queue.next
            queue.pending = []

    def _compare_run(self, queue: _Queue, begin: int, units: list[bytes], *, is_gap: bool = False) -> None:
        """Compares the places from `begin` on with what must stand there."""
        for at in range(0, len(units), SCAN_UNIT_COUNT):
            part = units[at : at + SCAN_UNIT_COUNT]
            expected = b"".join(part)
            found = queue.units.read_bytes(begin + at, begin + at + len(part))
            self.unit_count += len(part)
            if found == expected:
                continue
            wanted, there = _rows(expected), _rows(found)
            for row in np.flatnonzero((wanted != there).any(axis=1)):
                is_unit, should = found[row * 20 : row * 20 + 20], expected[row * 20 : row * 20 + 20]
                self._judge(queue, begin + at + int(row), is_unit, should, is_gap=is_gap)

    def _judge(self, queue: _Queue, number: int, found: bytes, expected: bytes, *, is_gap: bool) -> None:
        unit, wanted = decode_queue_unit(found), decode_queue_unit(expected)
        if is_gap:
            if self._is_lost(unit.commit_log_offset):
                queue.of_lost += 1
            else:
                what = f"the log has no record for it, it points to {unit.commit_log_offset}"
                self._add(queue, "QUEUE_SURPLUS_UNITS", number, what, unit.commit_log_offset)
        elif found == _EMPTY:
            what = f"empty; the record is at {wanted.commit_log_offset}"
            self._add(queue, "QUEUE_MISSING_UNITS", number, what, wanted.commit_log_offset)
        else:
            self._add(queue, "QUEUE_UNIT_WRONG", number, _difference(unit, wanted), wanted.commit_log_offset)

    def _is_lost(self, offset: int) -> bool:
        return any(begin <= offset < end for begin, end in self._lost)

    # -- units that no record speaks for

    def _check_front(self, queue: _Queue, log_end_offset: int) -> None:
        """Places before the queue's first record: fillers, or units of records that the log no longer has."""
        before = -1
        for first in file_offsets(self._fs, queue.units.directory):
            begin = first // UNIT_SIZE_BYTES
            end = (first + self.file_size_bytes) // UNIT_SIZE_BYTES
            if queue.first >= 0:
                end = min(end, queue.first)
            for at in range(begin, end, SCAN_UNIT_COUNT):
                stop = min(at + SCAN_UNIT_COUNT, end)
                data = queue.units.read_bytes(at, stop)
                if data == FILLER_BYTES * (stop - at):
                    continue
                for row in range(stop - at):
                    found = data[row * UNIT_SIZE_BYTES : (row + 1) * UNIT_SIZE_BYTES]
                    if found == FILLER_BYTES:
                        continue
                    if queue.first < 0 and found == _EMPTY:  # no record at all: the first empty unit is the end
                        self._check_behind(queue, at + row, log_end_offset)
                        return
                    before = self._judge_front(queue, at + row, decode_queue_unit(found), before)

    def _judge_front(self, queue: _Queue, number: int, unit: QueueUnit, before: int) -> int:
        offset = unit.commit_log_offset
        if unit.is_empty:
            self._add(
                queue, "QUEUE_UNIT_WRONG", number, "empty, before the queue's first record: a filler belongs here"
            )
        elif self._is_lost(offset):
            queue.of_lost += 1
        elif not 0 <= offset < self._log_first_offset:
            self._add(
                queue, "QUEUE_SURPLUS_UNITS", number, f"the log has no record for it, it points to {offset}", offset
            )
        elif offset <= before:
            self._add(
                queue, "QUEUE_UNIT_ORDER", number, f"it points to {offset}, the one before it to {before}", offset
            )
        else:
            return offset
        return before

    def _check_behind(self, queue: _Queue, begin: int, log_end_offset: int) -> None:
        """Places from `begin` on must never have been written."""
        size = self.file_size_bytes
        for first in file_offsets(self._fs, queue.units.directory):
            if first + size <= begin * UNIT_SIZE_BYTES:
                continue
            file = self._files.get(queue.units.path_of(first))
            position: int | None = max(begin * UNIT_SIZE_BYTES - first, 0)
            while position is not None and position < size:
                position = self._fs.next_data(file.fd, position)
                if position is None or position >= size:
                    break
                position -= position % UNIT_SIZE_BYTES
                position = max(position, begin * UNIT_SIZE_BYTES - first)
                data = file.read(position, min(SCAN_UNIT_COUNT * UNIT_SIZE_BYTES, size - position))
                if data.strip(b"\0"):
                    padded = data.ljust(-(-len(data) // UNIT_SIZE_BYTES) * UNIT_SIZE_BYTES, b"\0")
                    for row in np.flatnonzero(_rows(padded).any(axis=1)):
                        unit = decode_queue_unit(padded, int(row) * UNIT_SIZE_BYTES)
                        self._judge_behind(
                            queue, (first + position) // UNIT_SIZE_BYTES + int(row), unit, log_end_offset
                        )
                position = position + len(data) if data else None

    def _judge_behind(self, queue: _Queue, number: int, unit: QueueUnit, log_end_offset: int) -> None:
        offset = unit.commit_log_offset
        if self._is_lost(offset):
            queue.of_lost += 1
            return
        where = "behind the log's end" if offset >= log_end_offset else "though no record of the queue is left"
        self._add(queue, "QUEUE_SURPLUS_UNITS", number, f"it points to {offset}, {where}", offset)

    def _check_files(self, queue_id: QueueId, queue: _Queue) -> None:
        length, is_sound = check_queue_files(
            self._fs, queue.units.directory, f"{queue_id[0]}/{queue_id[1]}", self.file_size_bytes, self._findings
        )
        self.total_bytes += length
        if not is_sound:
            self.wrong_queues.add(queue_id)

    # -- telling

    def _add(self, queue: _Queue, code: str, number: int, what: str, offset: int | None = None) -> None:
        last = queue.wrong[-1] if queue.wrong else None
        if last is not None and last.code == code and last.begin + last.count == number:
            last.count += 1
        elif len(queue.wrong) < WRONG_PER_QUEUE_MAX:
            queue.wrong.append(_Wrong(code, number, 1, what, offset))
        else:
            queue.left_out += 1

    def _tell(self, queue_id: QueueId, queue: _Queue) -> None:
        name = f"{queue_id[0]}/{queue_id[1]}"
        for wrong in queue.wrong:
            code = wrong.code
            if self._is_only_behind(queue, wrong):
                code = "QUEUE_BEHIND_LOG"
            else:
                self.wrong_queues.add(queue_id)
            byte = wrong.begin * UNIT_SIZE_BYTES
            within = byte % self.file_size_bytes
            units = (
                f"unit {wrong.begin}" if wrong.count == 1 else f"units {wrong.begin} to {wrong.begin + wrong.count - 1}"
            )
            self._findings.add(
                code, queue.units.path_of(byte - within), within, f"queue {name}, {units}: {wrong.what}",
                commit_log_offset=wrong.commit_log_offset, count=wrong.count,
            )  # fmt: skip
        if queue.left_out:
            self._findings.add(
                "QUEUE_UNIT_WRONG", queue.units.directory, 0,
                f"queue {name}: {queue.left_out} more units are missing, surplus or wrong", count=queue.left_out,
            )  # fmt: skip
        if queue.of_lost:
            self._findings.add(
                "QUEUE_UNITS_OF_DAMAGED_RECORDS", queue.units.directory, 0,
                f"queue {name}: {queue.of_lost} units point into damaged parts of the log", count=queue.of_lost,
            )  # fmt: skip

    def _is_only_behind(self, queue: _Queue, wrong: _Wrong) -> bool:
        return (
            wrong.code == "QUEUE_MISSING_UNITS"
            and wrong.begin + wrong.count == queue.next
            and self._resumes_at is not None
            and wrong.commit_log_offset is not None
            and wrong.commit_log_offset >= self._resumes_at
        )


def _can_be(request: DispatchRequest, position: int, log_offset: int) -> bool:
    """Whether the log has room for the records that a gap before this one stands for; if not its position is damaged.

    Builders leave such a record out by the same rule (`consumequeue_svc/consume_queue.py`).
    """
    log_bytes = request.commit_log_offset - log_offset
    record_count_max = max(log_bytes, 0) // FRAME_SIZE_BYTES_MIN + BURNT_POSITION_COUNT_MAX
    return 0 <= request.queue_offset <= position + record_count_max


def _rows(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, UNIT_SIZE_BYTES)


def _difference(found: QueueUnit, expected: QueueUnit) -> str:
    """Which fields of a unit are wrong."""
    if found.is_filler:
        return f"a filler; the record is at {expected.commit_log_offset}"
    names = ("commit-log offset", "size", "tags code")
    return ", ".join(
        f"{name} {there} instead of {wanted}"
        for name, there, wanted in zip(names, found, expected, strict=True)
        if there != wanted
    )
