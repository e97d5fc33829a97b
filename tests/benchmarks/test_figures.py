"""Medians, ratios and judgements, by hand-made figures."""

import pytest

from benchmarks.figures import (
    ECHO,
    MISSED,
    NOT_JUDGED,
    OURS,
    REACHED,
    THEIRS,
    Metric,
    RowResult,
    Summary,
    at_most,
    faster_than_theirs,
    judge,
    part_of_theirs,
    quantile,
    ratio,
    times_theirs,
)
from benchmarks.rows import registry
from benchmarks.sizes import SAMPLE


def test_a_summary_has_least_median_and_greatest() -> None:
    assert Summary.of([30.0, 10.0, 20.0]) == Summary(10.0, 20.0, 30.0)
    assert Summary.of([10.0, 20.0]) == Summary(10.0, 15.0, 20.0)


def test_the_ratio_is_of_medians_not_of_means() -> None:
    assert ratio({OURS: [100.0, 300.0, 200.0], THEIRS: [100.0, 1.0, 10_000.0]}) == 2.0


@pytest.mark.parametrize(
    "values", [{OURS: [1.0]}, {THEIRS: [1.0]}, {OURS: [1.0], THEIRS: [0.0]}, {OURS: [], THEIRS: [1.0]}]
)
def test_there_is_no_ratio_without_both_sides(values: dict[str, list[float]]) -> None:
    assert ratio(values) is None


@pytest.mark.parametrize(
    ("ours", "word", "stretch"),
    [(119.0, MISSED, False), (120.0, REACHED, False), (199.0, REACHED, False), (200.0, REACHED, True)],
)
def test_a_rate_has_to_be_at_least_its_bound(ours: float, word: str, stretch: bool) -> None:
    metric = Metric("calls", "calls/s", target=times_theirs(1.2, stretch=2))
    outcome = judge(metric, {OURS: [ours], THEIRS: [100.0]})
    assert (outcome.word, outcome.bound, outcome.stretch_reached) == (word, 120.0, stretch)


@pytest.mark.parametrize(
    ("ours", "word", "stretch"),
    [(2.1, MISSED, False), (2.0, REACHED, False), (1.1, REACHED, False), (1.0, REACHED, True)],
)
def test_a_time_has_to_be_at_most_its_bound(ours: float, word: str, stretch: bool) -> None:
    metric = Metric("p50", "ms", lower_is_better=True, target=part_of_theirs(2, stretch=1))
    outcome = judge(metric, {OURS: [ours], THEIRS: [1.0]})
    assert (outcome.word, outcome.stretch_reached) == (word, stretch)


def test_twice_as_fast_means_half_the_time() -> None:
    metric = Metric("rebuild", "s", lower_is_better=True, target=faster_than_theirs(2))
    assert judge(metric, {OURS: [2.25], THEIRS: [4.5]}).word == REACHED
    assert judge(metric, {OURS: [2.26], THEIRS: [4.5]}).word == MISSED


def test_an_absolute_limit_needs_no_other_side() -> None:
    metric = Metric("idle", "MiB", lower_is_better=True, target=at_most(350, "MiB"))
    assert judge(metric, {OURS: [351.0]}).word == MISSED
    assert judge(metric, {OURS: [350.0]}).word == REACHED


def test_nothing_is_judged_without_a_side_that_the_target_needs() -> None:
    rate = Metric("calls", "calls/s", target=times_theirs(1.2))
    assert judge(rate, {OURS: [100.0]}).word == NOT_JUDGED
    assert judge(rate, {THEIRS: [100.0]}).word == NOT_JUDGED
    assert judge(Metric("CPU", "us"), {OURS: [1.0], THEIRS: [1.0]}).word == NOT_JUDGED


@pytest.mark.parametrize(("theirs", "echo", "bound"), [(0.5, 0.6, 0.9), (0.4, 0.6, 0.8)])
def test_row_6c_asks_for_the_tighter_of_its_two_bounds(theirs: float, echo: float, bound: float) -> None:
    metric = registry.make("6c", SAMPLE).metrics[0]
    assert judge(metric, {OURS: [1.0], THEIRS: [theirs], ECHO: [echo]}).bound == pytest.approx(bound)
    assert judge(metric, {OURS: [1.0], THEIRS: [theirs]}).word == NOT_JUDGED


def test_row_7_asks_for_both_of_its_bounds() -> None:
    (metric,) = registry.make(7, SAMPLE).metrics
    assert judge(metric, {OURS: [1.0], THEIRS: [3_000.0]}).bound == 300.0
    assert judge(metric, {OURS: [1.0], THEIRS: [7_000.0]}).bound == 400.0


def test_every_row_has_a_target_and_metrics_of_distinct_names() -> None:
    rates = ("messages/s", "transactions/s", "calls/s", "queries/s", "keys/s", "times", "MB/s", "MiB/s")
    for number in registry.NUMBERS:
        row = registry.make(number, SAMPLE)
        names = [metric.name for metric in row.metrics]
        assert row.number == number
        assert len(names) == len(set(names)), number
        assert any(metric.target for metric in row.metrics) or number == "T4", "only T4 is reported and not judged"
        assert all(metric.lower_is_better == (metric.unit not in rates) for metric in row.metrics), number


def test_rounds_gather_by_metric_and_side() -> None:
    result = RowResult()
    result.add(OURS, {"rate": 1.0, "p99": 5.0})
    result.add(THEIRS, {"rate": 2.0})
    result.add(OURS, {"rate": 3.0})
    assert result.rounds == {"rate": {OURS: [1.0, 3.0], THEIRS: [2.0]}, "p99": {OURS: [5.0]}}


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_a_quantile_is_one_of_the_samples(part: float, expected: float) -> None:
    assert quantile([float(value) for value in range(100, 0, -1)], part) == expected
