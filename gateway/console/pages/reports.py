"""Reports: what the pipeline's audits, analytics and other jobs said, newest first."""

from dataclasses import asdict

from starlette.responses import Response

from gateway.console.calls import Calls
from gateway.console.pages.page import Page
from gateway.console.question import Question
from gateway.console.reports import Reports
from reput.gateway.v1 import gateway_service_pb2 as pb

# The page that analytics writes is styled inside and runs nothing; it must not reach us either.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def reports_page(reports: Reports, calls: Calls, question: Question) -> Page:
    """All reports, the newest of each job first to be seen."""
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
        "pages": reports.pages(),
    }
    answer = {"reports": [_to_json(asdict(report)) for report in found], "pages": reports.pages()}
    return Page("reports.html", values, answer)


def report_file(reports: Reports, calls: Calls, name: str) -> Response:
    """A page of analytics."""
    _check_sees_store(calls)
    return Response(reports.page(name), 200, {"Content-Security-Policy": REPORT_POLICY}, "text/html")


def _check_sees_store(calls: Calls) -> None:
    """Reports are of the whole store: they are for whoever may see its state."""
    calls.ask("GetStatus", pb.GetStatusRequest())


def _to_json(report: dict[str, object]) -> dict[str, object]:
    names = {
        "is_dry_run": "isDryRun",
        "started_at_millis": "startedAtMillis",
        "finding_count": "findingCount",
    }
    return {names.get(name, name): value for name, value in report.items()}
