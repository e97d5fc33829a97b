"""`audit-cluster`: one job over all replicas of all shards, to be run by a schedule.

    each store    log, queues, indexes and state, as `audit` does it                 (pipeline/audit/audit.py)
    each shard    the logs of its replicas, range by range                           (`compare`)
                  with the archive: manifests, and log files by their SHA-256        (cluster_logs.py)

The ends of all logs are fixed when the run begins. The logs are compared from the greatest first offset to the least end of
those that have a byte; that a replica has less, at either end, is retention or lag and no finding. A store that a process has
open is compared by its log alone, up to its durable mark.

What an audit of a cluster keeps from run to run, `state/audit.json`: earlier findings, hashes, and a run that is not over.

    findings    when each was first seen (milliseconds since 1970)
    hashes      SHA-256 of each whole log file, with the file's stamp and when it was read
    segments    the manifests of an archive that were verified, likewise
    run         of a run that was killed: what it was asked, the fixed ends of the logs, the stores that are audited

A state that is lost costs reading everything again, and all findings count as new.

What an audit of a cluster makes of what it read: rows, which replica counts, and what is no finding. Pure decisions.

What an audit of a cluster writes: rows, a file for Prometheus, the report for the console. Each is replaced as a whole.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.archive.verify import verify_one
from pipeline.audit.audit import ROW_FIELDS, Audit, write_rows
from pipeline.audit.cluster_logs import (
    ArchiveFinding,
    CompareTask,
    Difference,
    Hashed,
    HashTask,
    Range,
    Replica,
    ReplicaLog,
    Side,
    compare,
    difference_of,
    fix_log,
    hash_range,
    joined_root,
    missing_files,
    missing_segments,
    ranges_of,
    read_segments,
    stamp_of,
    without_removed,
)
from pipeline.audit.scratch import Scratch
from pipeline.job import JobReport, Progress, RunTasks, run_here, run_on_spark, silent
from pipeline.scan.log_files import is_written_to
from store.archive import layout
from store.archive.manifest import Segment, check_archive
from store.errors import StoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_json_state, write_bytes_atomic, write_json_state
from store.files.locks import OwnerLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1
# A killed run is continued for so long; later its stores may have changed too much to be one picture.
RESUME_MILLIS_MAX = 24 * 3_600_000


class AuditState:
    """The state of one output directory.

    Args:
        fs: the disk port.
        path: its file.
        asked: what the run is about; a killed run about something else is not continued.
        now_millis: milliseconds since 1970.
        reread_millis: a hash is trusted for so long.
    """

    def __init__(self, fs: FileSystem, path: Path, asked: list[str], now_millis: int, reread_millis: int) -> None:
        self._fs, self._path = fs, path
        self._now, self._reread = now_millis, reread_millis
        state = read_json_state(fs, path) or {}
        if state.get("version") != VERSION:
            state = {}
        self._findings: dict[str, int] = state.get("findings") or {}
        self._hashes: dict[str, list[Any]] = state.get("hashes") or {}
        self._used: set[str] = set()
        run = state.get("run")
        self.is_resumed = bool(
            run and run["asked"] == asked and 0 <= now_millis - run["begun_millis"] <= RESUME_MILLIS_MAX
        )
        self._run: dict[str, Any] = (
            run if run and self.is_resumed else {"asked": asked, "begun_millis": now_millis, "logs": {}, "stores": {}}
        )

    def known_hash(self, key: str, stamp: object) -> str | None:
        """The hash of a file that is as it was when it was read; None to read it."""
        self._used.add(key)
        known = self._hashes.get(key)
        if known is None or stamp is None or known[0] != list(stamp):  # type: ignore[call-overload]
            return None
        # What this very run has read is not read again, even with a full read.
        if known[2] < self._run["begun_millis"] and self._now - known[2] >= self._reread:
            return None
        return str(known[1])

    def keep_hash(self, key: str, stamp: tuple[int, ...], sha256: str) -> None:
        """Remembers the hash of a file."""
        self._used.add(key)
        self._hashes[key] = [list(stamp), sha256, self._now]

    def kept(self, part: str, key: str) -> Any:
        """The results of the killed run for a replica, of the part `logs` or `stores`; None: there are none."""
        return self._run[part].get(key)

    def keep(self, part: str, key: str, value: Any) -> None:
        """Remembers it for the case that the run is killed."""
        self._run[part][key] = value

    def first_seen(self, finding: str) -> int | None:
        """When an earlier run first saw a finding (milliseconds since 1970); None: it is new."""
        return self._findings.get(finding)

    @property
    def begun_millis(self) -> int:
        """When the run began, or the killed one that it continues (milliseconds since 1970)."""
        return int(self._run["begun_millis"])

    @property
    def earlier_count(self) -> int:
        """Findings of the run before."""
        return len(self._findings)

    def save(self) -> None:
        """Writes the state, with the run in it."""
        self._write(self._findings, self._hashes, self._run)

    def finish(self, findings: dict[str, int]) -> None:
        """Writes the state of a run that is over: its findings with their first times, and only hashes that it used."""
        self._write(findings, {key: row for key, row in self._hashes.items() if key in self._used}, None)

    def _write(self, findings: dict[str, int], hashes: dict[str, list[Any]], run: dict[str, Any] | None) -> None:
        state = {"version": VERSION, "findings": findings, "hashes": hashes, "run": run}
        write_json_state(self._fs, self._path, state)


# What a crash leaves, and so a snapshot of a running store; the next start repairs it.
LEFT_BY_A_CRASH = {"LOG_TORN_TAIL", "LOG_STALE_BYTES", "LOG_FILE_UNFINISHED"}
# What a snapshot of queues or indexes shows that is younger than that of the log.
AHEAD_OF_THE_LOG = {"QUEUE_SURPLUS_UNITS", "INDEX_SURPLUS_ENTRIES", "STATE_AHEAD", "CHECKPOINT_AHEAD"}
# With entries ahead of the log, these follow from them in the same file.
OF_THE_SAME_FILE = {"INDEX_HEADER_WRONG", "INDEX_SLOT_WRONG", "INDEX_CHAIN_WRONG"}

Row = dict[str, Any]


def identity(row: Row) -> str:
    """The identity of a finding over several runs: its place, without its text."""
    names = ("broker_name", "replica", "kind", "file", "offset", "commit_log_offset", "topic", "queue")
    return "|".join(str(row[name]) for name in names)


def excuse(rows: list[Row], log_end_offset: int) -> None:
    """Makes findings information that follow from snapshots of a running store, taken one after the other."""
    ahead = [
        row for row in rows if row["kind"] in AHEAD_OF_THE_LOG and (row["commit_log_offset"] or -1) >= log_end_offset
    ]
    files = {row["file"] for row in ahead}
    for row in rows:
        is_of_crash = row["kind"] in LEFT_BY_A_CRASH and row["severity"] == "warning"
        if is_of_crash or row in ahead or (row["kind"] in OF_THE_SAME_FILE and row["file"] in files):
            row["severity"] = "info"


def row_of(
    broker_name: str, replica: str, kind: str, file: str, byte: int, offset: int | None, what: str, count: int = 1
) -> Row:
    """A row of an error; `byte` counts in the file, `offset` in the log (bytes)."""
    given = {
        "broker_name": broker_name, "replica": replica, "kind": kind, "severity": "error", "file": file, "offset": byte,
        "commit_log_offset": offset, "count": count, "what": what,
    }  # fmt: skip
    return {**dict.fromkeys(ROW_FIELDS), **given}


def reference_of(found: dict[str, str], archived: str) -> str:
    """The replica with the bytes that most have; of equally many those that the archive has, then the first."""
    hashes = list(found.values())
    best = max(hashes, key=lambda sha256: (hashes.count(sha256), sha256 == archived))
    return next(name for name, sha256 in found.items() if sha256 == best)


def deviants(found: dict[str, str], archived: str) -> list[tuple[str, str]]:
    """Each replica with other bytes than the reference, and the reference."""
    if len(set(found.values())) < 2:
        return []
    reference = reference_of(found, archived)
    return [(name, reference) for name, sha256 in found.items() if sha256 != found[reference]]


def judged(found: Difference, place: Range, other: str) -> tuple[str, str]:
    """Kind and text of a difference of two logs."""
    where = f"{found.count} bytes differ from {other}, from commit-log offset {found.first} to {found.last}"
    if found.one is None and found.other is not None:
        return "REPLICA_DAMAGED", f"{where}; the record at {found.other[0]} is sound there and not here"
    if found.one is None or found.other is None:
        return "REPLICA_DIFFERS", f"{where}; neither has a sound record there"
    behind = max(found.one[1], found.other[1])
    if found.last >= behind or behind >= place.end:
        return "REPLICA_DIVERGED", f"{where}; both have sound records, others from {found.one[0]} on"
    return "REPLICA_DIFFERS", f"{where}; the record at {found.one[0]} is sound in both"


REPORT_NAME = "audit-cluster.json"
ROWS_NAME = "audit-cluster.parquet"
METRICS_NAME = "audit-cluster.prom"
# The console reads reports of up to 2 MiB, and a row has about 600 bytes; all of them are in the file of rows.
REPORT_FINDING_COUNT_MAX = 2_000
PUSH_SECONDS_MAX = 30  # a Pushgateway answers at once


@dataclass
class ClusterReport(JobReport):
    """The report of an audit of a cluster.

    Attributes:
        replicas: for each: `broker_name`, `replica`, `first_offset`, `end_offset`, `lag_bytes` behind the longest log of the
            shard, `error_count`, `warning_count`, and `is_log_only`, whether only its log was compared.
    """

    replicas: list[dict[str, Any]] = field(default_factory=list)


def write_outputs(fs: FileSystem, out: Path, report: ClusterReport, rows: list[dict[str, Any]]) -> None:
    """Writes all files; the report last, because it names the others."""
    temporary = out / f".{ROWS_NAME}.tmp.parquet"
    write_rows(rows, temporary, ("broker_name", "replica"), ("first_seen_millis", "is_new"))
    fs.rename(temporary, out / ROWS_NAME)
    write_bytes_atomic(fs, out / METRICS_NAME, metrics_text(report, rows).encode())
    report.outputs |= {"findings": str(out / ROWS_NAME), "metrics": str(out / METRICS_NAME)}
    write_bytes_atomic(fs, out / REPORT_NAME, report.to_json().encode())


def metrics_text(report: ClusterReport, rows: list[dict[str, Any]]) -> str:
    """The metrics of a run, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    labels = ("broker_name", "replica")
    findings = Gauge("reput_audit_findings", "Findings of the last audit.", (*labels, "level"), registry=registry)
    new = Gauge("reput_audit_new_findings", "Those that the audit before did not have.", labels, registry=registry)
    lag = Gauge("reput_audit_replica_lag_bytes", "What the replica's log lacked.", labels, registry=registry)
    completed = Gauge(
        "reput_audit_completed_timestamp_seconds", "When the last audit that came to its end ended.", registry=registry
    )
    read = Gauge("reput_audit_read_bytes", "Log that it read to compare logs.", registry=registry)
    seconds = Gauge("reput_audit_duration_seconds", "How long it took.", registry=registry)
    for replica in report.replicas:
        names = (replica["broker_name"], replica["replica"])
        for level in ("error", "warning"):
            findings.labels(*names, level).set(replica[f"{level}_count"])
        new.labels(*names).set(0)
        lag.labels(*names).set(replica["lag_bytes"])
    for row in rows:
        names = (row["broker_name"], row["replica"])
        if row["replica"] == "archive":
            findings.labels(*names, row["severity"]).inc()
        if row["is_new"] and row["severity"] != "info":
            new.labels(*names).inc()
    completed.set(report.started_at_millis / 1000 + report.seconds)
    read.set(report.counts.get("compared_bytes", 0))
    seconds.set(report.seconds)
    return generate_latest(registry).decode()


def push_metrics(url: str, out: Path) -> None:
    """Sends the metrics to a Pushgateway, which replaces those of the run before.

    Raises:
        OSError: it does not take them.
        ValueError: this is no URL of HTTP.
    """
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise ValueError("it is not http://HOST:PORT")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked
        f"{url.rstrip('/')}/metrics/job/reput-audit",
        data=(out / METRICS_NAME).read_bytes(),
        method="PUT",
        headers={"Content-Type": "text/plain; version=0.0.4"},
    )
    with urllib.request.urlopen(request, timeout=PUSH_SECONDS_MAX):  # noqa: S310
        pass


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
