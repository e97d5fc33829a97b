"""`audit`: compares the log with the queues and the indexes, on all machines of the cluster.

    log files      each walked and decoded by one task                             (`scan_file`)
    the log        joined by the driver: holes, tails, queue offsets               (`JoinedLogAudit`)
    queues         groups of them by each task, compared with units from the log   (`audit_queues`)
    index files    each by one task, compared with keys from the log               (`audit_index`)
    small state    by the driver

It finds the same as `reput fsck`, with the same code and finding codes, except LOG_UNIQUE_KEY_REPEATED, which is not a
fault and belongs to `analytics`.

Findings of an audit as rows, and the file or object that they are written to.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.audit.scratch import Scratch
from pipeline.audit.steps import (
    AuditScanTask,
    FileScan,
    IndexTask,
    JoinedLogAudit,
    QueueId,
    QueueTask,
    UnitSpan,
    audit_index,
    audit_queues,
    is_as_rebuilt,
    scan_file,
)
from pipeline.job import JobReport, Progress, RunTasks, refuse_unshared, refuse_unshared_output, run_on_spark, silent
from pipeline.log_scan import LogSplit
from pipeline.object_files import open_root, refuse_held
from pipeline.object_root import ObjectRoot
from pipeline.rebuild.files import IndexFilePlan, KeyPart, keys_before, plan_index_files
from pipeline.target import scratch_root
from services.object_uri import named
from store.audit.findings import Finding, Findings, Severity
from store.audit.index_audit import tell_tag_entries
from store.audit.index_files import check_index_files, find_index_layout
from store.audit.log_audit import LogFiles, LogSummary
from store.audit.queue_audit import tell_strangers
from store.audit.state_audit import StateAudit
from store.audit.store_audit import tell_features
from store.derive.index_state import index_file_count
from store.errors import UnsupportedStoreError
from store.features.table import refuse_features
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir
from store.format.topic import is_light_queue
from store.readers.index_reader import IndexLayout, list_index_files
from store.readers.queue_reader import list_queue_ids
from store.readers.tag_entries import has_tag_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_FIELDS = (
    "kind", "severity", "file", "offset", "commit_log_offset", "topic", "queue", "count", "what", "expected", "found",
)  # fmt: skip
# These patterns read the texts of findings, which store/audit writes.
_INSTEAD = re.compile(r"(-?\d+) instead of (-?\d+)")
_QUEUE_FILE = re.compile(r"consumequeue/([^/]+)/(\d+)(?:/|$)")
_QUEUE_NAME = re.compile(r"queue (\S+)/(\d+)[,: ]")


def row_of(finding: Finding) -> dict[str, Any]:
    """One finding as a row; `expected` and `found` are set if the finding is about a number."""
    named = _QUEUE_FILE.search(finding.file) or _QUEUE_NAME.search(finding.what)
    differs = _INSTEAD.search(finding.what)
    return {
        "kind": finding.code,
        "severity": str(finding.severity),
        "file": finding.file,
        "offset": finding.byte,
        "commit_log_offset": finding.commit_log_offset,
        "topic": named.group(1) if named else None,
        "queue": int(named.group(2)) if named else None,
        "count": finding.count,
        "what": finding.what,
        "expected": differs.group(2) if differs else None,
        "found": differs.group(1) if differs else None,
    }


def refuse_out(out: Path | str) -> None:
    """InvalidArgumentError if `out` is a URI that findings cannot be written to."""
    place = ObjectRoot.place(out)
    if isinstance(place, ObjectRoot):
        ObjectRoot.parted(place.uri)[0].top_names()


def put_rows(rows: list[dict[str, Any]], out: Path | str) -> str:
    """Writes findings to a file, or to an object if `out` is a URI: whole or not at all there; returns its name for people.

    Args:
        rows: the findings.
        out: its ending says the format, see `write_rows`.
    """
    place = ObjectRoot.place(out)
    if isinstance(place, Path):
        write_rows(rows, place)
        return str(place)
    root, name = ObjectRoot.parted(place.uri)
    with scratch_root() as folder:
        write_rows(rows, folder / name)
        root.put_file(name, folder / name)
    return f"{root}/{name}"


def write_rows(
    rows: list[dict[str, Any]], path: Path, further: Sequence[str] = (), numbers: Sequence[str] = ()
) -> None:
    """Writes the rows as Parquet or CSV, by the file's ending, else as one JSON object per line.

    Args:
        rows: the findings.
        path: the file.
        further, numbers: names of columns beyond ROW_FIELDS; those in `numbers` are numbers, the others texts.
    """
    import json

    if path.suffix not in (".parquet", ".csv"):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return
    import pyarrow as pa

    whole = {"offset", "commit_log_offset", "queue", "count", *numbers}
    names = (*further, *ROW_FIELDS, *numbers)
    schema = pa.schema([(name, pa.int64() if name in whole else pa.string()) for name in names])
    table = pa.Table.from_pylist(rows, schema=schema)
    if path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        from pyarrow import parquet

        parquet.write_table(table, path)


# Queues for one task: enough that the start of the task costs little in comparison.
QUEUES_PER_TASK_MIN = 8


def run(
    spark: "SparkSession",
    store: Path | str,
    *,
    scratch: Path | str | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> JobReport:
    """Audits a store that no process writes to; only reads it.

    Args:
        spark: the session that runs the tasks.
        store: the store root, or its URI in an object store.
        scratch: a directory or URI that all machines share; None for a temporary directory of this machine.
        dry_run: only count what would be read.
        progress: called with the progress of each step.

    Raises:
        UnsupportedStoreError: `store` has no commitlog/.
        StoreLockedError: another process has the store open.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
        StoreError, OSError: the disk cannot be read.
    """
    report = JobReport.begin("audit", is_dry_run=dry_run)
    fs, root = open_root(store)
    refuse_unfit(fs, root)
    if dry_run:
        outline_only(fs, root, report)
        return report.end()
    refuse_unshared(spark, store, "store")
    files = Scratch.of_run(scratch)
    try:
        refuse_unshared_output(spark, files.place, "scratch")
        Audit(store, files, run_on_spark(spark, progress), report).run()
    finally:
        files.remove()
    refuse_held(fs, root)  # a process that opened it meanwhile may have changed what was read
    return report.end()


def refuse_unfit(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError for a root without commitlog/, StoreLockedError for a store in use."""
    fs.is_dir(root)  # raises if it is in an object store whose bucket does not exist
    if not fs.is_dir(commit_log_dir(str(root))):
        raise UnsupportedStoreError(f"{named(root)} has no commitlog/: name the root of a store", directory=named(root))
    refuse_features(fs, root)
    refuse_held(fs, root)


