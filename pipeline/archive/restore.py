"""The job `restore`: makes a RocketMQ store from segments of an archive, with queues and indexes rebuilt.

OUT.restoring/log/commitlog/    each log file written by one task, its SHA-256 compared
OUT.restoring/built/            consumequeue/ and index/ by the job `rebuild`; then commitlog/ and the topic table
OUT                             OUT.restoring/built renamed: a store appears whole or not at all

`restore_to_objects` is the same for an object store, which has no rename.

Restores the log file of one archive segment byte for byte; SHA-256 proves it.

A restore into an object store: the log, its queues and indexes, and the topic table, as objects.

    OUT/commitlog/restore.begun.json   first: names the run that owns OUT; while it is there, readers refuse the store
    OUT/commitlog/...                  each by the task that made it on its own disk and compared its SHA-256
    OUT/consumequeue/... index/...     made from these by the shuffle of the job `rebuild`
    OUT/restore.json                   every file with its size
    then restore.begun.json is removed: that moment makes the store complete

A killed restore is run again: it writes the same names, and removes all other objects.
"""

import functools
import mmap
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.job import (
    JobReport,
    Progress,
    RunTasks,
    refuse_unshared,
    refuse_unshared_output,
    run_here,
    run_on_spark,
    silent,
)
from pipeline.object_files import UNFINISHED_NAME, ObjectFileSystem, open_root
from pipeline.object_root import ObjectRoot
from pipeline.rebuild.out import FOLDERS, StoreLayout, index_names, refuse_speculation, settle
from pipeline.rebuild.plan import make_plan, plan_of
from pipeline.rebuild.rebuild import MakeAll, Rebuild
from pipeline.target import ObjectTarget, Target, encode_marker
from store.archive.archive_reader import ArchiveReader
from store.archive.lookups import missing_log
from store.archive.manifest import Segment, damaged, read_segment
from store.archive.parquet_files import FRAME_COLUMNS, ParquetFiles
from store.archive.segment_writer import log_digest, read_tail
from store.archive.topic_table import read_topic_table
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import write_bytes_atomic
from store.format.paths import commit_log_dir, log_file_name, topics_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESTORE_COLUMNS = ("physicalOffset", *FRAME_COLUMNS)


def restore_log_file(
    fs: FileSystem, archive: Path, segment: Segment, out: Path, *, archive_fs: FileSystem | None = None
) -> int:
    """Writes the log file of a segment below a store root and flushes it; returns its size in bytes.

    Args:
        fs: the port to the disk.
        archive: the archive.
        segment: one of its segments.
        out: the store root that is being made.
        archive_fs: the port to the archive's disk; None for the same as that of `out`.

    Raises:
        StoreCorruptedError: the archive's files do not yield the archived log file; metadata has `file`.
        DiskFullError: no space for the file.
    """
    size_bytes = segment.file_end_offset - segment.first_offset
    directory = Path(commit_log_dir(str(out)))
    fs.mkdirs(directory)
    target = directory / log_file_name(segment.first_offset)
    temporary = target.with_name(f".{target.name}.tmp")
    fd = fs.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        fs.fallocate(fd, 0, size_bytes)  # without a block on the disk, a write through the map could raise SIGBUS
        with mmap.mmap(fd, size_bytes) as log_file:
            record_count = _write_records(archive_fs or fs, archive, segment, log_file)
            tail = read_tail(archive_fs or fs, archive, segment)
            at = segment.records_end_offset - segment.first_offset
            log_file[at : at + len(tail)] = tail
            log_file.flush()
            with memoryview(log_file) as view:
                digest = log_digest(view)
        if record_count != segment.record_count or digest != segment.log_sha256:
            raise damaged(
                archive / (segment.files[0].path if segment.files else segment.keys_path),
                0,
                f"the files of the segment at {segment.first_offset} yield {record_count} records and the SHA-256 "
                f"{digest}, the manifest says {segment.record_count} and {segment.log_sha256}",
            )
        fs.fdatasync(fd)
    except BaseException:
        fs.unlink(temporary)
        raise
    finally:
        fs.close(fd)
    fs.rename(temporary, target)
    fs.fsync_dir(directory)
    return size_bytes


def _write_records(fs: FileSystem, archive: Path, segment: Segment, log_file: mmap.mmap) -> int:
    parquet = ParquetFiles(fs)
    count = 0
    for file in segment.files:
        path = archive / file.path
        for table in parquet.tables(path, RESTORE_COLUMNS):
            for offset, head, body, tail in zip(*(column.to_pylist() for column in table.columns), strict=True):
                begin = offset - segment.first_offset
                frame = head + body + tail
                if not 0 <= begin <= len(log_file) - len(frame):
                    raise damaged(
                        path, 0, f"a record in it states the commit-log offset {offset}, outside its log file"
                    )
                log_file[begin : begin + len(frame)] = frame
            count += len(table)
    return count


