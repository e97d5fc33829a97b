"""What an audit of a cluster writes: rows, a file for Prometheus, the report for the console. Each is replaced as a whole."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.audit.rows import write_rows
from pipeline.report import JobReport
from store.files.file_system import FileSystem
from store.files.json_state import write_bytes_atomic

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
