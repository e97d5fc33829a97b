"""The job `archive`: writes sealed log files as Parquet, each exactly once, with one Spark task for each.

A task writes all files of a segment and then publishes it with its manifest (`store/archive/manifest.py`). After a killed
run, the published segments are archived, and the next run continues with the others. Two attempts at one log file, such
as Spark's own repetitions, write the same bytes under the same names. `ArchiveGoal` has what a directory and an
object store do differently.

Where `archive` writes: a directory, which one run locks, or a place in an object store.

In an object store, `segments/BROKER/run.json` names the run that owns a shard's part of the archive, so that shards may be
archived at the same time. Of two runs for one shard, the later one owns it, and the tasks of the other fail. Both would
write the same bytes under the same names. Objects without a manifest are removed only at the end of a run, when no task
of an earlier run can publish a segment that names them.
"""

import functools
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.archive.segment import LogFileInArchive, archive_log_file, log_path
from pipeline.job import JobReport, Progress, refuse_unshared, refuse_unshared_output, run_here, run_on_spark, silent
from pipeline.object_files import open_root
from pipeline.object_root import TEMPORARY_SUFFIX, ObjectRoot
from pipeline.scan.log_files import list_log_files, readable_log
from pipeline.target import DirectoryTarget, ObjectTarget, Target
from services.object_uri import named
from store.archive import layout
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import (
    Segment,
    check_archive,
    create_archive,
    decode_segment,
    encode_archive,
    encode_segment,
    is_new_archive,
    may_publish,
    read_segment,
    segment_offsets,
)
from store.archive.manifest import segment_offsets as offsets_of
from store.archive.topic_table import topic_document
from store.errors import StoreCorruptedError, UnsupportedStoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_bytes
from store.files.locks import OwnerLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_FOLDERS = ("messages", "keys", "tails")
_MESSAGES_NAME = re.compile(r"(?P<broker>.*)-[0-9]{20}-[0-9]{20}\.parquet")


class ArchiveGoal(Protocol):
    """Where an archive is written."""

    @property
    def target(self) -> Target:
        """Where tasks deliver files."""

    def opened(self) -> tuple[FileSystem, Path]:
        """A port that shows the archive as it is now, and its root there."""

    def take(self) -> None:
        """Makes it an archive, and this run the only one that writes to it; UnsupportedStoreError if it holds other data."""

    def remove_leftovers(self) -> int:
        """Before the first task: removes files that no manifest names, if that is safe then; returns their count."""

    def remove_replaced(self) -> int:
        """After the last task: the same, with those of replaced segments."""

    def release(self) -> None:
        """Lets other runs write to it."""


def archive_goal(archive: Path | str, broker_name: str, clock: Callable[[], float] = time.time) -> ArchiveGoal:
    """The goal that a path or a URI names; `file://` is a directory.

    Args:
        archive: the archive.
        broker_name: the shard that is archived.
        clock: seconds since 1970.
    """
    place = ObjectRoot.place(archive, "archive")
    return DirectoryGoal(place) if isinstance(place, Path) else ObjectGoal(place, broker_name, clock)


