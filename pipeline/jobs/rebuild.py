"""`rebuild`: queues and indexes made anew from the log, byte for byte what the online builders and RocketMQ make.

Theory of operation (mode `scatter`, for one machine or a shared file system):

    log      | split 0 | split 1 | split 2 |       each checked and decoded by one task (rebuild_scan.py)
                 |   \\       |  \\
    units        |    keys   |   keys             units go to their places, keys to scratch, in log order
    joined   ends = begins? counts, queue ends     by the driver: where the log ends, which queues jump, prefix sums
    ordered  queues that jump                      each by one task that sees all of it (rebuild_queues.py)
    index    | file 0 | file 1 |                   each by one task, from its keys' numbers alone (rebuild_files.py)

Nothing is sorted and nothing is shuffled. Where files cannot be written at many places at once (an object store), mode
`shuffle` writes each from its first byte to its last (`rebuild_shuffle.py`, `rebuild_object_out.py`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.jobs.log_scan import LogOutline, LogSplit, durable_offset_of, outline_log, plan_splits
from pipeline.jobs.progress import Progress, RunTasks, run_on_spark, silent
from pipeline.jobs.rebuild_files import IndexFilePlan, QueueFiles, keys_before, plan_index_files, write_index_file
from pipeline.jobs.rebuild_layout import StoreLayout, find_layout
from pipeline.jobs.rebuild_log_end import log_end, sound_splits
from pipeline.jobs.rebuild_object_out import ObjectOut, refuse_objects
from pipeline.jobs.rebuild_object_root import ObjectRoot
from pipeline.jobs.rebuild_out import Staging, index_names, refuse_out, refuse_speculation
from pipeline.jobs.rebuild_queues import (
    OrderedTask,
    fill_fronts,
    first_positions,
    out_of_order,
    write_in_order,
)
from pipeline.jobs.rebuild_scan import QueueId, ScanResult, ScanTask, is_rolled, scan
from pipeline.jobs.rebuild_target import DirectoryTarget, MadeFiles, Target
from pipeline.jobs.report import JobReport
from store.errors import InvalidArgumentError, StoreLockedError, UnsupportedStoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.index_layout import IndexHeader
from store.format.paths import commit_log_dir
from store.format.queue_unit import UNIT_SIZE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One task for each log file: its fixed cost is small beside a GiB of log, and no file is read twice to find a beginning.
SPLIT_BYTES = 1 << 30
SPLIT_BYTES_MIN = 16 << 20  # smaller ones cost more in tasks than they bring
MODES = ("scatter", "shuffle")


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What is to be done.

    Attributes:
        source: the store root.
        out: the root to be made: a directory, or a place in an object store.
        layout: of the files to be made.
        outline: of the log.
        splits: of the log.
        is_flushed: whether everything must be on the disk before it is shown as `out`.
    """

    source: Path
    out: Path | ObjectRoot
    layout: StoreLayout
    outline: LogOutline
    splits: list[LogSplit]
    is_flushed: bool = True


def run(
    spark: "SparkSession",
    store: Path | str,
    out: Path | str,
    *,
    mode: str | None = None,
    layout: StoreLayout | None = None,
    split_bytes: int | None = None,
    dry_run: bool = False,
    is_flushed: bool = True,
    progress: Progress = silent,
) -> JobReport:
    """Rebuilds a store's queues and indexes into `out`.

    Args:
        spark: who runs the tasks.
        store: the store root; nothing is written there.
        out: the root to be made; it must be empty or not there. A text with `://` is a place in an object store.
        mode: `scatter` or `shuffle`; None for `scatter`, and for `shuffle` into an object store.
        layout: how files are divided where the store has none to tell; None for RocketMQ's defaults.
        split_bytes: log for a task; None for whole files, or less where there are fewer files than cores.
        dry_run: read and check all, write nothing.
        is_flushed: whether everything must be on the disk before it is shown as `out`.
        progress: told how far it is.

    Raises:
        InvalidArgumentError: `out` or `mode` will not do, or Spark runs tasks twice at once into a directory.
        UnsupportedStoreError: `store` is no store.
        StoreCorruptedError, RecordCorruptedError: the log is damaged, with good records behind the damage.
        PermissionDeniedError, ServiceUnavailableError: the object store refuses, or does not answer.
        PySparkException: a task of `shuffle` failed as often as Spark tries; its text has the task's own error.
    """
    goal = ObjectRoot.of(out)
    mode = mode_for(goal, mode)
    if not isinstance(goal, ObjectRoot):
        refuse_speculation(spark)
    report = JobReport.begin("rebuild", is_dry_run=dry_run)
    fs = RealFileSystem()
    plan, notes = make_plan(
        fs, Path(store), goal, layout or StoreLayout(),
        split_bytes=split_bytes, parallelism=spark.sparkContext.defaultParallelism, is_flushed=is_flushed,
    )  # fmt: skip
    report.notes += notes
    run_tasks = run_on_spark(spark, progress)
    if mode == "shuffle":
        from pipeline.jobs.rebuild_shuffle import make_all

        Rebuild(fs, plan, run_tasks, report, make_all=partial(make_all, spark)).run(dry_run=dry_run)
    else:
        Rebuild(fs, plan, run_tasks, report).run(dry_run=dry_run)
    return report.end()


