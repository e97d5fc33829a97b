"""`rebuild`: queues and indexes made from the log, byte for byte as the online builders and RocketMQ make them.

Theory of operation (mode `scatter`, for one machine or a shared file system):

    log      | split 0 | split 1 | split 2 |       each checked and decoded by one task (scan.py)
                 |   \\       |  \\
    units        |    keys   |   keys             units to their positions, keys to scratch, in log order
    joined   ends = begins? counts, queue ends     by the driver: where the log ends, which queues jump, prefix sums
    ordered  queues that jump                      by one task that reads the whole log (scan.py)
    index    | file 0 | file 1 |                   each by one task, from its keys' numbers alone (files.py)

A queue *jumps* if its positions are not consecutive. This mode neither sorts nor shuffles. An object store does not allow
writes at several offsets of a file; there, mode `shuffle` writes each file from its first byte to its last (`shuffle.py`,
`ObjectOut`).
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.job import JobReport, Progress, RunTasks, refuse_unshared, refuse_unshared_output, run_on_spark, silent
from pipeline.object_files import open_root
from pipeline.object_root import ObjectRoot
from pipeline.rebuild.files import IndexFilePlan, QueueFiles, keys_before, plan_index_files, write_index_file
from pipeline.rebuild.out import ObjectOut, Staging, StoreLayout, index_names, refuse_speculation
from pipeline.rebuild.plan import RebuildPlan, Scanned, log_end, make_plan, sound_splits
from pipeline.rebuild.scan import (
    OrderedTask,
    QueueId,
    ScanResult,
    ScanTask,
    drop_topics,
    ends_without_keys,
    fill_fronts,
    first_positions,
    out_of_order,
    scan,
    write_in_order,
)
from pipeline.target import DirectoryTarget, MadeFiles, Target
from store.errors import InvalidArgumentError
from store.features.table import hidden_by_record
from store.files.file_system import FileSystem, RealFileSystem
from store.format.derived.index_layout import IndexHeader
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.paths import consume_queue_dir, is_topic_folder_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("scatter", "shuffle")


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
        spark: the session that runs the tasks.
        store: the store root, or its URI in an object store; only read.
        out: the output root; it must be empty or missing. A text with `://` is a place in an object store.
        mode: `scatter` or `shuffle`; None for `scatter`, and for `shuffle` into an object store.
        layout: file sizes if the store has no files of the kind; None for RocketMQ's defaults.
        split_bytes: bytes of log for a task; None for whole files, or less if there are fewer files than cores.
        dry_run: read and check everything, write nothing.
        is_flushed: whether everything must be flushed before it appears as `out`.
        progress: called with the progress of each step.

    Raises:
        InvalidArgumentError: `out` or `mode` cannot be used, or speculation is on and `out` is a directory.
        UnsupportedStoreError: `store` is no store.
        StoreCorruptedError, RecordCorruptedError: the log is damaged, with good records behind the damage.
        PermissionDeniedError, ServiceUnavailableError: the object store refuses, or does not answer.
        PySparkException: a task of `shuffle` failed in all of Spark's attempts; its text has the task's own error.
    """
    goal = ObjectRoot.of(out)
    mode = mode_for(goal, mode)
    if not isinstance(goal, ObjectRoot):
        refuse_speculation(spark)
    report = JobReport.begin("rebuild", is_dry_run=dry_run)
    fs = RealFileSystem()
    plan, notes = make_plan(
        *open_root(store), goal, layout or StoreLayout(), split_bytes=split_bytes,
        parallelism=spark.sparkContext.defaultParallelism, is_flushed=is_flushed, place=str(store),
    )  # fmt: skip
    report.notes += notes
    refuse_unshared(spark, store, "store")
    if not dry_run:
        refuse_unshared_output(spark, goal, "out")
    run_tasks = run_on_spark(spark, progress)
    if mode == "shuffle":
        from pipeline.rebuild.shuffle import make_all  # needs pyarrow

        Rebuild(fs, plan, run_tasks, report, make_all=partial(make_all, spark)).run(dry_run=dry_run)
    else:
        Rebuild(fs, plan, run_tasks, report).run(dry_run=dry_run)
    return report.end()


