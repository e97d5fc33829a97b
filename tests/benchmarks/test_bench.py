"""The harness: arguments, alternation, and what becomes of a side that fails; with rows that measure nothing real."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks import bench, report
from benchmarks.figures import ECHO, OURS, THEIRS, Metric, RowResult
from benchmarks.row import Context, Row, SkippedError
from benchmarks.rows import registry
from benchmarks.sizes import TINY, Sizes


class FakeRow(Row):
    number = 11
    title = "fake"
    what = "Nothing."

    def __init__(self, sizes: Sizes, failing: Mapping[str, Exception] | None = None) -> None:
        super().__init__(sizes)
        self.metrics = (Metric("all processes", "s", lower_is_better=True, sides=(OURS, THEIRS, ECHO)),)
        self.failing = dict(failing or {})
        self.asked: list[str] = []

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        self.asked.append(side)
        if side in self.failing:
            raise self.failing[side]
        return {"all processes": float(len(self.asked))}

    def finish(self, context: Context, result: RowResult) -> None:
        result.notes.append("finished")


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(row: FakeRow, *arguments: str, missing: str = "") -> tuple[int, RowResult]:
        monkeypatch.setattr(registry, "make", lambda number, sizes: row)
        monkeypatch.setattr(bench.rocketmq_side, "why_unavailable", lambda: missing or None)
        monkeypatch.setattr(bench.rocketmq_side, "classpath", lambda: "")
        monkeypatch.setattr(bench.ghz, "find", lambda: ("", "no ghz"))
        monkeypatch.setattr(bench.processes, "run", lambda command, seconds, **options: b"")  # kernels are not compiled
        monkeypatch.setattr(bench, "_end_all", lambda: None)  # it would end what belongs to other tests
        results = tmp_path / "results"
        code = bench.main(
            [
                "--rows",
                "11",
                "--size",
                "tiny",
                "--stores",
                str(tmp_path / "stores"),
                "--results",
                str(results),
                *arguments,
            ]
        )
        assert not list((tmp_path / "stores").iterdir()), "scratch is removed"
        return code, report.load(results).rows[11]

    return run


def test_the_sides_of_a_row_alternate(run: Any) -> None:
    row = FakeRow(TINY)
    code, result = run(row, "--rounds", "3")
    assert code == 0
    assert row.asked == [OURS, THEIRS, ECHO] * 3
    assert result.rounds["all processes"] == {OURS: [1.0, 4.0, 7.0], THEIRS: [2.0, 5.0, 8.0], ECHO: [3.0, 6.0, 9.0]}
    assert result.notes == ["finished"]


def test_a_failing_side_does_not_take_the_others_with_it(run: Any) -> None:
    row = FakeRow(TINY, {THEIRS: RuntimeError(f"broken in {bench.ROOT}/store")})
    code, result = run(row, "--rounds", "2")
    assert code == 1
    assert len(result.rounds["all processes"][OURS]) == 2
    assert THEIRS not in result.rounds["all processes"]
    assert result.skipped == {THEIRS: "failed in round 1: broken in store"}


def test_a_row_that_cannot_be_prepared_does_not_take_the_run_with_it(run: Any) -> None:
    class Unprepared(FakeRow):
        def prepare(self, context: Context) -> None:
            raise RuntimeError("no store")

    code, result = run(Unprepared(TINY))
    assert (code, result.rounds) == (1, {})
    assert result.skipped == dict.fromkeys((OURS, THEIRS, ECHO), "failed to prepare: no store")


def test_a_skipped_side_says_why_and_is_no_failure(run: Any) -> None:
    row = FakeRow(TINY, {ECHO: SkippedError("needs ghz")})
    code, result = run(row, "--rounds", "2")
    assert (code, result.skipped) == (0, {ECHO: "needs ghz"})
    assert row.asked.count(ECHO) == 1


def test_without_java_rocketmq_is_left_out(run: Any) -> None:
    row = FakeRow(TINY)
    code, result = run(row, missing="needs java")
    assert (code, result.skipped) == (0, {THEIRS: "needs java"})
    assert THEIRS not in row.asked


def test_ctrl_c_ends_the_run(run: Any, tmp_path: pathlib.Path) -> None:
    class Stopped(FakeRow):
        def measure(self, side: str, context: Context) -> Mapping[str, float]:
            raise KeyboardInterrupt

    with pytest.raises(KeyError):
        run(Stopped(TINY))
    assert not (tmp_path / "results" / "RESULTS.md").exists()


@pytest.mark.parametrize(
    "arguments", [["--rows", "99"], ["--rows", "T99"], ["--rows", "x"], ["--rounds", "0"], ["--sides", "theirs"]]
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        bench.main(arguments)
    assert stop.value.code == 2


def test_rows_of_the_pipeline_and_of_compiled_clients_are_named_with_a_letter() -> None:
    assert bench._row_numbers("2, t1,T5, 1c,6C") == (2, "T1", "T5", "1c", "6c")
    assert bench._row_numbers("") == registry.NUMBERS
    assert [registry.place(number) for number in registry.NUMBERS] == list(range(len(registry.NUMBERS)))