def mode_for(out: Path | ObjectRoot, mode: str | None) -> str:
    """The mode asked for, or the one that fits the goal.

    Raises:
        InvalidArgumentError: there is no such mode, or it cannot write there.
    """
    if mode is None:
        return "shuffle" if isinstance(out, ObjectRoot) else "scatter"
    if mode not in MODES:
        raise InvalidArgumentError(f"There is no mode {mode!r}: {' and '.join(MODES)} are known.", field="mode")
    if mode == "scatter" and isinstance(out, ObjectRoot):
        raise InvalidArgumentError(
            f"--mode scatter writes into files at many places, which {out} does not allow: use --mode shuffle.",
            field="mode",
        )
    return mode


def refuse_goal(source: Path, out: Path | ObjectRoot) -> None:
    """Refuses what is no place for a rebuild of `source`: see `refuse_out` and `refuse_objects`."""
    if isinstance(out, ObjectRoot):
        refuse_objects(source, out)
    else:
        refuse_out(source, out)


def make_plan(
    fs: FileSystem,
    source: Path,
    out: Path | ObjectRoot,
    wanted: StoreLayout,
    *,
    split_bytes: int | None = None,
    parallelism: int = 1,
    is_flushed: bool = True,
) -> tuple[RebuildPlan, list[str]]:
    """The plan, and what a person should know of it."""
    refuse_goal(source, out)
    live = is_live(fs, source)
    durable_offset = durable_offset_of(fs, source)
    refuse_no_store(fs, source)
    outline = outline_log(fs, source, durable_offset=durable_offset, is_live=live)
    layout, notes = find_layout(fs, source, wanted)
    if live:
        notes.append(f"the store is being written to: only the log before {outline.end_bound} was read")
    if split_bytes is None:
        split_bytes = SPLIT_BYTES
        if len(outline.file_offsets) < parallelism:
            split_bytes = max(outline.total_bytes // parallelism + 1, SPLIT_BYTES_MIN)
    splits = plan_splits(fs, source, outline, split_bytes)
    return RebuildPlan(source, out, layout, outline, splits, is_flushed), notes


def refuse_no_store(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError for a directory without commitlog/."""
    if not fs.is_dir(commit_log_dir(str(root))):
        raise UnsupportedStoreError(f"{root} has no commitlog/: name the root of a store", directory=root)


def is_live(fs: FileSystem, root: Path) -> bool:
    """Whether a broker or one of our services has the store open for writing."""
    from store.audit.holders import refuse_held_root

    try:
        refuse_held_root(fs, root)
    except StoreLockedError:
        return True
    return False


Scanned = list[tuple[ScanTask, ScanResult]]  # the splits with records, in log order
MakeAll = Callable[[RebuildPlan, Scanned, set[QueueId], Target, Iterator[str]], MadeFiles]


class Rebuild:
    """One run.

    Args:
        fs: the door to the disk, for the driver's own part.
        plan: what is to be done.
        run_tasks: runs the tasks.
        report: told what was done.
        make_all: writes the files once the log is known, instead of `scatter`.
    """

    def __init__(
        self,
        fs: FileSystem,
        plan: RebuildPlan,
        run_tasks: RunTasks,
        report: JobReport,
        *,
        make_all: MakeAll | None = None,
    ) -> None:
        self._fs = fs
        self._plan = plan
        self._run_tasks = run_tasks
        self._report = report
        self._make_all = make_all

    def run(self, *, dry_run: bool) -> None:
        """Does it, or with `dry_run` only says what it would do."""
        out = self._plan.out
        if dry_run:
            self._scan(None)
            return
        if isinstance(out, ObjectRoot):
            self._make_objects(out)
        else:
            self._make_directory(out)
        self._report.outputs = {name: f"{out}/{name}" for name in ("consumequeue", "index")}

    def _make_objects(self, out: ObjectRoot) -> None:
        plan, make_all = self._plan, self._make_all
        assert make_all is not None, "scatter cannot write there"
        with ObjectOut(plan.source, out) as place:
            scanned, ordered = self._scan(None)
            made = make_all(plan, scanned, ordered, place.target, place.index_names())
            self._count_made(made)
            place.publish(made, plan.layout, self._report.counts)

    def _make_directory(self, out: Path) -> None:
        plan = self._plan
        with Staging(self._fs, out) as staging:
            names = index_names(int(time.time() * 1000))
            if self._make_all is not None:
                scanned, ordered = self._scan(None)
                self._count_made(
                    self._make_all(plan, scanned, ordered, DirectoryTarget(str(staging.root), plan.is_flushed), names)
                )
            else:
                scanned, ordered = self._scan(staging)
                file_count = self._finish_queues(staging, scanned, ordered)
                self._count_files(file_count, self._write_indexes(staging, scanned, names))
            staging.publish(is_flushed=plan.is_flushed)

    def _count_made(self, made: MadeFiles) -> None:
        self._report.notes += made.notes
        self._count_files(made.queue_files.num_rows, [header for _, _, header in made.index_files])

    def _count_files(self, queue_file_count: int, headers: list[IndexHeader]) -> None:
        self._report.counts |= {
            "queue_file_count": queue_file_count,
            "index_file_count": len(headers),
            "index_entry_count": sum(max(header.entry_count - 1, 0) for header in headers),
        }

    def _scan(self, staging: Staging | None) -> tuple[Scanned, set[QueueId]]:
        plan, report = self._plan, self._report
        tasks = [
            ScanTask(
                split,
                str(staging.root) if staging is not None else None,
                plan.layout.queue_file_size_bytes,
                str(staging.scratch / f"keys-{number}") if staging is not None else None,
                plan.is_flushed,
            )
            for number, split in enumerate(plan.splits)
        ]
        results = self._run_tasks("scan", scan, tasks)
        end_offset = log_end(self._fs, plan.source, plan.outline, results)
        ordered = out_of_order(results)
        refused = set[QueueId]().union(*(result.refused for result in results))
        report.counts |= {
            "log_first_offset": plan.outline.first_offset,
            "log_end_offset": end_offset,
            "log_bytes": end_offset - plan.outline.first_offset,
            "record_count": sum(result.record_count for result in results),
            "unit_count": sum(result.unit_count for result in results),
            "key_count": sum(result.key_count for result in results),
            "queue_count": len(first_positions(results)),
            "ordered_queue_count": len(ordered),
            "worker_memory_bytes_max": max((result.memory_bytes_max for result in results), default=0),
        }
        report.notes += [
            f"no queue can be made for topic {topic!r}, queue {queue_id}" for topic, queue_id in sorted(refused)
        ]
        return [pair for pair in zip(tasks, results, strict=True) if pair[1].record_count], ordered

    def _finish_queues(self, staging: Staging, scanned: Scanned, ordered: set[QueueId]) -> int:
        """Writes what the splits could not; how many queue files there are."""
        plan = self._plan
        size = plan.layout.queue_file_size_bytes
        firsts = {
            queue: first
            for queue, first in first_positions([result for _, result in scanned]).items()
            if queue not in ordered
        }
        files = QueueFiles(self._fs, staging.root, size)
        try:
            fill_fronts(files, firsts, size // UNIT_SIZE_BYTES)
            if plan.is_flushed:
                files.flush()
        finally:
            files.close()
        splits = tuple(sound_splits(scanned))
        # One pass over the log for all of them: such queues are few, and a pass costs more than a queue.
        tasks = [OrderedTask(splits, frozenset(ordered), str(staging.root), size, plan.is_flushed)] if ordered else []
        for done in self._run_tasks("ordered queues", write_in_order, tasks):
            for queue in done:
                self._report.notes += queue.notes()
        return sum(1 for path in (staging.root / "consumequeue").rglob("*") if path.is_file())

    def _write_indexes(self, staging: Staging, scanned: Scanned, names: Iterator[str]) -> list[IndexHeader]:
        plan = self._plan
        spills = [(task.spill, result.key_count) for task, result in scanned if task.spill is not None]
        plans = plan_index_files(
            staging.root, names, plan.layout.index, spills,
            key_before=keys_before(self._fs, plan.layout.index, spills),
            is_rolled=is_rolled([result for _, result in scanned]),
            is_flushed=plan.is_flushed,
        )  # fmt: skip
        return self._run_tasks("index files", _write_index, plans)


def _write_index(plan: IndexFilePlan) -> IndexHeader:
    from pipeline.jobs.log_scan import load_kernels

    load_kernels()
    return write_index_file(RealFileSystem(), plan)