class DirectoryGoal:
    """A directory; see ArchiveGoal."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fs = RealFileSystem()
        self._lock = OwnerLock(root / "lock")

    def __str__(self) -> str:
        return str(self._root)

    @property
    def target(self) -> Target:
        """See ArchiveGoal."""
        return DirectoryTarget(str(self._root), is_flushed=True)

    def opened(self) -> tuple[FileSystem, Path]:
        """See ArchiveGoal."""
        return self._fs, self._root

    def take(self) -> None:
        """See ArchiveGoal. StoreLockedError: another run has it."""
        self._fs.mkdirs(self._root)
        create_archive(self._fs, self._root)
        self._lock.acquire()

    def remove_leftovers(self) -> int:
        """See ArchiveGoal: no other run writes, because of the lock."""
        named = {str(self._root / path) for segment in self._all_segments() for path in segment.paths()}
        segments = layout.segments_dir(str(self._root))
        count = 0
        for temporary in Path(segments).glob(f"*/.*{TEMPORARY_SUFFIX}"):  # of manifests
            self._fs.unlink(temporary)
            count += 1
        for folder in OWN_FOLDERS:
            for directory, _, names in os.walk(self._root / folder):
                for path in (os.path.join(directory, name) for name in names):
                    if path not in named:
                        self._fs.unlink(path)
                        count += 1
        return count

    def remove_replaced(self) -> int:
        """See ArchiveGoal; they do not count as left over."""
        self.remove_leftovers()
        return 0

    def release(self) -> None:
        """See ArchiveGoal."""
        self._lock.release()

    def _all_segments(self) -> Iterator[Segment]:
        for folder in self._fs.listdir(layout.segments_dir(str(self._root))):
            directory = Path(layout.segments_dir(str(self._root))) / folder
            for name in self._fs.listdir(directory):
                if layout.parse_segment_name(name) is not None:
                    yield decode_segment(read_bytes(self._fs, directory / name) or b"", directory / name)


class ObjectGoal:
    """A place in an object store; see ArchiveGoal."""

    def __init__(self, root: ObjectRoot, broker_name: str, clock: Callable[[], float]) -> None:
        self._root = root
        self._broker_name = broker_name
        self._clock = clock
        self._target = ObjectTarget(root, uuid.uuid4().hex, layout.run_file("", broker_name), "archive run")

    def __str__(self) -> str:
        return str(self._root)

    @property
    def target(self) -> Target:
        """See ArchiveGoal."""
        return self._target

    def opened(self) -> tuple[FileSystem, Path]:
        """See ArchiveGoal."""
        return open_root(self._root)

    def take(self) -> None:
        """See ArchiveGoal. InvalidArgumentError: the bucket does not exist."""
        fs, root = self.opened()
        fs.is_dir(root)  # raises if the bucket does not exist
        if is_new_archive(fs, root):
            self._root.put_bytes(layout.archive_file(""), encode_archive())
        self._target.take(int(self._clock() * 1000))

    def remove_leftovers(self) -> int:
        """See ArchiveGoal: tasks of an earlier run may be about to publish them, so none is removed."""
        return 0

    def remove_replaced(self) -> int:
        """See ArchiveGoal; of this shard alone. StoreLockedError: another run has taken over the place."""
        fs, root = self.opened()
        named = {
            path
            for offset in offsets_of(fs, root, self._broker_name)
            for path in read_segment(fs, root, self._broker_name, offset).paths()
        }
        self._target.refuse_other_run()
        left = [name for name in self._names_of_shard() if name not in named]
        for name in left:
            self._root.delete(name)
        return len(left)

    def release(self) -> None:
        """Does nothing: the next run takes the place over."""

    def _names_of_shard(self) -> Iterator[str]:
        shard = layout.escape(self._broker_name)
        for name in self._root.sizes("messages"):
            found = _MESSAGES_NAME.fullmatch(name.rpartition("/")[2])
            if found is not None and found["broker"] == shard:
                yield name
        for folder in ("keys", "tails"):
            yield from self._root.sizes(f"{folder}/{shard}")


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
        store: the store root, or its URI in an object store; services may write to it meanwhile: see `readable_log`.
        archive: the archive, or its URI in an object store; created if it does not exist.
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
        StoreLockedError: another run writes to this archive, or, in an object store, to this shard's part of it.
        InvalidArgumentError: a directory is not shared with the executors; or as the following.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
    """
    report = JobReport.begin("archive", is_dry_run=dry_run)
    place = str(store)
    store_fs, store = open_root(store)
    log = readable_log(store_fs, store)
    report.notes += log.notes()
    offsets = log.first_offsets
    goal = archive_goal(archive, broker_name)
    fs, root = goal.opened()
    exists = fs.exists(layout.archive_file(str(root)))
    refuse_unshared(spark, place, "store")
    if not dry_run:
        refuse_unshared_output(spark, archive, "archive")
        goal.take()
    elif exists:
        check_archive(fs, root)
    try:
        known = _published(fs, root, broker_name) if exists else {}
        _refuse_other_log(store_fs, store, ArchiveReader(root, broker_name, fs), offsets, known)
        left_over_count = 0 if dry_run else goal.remove_leftovers()
        todo = [offset for offset in offsets if offset not in known or not known[offset].is_sealed]
        task = functools.partial(
            _archive_one, place, goal.target, str(archive), broker_name, include_active, dry_run, log.end_offset,
        )  # fmt: skip
        run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
        outcomes = [LogFileInArchive(**row) for row in run_tasks("archive", task, todo)]
        _fill(report, outcomes, known, offsets)
        if not dry_run:
            left_over_count += goal.remove_replaced()  # segments of a growing file that this run replaced
            report.counts["leftover_file_count"] = left_over_count
            _keep_topics(report, goal, store_fs, store, broker_name)
            _note_holes(report, goal, broker_name)
    finally:
        goal.release()
    report.outputs["archive"] = str(goal)
    return report.end()


