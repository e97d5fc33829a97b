"""The job `archive`: writes sealed log files as Parquet, each exactly once, with one Spark task for each.

A task writes all files of a segment and then publishes it with its manifest (`store/archive/manifest.py`). After a killed
run, the published segments are archived, and the next run continues with the others. Two attempts at one log file, such
as Spark's own repetitions, write the same bytes under the same names.
"""

import functools
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.archive.segment import LogFileInArchive, archive_log_file, log_path
from pipeline.object_files import open_root
from pipeline.progress import Progress, run_here, run_on_spark, silent
from pipeline.report import JobReport
from services.object_uri import is_uri, named, shown
from store.archive import layout
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import (
    Segment,
    check_archive,
    create_archive,
    decode_segment,
    publish_segment,
    read_segment,
    segment_offsets,
)
from store.archive.topic_table import keep_topic_table
from store.errors import InvalidArgumentError, StoreCorruptedError, UnsupportedStoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_bytes
from store.files.locks import OwnerLock
from store.format.paths import commit_log_dir, parse_log_file_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_FOLDERS = ("messages", "keys", "tails")


def run(
    spark: "SparkSession | None",
    store: Path | str,
    archive: Path | str,
    *,
    broker_name: str = "broker-a",
    include_active: bool = False,
    dry_run: bool = False,
    progress: Progress = silent,
) -> JobReport:
    """Archives the sealed files of a log.

    Args:
        spark: the session whose executors run the tasks; None: this process runs them one after another.
        store: the store root, or its URI in an object store; services may write to it meanwhile.
        archive: the archive; created if it does not exist.
        broker_name: the name of the shard whose log this is.
        include_active: also archive the file that the log ends in, up to the log's end; a later run replaces it.
        dry_run: check and report what would be archived, write nothing.
        progress: called with the count of log files done.

    Returns:
        Counts, and a finding for each log file or topic table that cannot be archived, and for each record that was
        damaged before.

    Raises:
        UnsupportedStoreError: `store` has no commitlog/, `archive` holds other data, or the archive is of another log.
        StoreCorruptedError: a manifest in the archive is damaged.
        StoreLockedError: another run writes to this archive.
    """
    report = JobReport.begin("archive", is_dry_run=dry_run)
    if isinstance(archive, str) and is_uri(archive):
        raise InvalidArgumentError(
            f"{shown(archive)} is a URI: an archive is written to a directory. Copy its files afterwards: the jobs that read "
            "an archive take URIs",
            field="archive",
        )
    place, archive = str(store), Path(archive)
    fs = RealFileSystem()
    store_fs, store = open_root(store)
    offsets = log_file_offsets(store_fs, store)
    exists = fs.exists(layout.archive_file(str(archive)))
    lock = OwnerLock(archive / "lock")
    if not dry_run:
        fs.mkdirs(archive)
        create_archive(fs, archive)
        lock.acquire()
    elif exists:
        check_archive(fs, archive)
    try:
        known = _published(fs, archive, broker_name) if exists else {}
        _refuse_other_log(store_fs, store, archive, broker_name, offsets, known)
        if not dry_run:
            report.counts["leftover_file_count"] = remove_leftovers(fs, archive)
        todo = [offset for offset in offsets if offset not in known or not known[offset].is_sealed]
        task = functools.partial(
            _archive_one, place, str(archive), broker_name, include_active, dry_run, offsets[-1] if offsets else -1
        )
        run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
        outcomes = [LogFileInArchive(**row) for row in run_tasks("archive", task, todo)]
        _fill(report, outcomes, known, offsets)
        if not dry_run:
            remove_leftovers(fs, archive)  # segments of a growing file that this run replaced
            _keep_topics(fs, report, store_fs, store, archive, broker_name)
            _note_holes(report, archive, broker_name)
    finally:
        lock.release()
    report.outputs["archive"] = str(archive)
    return report.end()


def log_file_offsets(fs: FileSystem, store: Path) -> list[int]:
    """First offsets of the log files of a store (bytes), ascending; UnsupportedStoreError without commitlog/."""
    directory = commit_log_dir(str(store))
    # First the root: of an object store, it tells that the bucket does not exist.
    if not fs.is_dir(store) or not fs.is_dir(directory):
        raise UnsupportedStoreError(
            f"{named(store)} has no commitlog/: name the root of a store", directory=named(store)
        )
    offsets = (parse_log_file_name(name) for name in fs.listdir(directory))
    return sorted(offset for offset in offsets if offset is not None)


