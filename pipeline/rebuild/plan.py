"""The plan of a rebuild: the splits in which the log is read, and the files that are made.

Where the log ends, from the scan results of all its splits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.log_scan import LogOutline, LogSplit, durable_offset_of, outline_log, plan_splits
from pipeline.object_files import refuse_held
from pipeline.object_root import ObjectRoot
from pipeline.rebuild.out import StoreLayout, find_layout, refuse_objects, refuse_out
from pipeline.rebuild.scan import ScanResult, ScanTask
from services.object_uri import named
from store.audit.log_audit import LogFileRun
from store.errors import RecordCorruptedError, StoreCorruptedError, StoreLockedError, UnsupportedStoreError
from store.features.table import FoundFeature, hidden_queues, refuse_features
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir
from store.walk.record_search import find_record_behind


def log_end(fs: FileSystem, source: Path, outline: LogOutline, results: list[ScanResult]) -> int:
    """The offset at which the log ends, from the results of its splits (bytes).

    Args:
        fs: the port to the disk.
        source: the store root.
        outline: the log's files and bounds.
        results: those of all splits, in log order.

    Raises:
        RecordCorruptedError: the log is damaged and good records follow: nothing is rebuilt from a part of a log.
        StoreCorruptedError: the log ends before the offset up to which its owner had flushed it.
    """
    end, why, is_over = outline.first_offset, "", False
    for result in results:
        if is_over and result.record_count:
            _refuse_damage(end, why, result.begin)
        if not is_over:
            end, why = result.end_offset, result.why
            is_over = end < result.end
    if is_over:
        files = LogFileRun(fs, Path(commit_log_dir(str(source))), outline.file_size_bytes, list(outline.file_offsets))
        try:
            behind = find_record_behind(files, end)
        finally:
            files.close()
        if behind is not None and behind < outline.end_bound:
            _refuse_damage(end, why, behind)
    durable_offset = durable_offset_of(fs, source)
    if durable_offset is not None and end < durable_offset and end < outline.end_bound:
        raise StoreCorruptedError(
            f"the log ends at {end}, its owner had flushed it up to {durable_offset}: bring the files back, or use "
            "`reput fsck --repair-log` to see what is lost",
            file=source,
            offset=end,
        )
    return end


def sound_splits(scanned: Iterable[tuple[ScanTask, ScanResult]]) -> list[LogSplit]:
    """The splits for a second pass, cut where the first pass ended: a log that is written to may have grown since."""
    return [replace(task.split, end=min(task.split.end, result.end_offset)) for task, result in scanned]


def _refuse_damage(end: int, why: str, behind: int) -> None:
    raise RecordCorruptedError(
        f"{why or f'zeros where the record at {end} should be'}; the next good record is at {behind}: `reput fsck` shows "
        "all of the damage, and `reput fsck --repair-log` cuts the log before it",
        commitLogOffset=end,
    )


# One task for each log file: its fixed cost is small beside a GiB of log, and no file is read twice to find a boundary.
SPLIT_BYTES = 1 << 30
SPLIT_BYTES_MIN = 16 << 20  # in smaller splits, the fixed cost of a task dominates

Scanned = list[tuple[ScanTask, ScanResult]]  # the splits with records, in log order


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The splits that a rebuild reads and the files that it makes.

    Attributes:
        source: the store root, as its port knows it.
        source_fs: the port to it.
        out: the output root: a directory, or a place in an object store.
        layout: sizes of the files to be made.
        outline: the log's files and bounds.
        splits: the parts of the log that tasks read.
        is_flushed: whether everything must be flushed before it appears as `out`.
        hidden: topics whose queues are not made, because only a broker makes them in the form that they have.
    """

    source: Path
    source_fs: FileSystem
    out: Path | ObjectRoot
    layout: StoreLayout
    outline: LogOutline
    splits: list[LogSplit]
    is_flushed: bool = True
    hidden: frozenset[str] = frozenset()


def refuse_goal(source: Path, out: Path | ObjectRoot) -> None:
    """Refuses an `out` that a rebuild of `source` cannot use; see `refuse_out` and `refuse_objects`."""
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
    place: str | None = None,
) -> tuple[RebuildPlan, list[str]]:
    """The plan, and notes for the report; see `plan_of`. Raises also what `refuse_goal` raises."""
    refuse_goal(source, out)
    return plan_of(
        fs, source, out, wanted, split_bytes=split_bytes, parallelism=parallelism, is_flushed=is_flushed, place=place
    )


def plan_of(
    fs: FileSystem,
    source: Path,
    out: Path | ObjectRoot,
    wanted: StoreLayout,
    *,
    split_bytes: int | None = None,
    parallelism: int = 1,
    is_flushed: bool = True,
    place: str | None = None,
) -> tuple[RebuildPlan, list[str]]:
    """The plan, and notes for the report.

    Args:
        fs: the port to the store.
        source: the store root, as the port knows it.
        out: the output root.
        wanted: file sizes, if the store has no files of the kind.
        split_bytes: bytes of log for a task; None for whole files, or less if there are fewer files than cores.
        parallelism: tasks that run at once.
        is_flushed: whether everything must be flushed before it appears as `out`.
        place: the path or URI by which tasks open the store; None for `source`.
    """
    live = is_live(fs, source)
    durable_offset = durable_offset_of(fs, source)
    hidden = hidden_queues(refuse_no_store(fs, source))
    outline = outline_log(fs, source, durable_offset=durable_offset, is_live=live)
    layout, notes = find_layout(fs, source, wanted)
    if live:
        notes.append(f"the store is being written to: only the log before {outline.end_bound} was read")
    if split_bytes is None:
        split_bytes = SPLIT_BYTES
        if len(outline.file_offsets) < parallelism:
            split_bytes = max(outline.total_bytes // parallelism + 1, SPLIT_BYTES_MIN)
    splits = plan_splits(fs, source, outline, split_bytes, place)
    notes += [f"no queues are made: {why}" for why in hidden.values()]
    return RebuildPlan(source, fs, out, layout, outline, splits, is_flushed, frozenset(hidden)), notes


def refuse_no_store(fs: FileSystem, root: Path) -> tuple[FoundFeature, ...]:
    """The features that a store uses; UnsupportedStoreError for a root without commitlog/ and for a refused feature."""
    fs.is_dir(root)  # raises if it is in an object store whose bucket does not exist
    if not fs.is_dir(commit_log_dir(str(root))):
        raise UnsupportedStoreError(f"{named(root)} has no commitlog/: name the root of a store", directory=named(root))
    return refuse_features(fs, root)


def is_live(fs: FileSystem, root: Path) -> bool:
    """Whether a RocketMQ broker or a Reput service has the store open for writing."""
    try:
        refuse_held(fs, root)
    except StoreLockedError:
        return True
    return False
