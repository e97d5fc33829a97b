"""results.json and RESULTS.md."""

import pathlib

from benchmarks import report
from benchmarks.figures import ECHO, MISSED, OURS, THEIRS, RowResult, judge
from benchmarks.report import Results
from benchmarks.rows import registry
from benchmarks.rows.batched_append import OneKib
from benchmarks.sizes import SAMPLE

KEPT = pathlib.Path(report.__file__).parent


def _row(rate: float) -> RowResult:
    result = RowResult(date="2026-01-02 03:04 UTC", size="sample")
    for factor in (0.9, 1.0, 1.2):
        result.add(OURS, {"through the gateway": rate * factor, "direct to the commitlog service": rate * 1.3})
        result.add(THEIRS, {"through the gateway": 20_000.0, "direct to the commitlog service": 20_000.0})
        result.add(ECHO, {"through the gateway": 80_000.0, "direct to the commitlog service": 80_000.0})
    return result


def _cells(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if start in line and line.startswith("|")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_shows_both_sides_their_ratio_and_the_judgement() -> None:
    text = report.markdown(Results({"CPU": "two cores"}, {1: _row(40_000.0)}))
    assert _cells(text, "through the gateway") == [
        "1",
        "Batched append, 1 KiB x 32: through the gateway",
        "messages/s",
        "36,000 / **40,000** / 48,000",
        "20,000 / **20,000** / 20,000",
        "2.00",
        "80,000 (0.50)",
        ">= 1 x RocketMQ, stretch 1.5",
        "yes, stretch too (20,000)",
    ]
    assert "- CPU: two cores" in text


def test_a_miss_is_not_hidden() -> None:
    assert _cells(report.markdown(Results(rows={1: _row(10_000.0)})), "through the gateway")[-1] == "**no** (20,000)"


def test_a_lower_time_is_said_as_such() -> None:
    result = RowResult(size="sample")
    result.add(OURS, {"query by key": 300.0})
    result.add(THEIRS, {"query by key": 4_500.0})
    cells = _cells(report.markdown(Results(rows={7: result})), "query by key")
    assert cells[5] == "0.07 (15.0 times less)"
    assert cells[-1] == "yes (400)"


def test_a_row_says_how_busy_the_machine_was_before() -> None:
    result = RowResult(date="today", size="sample", load_before="1.5 0.9 0.7")
    assert "(today, sample, rounds: 0, load before: 1.5 0.9 0.7)" in report.markdown(Results(rows={11: result}))
    assert "load before" not in report.markdown(Results(rows={11: RowResult(size="sample")}))


def test_what_was_left_out_says_why() -> None:
    result = RowResult(size="sample", skipped={THEIRS: "needs java"})
    result.add(OURS, {"all processes": 2.5})
    text = report.markdown(Results(rows={11: result}))
    assert "rocketmq is left out: needs java" in text
    assert _cells(text, "Start to serving")[4:6] == ["-", "-"]


def test_a_run_of_some_rows_leaves_the_others(tmp_path: pathlib.Path) -> None:
    first = _row(40_000.0)
    first.notes.append("a note")
    report.save(Results({"CPU": "old"}, {1: first, 11: RowResult(size="sample")}), tmp_path)
    later = report.load(tmp_path)
    later.rows[11] = RowResult(date="later", size="tiny", curves={"memory": [(0.0, 300.0), (1.0, 310.0)]})
    later.machine = {"CPU": "new"}
    report.save(later, tmp_path)
    assert report.load(tmp_path) == Results({"CPU": "new"}, {1: first, 11: later.rows[11]})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RESULTS.md", "memory.svg", "results.json"]
    assert "memory.svg" in (tmp_path / "RESULTS.md").read_text()


def test_a_directory_without_results_gives_empty_ones(tmp_path: pathlib.Path) -> None:
    assert report.load(tmp_path) == Results()


def test_a_missed_target_says_why_and_a_reached_one_does_not() -> None:
    assert f"A target is missed: {OneKib.cause}" in report.markdown(Results(rows={1: _row(10_000.0)}))
    assert "A target is missed" not in report.markdown(Results(rows={1: _row(40_000.0)}))


def test_every_missed_row_of_the_kept_results_has_its_cause() -> None:
    kept = report.load(KEPT)
    text = report.markdown(kept)
    silent = [
        number
        for number, result in kept.rows.items()
        if not (row := registry.make(number, SAMPLE)).cause
        and any(judge(metric, result.rounds.get(metric.name, {})).word == MISSED for metric in row.metrics)
    ]
    assert silent == []
    assert (KEPT / report.MARKDOWN_NAME).read_text(encoding="utf-8") == text