def remove_leftovers(fs: FileSystem, archive: Path) -> int:
    """Removes files that no manifest names, left by killed runs or replaced; returns their count."""
    named = {str(archive / path) for segment in _all_segments(fs, archive) for path in segment.paths()}
    count = 0
    for folder in OWN_FOLDERS:
        for directory, _, names in os.walk(archive / folder):
            for name in names:
                path = os.path.join(directory, name)
                if path not in named:
                    fs.unlink(path)
                    count += 1
    return count


def _all_segments(fs: FileSystem, archive: Path) -> Iterator[Segment]:
    for folder in fs.listdir(layout.segments_dir(str(archive))):
        for name in fs.listdir(Path(layout.segments_dir(str(archive))) / folder):
            path = Path(layout.segments_dir(str(archive))) / folder / name
            if layout.parse_segment_name(name) is not None:
                yield decode_segment(read_bytes(fs, path) or b"", path)


def _published(fs: FileSystem, archive: Path, broker_name: str) -> dict[int, Segment]:
    return {
        offset: read_segment(fs, archive, broker_name, offset) for offset in segment_offsets(fs, archive, broker_name)
    }


def _refuse_other_log(
    store_fs: FileSystem, store: Path, archive: Path, broker_name: str, offsets: list[int], known: dict[int, Segment]
) -> None:
    """UnsupportedStoreError if the newest file that is in both begins with another record."""
    both = [offset for offset in offsets if offset in known and known[offset].record_count]
    if not both:
        return
    segment = known[both[-1]]
    frame = ArchiveReader(archive, broker_name).reader(segment).frame(segment.first_offset)
    try:
        handle = store_fs.open(log_path(store, segment.first_offset), os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        head = store_fs.pread(handle, len(frame), 0)
    finally:
        store_fs.close(handle)
    if head != frame:
        raise UnsupportedStoreError(
            f"The archive {archive} holds another log under the name {broker_name!r}: the records at commit-log offset "
            f"{segment.first_offset} differ. Name the shard with --broker-name, or name another archive",
            directory=archive,
            brokerName=broker_name,
        )


def _archive_one(
    store: str,
    archive: str,
    broker_name: str,
    include_active: bool,
    is_dry_run: bool,
    last_first_offset: int,
    first_offset: int,
) -> dict[str, Any]:
    """One Spark task: archives and publishes one log file; returns the outcome as plain data."""
    fs = RealFileSystem()
    store_fs, root = open_root(store)
    outcome = archive_log_file(
        fs,
        root,
        Path(archive),
        broker_name,
        first_offset,
        include_active=include_active,
        is_last=first_offset == last_first_offset,
        is_dry_run=is_dry_run,
        store_fs=store_fs,
    )
    if outcome.segment is not None:
        publish_segment(fs, Path(archive), outcome.segment)
    outcome.segment = None  # the driver does not need it
    return asdict(outcome)


def _fill(report: JobReport, outcomes: list[LogFileInArchive], known: dict[int, Segment], offsets: list[int]) -> None:
    archived = [outcome for outcome in outcomes if not outcome.why_not]
    report.counts |= {
        "log_file_count": len(offsets),
        "archived_file_count": len(archived),
        "known_file_count": sum(1 for offset in offsets if offset in known and known[offset].is_sealed),
        "record_count": sum(outcome.record_count for outcome in archived),
        "log_bytes": sum(outcome.log_size_bytes for outcome in archived),
        "archive_bytes": sum(outcome.archive_size_bytes for outcome in archived),
    }
    for outcome in outcomes:
        if outcome.is_damaged:
            report.findings.append(
                {"kind": "log_file_not_archived", "commit_log_offset": outcome.first_offset, "what": outcome.why_not}
            )
        elif outcome.why_not:
            report.notes.append(outcome.why_not)
        for offset in outcome.damaged_offsets:
            what = "a CRC of the record does not match; it is archived unchanged"
            report.findings.append({"kind": "record_damaged", "commit_log_offset": offset, "what": what})


def _keep_topics(
    fs: FileSystem, report: JobReport, store_fs: FileSystem, store: Path, archive: Path, broker_name: str
) -> None:
    if not segment_offsets(fs, archive, broker_name):
        return  # a shard is in the archive only after its first log file
    try:
        topic_count = keep_topic_table(fs, store, archive, broker_name, store_fs=store_fs)
    except StoreCorruptedError as error:
        report.findings.append({"kind": "topics_not_archived", "file": error.metadata["file"], "what": error.message})
        return
    if topic_count is not None:
        report.counts["topic_count"] = topic_count


def _note_holes(report: JobReport, archive: Path, broker_name: str) -> None:
    problem = ArchiveReader(archive, broker_name).problem()
    if problem is not None:
        report.notes.append(problem.message)
