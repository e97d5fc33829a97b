"""Findings are counted in full and kept in part; the document names every code."""

import re
from pathlib import Path

from store.audit.findings import CODES, KEPT_PER_CODE_MAX, Findings, Severity

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "fsck.md"


def test_of_many_findings_of_one_kind_a_few_are_kept_and_all_counted() -> None:
    findings = Findings(Path("/root"))
    for number in range(KEPT_PER_CODE_MAX + 50):
        findings.add("QUEUE_UNIT_WRONG", "/root/consumequeue/a/0/0", number, "x", count=2)
    findings.add("LOG_TORN_TAIL", "/root/commitlog/0", 5, "y")
    findings.add("ABORT_FOUND", "/root/abort", 0, "z")

    assert len(findings.kept) == KEPT_PER_CODE_MAX + 2
    assert findings.left_out_count == 50
    assert findings.counts["QUEUE_UNIT_WRONG"] == 2 * (KEPT_PER_CODE_MAX + 50)
    assert [finding.severity for finding in findings.kept[-2:]] == [Severity.WARNING, Severity.INFO]
    assert findings.kept[0].file == "consumequeue/a/0/0"
    assert not findings.is_clean


def test_infos_alone_are_clean() -> None:
    findings = Findings(Path("/root"))
    findings.add("ABORT_FOUND", "/root/abort", 0, "z")

    assert findings.is_clean


def test_the_document_has_every_code_with_its_weight() -> None:
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| (\w+) \| .+ \| (\w+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )

    assert rows == [(code.name, str(code.severity), str(code.kind)) for code in CODES.values()]
