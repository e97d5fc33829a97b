"""Queues whose positions are not consecutive, and the fillers before a queue's first message."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.log_scan import LogSplit, damage_at, load_kernels, scan_split
from pipeline.rebuild.files import QueueFiles
from pipeline.rebuild.scan import Batches, QueueId, QueueSpan, ScanResult
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import QueuePlacement, fillers
from store.derive.queue_runs import place_runs
from store.files.file_system import RealFileSystem
from store.format.derived.queue_unit import UNIT_SIZE_BYTES

NOTED_COUNT_MAX = 10  # records with a damaged position that a report names for each queue: more are not read


@dataclass(frozen=True, slots=True)
class OrderedTask:
    """Queues that one task writes in log order.

    Attributes:
        splits: all of the log; each split ends where the first pass ended.
        queues: the queues to write.
        out: the root to write to; None to write nothing.
        queue_file_size_bytes: size of queue files.
        is_flushed: whether the files must be flushed.
    """

    splits: tuple[LogSplit, ...]
    queues: frozenset[QueueId]
    out: str | None
    queue_file_size_bytes: int
    is_flushed: bool = True


@dataclass(frozen=True, slots=True)
class OrderedQueue:
    """The result for a queue that was written in log order; see `QueuePlacement`."""

    topic: str
    queue_id: int
    end: int
    filled_count: int
    taken_count: int
    damaged: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, topic: str, queue_id: int, placement: QueuePlacement) -> "OrderedQueue":
        """The result of a placement that has seen the whole queue."""
        counts = placement.filled_count, placement.taken_count
        return cls(topic, queue_id, placement.end or 0, *counts, tuple(placement.damaged))

    def notes(self) -> list[str]:
        """Notes on the queue for the report of the rebuild."""
        name, notes = f"queue {self.topic}/{self.queue_id}", []
        if self.filled_count:
            notes.append(f"{name}: {self.filled_count} positions without a message were filled")
        if self.taken_count:
            notes.append(f"{name}: {self.taken_count} messages whose position was taken were left out")
        for position, offset in self.damaged[:NOTED_COUNT_MAX]:
            notes.append(f"{name}: the record at {offset} states position {position}, for which the log has no room")
        return notes


def out_of_order(results: list[ScanResult]) -> set[QueueId]:
    """Queues that must be written in log order, because their positions are not consecutive."""
    ordered: set[QueueId] = set()
    last: dict[QueueId, QueueSpan] = {}
    for result in results:
        for queue, span in result.queues.items():
            before = last.get(queue)
            if span.is_broken or (before is not None and span.first != before.end):
                ordered.add(queue)
            last[queue] = span
    return ordered


def first_positions(results: list[ScanResult]) -> dict[QueueId, int]:
    """The position of each queue's first message."""
    firsts: dict[QueueId, int] = {}
    for result in results:
        for queue, span in result.queues.items():
            firsts.setdefault(queue, span.first)
    return firsts


def fill_fronts(files: QueueFiles, firsts: dict[QueueId, int], file_unit_count: int) -> int:
    """Fills the positions before each queue's first message, in the file that holds it; returns their count."""
    filled = 0
    for (topic, queue_id), first in firsts.items():
        begin = first - first % file_unit_count
        filled += first - begin
        for at, units in fillers(begin, first):
            files.write(topic, queue_id, at, units)
    return filled


def write_in_order(task: OrderedTask) -> list[OrderedQueue]:
    """Writes the queues of one task.

    Raises:
        RecordCorruptedError: the log has been damaged since the first pass.
    """
    load_kernels()
    placements = {queue: QueuePlacement(task.queue_file_size_bytes // UNIT_SIZE_BYTES) for queue in task.queues}
    files = QueueFiles(RealFileSystem(), Path(task.out), task.queue_file_size_bytes) if task.out is not None else None
    try:
        if files is not None:
            for queue in task.queues:
                files.remove_queue(*queue)
        for columns in _columns_of(task.splits):
            for topic, queue_id, runs in place_runs(columns):
                placement = placements.get((topic, queue_id))
                if placement is None:
                    continue
                for placed in placement.place(runs):
                    if files is not None:
                        files.write_placed(topic, queue_id, placed)
        if files is not None and task.is_flushed:
            files.flush()
    finally:
        if files is not None:
            files.close()
    return [OrderedQueue.of(topic, queue_id, placement) for (topic, queue_id), placement in placements.items()]


def _columns_of(splits: tuple[LogSplit, ...]) -> Iterator[DispatchColumns]:
    """All records of all splits, one split at a time."""
    for split in splits:
        parts: list[DispatchColumns] = []
        batches = Batches()

        def see(columns: DispatchColumns, parts: list[DispatchColumns] = parts, batches: Batches = batches) -> None:
            parts.extend(batches.add(columns))

        end = scan_split(split, see)
        if end.end_offset < split.end:
            raise damage_at(end)
        yield from parts
        yield from batches.rest()
