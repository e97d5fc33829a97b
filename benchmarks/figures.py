"""Metrics of a row, and what follows from its figures: medians, ratios, judgements. Pure."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

OURS, THEIRS, ECHO = "ours", "rocketmq", "echo"
REACHED, MISSED, NOT_JUDGED = "reached", "missed", "not judged"


@dataclass(frozen=True)
class Summary:
    """Minimum, median and maximum of the rounds."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """The summary of one value a round; at least one."""
        return cls(min(values), statistics.median(values), max(values))


Medians = Mapping[str, float]
Bound = Callable[[Medians], float]


@dataclass(frozen=True)
class Target:
    """The target of a metric.

    Args:
        text: as the table shows it.
        bound: takes the medians by side, returns the figure that ours is compared with; KeyError when a side is missing.
        stretch: the same for a further goal.
    """

    text: str
    bound: Bound
    stretch: Bound | None = None


@dataclass(frozen=True)
class Metric:
    """One line of the table.

    Args:
        name: unique in its row.
        unit: `messages/s`, `ms`, ...
        lower_is_better: for times and memory.
        target: None for a figure without a target.
        sides: the sides that are measured.
    """

    name: str
    unit: str
    lower_is_better: bool = False
    target: Target | None = None
    sides: tuple[str, ...] = (OURS, THEIRS)


@dataclass(frozen=True)
class Judgement:
    """Whether a target was reached."""

    word: str
    bound: float | None = None
    stretch_reached: bool = False


def times_theirs(factor: float, stretch: float | None = None) -> Target:
    """A rate of at least `factor` times RocketMQ's."""
    text = f">= {factor:g} x RocketMQ" + (f", stretch {stretch:g}" if stretch else "")
    return Target(text, lambda m: factor * m[THEIRS], None if stretch is None else lambda m: stretch * m[THEIRS])


def part_of_theirs(factor: float, stretch: float | None = None) -> Target:
    """A time of at most `factor` times RocketMQ's."""
    text = f"<= {factor:g} x RocketMQ" + (f", stretch {stretch:g}" if stretch else "")
    return Target(text, lambda m: factor * m[THEIRS], None if stretch is None else lambda m: stretch * m[THEIRS])


def below_both(target: Target, factor_of_echo: float) -> Target:
    """A time that is also at most `factor_of_echo` times the bare echo's; the tighter bound counts."""
    text = f"{target.text}; <= {factor_of_echo:g} x echo"
    return Target(text, lambda m: min(target.bound(m), factor_of_echo * m[ECHO]), target.stretch)


def faster_than_theirs(factor: float, stretch: float | None = None) -> Target:
    """A time such that RocketMQ's is at least `factor` times as long."""
    text = f">= {factor:g} times as fast as RocketMQ" + (f", stretch {stretch:g}" if stretch else "")
    return Target(text, lambda m: m[THEIRS] / factor, None if stretch is None else lambda m: m[THEIRS] / stretch)


def at_most(limit: float, unit: str) -> Target:
    """An absolute limit."""
    return Target(f"<= {limit:g} {unit}", lambda m: limit)


def at_least(limit: float, unit: str, stretch: float | None = None) -> Target:
    """An absolute figure to reach."""
    text = f">= {limit:g} {unit}" + (f", stretch {stretch:g}" if stretch else "")
    return Target(text, lambda m: limit, None if stretch is None else lambda m: stretch)


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of the rounds of each side that has any."""
    return {side: statistics.median(rounds) for side, rounds in values.items() if rounds}


def ratio(values: Mapping[str, Sequence[float]], other: str = THEIRS) -> float | None:
    """Our median divided by another side's; None when one is missing."""
    middle = medians(values)
    if OURS not in middle or not middle.get(other):
        return None
    return middle[OURS] / middle[other]


def judge(metric: Metric, values: Mapping[str, Sequence[float]]) -> Judgement:
    """Whether our median reaches the target; not judged when a side that the target needs is missing."""
    middle = medians(values)
    if metric.target is None or OURS not in middle:
        return Judgement(NOT_JUDGED)
    try:
        bound = metric.target.bound(middle)
        stretch = metric.target.stretch(middle) if metric.target.stretch else None
    except (KeyError, ZeroDivisionError):
        return Judgement(NOT_JUDGED)

    def reaches(limit: float) -> bool:
        return middle[OURS] <= limit if metric.lower_is_better else middle[OURS] >= limit

    return Judgement(REACHED if reaches(bound) else MISSED, bound, stretch is not None and reaches(stretch))


def quantile(samples: Sequence[float], part: float) -> float:
    """The sample below which `part` of all samples lie; of at least one sample."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@dataclass
class RowResult:
    """The results of a row so far, as `results.json` keeps them.

    Attributes:
        load_before: load averages of the machine before the row; another program's work shows in them.
        rocketmq: the version of RocketMQ beside it.
        rounds: values by metric and side, one for each round.
        skipped: why a side was not measured, by side.
        notes: sentences shown below the table.
        curves: points (x, y) by name of the curve.
    """

    date: str = ""
    size: str = ""
    load_before: str = ""
    rocketmq: str = ""
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, side: str, values: Mapping[str, float]) -> None:
        """Adds one round of one side: values by metric."""
        for metric, value in values.items():
            self.rounds.setdefault(metric, {}).setdefault(side, []).append(value)
