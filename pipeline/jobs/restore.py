"""The job `restore`: segments of an archive back to a RocketMQ store, with queues and indexes rebuilt.

OUT.restoring/log/commitlog/    each log file written by one task, its SHA-256 compared
OUT.restoring/built/            consumequeue/ and index/ by the job `rebuild`; then the log goes there, and the topic table
OUT                             that renamed: a store appears whole or not at all
"""

import functools
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.jobs.progress import Progress, run_here, run_on_spark, silent
from pipeline.jobs.rebuild import Rebuild, make_plan
from pipeline.jobs.rebuild_layout import StoreLayout
from pipeline.jobs.report import JobReport
from pipeline.jobs.restore_segment import restore_log_file
from store.archive.archive_reader import ArchiveReader, missing_log
from store.archive.manifest import Segment, read_segment
from store.archive.topic_table import read_topic_table
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import write_bytes_atomic
from store.format.paths import commit_log_dir, topics_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Behind the folder's name while it is being made, and what tells it from one that somebody else made.
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
    """Makes a store of segments of an archive.

    Whole log files come back: those that hold a byte, or a record, of the range asked for.

    Args:
        spark: whose executors do it; None: this process, one file after another.
        archive: the archive.
        out: the store root to be made; it must be empty or not there.
        broker_name: the shard.
        from_offset: the first commit-log offset that is wanted; None: from the archive's first.
        to_offset: the first that is not; None: to the archive's last.
        from_millis: only files with a record stored at or after this.
        to_millis: only files with a record stored at or before this.
        layout: how queue and index files are divided; None for RocketMQ's defaults.
        dry_run: say which files would come back, and write nothing.
        progress: told how many files are done.

    Raises:
        InvalidArgumentError: `out` holds something.
        OffsetOutOfRangeError: nothing of the archive is in the range.
        StoreCorruptedError: part of the range is missing, or the archive is damaged.
        UnsupportedStoreError: `archive` is none.
    """
    report = JobReport.begin("restore", is_dry_run=dry_run)
    fs, archive, out = RealFileSystem(), Path(archive), Path(out)
    if fs.listdir(out):
        raise InvalidArgumentError(f"{out} is not empty: name a directory that is not there yet", field="out")
    segments = _chosen(
        ArchiveReader(archive, broker_name, fs), from_offset, to_offset, from_millis=from_millis, to_millis=to_millis
    )
    report.counts |= {
        "log_file_count": len(segments),
        "record_count": sum(segment.record_count for segment in segments),
        "log_bytes": sum(segment.file_end_offset - segment.first_offset for segment in segments),
    }
    report.notes.append(f"commit-log offsets {segments[0].first_offset} to {segments[-1].end_offset}")
    topics = read_topic_table(fs, archive, broker_name)
    if topics is None:
        report.notes.append("the archive has no topic table: config/topics.json is not restored")
    if dry_run:
        return report.end()
    staging = out.with_name(out.name + STAGING_SUFFIX)
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
    task = functools.partial(_restore_one, str(archive), broker_name, str(staging / LOG_FOLDER))
    run_tasks("restore", task, [segment.first_offset for segment in segments])
    plan, notes = make_plan(fs, staging / LOG_FOLDER, staging / BUILT_FOLDER, layout or StoreLayout())
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
    report.outputs = {"store": str(out)}
    return report.end()


def _chosen(
    reader: ArchiveReader,
    from_offset: int | None,
    to_offset: int | None,
    *,
    from_millis: int | None,
    to_millis: int | None,
) -> list[Segment]:
    """The segments of a range, which follow one another."""
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
            f"Nothing of the archive of {reader.broker_name!r}, which goes from {first} to {end}, is in the range asked for.",
            firstOffset=first,
            lastOffset=end,
        )
    # What lies between two chosen files by offset is in the store, whatever its times.
    between = [s for s in everything if chosen[0].first_offset <= s.first_offset <= chosen[-1].first_offset]
    for before, after in pairwise(between):
        if before.end_offset < after.first_offset:
            raise missing_log(before.end_offset, after.first_offset)
    return between


def _restore_one(archive: str, broker_name: str, out: str, first_offset: int) -> int:
    """What a Spark task does."""
    fs: FileSystem = RealFileSystem()
    return restore_log_file(fs, Path(archive), read_segment(fs, Path(archive), broker_name, first_offset), Path(out))
