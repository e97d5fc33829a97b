"""Reports: the reports of the pipeline's audits, analytics and other jobs, newest first."""

from dataclasses import asdict

from starlette.responses import Response

from console.calls import Calls
from console.pages.page import Page
from console.parts.reports import Reports
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

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
        "verdicts": sorted(
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
