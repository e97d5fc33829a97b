"""The head of RESULTS.md."""

from benchmarks import verdict
from benchmarks.figures import OURS, THEIRS, Metric, at_most, times_theirs
from benchmarks.rows import registry

RATE = Metric("rate", "messages/s", target=times_theirs(1))
DELAY = Metric("delay", "ms", lower_is_better=True, target=at_most(50, "ms"), sides=(OURS,))


def _verdict(rate: float, delay: float) -> verdict.Verdict:
    rounds = {"rate": {OURS: [rate], THEIRS: [100.0]}, "delay": {OURS: [delay]}}
    found = verdict.verdict(1, "Appends", "A cause.", (RATE, DELAY), rounds)
    assert found is not None
    return found


def test_every_row_belongs_to_exactly_one_part() -> None:
    assert sorted(map(str, registry.NUMBERS)) == sorted(str(one) for part in verdict.PARTS.values() for one in part)
    assert len(verdict.PARTS) == 10


def test_a_row_that_reaches_all_shows_its_best_and_no_cause() -> None:
    found = _verdict(rate=150.0, delay=10.0)
    assert (found.judged, found.missed, found.cause) == (2, 0, "")
    assert found.text == "Appends, delay: 5.00 of its target (row 1)"


def test_a_row_that_misses_shows_its_worst_and_why() -> None:
    found = _verdict(rate=50.0, delay=75.0)
    assert (found.judged, found.missed, found.cause) == (2, 2, "A cause.")
    assert found.text == "Appends, rate: 0.50 x RocketMQ (row 1)"


def test_a_row_without_figures_has_no_verdict_and_no_line() -> None:
    assert verdict.verdict(1, "Appends", "", (RATE, DELAY), {}) is None
    assert verdict.lines({}) == []


def test_a_time_of_nothing_is_not_endlessly_ahead() -> None:
    assert _verdict(rate=150.0, delay=0.0).text == "Appends, rate: 1.50 x RocketMQ (row 1)"


def test_a_part_is_one_line_with_both_sides_and_each_cause_once() -> None:
    ahead, behind = _verdict(150.0, 40.0), _verdict(50.0, 40.0)
    (line,) = verdict.lines({1: behind, 2: behind, 3: ahead})
    assert line.startswith(
        "- **Appends over gRPC**: 4 of 6 targets reached. Ahead: Appends, rate: 1.50 x RocketMQ (row 1)."
    )
    assert line.endswith(" Why: A cause.")