def outline_only(fs: FileSystem, root: Path, report: JobReport) -> None:
    """Counts what an audit would read."""
    files = LogFiles(fs, root, Findings(root))
    files.close()
    report.counts = {
        "log_file_count": len(files.sizes),
        "log_bytes": files.total_bytes,
        "queue_count": len(list_queue_ids(fs, root)),
        "index_file_count": len(list_index_files(fs, root)),
    }


@dataclass
class Judged:
    """The findings of several audits, joined."""

    parts: list[Findings] = field(default_factory=list)

    @property
    def kept(self) -> list[Finding]:
        """The findings, worst first."""
        order = list(Severity)
        findings = [finding for part in self.parts for finding in part.kept]
        return sorted(findings, key=lambda finding: (order.index(finding.severity), finding.file, finding.byte))

    @property
    def left_out_count(self) -> int:
        """The count of findings that are counted, but not kept."""
        return sum(part.left_out_count for part in self.parts)

    @property
    def counts(self) -> Counter[str]:
        """The count of damaged places by finding code."""
        total: Counter[str] = Counter()
        for part in self.parts:
            total.update(part.counts)
        return total

    @property
    def is_clean(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return all(part.is_clean for part in self.parts)


class Audit:
    """One run.

    Args:
        store: the store root, or its URI.
        scratch: for files that later tasks read.
        run_tasks: runs the tasks.
        report: receives counts and findings.
    """

    def __init__(self, store: Path | str, scratch: Scratch, run_tasks: RunTasks, report: JobReport) -> None:
        self._fs, self._root = open_root(store)
        self._place = str(store)
        self._scratch = scratch
        self._run_tasks = run_tasks
        self._report = report
        self._findings = Findings(self._root)
        self.judged = Judged([self._findings])

    def run(self) -> None:
        """Reads the store and fills the report."""
        state = StateAudit(self._fs, self._root, self._findings)
        files = LogFiles(self._fs, self._root, self._findings)
        try:
            scans = self._scan(files, state)
            units_fs, units = self._scratch.opened()
            log = JoinedLogAudit(
                files, self._findings, {first: (scan, units / f"{stem}.units") for first, (scan, stem) in scans.items()},
                durable_offset=state.durable_offset, watched=state.watched, units_fs=units_fs,
            )  # fmt: skip
            summary = log.run()
            tell_features(self._fs, self._root, summary, self._findings)
            topics = self._judge_queues(scans, summary, state)
            self._judge_index(scans, summary, state)
            state.finish(log, files, topics)
        finally:
            files.close()
        self._tell(summary, [scan for scan, _ in scans.values()])

    def _scan(self, files: LogFiles, state: StateAudit) -> dict[int, tuple[FileScan, str]]:
        """Scans the log files; results by first offset (bytes), with the name of the scratch files without endings."""
        size = files.file_size_bytes
        layout = self._index_layout(state)
        has_tags = layout is not None and has_tag_entries(self._fs, self._root, layout)
        tasks = [
            AuditScanTask(
                LogSplit(self._place, first, size, first, first + size),
                self._scratch,
                f"log-{first}",
                tuple(sorted(offset for offset in state.watched if first < offset <= first + size)),
                has_tags,
            )
            for first in files.sizes
        ]
        scans = self._run_tasks("log files", scan_file, tasks)
        return {task.split.file_offset: (scan, task.spill) for task, scan in zip(tasks, scans, strict=True)}

    def _judge_queues(self, scans: dict[int, tuple[FileScan, str]], summary: LogSummary, state: StateAudit) -> set[str]:
        """Audits all queues; returns the topics that have a queue or a record."""
        spans: dict[QueueId, list[tuple[str, UnitSpan]]] = {}
        for scan, stem in scans.values():
            for segments, _, _ in scan.stretches:
                for segment in segments:
                    for span in segment.spans:
                        spans.setdefault((span.topic, span.queue_id), []).append((stem + ".units", span))
        present = set(list_queue_ids(self._fs, self._root))
        queues = sorted(present | spans.keys())
        groups = [queues[at : at + QUEUES_PER_TASK_MIN] for at in range(0, len(queues), QUEUES_PER_TASK_MIN)]
        tasks = [
            QueueTask(
                self._place, self._scratch, frozenset(group), tuple(pair for queue in group for pair in spans.get(queue, ())),
                summary.first_offset, summary.end_offset, tuple(summary.lost),
                state.queues.next_offset if state.queues is not None else None, frozenset(summary.batch_topics),
            )
            for group in groups
        ]  # fmt: skip
        outcomes = self._run_tasks("queues", audit_queues, tasks)
        self.judged.parts += [outcome.findings for outcome in outcomes]
        tell_strangers(self._fs, self._root, present, self._findings)
        self._report.counts |= {
            "queue_count": len(present),
            "unit_count": sum(outcome.unit_count for outcome in outcomes),
            "wrong_queue_count": sum(len(outcome.wrong_queues) for outcome in outcomes),
        }
        return {topic for topic, _ in queues if not is_light_queue(topic)}

    def _index_layout(self, state: StateAudit) -> IndexLayout | None:
        return find_index_layout(self._fs, self._root, state.index.layout if state.index is not None else None)

    def _judge_index(self, scans: dict[int, tuple[FileScan, str]], summary: LogSummary, state: StateAudit) -> None:
        layout = self._index_layout(state)
        keys = self._scratch.opened()[1]
        spills = [(str(keys / stem), scan.key_count) for scan, stem in scans.values()]
        key_count = sum(count for _, count in spills)
        plans = self._plans_of_sound_files(layout, spills, summary)
        as_rebuilt = partial(is_as_rebuilt, root=self._place, scratch=self._scratch)
        if plans is not None and all(self._run_tasks("index files", as_rebuilt, plans)):
            check_index_files(self._fs, self._root, layout, self._findings)
            tag_count = sum(scan.tag_count for scan, _ in scans.values())
            if tag_count:
                tell_tag_entries(self._findings, self._root, tag_count)
            self._report.counts |= {"key_count": key_count - tag_count, "entry_count": key_count}
            return
        task = IndexTask(
            self._place, self._scratch, layout, tuple(KeyPart(stem, 0, count) for stem, count in spills),
            summary.first_offset, summary.end_offset, tuple(summary.lost),
            state.index.next_offset if state.index is not None else None, state.index_unflushed_from,
        )  # fmt: skip
        for outcome in self._run_tasks("index, key by key", audit_index, [task]):
            self.judged.parts.append(outcome.findings)
            self._report.counts |= {"key_count": outcome.key_count, "entry_count": outcome.entry_count}

    def _plans_of_sound_files(
        self, layout: IndexLayout | None, spills: list[tuple[str, int]], summary: LogSummary
    ) -> list[IndexFilePlan] | None:
        """The content of each index file of a sound index; None if it cannot be derived from the log."""
        paths = list_index_files(self._fs, self._root)
        if layout is None or summary.first_offset or summary.lost:
            return None
        key_count = sum(count for _, count in spills)
        counts = [index_file_count(key_count, layout.entry_count_max, is_followed=flag) for flag in (False, True)]
        if not key_count or len(paths) not in counts:
            return None
        return plan_index_files(
            self._root, iter([path.name for path in paths]), layout, spills,
            key_before=keys_before(self._scratch.opened()[0], layout, spills),
            is_followed=len(paths) > counts[0],
            is_flushed=False,
        )  # fmt: skip

    def _tell(self, summary: LogSummary, scans: list[FileScan]) -> None:
        report, judged = self._report, self.judged
        report.findings = [row_of(finding) for finding in judged.kept]
        report.counts |= {
            "log_first_offset": summary.first_offset,
            "log_end_offset": summary.end_offset,
            "log_file_count": summary.file_count,
            "log_bytes": summary.total_bytes,
            "record_count": summary.record_count,
            "records_behind_damage_count": summary.records_behind_damage,
            "index_file_count": len(list_index_files(self._fs, self._root)),
            "finding_left_out_count": judged.left_out_count,
            "error_count": sum(part.severity_count(Severity.ERROR) for part in judged.parts),
            "warning_count": sum(part.severity_count(Severity.WARNING) for part in judged.parts),
            "worker_memory_bytes_max": max((scan.memory_bytes_max for scan in scans), default=0),
        }


def is_clean(report: JobReport) -> bool:
    """Whether an audit found neither errors nor warnings."""
    return not report.counts.get("error_count", 0) and not report.counts.get("warning_count", 0)
