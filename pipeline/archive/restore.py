"""The job `restore`: makes a RocketMQ store from segments of an archive, with queues and indexes rebuilt.

OUT.restoring/log/commitlog/    each log file written by one task, its SHA-256 compared
OUT.restoring/built/            consumequeue/ and index/ by the job `rebuild`; then commitlog/ and the topic table
OUT                             OUT.restoring/built renamed: a store appears whole or not at all

`restore_objects.py` is the same for an object store, which has no rename.
"""

import functools
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.archive.restore_objects import refuse_objects, restore_to_objects
from pipeline.archive.restore_segment import restore_log_file
from pipeline.object_files import open_root
from pipeline.progress import Progress, RunTasks, run_here, run_on_spark, silent
from pipeline.rebuild.layout import StoreLayout
from pipeline.rebuild.object_root import ObjectRoot
from pipeline.rebuild.out import refuse_speculation
from pipeline.rebuild.plan import make_plan
from pipeline.rebuild.rebuild import Rebuild
from pipeline.report import JobReport
from pipeline.shared_directory import refuse_unshared, refuse_unshared_output
from store.archive.archive_reader import ArchiveReader
from store.archive.lookups import missing_log
from store.archive.manifest import Segment, read_segment
from store.archive.topic_table import read_topic_table
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from store.files.file_system import RealFileSystem
from store.files.json_state import write_bytes_atomic
from store.format.paths import commit_log_dir, topics_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Added to the folder's name while the store is being made. A folder of that name counts as left by a killed run.
STAGING_SUFFIX = ".restoring"
LOG_FOLDER, BUILT_FOLDER = "log", "built"


