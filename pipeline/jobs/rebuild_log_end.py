"""Where the log ends that a rebuild reads, by what all splits of it have found."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pipeline.jobs.log_scan import LogOutline, LogSplit, durable_offset_of
from pipeline.jobs.rebuild_scan import ScanResult, ScanTask
from store.audit.log_files import LogFileRun
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir
from store.readers.log_walk import find_record_behind


def log_end(fs: FileSystem, source: Path, outline: LogOutline, results: list[ScanResult]) -> int:
    """Where the log ends, by what each split has found (bytes).

    Args:
        fs: the door to the disk.
        source: the store root.
        outline: of the log.
        results: of all splits, in log order.

    Raises:
        RecordCorruptedError: good records lie behind a place that is none: nothing is rebuilt from a part of a log.
        StoreCorruptedError: the log is shorter than its owner said that it is flushed.
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
            f"the log ends at {end}, its owner had flushed it up to {durable_offset}: bring the files back, or have "
            "`reput fsck --repair-log` say what is lost",
            file=source,
            offset=end,
        )
    return end


def sound_splits(scanned: Iterable[tuple[ScanTask, ScanResult]]) -> list[LogSplit]:
    """The splits for a second pass: of a log that is being written to it must not see more than the first one saw."""
    return [replace(task.split, end=min(task.split.end, result.end_offset)) for task, result in scanned]


def _refuse_damage(end: int, why: str, behind: int) -> None:
    raise RecordCorruptedError(
        f"{why or f'zeros where the record at {end} should be'}; the next good record is at {behind}: `reput fsck` shows "
        "all of it, and `reput fsck --repair-log` cuts the log there",
        commitLogOffset=end,
    )
