"""`audit-cluster`: one job over all replicas of all shards, to be run by a schedule.

    each store    log, queues, indexes and state, as `audit` does it                 (pipeline/audit/audit.py)
    each shard    the logs of its replicas, range by range                           (logs.py)
                  with the archive: manifests, and log files by their SHA-256        (archives.py)

The ends of all logs are fixed when the run begins. The logs are compared from the greatest first offset to the least end of
those that have a byte; that a replica has less, at either end, is retention or lag and no finding. A store that a process has
open is compared by its log alone, up to its durable mark.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.archive.verify import verify_one
from pipeline.audit.audit import Audit
from pipeline.audit.cluster.archives import (
    ArchiveFinding,
    difference_of,
    missing_files,
    missing_segments,
    read_segments,
)
from pipeline.audit.cluster.judging import Row, deviants, excuse, identity, judged, reference_of, row_of
from pipeline.audit.cluster.logs import CompareTask, Difference, Hashed, HashTask, Side, compare, hash_range, stamp_of
from pipeline.audit.cluster.outputs import REPORT_FINDING_COUNT_MAX, ClusterReport, write_outputs
from pipeline.audit.cluster.replicas import Range, Replica, ReplicaLog, fix_log, joined_root, ranges_of, without_removed
from pipeline.audit.cluster.state import AuditState
from pipeline.audit.rows import ROW_FIELDS
from pipeline.audit.scratch import Scratch
from pipeline.progress import Progress, RunTasks, run_here, run_on_spark, silent
from pipeline.report import JobReport
from pipeline.scan.log_files import is_written_to
from store.archive import layout
from store.archive.manifest import Segment, check_archive
from store.errors import StoreError
from store.files.file_system import RealFileSystem
from store.files.locks import OwnerLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MILLIS = 86_400_000
# Log files that are hashed before the state is saved: a kill costs no more than reading these again.
FILES_PER_SAVE = 32
ARCHIVE = "archive"


def run(
    spark: "SparkSession | None",
    replicas: list[Replica],
    out: Path,
    *,
    archive: Path | None = None,
    are_snapshots: bool = False,
    logs_only: bool = False,
    reread_days: int = 7,
    scratch: Path | None = None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.time,
) -> ClusterReport:
    """Audits all shards and writes report, rows and metrics; only reads the stores and the archive.

    Args:
        spark: the session that runs the tasks; None: this process runs them one after another.
        replicas: all replicas of all shards.
        out: the directory of outputs and state; made if it does not exist.
        archive: the archive of all shards; None without one.
        are_snapshots: the stores are snapshots of running ones: what a crash leaves is no finding, nor are queues and indexes
            that are a moment ahead of the log.
        logs_only: leave out the audit of each store by itself.
        reread_days: a log file, or an archived one, that is as it was is read again after so many days; 0: each time.
        scratch: an empty directory that all tasks can write to; None for a temporary directory of this machine.
        progress: called with the progress of each step.
        clock: seconds since 1970.

    Raises:
        UnsupportedStoreError: a root has no commitlog/, or `archive` is no archive.
        StoreLockedError: another run writes to `out`.
        StoreError, OSError: the disk cannot be read.
    """
    run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
    lock = OwnerLock(out / "state" / "lock")
    lock.acquire()
    place = Path(tempfile.mkdtemp(prefix="reput-audit-")) if scratch is None else scratch
    try:
        if archive is not None:
            check_archive(RealFileSystem(), archive)
        asked = [f"{replica.key}={'+'.join(map(str, replica.parts))}" for replica in replicas]
        asked += [str(archive), str(are_snapshots), str(logs_only)]
        now = int(clock() * 1000)
        state = AuditState(RealFileSystem(), out / "state" / "audit.json", asked, now, reread_days * DAY_MILLIS)
        job = ClusterAudit(replicas, archive, place, run_tasks, state)
        job.report.started_at_millis = state.begun_millis
        job.run(are_snapshots=are_snapshots, logs_only=logs_only)
        return _finish(job, out, state, now, clock)
    finally:
        if scratch is None:
            shutil.rmtree(place, ignore_errors=True)
        lock.release()


def _finish(
    job: "ClusterAudit", out: Path, state: AuditState, now_millis: int, clock: Callable[[], float]
) -> ClusterReport:
    """Writes the outputs, then the state: a run that is killed between the two is repeated and tells the same."""
    report, seen = job.report, {}
    order = ["error", "warning", "info"]
    rows = sorted(job.rows, key=lambda row: (order.index(row["severity"]), row["broker_name"], row["replica"]))
    for row in rows:
        known = state.first_seen(identity(row))
        row["first_seen_millis"] = state.begun_millis if known is None else known
        row["is_new"] = int(known is None)
        if row["severity"] != "info":
            seen[identity(row)] = row["first_seen_millis"]
    told = [row for row in rows if row["severity"] != "info"]
    order_told = ("broker_name", "replica", *ROW_FIELDS, "first_seen_millis", "is_new")
    report.findings = [
        {name: row[name] for name in order_told if row[name] is not None} for row in told[:REPORT_FINDING_COUNT_MAX]
    ]
    report.counts |= {
        "error_count": sum(row["severity"] == "error" for row in told),
        "warning_count": sum(row["severity"] == "warning" for row in told),
        "info_count": len(rows) - len(told),
        "new_finding_count": sum(row["is_new"] for row in told),
        "gone_finding_count": state.earlier_count
        - sum(not row["is_new"] for row in {identity(r): r for r in told}.values()),
    }
    for replica in report.replicas:
        mine = [
            row for row in told if (row["broker_name"], row["replica"]) == (replica["broker_name"], replica["replica"])
        ]
        for level in ("error", "warning"):
            replica[f"{level}_count"] = sum(row["severity"] == level for row in mine)
    if state.is_resumed:
        report.notes.append("a run that did not come to its end was continued")
    report.end(clock)
    write_outputs(RealFileSystem(), out, report, rows)
    state.finish(seen)
    return report


class ClusterAudit:
    """One run.

    Args:
        replicas: all replicas.
        archive: the archive; None without one.
        place: an empty directory for scratch files.
        run_tasks: runs the tasks.
        state: what is kept from run to run.

    Attributes:
        report: receives counts, notes and replicas.
        rows: receives a row for each finding.
    """

    def __init__(
        self, replicas: list[Replica], archive: Path | None, place: Path, run_tasks: RunTasks, state: AuditState
    ) -> None:
        self.report = ClusterReport.begin("audit-cluster")
        self.rows: list[Row] = []
        self._replicas, self._archive, self._place = replicas, archive, place
        self._run_tasks, self._state = run_tasks, state
        self._fs = RealFileSystem()
        self._compared_bytes = self._known_bytes = 0

    def run(self, *, are_snapshots: bool, logs_only: bool) -> None:
        """Reads everything."""
        roots = {replica.key: joined_root(replica, self._place / "roots") for replica in self._replicas}
        logs = {replica.key: self._fixed(replica, roots[replica.key]) for replica in self._replicas}
        self._state.save()
        is_alone = {}
        for replica in self._replicas:
            is_alone[replica.key] = logs_only or not self._audit_store(replica, roots[replica.key], are_snapshots)
        shards = list(dict.fromkeys(replica.broker_name for replica in self._replicas))
        for name in shards:
            of_shard = [logs[replica.key] for replica in self._replicas if replica.broker_name == name]
            longest = max(log.end_offset for log in of_shard)
            for log in of_shard:
                self.report.replicas.append({
                    "broker_name": name, "replica": log.replica, "first_offset": log.first_offset,
                    "end_offset": log.end_offset, "lag_bytes": longest - log.end_offset, "error_count": 0,
                    "warning_count": 0, "is_log_only": is_alone[f"{name}@{log.replica}"],
                })  # fmt: skip
            self._compare_shard(name, of_shard)
        self.report.counts |= {
            "shard_count": len(shards), "replica_count": len(self._replicas),
            "compared_bytes": self._compared_bytes, "known_bytes": self._known_bytes,
        }  # fmt: skip

    def _fixed(self, replica: Replica, root: Path) -> ReplicaLog:
        """The replica's log, with the ends that a killed run had fixed."""
        log = fix_log(self._fs, replica.name, root)
        kept = self._state.kept("logs", replica.key)
        if kept is None:
            self._state.keep("logs", replica.key, [log.first_offset, log.end_offset])
            return log
        first, end = max(kept[0], log.first_offset), min(kept[1], log.end_offset)
        return ReplicaLog(log.replica, log.root, log.file_size_bytes, log.sizes, min(first, end), end)

    # -- each store

    def _audit_store(self, replica: Replica, root: Path, are_snapshots: bool) -> bool:
        """Audits one store by itself; False if a process has it open."""
        kept = self._state.kept("stores", replica.key)
        if kept is None:
            if is_written_to(self._fs, root):
                self.report.notes.append(f"{replica.key} is in use: only its log was compared")
                return False
            kept = self._audited(replica, root, are_snapshots)
            if is_written_to(self._fs, root):
                self.report.notes.append(f"{replica.key} was opened meanwhile: only its log was compared")
                return False
            self._state.keep("stores", replica.key, kept)
            self._state.save()
        self.rows += kept["rows"]
        for name in ("record_count", "log_bytes", "unit_count", "key_count"):
            self.report.counts[name] = self.report.counts.get(name, 0) + kept["counts"].get(name, 0)
        return True

    def _audited(self, replica: Replica, root: Path, are_snapshots: bool) -> dict[str, Any]:
        one, place = JobReport.begin("audit"), self._place / "store"
        place.mkdir()
        try:
            Audit(root, Scratch(str(place)), self._run_tasks, one).run()
        except StoreError as error:
            row = row_of(replica.broker_name, replica.name, "STORE_UNREADABLE", "", 0, None, error.message)
            return {"rows": [row], "counts": {}}
        finally:
            shutil.rmtree(place)
        rows = [{"broker_name": replica.broker_name, "replica": replica.name, **row} for row in one.findings]
        if are_snapshots:
            excuse(rows, one.counts["log_end_offset"])
        return {"rows": rows, "counts": one.counts}

    # -- replicas with one another

    def _compare_shard(self, broker_name: str, logs: list[ReplicaLog]) -> None:
        by_name = {log.replica: log for log in logs}
        ranges = ranges_of(logs, with_single=self._archive is not None)
        hashes = self._hash_all(broker_name, by_name, ranges)
        segments: dict[int, Segment] = {}
        damaged: dict[int, ArchiveFinding] = {}
        if self._archive is not None:
            segments, damaged = read_segments(self._fs, self._archive, broker_name)
        self._state.save()
        diverged: dict[str, tuple[int, Row]] = {}
        for place in ranges:
            found = {name: hashes[place, name].sha256 for name in place.holders if hashes[place, name].sha256}
            for name in place.holders:
                self._tell_unread(broker_name, by_name[name], place, hashes[place, name], others=len(found))
            segment = segments.get(place.file_offset) if place.file_offset is not None else None
            archived = segment.log_sha256 if segment is not None and segment.is_sealed else ""
            for name, reference in deviants(found, archived):
                self._tell_difference(broker_name, by_name[name], by_name[reference], place, diverged)
            if archived and found and archived not in found.values():
                assert segment is not None
                reference = reference_of(found, archived)
                self._tell_archived(broker_name, segment, by_name[reference])
        if self._archive is not None:
            self._audit_archive(broker_name, segments, damaged, logs)

    def _hash_all(
        self, broker_name: str, logs: dict[str, ReplicaLog], ranges: list[Range]
    ) -> dict[tuple[Range, str], Hashed]:
        """The hash of each range in each log that has it, from the state where the file is as it was."""
        found: dict[tuple[Range, str], Hashed] = {}
        todo: list[tuple[Range, str, str, HashTask]] = []
        for place in ranges:
            for name in place.holders:
                log = logs[name]
                file = log.file_at(place.begin)
                if file is None:
                    found[place, name] = Hashed("", None)
                    continue
                path = str(log.path_of(file))
                key = f"{broker_name}@{name}/{file}" if place.file_offset == file else ""
                stamp = stamp_of(path)
                known = self._state.known_hash(key, stamp) if key else None
                if known is not None:
                    found[place, name] = Hashed(known, stamp)
                    self._known_bytes += place.end - place.begin
                else:
                    todo.append((place, name, key, HashTask(path, place.begin - file, place.end - place.begin)))
        for at in range(0, len(todo), FILES_PER_SAVE):
            part = todo[at : at + FILES_PER_SAVE]
            results = self._run_tasks(f"logs of {broker_name}", hash_range, [task for *_, task in part])
            for (place, name, key, task), result in zip(part, results, strict=True):
                found[place, name] = result
                self._compared_bytes += task.size_bytes
                if key and result.sha256 and result.stamp is not None:
                    self._state.keep_hash(key, result.stamp, result.sha256)
            self._state.save()
        return found

    def _tell_unread(self, broker_name: str, log: ReplicaLog, place: Range, hashed: Hashed, *, others: int) -> None:
        if hashed.sha256:
            return
        size = log.file_size_bytes or 1
        first = place.begin - (place.begin - log.first_offset % size) % size
        file = f"commitlog/{log.path_of(first).name}"
        if hashed.problem:
            self._add(
                broker_name, log.replica, "REPLICA_UNREADABLE", file, place.begin - first, place.begin, hashed.problem
            )
        elif others and place.begin >= without_removed(log).first_offset:
            what = "the file is missing, and another replica has it"
            self._add(broker_name, log.replica, "REPLICA_FILE_MISSING", file, place.begin - first, place.begin, what)

    def _tell_difference(
        self, broker_name: str, log: ReplicaLog, other: ReplicaLog, place: Range, diverged: dict[str, tuple[int, Row]]
    ) -> None:
        end, row = diverged.get(log.replica, (-1, {}))
        if end == place.begin:  # the log went apart before: it is one finding
            diverged[log.replica] = place.end, row
            row["count"] += place.end - place.begin
            return
        task = CompareTask(place.begin, place.end, _side(log, place), _side(other, place))
        (found,) = self._run_tasks("differences", compare, [task])
        if found is None:
            return  # the file has changed since it was hashed: the next run reads it again
        if found.one is not None and found.other is None:  # the other one is damaged
            log, other, found = other, log, Difference(found.first, found.last, found.count, found.other, found.one)
        kind, what = judged(found, place, other.replica)
        file = log.file_at(place.begin)
        assert file is not None
        row = self._add(
            broker_name, log.replica, kind, f"commitlog/{log.path_of(file).name}", found.first - file, found.first, what,
            count=found.count,
        )  # fmt: skip
        if kind == "REPLICA_DIVERGED":
            diverged[log.replica] = place.end, row

    # -- the archive

    def _tell_archived(self, broker_name: str, segment: Segment, log: ReplicaLog) -> None:
        assert self._archive is not None
        place = self._place / "restored"
        place.mkdir()
        try:
            found = difference_of(self._fs, self._archive, segment, log, place)
        finally:
            shutil.rmtree(place)
        if found is not None:
            self._add_archived(broker_name, found)

    def _audit_archive(
        self, broker_name: str, segments: dict[int, Segment], damaged: dict[int, ArchiveFinding], logs: list[ReplicaLog]
    ) -> None:
        assert self._archive is not None
        if not segments and not damaged:
            self.report.notes.append(f"the archive has nothing of {broker_name} yet")
        found = [*damaged.values(), *missing_segments(segments, set(damaged), logs)]
        todo = []
        for offset, segment in segments.items():
            lacks = list(missing_files(self._fs, self._archive, segment))
            found += lacks
            stamp = stamp_of(layout.segment_file(str(self._archive), broker_name, offset))
            if not lacks and not self._state.known_hash(f"{broker_name}@{ARCHIVE}/{offset}", stamp):
                todo.append((offset, stamp))
        for at in range(0, len(todo), FILES_PER_SAVE):
            part = todo[at : at + FILES_PER_SAVE]
            tasks = [(str(self._archive), broker_name, offset) for offset, _ in part]
            for (offset, stamp), outcome in zip(
                part, self._run_tasks(f"archive of {broker_name}", _verify, tasks), strict=True
            ):
                for each in outcome["findings"]:
                    file = str(each["file"]).removeprefix(f"{self._archive}/")
                    at_offset = each.get("commit_log_offset", offset)
                    found.append(("ARCHIVE_DAMAGED", file, at_offset, f"{each['kind']}: {each['what']}"))
                if not outcome["findings"] and stamp is not None:
                    self._state.keep_hash(f"{broker_name}@{ARCHIVE}/{offset}", stamp, "verified")
            self._state.save()
        for each in found:
            self._add_archived(broker_name, each)
        self.report.counts["segment_count"] = self.report.counts.get("segment_count", 0) + len(segments)

    def _add_archived(self, broker_name: str, found: ArchiveFinding) -> None:
        kind, file, offset, what = found
        self._add(broker_name, ARCHIVE, kind, file, 0, offset, what)

    def _add(
        self, broker_name: str, replica: str, kind: str, file: str, byte: int, offset: int, what: str, *, count: int = 1
    ) -> Row:
        row = row_of(broker_name, replica, kind, file, byte, offset, what, count)
        self.rows.append(row)
        return row


def _verify(task: tuple[str, str, int]) -> dict[str, Any]:
    return verify_one(*task)


def _side(log: ReplicaLog, place: Range) -> Side:
    file = log.file_at(place.begin)
    assert file is not None
    return Side(log.root, str(log.path_of(file)), file, log.file_size_bytes)
