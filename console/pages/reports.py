"""Reports: what the pipeline's audits, analytics and other jobs print as JSON, in one directory, newest first.

    DIR/audit-2026-11-22.json       one report a file: `reput pipeline audit --store ... > DIR/audit-2026-11-22.json`
    DIR/audit-cluster.json          of `reput pipeline audit-cluster --out DIR`; it has a row for each replica
    DIR/analytics.json
    DIR/analytics/report.html       the page of `reput pipeline analytics --out DIR/analytics`

The files are not trusted: each is read up to a size limit. A file that is not a report is listed with the reason.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starlette.responses import Response

from console.calls import Calls
from console.pages.page import Page
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, RecordNotFoundError, StoreError

FILE_COUNT_MAX = 40
FILE_BYTES_MAX = 2 << 20
PAGE_BYTES_MAX = 32 << 20
FINDING_COUNT_MAX = 20
REPLICA_COUNT_MAX = 768  # 256 shards of three
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Report:
    """A job's report; `problem` is the reason when the file is not a report.

    Attributes:
        name: the file's name.
        job: `audit`, `analytics`, ...
        findings: the first findings.
        finding_count: the number of all findings.
        replicas: of an audit of a cluster, what it says of each replica.
    """

    name: str
    job: str = ""
    is_dry_run: bool = False
    started_at_millis: int = 0
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    finding_count: int = 0
    notes: tuple[str, ...] = ()
    problem: str = ""
    replicas: tuple["AuditedReplica", ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedReplica:
    """A replica in the report of an audit of a cluster; offsets are commit-log offsets in bytes.

    Attributes:
        broker_name, replica: its shard and its name.
        first_offset, end_offset: the part of its log that was compared.
        lag_bytes: what it lacks of the longest log of the shard.
        error_count, warning_count: findings.
        is_log_only: its queues and indexes were left out.
    """

    broker_name: str
    replica: str
    first_offset: int
    end_offset: int
    lag_bytes: int
    error_count: int
    warning_count: int
    is_log_only: bool

    @classmethod
    def of(cls, row: Any) -> "AuditedReplica":
        """From the report; KeyError, TypeError or ValueError if it is none."""
        return cls(
            str(row["broker_name"]),
            str(row["replica"]),
            int(row["first_offset"]),
            int(row["end_offset"]),
            int(row["lag_bytes"]),
            int(row["error_count"]),
            int(row["warning_count"]),
            bool(row["is_log_only"]),
        )


class Reports:
    """The reports of a directory.

    Args:
        root: the directory; None: there are none.
    """

    def __init__(self, root: Path | None) -> None:
        self.root = root

    def newest_first(self) -> list[Report]:
        """The newest reports by their start; StoreError when the directory cannot be read."""
        if self.root is None:
            return []
        try:
            with os.scandir(self.root) as entries:
                files = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if entry.name.endswith(".json")]
        except OSError as error:
            raise StoreError(f"{self.root}, the directory of reports, cannot be read: {error.strerror}.") from error
        names = [name for _, name in sorted(files, reverse=True)[:FILE_COUNT_MAX]]
        return sorted(
            (self._read(self.root / name, name) for name in names), key=lambda report: -report.started_at_millis
        )

    def pages(self) -> list[str]:
        """Names of the directories with a page of analytics."""
        if self.root is None:
            return []
        try:
            names = [name for name in sorted(os.listdir(self.root)) if _NAME.fullmatch(name)]
        except OSError:
            return []  # newest_first raises the error
        return [name for name in names if (self.root / name / "report.html").is_file()][:FILE_COUNT_MAX]

    def page(self, name: str) -> bytes:
        """A page of analytics.

        Raises:
            InvalidArgumentError: the name is not valid.
            RecordNotFoundError: there is no such page.
        """
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(f"{name!r} is not a valid report name.", field="name")
        if self.root is not None:
            path = self.root / name / "report.html"
            try:
                if path.stat().st_size <= PAGE_BYTES_MAX:
                    return path.read_bytes()
            except OSError as error:
                raise RecordNotFoundError(f"There is no report {name!r}: {error.strerror}.", name=name) from error
        raise RecordNotFoundError(f"There is no report {name!r} to show.", name=name)

    @staticmethod
    def _read(path: Path, name: str) -> Report:
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                return Report(name, problem=f"larger than {FILE_BYTES_MAX} bytes")
            return _report(name, json.loads(path.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            return Report(name, problem=f"cannot be read: {error}")


def _report(name: str, read: Any) -> Report:
    if not isinstance(read, dict) or not isinstance(read.get("job"), str):
        return Report(name, problem="not a report: it has no `job`")
    counts, findings, notes = read.get("counts"), read.get("findings"), read.get("notes")
    if not isinstance(counts, dict) or not isinstance(findings, list) or not isinstance(notes, list):
        return Report(name, problem="not a report: counts, findings or notes are missing")
    try:
        return Report(
            name,
            read["job"],
            bool(read.get("is_dry_run")),
            int(read.get("started_at_millis", 0)),
            float(read.get("seconds", 0)),
            {str(key): int(value) for key, value in counts.items()},
            tuple(json.dumps(finding, ensure_ascii=False) for finding in findings[:FINDING_COUNT_MAX]),
            len(findings),
            tuple(str(note) for note in notes),
            replicas=tuple(map(AuditedReplica.of, (read.get("replicas") or [])[:REPLICA_COUNT_MAX])),
        )
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        return Report(name, problem=f"not a report: {error}")


# The page that analytics writes has inline styles and no scripts. The sandbox keeps it away from the console.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def reports_page(reports: Reports, calls: Calls, question: Question) -> Page:
    """All reports, newest first; the newest of each job is marked."""
    _check_sees_store(calls)
    found = reports.newest_first()
    latest: dict[str, str] = {}
    for report in found:
        if not report.problem and not report.is_dry_run:
            latest.setdefault(report.job, report.name)
    values = {
        "has_directory": reports.root is not None,
        "reports": found,
        "latest": set(latest.values()),
        # The newest report of each job, those with findings first.
        "jobs": sorted(
            (report for report in found if report.name in latest.values()), key=lambda report: not report.finding_count
        ),
        "pages": reports.pages(),
    }
    answer = {"reports": [_to_json(asdict(report)) for report in found], "pages": reports.pages()}
    return Page("reports.html", values, answer)


def report_file(reports: Reports, calls: Calls, name: str) -> Response:
    """A page of analytics."""
    _check_sees_store(calls)
    return Response(reports.page(name), 200, {"Content-Security-Policy": REPORT_POLICY}, "text/html")


def _check_sees_store(calls: Calls) -> None:
    """Check the right to see the state of the store, because reports are about the whole store."""
    calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest())


def _to_json(report: dict[str, object]) -> dict[str, object]:
    """With the names of the console's JSON, also in rows."""
    return {_camel(name): _rows_to_json(value) if name == "replicas" else value for name, value in report.items()}


def _rows_to_json(rows: object) -> object:
    return [{_camel(name): value for name, value in row.items()} for row in rows] if isinstance(rows, tuple) else rows


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