def run(
    spark: "SparkSession | None",
    archive: Path | str,
    out: Path | str,
    *,
    broker_name: str = "broker-a",
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_millis: int | None = None,
    to_millis: int | None = None,
    layout: StoreLayout | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> JobReport:
    """Makes a store from segments of an archive.

    It restores whole log files: those that hold a byte, or a record, of the requested range.

    Args:
        spark: the session whose executors run the tasks; None: this process runs them one after another.
        archive: the archive, or its URI in an object store.
        out: the output root, or its URI in an object store; it must be empty or missing.
        broker_name: the shard.
        from_offset: begin of the range (bytes, inclusive); None: the archive's first offset.
        to_offset: end of the range (bytes, exclusive); None: the archive's end.
        from_millis: only files with a record stored at or after this time (milliseconds since 1970).
        to_millis: only files with a record stored at or before this time (milliseconds since 1970).
        layout: sizes of queue and index files; None for RocketMQ's defaults.
        dry_run: report which files would be restored, write nothing.
        progress: called with the count of files done.

    Raises:
        InvalidArgumentError: `out` is not empty; or it is a directory, and speculation is on.
        OffsetOutOfRangeError: the range holds nothing of the archive.
        StoreCorruptedError: part of the range is missing, or the archive is damaged.
        UnsupportedStoreError: `archive` is not an archive.
        PermissionDeniedError, ServiceUnavailableError: an object store refuses, or does not answer.
        PySparkException: a task that makes queues or indexes in an object store failed in all of Spark's attempts.
    """
    report = JobReport.begin("restore", is_dry_run=dry_run)
    place, goal = str(archive), ObjectRoot.place(out)
    archive_fs, archive = open_root(archive, "archive")
    refuse_out(goal)
    if spark is not None and isinstance(goal, Path):
        refuse_speculation(spark)
    segments = _chosen(
        ArchiveReader(archive, broker_name, archive_fs),
        from_offset,
        to_offset,
        from_millis=from_millis,
        to_millis=to_millis,
    )
    report.counts |= {
        "log_file_count": len(segments),
        "record_count": sum(segment.record_count for segment in segments),
        "log_bytes": sum(segment.file_end_offset - segment.first_offset for segment in segments),
    }
    report.notes.append(f"commit-log offsets {segments[0].first_offset} to {segments[-1].end_offset}")
    topics = read_topic_table(archive_fs, archive, broker_name)
    if topics is None:
        report.notes.append("the archive has no topic table: config/topics.json is not restored")
    refuse_unshared(spark, place, "archive")
    if dry_run:
        return report.end()
    refuse_unshared_output(spark, goal, "out")
    run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
    first_offsets = [segment.first_offset for segment in segments]
    if isinstance(goal, Path):
        _make_directory(goal, place, broker_name, first_offsets, topics, run_tasks, layout or StoreLayout(), report)
    else:
        if spark is None:
            raise InvalidArgumentError(
                f"a restore to {goal} shuffles: it needs Spark, or name a directory", field="out"
            )
        from pipeline.rebuild.shuffle import make_all

        restore_to_objects(
            goal, place, broker_name, first_offsets, topics,
            run_tasks=run_tasks, make_all=functools.partial(make_all, spark), layout=layout or StoreLayout(),
            report=report, parallelism=spark.sparkContext.defaultParallelism,
        )  # fmt: skip
    report.outputs = {"store": str(goal)}
    return report.end()


def refuse_out(goal: Path | ObjectRoot) -> None:
    """InvalidArgumentError if a restore cannot write there."""
    if isinstance(goal, ObjectRoot):
        refuse_objects(goal)
    elif RealFileSystem().listdir(goal):
        raise InvalidArgumentError(
            f"{goal} is not empty: name a directory that is empty or does not exist", field="out"
        )


def _make_directory(
    out: Path,
    archive: str,
    broker_name: str,
    first_offsets: list[int],
    topics: bytes | None,
    run_tasks: RunTasks,
    layout: StoreLayout,
    report: JobReport,
) -> None:
    fs = RealFileSystem()
    staging = out.with_name(out.name + STAGING_SUFFIX)
    shutil.rmtree(staging, ignore_errors=True)  # left by a killed run
    run_tasks(
        "restore", functools.partial(_restore_one, archive, broker_name, str(staging / LOG_FOLDER)), first_offsets
    )
    plan, notes = make_plan(fs, staging / LOG_FOLDER, staging / BUILT_FOLDER, layout)
    Rebuild(fs, plan, run_tasks, report).run(dry_run=False)
    report.notes += notes
    fs.rename(commit_log_dir(str(staging / LOG_FOLDER)), commit_log_dir(str(staging / BUILT_FOLDER)))
    if topics is not None:
        write_bytes_atomic(fs, Path(topics_file(str(staging / BUILT_FOLDER))), topics)
    fs.fsync_dir(staging / BUILT_FOLDER)
    if fs.is_dir(out):
        out.rmdir()
    fs.rename(staging / BUILT_FOLDER, out)
    shutil.rmtree(staging)
    fs.fsync_dir(out.parent)


def _chosen(
    reader: ArchiveReader,
    from_offset: int | None,
    to_offset: int | None,
    *,
    from_millis: int | None,
    to_millis: int | None,
) -> list[Segment]:
    """The segments of a range, without a hole between them."""
    everything = reader.segments()
    chosen = [
        segment
        for segment in everything
        if (from_offset is None or segment.file_end_offset > from_offset)
        and (to_offset is None or segment.first_offset < to_offset)
        and (from_millis is None or segment.end_time_millis >= from_millis)
        and (to_millis is None or segment.begin_time_millis <= to_millis)
    ]
    if not chosen:
        first, end = reader.range()
        raise OffsetOutOfRangeError(
            f"The archive of {reader.broker_name!r} has nothing in the range: it has commit-log offsets {first} to {end}.",
            firstOffset=first,
            lastOffset=end,
        )
    # Files between two chosen ones are restored, too, whatever their times: the log must not have holes.
    between = [s for s in everything if chosen[0].first_offset <= s.first_offset <= chosen[-1].first_offset]
    for before, after in pairwise(between):
        if before.end_offset < after.first_offset:
            raise missing_log(before.end_offset, after.first_offset)
    return between


def _restore_one(archive: str, broker_name: str, out: str, first_offset: int) -> int:
    """One Spark task: restores one log file; returns its size in bytes."""
    fs, root = open_root(archive, "archive")
    segment = read_segment(fs, root, broker_name, first_offset)
    return restore_log_file(RealFileSystem(), root, segment, Path(out), archive_fs=fs)
