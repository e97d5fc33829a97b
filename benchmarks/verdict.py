"""The head of RESULTS.md: a line for each part of the system, where it is ahead of its targets, where behind and why.

Written from the figures alone; a cause is shown only while a target of its row is missed. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.figures import MISSED, OURS, REACHED, Metric, judge, medians, ratio
from benchmarks.row import RowId

PARTS: Mapping[str, tuple[RowId, ...]] = {
    "Appends over gRPC": (1, "1c", 2, "2c", 3, "3c", 4, 5, "C"),
    "Queries": (6, "6c", "6k", 7, "E"),
    "Start, rebuild, memory": (8, 9, 10, 11, 12, "R"),
    "Many topics, lite topics, groups and connections": ("G", "L", 17, 18),
    "Consumers over gRPC": (13, 14, 15, 16),
    "Timers and transactions": (19, "19b", 20, 21),
    "Replicas and mirrors": (22, 23, 24, 25),
    "Remoting": (26, 27, 28, 29, 30, 31),
    "Name server": (32,),
    "Spark": tuple(f"T{number}" for number in range(1, 17)),
}
"""Each row belongs to one part."""

SHOWN_MAX = 2
"""Rows that a line names on each side."""


@dataclass(frozen=True)
class Verdict:
    """What one row says: how many of its targets are judged and reached, and its figure that says most.

    Attributes:
        number: of the row.
        judged: targets with a figure.
        missed: of them.
        figure: times that a bound is reached, above 1 where it is: of the metric that misses its bound by most, or, when
            all are reached, of the one that is best.
        is_beside: RocketMQ was measured beside it.
        text: that metric with ours / RocketMQ where both sides were measured, else with `figure`.
        cause: why a target is missed; empty when none is.
    """

    number: RowId
    judged: int
    missed: int
    figure: float
    is_beside: bool
    text: str
    cause: str


def verdict(
    number: RowId,
    title: str,
    cause: str,
    metrics: Sequence[Metric],
    rounds: Mapping[str, Mapping[str, Sequence[float]]],
) -> Verdict | None:
    """The verdict of a row; None when nothing of it is judged."""
    judged = []
    for metric in metrics:
        values = rounds.get(metric.name, {})
        outcome = judge(metric, values)
        if outcome.word in (REACHED, MISSED):
            judged.append((_beyond(metric, medians(values)[OURS], outcome.bound or 0.0), metric, values, outcome.word))
    if not judged:
        return None
    count = len(judged)
    judged = [entry for entry in judged if entry[0] != float("inf")] or judged  # a time of 0 says nothing
    missed = [entry for entry in judged if entry[-1] == MISSED]
    figure, metric, values, _ = min(missed, key=_distance) if missed else max(judged, key=_distance)
    beside = ratio(values)
    worth = f"{beside:.2f} x RocketMQ" if beside is not None else f"{figure:.2f} of its target"
    text = f"{title}, {metric.name}: {worth} (row {number})"
    return Verdict(number, count, len(missed), figure, beside is not None, text, cause if missed else "")


def _distance(entry: tuple[float, Metric, Mapping[str, Sequence[float]], str]) -> float:
    return entry[0]


def _beyond(metric: Metric, own: float, bound: float) -> float:
    """How many times the bound is reached: above 1 is better than asked, for rates and for times alike."""
    part, whole = (bound, own) if metric.lower_is_better else (own, bound)
    return part / whole if whole else float("inf")


def lines(verdicts: Mapping[RowId, Verdict]) -> list[str]:
    """A line of Markdown for each part that has a judged row."""
    shown = []
    for part, numbers in PARTS.items():
        own = [verdicts[number] for number in numbers if number in verdicts]
        if not own:
            continue
        judged, missed = sum(row.judged for row in own), sum(row.missed for row in own)
        ahead = sorted((row for row in own if not row.missed), key=lambda row: (not row.is_beside, -row.figure))[
            :SHOWN_MAX
        ]
        behind = sorted((row for row in own if row.missed), key=lambda row: row.figure)[:SHOWN_MAX]
        text = f"- **{part}**: {judged - missed} of {judged} targets reached."
        if ahead:
            text += f" Ahead: {'; '.join(row.text for row in ahead)}."
        if behind:
            text += f" Behind: {'; '.join(row.text for row in behind)}."
        causes = dict.fromkeys(row.cause for row in behind if row.cause)
        if causes:
            text += f" Why: {' '.join(causes)}"
        shown.append(text)
    return shown
