"""What scatter cannot do: queues whose positions do not follow one another, and the places before a first message."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.jobs.log_scan import LogSplit, damage_at, load_kernels, scan_split
from pipeline.jobs.rebuild_files import QueueFiles
from pipeline.jobs.rebuild_scan import Batches, QueueId, QueueSpan, ScanResult
from store.builders.queue_order import FILL_UNIT_COUNT, FILLER_BYTES, QueueOrder
from store.builders.queue_runs import place_runs
from store.dispatch_columns import DispatchColumns
from store.files.file_system import FileSystem, RealFileSystem
from store.format.queue_unit import UNIT_SIZE_BYTES

NOTED_COUNT_MAX = 10  # refused messages that a report names, of each queue


@dataclass(frozen=True, slots=True)
class OrderedTask:
    """Queues that one task writes in log order.

    Attributes:
        splits: all of the log, each up to where the first pass has found it sound.
        queues: which.
        out: the root to write to; None to write nothing.
        queue_file_size_bytes: of queue files.
        is_flushed: whether the files must be on the disk afterwards.
    """

    splits: tuple[LogSplit, ...]
    queues: frozenset[QueueId]
    out: str | None
    queue_file_size_bytes: int
    is_flushed: bool = True


@dataclass(frozen=True, slots=True)
class OrderedQueue:
    """What became of a queue; see `QueueOrder`."""

    topic: str
    queue_id: int
    end: int
    filled_count: int
    dropped_count: int
    refused: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, topic: str, queue_id: int, order: QueueOrder) -> "OrderedQueue":
        """What an order that has seen all of a queue knows."""
        return cls(topic, queue_id, order.end or 0, order.filled_count, order.dropped_count, tuple(order.refused))

    def notes(self) -> list[str]:
        """What a person should know."""
        name, notes = f"queue {self.topic}/{self.queue_id}", []
        if self.filled_count:
            notes.append(f"{name}: {self.filled_count} places without a message were filled")
        if self.dropped_count:
            notes.append(f"{name}: {self.dropped_count} messages whose place was taken were left out")
        for position, offset in self.refused[:NOTED_COUNT_MAX]:
            notes.append(
                f"{name}: the record at {offset} says that it is message {position}, for which the log has no room"
            )
        return notes


def out_of_order(results: list[ScanResult]) -> set[QueueId]:
    """Queues that are not written right by writing each message in its place."""
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
    """Fills the places before each queue's first message, in the file that holds it; how many."""
    filled = 0
    for (topic, queue_id), first in firsts.items():
        at = first - first % file_unit_count
        filled += first - at
        while at < first:
            count = min(FILL_UNIT_COUNT, first - at)
            files.write(topic, queue_id, at, FILLER_BYTES * count)
            at += count
    return filled


def write_in_order(task: OrderedTask) -> list[OrderedQueue]:
    """Writes the queues of one task.

    Raises:
        RecordCorruptedError: the log is sound no more where it was.
    """
    load_kernels()
    fs = RealFileSystem()
    orders = {queue: QueueOrder(task.queue_file_size_bytes // UNIT_SIZE_BYTES) for queue in task.queues}
    files = QueueFiles(fs, Path(task.out), task.queue_file_size_bytes) if task.out is not None else None
    try:
        if files is not None:
            for queue in task.queues:
                files.remove_queue(*queue)
        for columns in _columns_of(fs, task.splits):
            for topic, queue_id, runs in place_runs(columns):
                order = orders.get((topic, queue_id))
                if order is None:
                    continue
                for position, units, begins_anew in order.place(runs):
                    if files is not None and begins_anew:
                        files.remove_queue(topic, queue_id)
                    if files is not None:
                        files.write(topic, queue_id, position, units)
        if files is not None and task.is_flushed:
            files.flush()
    finally:
        if files is not None:
            files.close()
    return [OrderedQueue.of(topic, queue_id, order) for (topic, queue_id), order in orders.items()]


def _columns_of(fs: FileSystem, splits: tuple[LogSplit, ...]) -> Iterator[DispatchColumns]:
    """All records of all splits, a split at a time."""
    for split in splits:
        parts: list[DispatchColumns] = []
        batches = Batches()

        def see(columns: DispatchColumns, parts: list[DispatchColumns] = parts, batches: Batches = batches) -> None:
            parts.extend(batches.add(columns))

        end = scan_split(split, see, fs=fs)
        if end.end_offset < split.end:
            raise damage_at(end)
        yield from parts
        yield from batches.rest()
