"""docs/reports.md names a test for each report; a test that was renamed or removed must not stay on the page."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reports.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    missing = [
        f"{path}::{function}" if function else path
        for path, function in named
        if not (ROOT / path).is_file() or (function and function not in functions_of(ROOT / path))
    ]
    assert missing == []


def test_every_row_of_the_page_names_a_test() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| report |", "| --- |"))]
    assert len(rows) > 30
    assert [row for row in rows if "`tests/" not in row.split(" | ")[-1]] == []


def functions_of(path: pathlib.Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
