"""Where the log ends, from the scan results of all its splits."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pipeline.log_scan import LogOutline, LogSplit, durable_offset_of
from pipeline.rebuild.scan import ScanResult, ScanTask
from store.audit.log_audit import LogFileRun
from store.errors import RecordCorruptedError, StoreCorruptedError
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