def mode_for(out: Path | ObjectRoot, mode: str | None) -> str:
    """The requested mode, or the default for the goal.

    Raises:
        InvalidArgumentError: the mode does not exist, or cannot write to the goal.
    """
    if mode is None:
        return "shuffle" if isinstance(out, ObjectRoot) else "scatter"
    if mode not in MODES:
        raise InvalidArgumentError(f"The mode {mode!r} does not exist: name {' or '.join(MODES)}.", field="mode")
    if mode == "scatter" and isinstance(out, ObjectRoot):
        raise InvalidArgumentError(
            f"--mode scatter writes at several offsets of a file, which {out} does not allow: use --mode shuffle.",
            field="mode",
        )
    return mode


MakeAll = Callable[[RebuildPlan, Scanned, set[QueueId], Target, Iterator[str]], MadeFiles]


class Rebuild:
    """One run.

    Args:
        fs: the port to the disk, for the driver's own part.
        plan: what to read and to make.
        run_tasks: runs the tasks.
        report: receives counts, outputs and notes.
        make_all: writes the files after the first pass, in mode `shuffle`; None in mode `scatter`.
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
        """Runs the rebuild, or with `dry_run` only reports what it would make."""
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
        with ObjectOut(self._plan.source, out) as place:
            made = self.make_in(place.target, place.index_names())
            place.publish(made, self._plan.layout, self._report.counts)

    def make_in(self, target: Target, names: Iterator[str]) -> MadeFiles:
        """Mode `shuffle` alone: delivers all files to a target; the caller says when they count.

        Args:
            target: where they go.
            names: names for index files, ascending.
        """
        assert self._make_all is not None, "scatter cannot write there"
        scanned, ordered = self._scan(None)
        made = self._make_all(self._plan, scanned, ordered, target, names)
        self._count_made(made)
        return made

    def _make_directory(self, out: Path) -> None:
        plan = self._plan
        with Staging(self._fs, out) as staging:
            names = index_names(int(time.time() * 1000))
            if self._make_all is not None:
                self.make_in(DirectoryTarget(str(staging.root), plan.is_flushed), names)
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
                plan.hidden,
                bool(plan.layout.has_tags),
            )
            for number, split in enumerate(plan.splits)
        ]
        results = self._run_tasks("scan", scan, tasks)
        self._hide_batches(staging, results)
        end_offset = log_end(plan.source_fs, plan.source, plan.outline, results)
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

    def _hide_batches(self, staging: Staging | None, results: list[ScanResult]) -> None:
        """Makes no queue of topics that only the log shows to be in batch queues."""
        topics = set[str]().union(*(result.batch_topics for result in results)) - self._plan.hidden
        if not topics:
            return
        drop_topics(results, topics)
        self._plan = replace(self._plan, hidden=self._plan.hidden | topics)
        self._report.notes += [f"no queues are made: {hidden_by_record(topic)}" for topic in sorted(topics)]
        if staging is not None:
            for topic in filter(is_topic_folder_name, topics):  # the scan may have written some, before it saw a batch
                shutil.rmtree(Path(consume_queue_dir(str(staging.root))) / topic, ignore_errors=True)

    def _finish_queues(self, staging: Staging, scanned: Scanned, ordered: set[QueueId]) -> int:
        """Writes the queues that jump and the fillers; returns the count of queue files."""
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
        # One pass over the log for all of them: such queues are rare, and a pass over the log is the main cost.
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
            is_followed=ends_without_keys([result for _, result in scanned]),
            is_flushed=plan.is_flushed,
        )  # fmt: skip
        return self._run_tasks("index files", _write_index, plans)


def _write_index(plan: IndexFilePlan) -> IndexHeader:
    from pipeline.log_scan import load_kernels

    load_kernels()
    return write_index_file(RealFileSystem(), plan)
