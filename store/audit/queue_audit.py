"""Audits the consume queues: compares each unit with its record.

The audit is given the log's records in log order. `store/derive/queue_placement.py`, which the builder uses too, decides
which units each queue must hold. The units of all queues are collected, up to a fixed number, and compared with the files
in one read for each queue. At the end the positions without a record are checked: those before a queue's first record,
and those behind its last one.

A queue of RocketMQ's multi-dispatch (LMQ) has units of records of other topics. Such a queue has a name with `%LMQ%`, or the
records that its units point to name it in INNER_MULTI_DISPATCH. Its files are a broker's: they are reported and not compared.
Reput serves light queues from files of its own, which follow from the log (ADR 0154).

The findings of a queue are added at the end, because a queue may begin anew at 0 (its topic was deleted and created again).

check_queue_files audits the names and lengths of the files in the queue folders. UnitFindings collects the wrong units of one
queue until the end of an audit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.audit.findings import Findings
from store.derive.dispatch import DispatchRequest
from store.derive.queue_placement import (
    FILLER_BYTES,
    Buffer,
    PlacedUnits,
    Placement,
    QueuePlacement,
    UnitRun,
    fillers,
    is_batch,
    place_unit,
)
from store.errors import InvalidArgumentError
from store.features.signs import read_signs
from store.features.table import found_features, hidden_by_record, hidden_queues
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import is_ext_address
from store.format.derived.queue_unit import (
    UNIT_SIZE_BYTES,
    QueueUnit,
    decode_queue_unit,
    decode_queue_units,
    encode_queue_unit,
)
from store.format.paths import consume_queue_dir, log_file_name, parse_queue_folder_name, queue_dir
from store.format.topic import is_light_queue
from store.readers.queue_reader import (
    QueueExtUnits,
    QueueUnits,
    detect_queue_file_size,
    file_offsets,
    list_queue_ids,
    queue_strangers,
)


def check_queue_files(
    fs: FileSystem, directory: Path, name: str, file_size_bytes: int, findings: Findings
) -> tuple[int, bool]:
    """Checks one queue's folder.

    Args:
        fs: the file system.
        directory: the folder.
        name: the queue's name in findings.
        file_size_bytes: size of a queue file.
        findings: gets what is wrong.

    Returns:
        length of all files (bytes), and whether nothing is wrong.
    """
    offsets = file_offsets(fs, directory)
    total, is_sound = 0, True
    for offset in offsets:
        path = directory / log_file_name(offset)
        length = fs.stat_size(path)
        total += length
        if offset % file_size_bytes:
            what = f"queue {name}: files have {file_size_bytes} bytes each: none can begin at {offset}"
            findings.add("QUEUE_FILE_NAME", path, 0, what)
            is_sound = False
        elif length != file_size_bytes:
            what = f"queue {name}: it has {length} bytes, a queue file has {file_size_bytes}"
            findings.add("QUEUE_FILE_SIZE", path, min(length, file_size_bytes), what)
            is_sound = False
    on_grid = [offset for offset in offsets if offset % file_size_bytes == 0]
    for before, behind in pairwise(on_grid):
        if behind - before > file_size_bytes:
            path = directory / log_file_name(before + file_size_bytes)
            findings.add("QUEUE_FILE_MISSING", path, 0, f"queue {name}: it is missing between two others")
            is_sound = False
    return total, is_sound


def tell_strangers(fs: FileSystem, root: Path, queues: set[tuple[str, int]], findings: Findings) -> None:
    """Reports everything in `consumequeue/` that does not belong to a queue; it is harmless."""
    for path, what in queue_strangers(fs, root):
        findings.add("QUEUE_FOREIGN_FILE", path, 0, what)
    base = Path(consume_queue_dir(str(root)))
    for topic in fs.listdir(base):
        for name in fs.listdir(base / topic) if fs.is_dir(base / topic) else ():
            queue_id = parse_queue_folder_name(name)
            if queue_id is not None and (topic, queue_id) not in queues and fs.is_dir(base / topic / name):
                findings.add("QUEUE_FOREIGN_FILE", base / topic / name, 0, "this folder has no queue files")


WRONG_PER_QUEUE_MAX = 100  # findings of one queue; the others are only counted


@dataclass(slots=True)
class WrongUnits:
    """Units of one kind at consecutive positions.

    Attributes:
        code: see `findings.py`.
        begin: position of the first.
        count: how many.
        what: text about the first.
        commit_log_offset: of the first, or of its record (bytes); None if it has none.
    """

    code: str
    begin: int
    count: int
    what: str
    commit_log_offset: int | None


@dataclass(slots=True)
class UnitFindings:
    """The wrong units of one queue.

    Attributes:
        wrong: at most WRONG_PER_QUEUE_MAX, in the order found.
        left_out_count: wrong units beyond these.
        of_lost_count: units that point into a damaged part of the log.
    """

    wrong: list[WrongUnits] = field(default_factory=list)
    left_out_count: int = 0
    of_lost_count: int = 0

    def add(self, code: str, number: int, what: str, commit_log_offset: int | None = None) -> None:
        """Adds the unit at position `number`; see WrongUnits."""
        last = self.wrong[-1] if self.wrong else None
        if last is not None and last.code == code and last.begin + last.count == number:
            last.count += 1
        elif len(self.wrong) < WRONG_PER_QUEUE_MAX:
            self.wrong.append(WrongUnits(code, number, 1, what, commit_log_offset))
        else:
            self.left_out_count += 1


BUFFERED_UNIT_COUNT = 65_536  # of all queues: 1.3 MB
SCAN_UNIT_COUNT = 65_536  # compared with one read
DEFAULT_FILE_SIZE_BYTES = 6_000_000
_EMPTY = bytes(UNIT_SIZE_BYTES)

QueueId = tuple[str, int]


@dataclass(slots=True)
class _Queue:
    """What the log says about a queue, up to the last record seen; positions and counts in units."""

    units: QueueUnits
    ext: QueueExtUnits
    placement: QueuePlacement
    first: int = -1
    pending_at: int = 0
    pending: list[Buffer] = field(default_factory=list)
    findings: UnitFindings = field(default_factory=UnitFindings)


class QueueAudit:
    """Compares the queues of a root with its log.

    Args:
        fs: the file system.
        root: the store root.
        log_first_offset: the log's first byte. Units that point before it cannot be checked.
        findings: gets what is wrong.
        resumes_at: offset (bytes) at which the builder of the queues would continue; None if it is unknown. A queue
            that lacks only records from there on is behind, not wrong.
        dispatched_to: the further queues that the record at an offset (bytes) names.

    Attributes:
        left_alone: queues of multi-dispatch on the disk.
        wrong_queues: queues with an error.
        hidden: topics whose queues are not in consumequeue/, or not in a form that the log explains, each with the reason.
        unit_count: units compared.
        total_bytes: length of all files.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        log_first_offset: int,
        findings: Findings,
        *,
        resumes_at: int | None,
        dispatched_to: Callable[[int], frozenset[str]] = lambda offset: frozenset(),
    ) -> None:
        self.left_alone: set[QueueId] = set()
        self._dispatched_to = dispatched_to
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
        self.hidden = hidden_queues(found_features(read_signs(fs, root)))
        self._refused: set[QueueId] = set()
        self._pending_count = 0
        self._lost: list[tuple[int, int]] = []

    @property
    def queue_ids(self) -> set[QueueId]:
        """Queues with a record in the log."""
        return set(self._queues)

    def see(self, request: DispatchRequest) -> None:
        """See `log_audit.Observer`."""
        if is_batch(request.sys_flag):
            self.hide(request.topic)
        placed = place_unit(request)
        if placed is None:
            return
        self.see_units(placed.topic, placed.queue_id, UnitRun(placed.queue_offset, placed.unit))

    def hide(self, topic: str) -> None:
        """A topic of which the log has an inner batch: consumequeue/ has no queue of it, whatever config/ says."""
        if topic in self.hidden:
            return
        self.hidden[topic] = hidden_by_record(topic)
        for queue_id in [each for each in self._queues if each[0] == topic]:
            queue = self._queues.pop(queue_id)
            self._pending_count -= sum(len(units) // UNIT_SIZE_BYTES for units in queue.pending)
            self.wrong_queues.discard(queue_id)

    def see_units(self, topic: str, queue_id: int, run: UnitRun) -> None:
        """The next units of a queue, in log order."""
        if topic in self.hidden or is_light_queue(topic):
            return
        queue = self._queues.get((topic, queue_id)) or self._first_seen(topic, queue_id, run)
        if queue is None:
            return
        for placed in queue.placement.place([run]):
            if placed.placement is not Placement.NEXT:
                self._jump(queue, placed)
            queue.pending.append(placed.units)
            self._pending_count += len(placed.units) // UNIT_SIZE_BYTES
        if self._pending_count >= BUFFERED_UNIT_COUNT:
            self._compare_all()

    def lose(self, begin_offset: int, end_offset: int) -> None:
        """See `log_audit.Observer`."""
        self._lost.append((begin_offset, end_offset))

    def finish(self, log_end_offset: int, only: set[QueueId] | None = None) -> None:
        """Checks the positions without a record, and adds the findings.

        Args:
            log_end_offset: where the log ends (bytes).
            only: these queues and nothing else in `consumequeue/`; None for everything.
        """
        self._compare_all()
        present = {queue for queue in list_queue_ids(self._fs, self._root) if queue[0] not in self.hidden}
        only = None if only is None else {queue for queue in only if queue[0] not in self.hidden}
        for queue_id in sorted(present | self._queues.keys() if only is None else only):
            queue = self._queues.get(queue_id)
            if queue is None:
                queue = self._make(*queue_id)
                if self._is_left_alone(queue_id[0], queue):
                    self.left_alone.add(queue_id)
                    what = "of RocketMQ's multi-dispatch (LMQ): its units are of records of other topics, and are not compared"
                    self._findings.add("QUEUE_LEFT_ALONE", queue.units.directory, 0, what)
                    continue
            self._check_files(queue_id, queue)
            self._check_front(queue, log_end_offset)
            if queue.placement.end is not None:
                self._check_behind(queue, queue.placement.end, log_end_offset)
            self._tell(queue_id, queue)
        if only is None:
            tell_strangers(self._fs, self._root, present, self._findings)

    def _make(self, topic: str, queue_id: int) -> _Queue:
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        units = QueueUnits(self._files, directory, self.file_size_bytes)
        return _Queue(
            units, QueueExtUnits(self._files, directory), QueuePlacement(self.file_size_bytes // UNIT_SIZE_BYTES)
        )

    def _is_left_alone(self, topic: str, queue: _Queue) -> bool:
        """Whether a queue without a record of its own is a broker's."""
        if is_light_queue(topic):
            return True
        queue.units.load()
        units = queue.units.sampled_from(queue.units.end_before(self._log_first_offset))
        return bool(units) and all(topic in self._dispatched_to(unit.commit_log_offset) for unit in units)

    def _first_seen(self, topic: str, queue_id: int, run: UnitRun) -> _Queue | None:
        if (topic, queue_id) in self._refused:
            return None
        try:
            queue = self._queues[topic, queue_id] = self._make(topic, queue_id)
        except InvalidArgumentError as error:
            self._refused.add((topic, queue_id))
            offset = decode_queue_unit(run.units).commit_log_offset
            self._findings.add("LOG_TOPIC_REFUSED", "commitlog", 0, error.message, commit_log_offset=offset)
            return None
        return queue

    # -- positions with a record

    def _jump(self, queue: _Queue, placed: PlacedUnits) -> None:
        """The next units do not stand behind the last ones."""
        self._compare(queue)
        if placed.placement is Placement.BEHIND_GAP:
            for run in fillers(placed.fill_begin, placed.queue_offset):
                self._compare_run(queue, run, is_gap=True)
        else:
            # Wrong units from before a queue began anew were cleared by the builder.
            queue.findings.wrong.clear()
            queue.findings.left_out_count, queue.first = 0, placed.queue_offset
        queue.pending_at = placed.queue_offset

    def _compare_all(self) -> None:
        for queue in self._queues.values():
            self._compare(queue)
        self._pending_count = 0

    def _compare(self, queue: _Queue) -> None:
        if queue.pending:
            units = b"".join(queue.pending)
            self._compare_run(queue, UnitRun(queue.pending_at, units))
            queue.pending_at += len(units) // UNIT_SIZE_BYTES
            queue.pending = []

    def _compare_run(self, queue: _Queue, run: UnitRun, *, is_gap: bool = False) -> None:
        """Compares the files with the units that must stand there."""
        count = len(run.units) // UNIT_SIZE_BYTES
        for at in range(0, count, SCAN_UNIT_COUNT):
            expected = bytes(run.units[at * UNIT_SIZE_BYTES : (at + SCAN_UNIT_COUNT) * UNIT_SIZE_BYTES])
            begin = run.queue_offset + at
            found = queue.units.read_bytes(begin, begin + len(expected) // UNIT_SIZE_BYTES)
            self.unit_count += len(expected) // UNIT_SIZE_BYTES
            if found != expected:
                found = _with_tags_codes(queue.ext, found)
            if found == expected:
                continue
            for row in np.flatnonzero((_rows(expected) != _rows(found)).any(axis=1)).tolist():
                place = slice(row * UNIT_SIZE_BYTES, (row + 1) * UNIT_SIZE_BYTES)
                self._judge(queue, begin + row, found[place], expected[place], is_gap=is_gap)

    def _judge(self, queue: _Queue, number: int, found: bytes, expected: bytes, *, is_gap: bool) -> None:
        unit, wanted = decode_queue_unit(found), decode_queue_unit(expected)
        if is_gap:
            if self._is_lost(unit.commit_log_offset):
                queue.findings.of_lost_count += 1
            else:
                what = f"the log has no record for it, it points to {unit.commit_log_offset}"
                queue.findings.add("QUEUE_SURPLUS_UNITS", number, what, unit.commit_log_offset)
        elif found == _EMPTY:
            what = f"empty; the record is at {wanted.commit_log_offset}"
            queue.findings.add("QUEUE_MISSING_UNITS", number, what, wanted.commit_log_offset)
        else:
            queue.findings.add("QUEUE_UNIT_WRONG", number, _difference(unit, wanted), wanted.commit_log_offset)

    def _is_lost(self, offset: int) -> bool:
        return any(begin <= offset < end for begin, end in self._lost)

    # -- positions without a record

    def _check_front(self, queue: _Queue, log_end_offset: int) -> None:
        """Positions before the queue's first record hold fillers, or units of records that the log no longer has."""
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
            queue.findings.add(
                "QUEUE_UNIT_WRONG", number, "empty, before the queue's first record: a filler belongs here"
            )
        elif self._is_lost(offset):
            queue.findings.of_lost_count += 1
        elif not 0 <= offset < self._log_first_offset:
            queue.findings.add(
                "QUEUE_SURPLUS_UNITS", number, f"the log has no record for it, it points to {offset}", offset
            )
        elif offset <= before:
            queue.findings.add(
                "QUEUE_UNIT_ORDER", number, f"it points to {offset}, the one before it to {before}", offset
            )
        else:
            return offset
        return before

    def _check_behind(self, queue: _Queue, begin: int, log_end_offset: int) -> None:
        """Positions from `begin` on must never have been written."""
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
            queue.findings.of_lost_count += 1
            return
        where = "behind the log's end" if offset >= log_end_offset else "though no record of the queue is left"
        queue.findings.add("QUEUE_SURPLUS_UNITS", number, f"it points to {offset}, {where}", offset)

    def _check_files(self, queue_id: QueueId, queue: _Queue) -> None:
        length, is_sound = check_queue_files(
            self._fs, queue.units.directory, f"{queue_id[0]}/{queue_id[1]}", self.file_size_bytes, self._findings
        )
        self.total_bytes += length
        if not is_sound:
            self.wrong_queues.add(queue_id)

    # -- reporting

    def _tell(self, queue_id: QueueId, queue: _Queue) -> None:
        name = f"{queue_id[0]}/{queue_id[1]}"
        for wrong in queue.findings.wrong:
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
        left_out, of_lost = queue.findings.left_out_count, queue.findings.of_lost_count
        if left_out:
            self._findings.add(
                "QUEUE_UNIT_WRONG", queue.units.directory, 0,
                f"queue {name}: {left_out} more units are missing, surplus or wrong", count=left_out,
            )  # fmt: skip
        if of_lost:
            self._findings.add(
                "QUEUE_UNITS_OF_DAMAGED_RECORDS", queue.units.directory, 0,
                f"queue {name}: {of_lost} units point into damaged parts of the log", count=of_lost,
            )  # fmt: skip

    def _is_only_behind(self, queue: _Queue, wrong: WrongUnits) -> bool:
        return (
            wrong.code == "QUEUE_MISSING_UNITS"
            and wrong.begin + wrong.count == queue.placement.end
            and self._resumes_at is not None
            and wrong.commit_log_offset is not None
            and wrong.commit_log_offset >= self._resumes_at
        )


def _with_tags_codes(ext: QueueExtUnits, units: bytes) -> bytes:
    """Units with their tags codes in place of addresses in `consumequeue_ext/`; an address stays where nothing is found."""
    decoded = list(decode_queue_units(units))
    if not any(is_ext_address(unit.tags_code) for unit in decoded):
        return units
    return b"".join(map(encode_queue_unit, ext.resolved(decoded)))


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