def refuse_unfit(store: Path | str, archive: Path | str, broker_name: str) -> None:
    """Refuses a store or an archive that cannot be opened; writes nothing and needs no Spark. Raises as `run`."""
    list_log_files(*open_root(store))
    fs, root = archive_goal(archive, broker_name).opened()
    if fs.is_dir(root):  # raises if the bucket does not exist
        is_new_archive(fs, root)


def _published(fs: FileSystem, archive: Path, broker_name: str) -> dict[int, Segment]:
    return {
        offset: read_segment(fs, archive, broker_name, offset) for offset in segment_offsets(fs, archive, broker_name)
    }


def _refuse_other_log(
    store_fs: FileSystem, store: Path, archive: ArchiveReader, offsets: list[int], known: dict[int, Segment]
) -> None:
    """UnsupportedStoreError if the newest file that is in both begins with another record."""
    both = [offset for offset in offsets if offset in known and known[offset].record_count]
    if not both:
        return
    segment = known[both[-1]]
    frame = archive.reader(segment).frame(segment.first_offset)
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
            f"The archive {named(archive.root)} holds another log under the name {archive.broker_name!r}: the records at "
            "commit-log offset "
            f"{segment.first_offset} differ. Name the shard with --broker-name, or name another archive",
            directory=named(archive.root),
            brokerName=archive.broker_name,
        )


def _archive_one(
    store: str,
    target: Target,
    archive: str,
    broker_name: str,
    include_active: bool,
    is_dry_run: bool,
    log_end_offset: int,
    first_offset: int,
) -> dict[str, Any]:
    """One Spark task: archives and publishes one log file; returns the outcome as plain data."""
    store_fs, root = open_root(store)
    with target.working_root() as working:
        outcome = archive_log_file(
            RealFileSystem(),
            root,
            working,
            broker_name,
            first_offset,
            include_active=include_active,
            log_end_offset=log_end_offset,
            is_dry_run=is_dry_run,
            store_fs=store_fs,
        )
        segment = outcome.segment
        if segment is not None:
            for path in segment.paths():
                target.keep(working, working / path)
            if may_publish(*open_root(archive, "archive"), segment):
                target.put(layout.segment_file("", broker_name, first_offset), encode_segment(segment))
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


def _keep_topics(report: JobReport, goal: ArchiveGoal, store_fs: FileSystem, store: Path, broker_name: str) -> None:
    fs, root = goal.opened()
    if not segment_offsets(fs, root, broker_name):
        return  # a shard is in the archive only after its first log file
    try:
        document = topic_document(store_fs, store)
    except StoreCorruptedError as error:
        report.findings.append({"kind": "topics_not_archived", "file": error.metadata["file"], "what": error.message})
        return
    if document is None:
        return
    if read_bytes(fs, Path(layout.topics_file(str(root), broker_name))) != document[0]:
        goal.target.put(layout.topics_file("", broker_name), document[0])
    report.counts["topic_count"] = document[1]


def _note_holes(report: JobReport, goal: ArchiveGoal, broker_name: str) -> None:
    fs, root = goal.opened()
    problem = ArchiveReader(root, broker_name, fs).problem()
    if problem is not None:
        report.notes.append(problem.message)