BEGUN_NAME = f"{commit_log_dir('')}/{UNFINISHED_NAME}"
MANIFEST_NAME = "restore.json"
LOG_FOLDER, CONFIG_FOLDER = "commitlog", "config"


def refuse_objects(root: ObjectRoot) -> None:
    """InvalidArgumentError for a place with a finished restore or other data, or whose bucket does not exist."""
    names = root.top_names()
    is_begun = root.read(BEGUN_NAME) is not None
    if MANIFEST_NAME in names and not is_begun:
        raise _finished(root)
    others = sorted(names - ({MANIFEST_NAME, LOG_FOLDER, CONFIG_FOLDER, *FOLDERS} if is_begun else set()))
    if others:
        raise InvalidArgumentError(
            f"{root} holds other data ({others[0]}): name a prefix without objects.", field=root.field
        )


def restore_to_objects(
    root: ObjectRoot,
    archive: str,
    broker_name: str,
    first_offsets: Sequence[int],
    topics: bytes | None,
    *,
    run_tasks: RunTasks,
    make_all: MakeAll,
    layout: StoreLayout,
    report: JobReport,
    parallelism: int = 1,
    clock: Callable[[], float] = time.time,
) -> None:
    """Makes the store.

    Args:
        root: the place.
        archive: the archive, or its URI.
        broker_name: the shard.
        first_offsets: of the log files to restore (bytes), ascending, without a gap.
        topics: the topic table; None without one.
        run_tasks: runs the tasks that restore log files.
        make_all: mode `shuffle` of a rebuild.
        layout: sizes of queue and index files.
        report: receives counts and notes.
        parallelism: tasks that run at once.
        clock: seconds since 1970.

    Raises:
        StoreLockedError: another restore has taken over the place.
        StoreCorruptedError: the archive is damaged.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
    """
    refuse_objects(root)
    root.delete(MANIFEST_NAME)  # of a run that was killed just before its end
    target = ObjectTarget(root, uuid.uuid4().hex, BEGUN_NAME, "restore")
    first_begun_millis = target.take(int(clock() * 1000))
    if MANIFEST_NAME in root.top_names():  # another run has completed before it could see this run's id
        root.delete(BEGUN_NAME)
        raise _finished(root)
    sizes = run_tasks("restore", partial(_restore_object, archive, broker_name, target), first_offsets)
    wanted = dict(sizes)
    fs = ObjectFileSystem(root.uri, root.field, reads_unfinished=True)
    plan, notes = plan_of(fs, fs.root, root, layout, parallelism=parallelism, is_flushed=False, place=root.uri)
    made = Rebuild(RealFileSystem(), plan, run_tasks, report, make_all=make_all).make_in(
        target, index_names(first_begun_millis)
    )
    report.notes += notes
    wanted |= dict(made.sizes())
    if topics is not None:
        name = topics_file("")
        target.put(name, topics)
        wanted[name] = len(topics)
    settle(target, (LOG_FOLDER, CONFIG_FOLDER, *FOLDERS), wanted)
    files = [{"path": name, "size_bytes": size_bytes} for name, size_bytes in sorted(wanted.items())]
    root.put_bytes(MANIFEST_NAME, encode_marker({"version": 1, "run": target.run, "files": files}))
    root.delete(BEGUN_NAME)


def _restore_object(archive: str, broker_name: str, target: Target, first_offset: int) -> tuple[str, int]:
    """One Spark task: restores one log file on its own disk and sends it; returns its name and size in bytes."""
    archive_fs, archive_root = open_root(archive, "archive")
    segment = read_segment(archive_fs, archive_root, broker_name, first_offset)
    with target.working_root() as root:
        size_bytes = restore_log_file(RealFileSystem(), archive_root, segment, root, archive_fs=archive_fs)
        path = Path(commit_log_dir(str(root))) / log_file_name(first_offset)
        target.keep(root, path)
        return path.relative_to(root).as_posix(), size_bytes


def _finished(root: ObjectRoot) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{root} holds a finished restore ({MANIFEST_NAME}): name another place, or remove it first.", field=root.field
    )


# Added to the folder's name while the store is being made. A folder of that name counts as left by a killed run.
STAGING_SUFFIX = ".restoring"
STAGED_LOG_FOLDER, BUILT_FOLDER = "log", "built"


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
        "restore",
        functools.partial(_restore_one, archive, broker_name, str(staging / STAGED_LOG_FOLDER)),
        first_offsets,
    )
    plan, notes = make_plan(fs, staging / STAGED_LOG_FOLDER, staging / BUILT_FOLDER, layout)
    Rebuild(fs, plan, run_tasks, report).run(dry_run=False)
    report.notes += notes
    fs.rename(commit_log_dir(str(staging / STAGED_LOG_FOLDER)), commit_log_dir(str(staging / BUILT_FOLDER)))
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
