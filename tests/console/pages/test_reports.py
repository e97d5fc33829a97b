"""The pipeline's reports as files of a stranger: shown when sound, named when not."""

import json
from pathlib import Path

import pytest

from console.pages.reports import FILE_BYTES_MAX, Reports
from pipeline.audit.cluster import ClusterReport
from pipeline.job import JobReport
from store.errors import InvalidArgumentError, RecordNotFoundError, StoreError
from tests.console.asking import Browser, Tags, console_over


def report(job: str, begin: int, **fields: object) -> str:
    made = JobReport(job, started_at_millis=begin, counts={"record_count": 5, "log_bytes": 2048}, **fields)
    return made.to_json()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "old.json").write_text(report("audit", 1_000, findings=[{"kind": "hole", "<b>": "<script>"}] * 30))
    (tmp_path / "new.json").write_text(report("audit", 2_000))
    (tmp_path / "analytics.json").write_text(report("analytics", 1_500, notes=["a note"]))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "strange.json").write_text(json.dumps({"job": "x", "counts": {"a": "b"}, "findings": [], "notes": []}))
    (tmp_path / "huge.json").write_bytes(b" " * (FILE_BYTES_MAX + 1))
    (tmp_path / "unrelated.txt").write_text("no")
    (tmp_path / "analytics").mkdir()
    (tmp_path / "analytics" / "report.html").write_text("<p style='color:red'>page</p>")
    return tmp_path


def test_every_json_file_is_a_report_or_says_why_not(root: Path) -> None:
    found = {report.name: report for report in Reports(root).newest_first()}

    assert set(found) == {path.name for path in root.glob("*.json")}
    assert {name for name, one in found.items() if one.problem} == {
        "broken.json",
        "list.json",
        "strange.json",
        "huge.json",
    }
    assert found["old.json"].finding_count == 30
    assert [one.name for one in found.values()][:3] == ["new.json", "analytics.json", "old.json"]


def test_the_page_shows_them_and_runs_nothing_of_theirs(root: Path, shard, fan_out) -> None:
    app = console_over([shard], fan_out, reports=Reports(root))
    browser = Browser(app)
    page = Tags(browser.get("/reports").text)
    html = browser.get("/reports/analytics/page")
    missing, outside = browser.get("/reports/nope/page"), browser.get("/reports/..%2f..%2fetc/page")
    app.close()

    assert "30 findings" in page.text
    assert "nothing wrong" in page.text
    assert '"<b>": "<script>"' in page.text
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert html.body == (root / "analytics" / "report.html").read_bytes()
    assert "sandbox" in html.headers["content-security-policy"]
    assert "script-src" not in html.headers["content-security-policy"]
    assert (missing.status, outside.status) == (404, 404)


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "", "a" * 200])
def test_names_that_lead_elsewhere_are_refused(root: Path, name: str) -> None:
    with pytest.raises((InvalidArgumentError, RecordNotFoundError)):
        Reports(root).page(name)


def test_no_directory_is_no_report_and_one_that_is_gone_is_said(tmp_path: Path) -> None:
    assert Reports(None).newest_first() == []
    with pytest.raises(StoreError, match="cannot be read"):
        Reports(tmp_path / "gone").newest_first()


def test_the_page_begins_with_the_verdict_of_the_newest_report_of_each_job(root: Path, shard, fan_out) -> None:
    (root / "newest.json").write_text(report("audit", 3_000, findings=[{"kind": "hole"}]))
    app = console_over([shard], fan_out, reports=Reports(root))
    found = Tags(Browser(app).get("/reports").text).text
    (root / "newest.json").unlink()
    fine = Tags(Browser(app).get("/reports").text).text
    app.close()

    assert "Something was found audit : 1 finding" in found
    assert found.index("Something was found") < found.index("record count")
    assert "Nothing wrong in the latest reports" in fine  # the older audit with findings is no news


def test_an_audit_of_a_cluster_shows_a_row_for_each_replica(tmp_path: Path, shard, fan_out) -> None:
    rows = [
        {
            "broker_name": "broker-a", "replica": name, "first_offset": 0, "end_offset": 4096, "lag_bytes": lag,
            "error_count": errors, "warning_count": 0, "is_log_only": lag > 0,
        }
        for name, lag, errors in (("r1", 0, 2), ("r2", 2048, 0))
    ]  # fmt: skip
    made = ClusterReport("audit-cluster", started_at_millis=1_000, replicas=rows)
    (tmp_path / "audit-cluster.json").write_text(made.to_json())
    (tmp_path / "bad.json").write_text(ClusterReport("x", replicas=[{"replica": "r1"}]).to_json())
    (found,) = [report for report in Reports(tmp_path).newest_first() if not report.problem]
    app = console_over([shard], fan_out, reports=Reports(tmp_path))
    browser = Browser(app)
    page, answer = Tags(browser.get("/reports").text).text, json.loads(browser.get("/reports?format=json").text)
    app.close()

    assert [(replica.replica, replica.lag_bytes, replica.is_log_only) for replica in found.replicas] == [
        ("r1", 0, False),
        ("r2", 2048, True),
    ]
    assert "broker-a r1 2 findings 0–4,096" in page
    assert "broker-a r2 nothing wrong only its log 0–4,096" in page
    (replicas,) = [report["replicas"] for report in answer["reports"] if report["job"] == "audit-cluster"]
    assert replicas[1]["lagBytes"] == 2048
