"""`results.json`, the results of all runs so far, and `RESULTS.md`, made only from it."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from benchmarks import svg, verdict
from benchmarks.figures import (
    ECHO,
    MISSED,
    NOT_JUDGED,
    OURS,
    REACHED,
    THEIRS,
    Judgement,
    Metric,
    RowResult,
    Summary,
    judge,
    medians,
    ratio,
)
from benchmarks.row import Row, RowId
from benchmarks.rows import registry
from benchmarks.sizes import BY_NAME, SAMPLE

JSON_NAME, MARKDOWN_NAME = "results.json", "RESULTS.md"
VERDICT_WORDS = {REACHED: "yes", MISSED: "**no**", NOT_JUDGED: "-"}
HEAD = (
    "| # | work | unit | ours: min / **median** / max | RocketMQ: min / **median** / max | ours / RocketMQ "
    "| bare echo (ours / echo) | target | reached |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclass
class Results:
    """The results of all runs.

    Attributes:
        machine: facts about the machine, of `machine.describe`.
        rows: by number.
    """

    machine: dict[str, str] = field(default_factory=dict)
    rows: dict[RowId, RowResult] = field(default_factory=dict)


def load(directory: pathlib.Path) -> Results:
    """The results that earlier runs left in a directory; empty without any."""
    path = directory / JSON_NAME
    if not path.exists():
        return Results()
    raw = json.loads(path.read_text(encoding="utf-8"))
    rows = {}
    for number, row in raw["rows"].items():
        result = RowResult(**row)
        result.curves = {name: [(x, y) for x, y in points] for name, points in result.curves.items()}
        rows[registry.parse(number)] = result
    return Results(raw["machine"], rows)


def save(results: Results, directory: pathlib.Path) -> None:
    """Writes both files and the curves; keeps the results of rows that were not run."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = {str(number): asdict(result) for number, result in _in_order(results)}
    text = json.dumps({"machine": results.machine, "rows": rows}, indent=1, ensure_ascii=False)
    _write(directory / JSON_NAME, text + "\n")
    for result in results.rows.values():
        for name, points in result.curves.items():
            if points:
                _write(directory / f"{name}.svg", svg.draw(_chart(name, points)))
    _write(directory / MARKDOWN_NAME, markdown(results))


def _in_order(results: Results) -> list[tuple[RowId, RowResult]]:
    return sorted(results.rows.items(), key=lambda item: registry.place(item[0]))


def _write(path: pathlib.Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def markdown(results: Results) -> str:
    """The whole of RESULTS.md."""
    rows = [(registry.make(number, BY_NAME.get(result.size, SAMPLE)), result) for number, result in _in_order(results)]
    judged = [line for row, result in rows for line in _lines(row, result, judged=True)]
    others = [line for row, result in rows for line in _lines(row, result, judged=False)]
    curves = [name for _, result in rows for name, points in result.curves.items() if points]
    parts = [
        "# Reput beside Apache RocketMQ",
        "Written by `make bench`. Both sides in one run on one machine, alternating, with the same flush mode; only one "
        "side's processes run while it is measured. Ratios are of medians; absolute figures are of this machine and hour. "
        "RocketMQ 5.5.0 has an index entry for the tags of each message; Reput has it in rows 8 and T5 only, as by default.",
        "\n".join(f"- {name}: {value}" for name, value in results.machine.items()),
        "\n".join([HEAD, *judged]),
    ]
    parts[2:2] = _head(rows)
    if others:
        parts += ["## Measured beside it", "\n".join([HEAD, *others])]
    parts += ["## How, and what to know", "\n".join(_story(row, result) for row, result in rows)]
    if curves:
        parts += ["## Curves", "\n\n".join(f"![{name.replace('_', ' ')}]({name}.svg)" for name in curves)]
    return "\n\n".join(parts) + "\n"


def _head(rows: Sequence[tuple[Row, RowResult]]) -> list[str]:
    """Where Reput is ahead and behind, a line for each part; nothing without a judged row."""
    found = (verdict.verdict(row.number, row.title, row.cause, row.metrics, result.rounds) for row, result in rows)
    lines = verdict.lines({one.number: one for one in found if one is not None})
    return ["## In ten lines", "\n".join(lines)] if lines else []


def _lines(row: Row, result: RowResult, *, judged: bool) -> list[str]:
    return [
        _line(row, metric, result.rounds.get(metric.name, {}))
        for metric in row.metrics
        if (metric.target is not None) == judged
    ]


def _line(row: Row, metric: Metric, values: Mapping[str, Sequence[float]]) -> str:
    cells = [
        str(row.number),
        f"{row.title}: {metric.name}",
        metric.unit,
        _summary(values.get(OURS, ())),
        _summary(values.get(THEIRS, ())),
        _ratio(metric, values),
        _echo(metric, values),
        metric.target.text if metric.target else "",
        _judgement(judge(metric, values)) if metric.target else "",
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _judgement(outcome: Judgement) -> str:
    stretch = ", stretch too" if outcome.stretch_reached else ""
    bound = f" ({_figure(outcome.bound)})" if outcome.bound is not None else ""
    return f"{VERDICT_WORDS[outcome.word]}{stretch}{bound}"


def _summary(rounds: Sequence[float]) -> str:
    if not rounds:
        return "-"
    summary = Summary.of(rounds)
    return f"{_figure(summary.least)} / **{_figure(summary.median)}** / {_figure(summary.greatest)}"


def _ratio(metric: Metric, values: Mapping[str, Sequence[float]]) -> str:
    value = ratio(values)
    if value is None:
        return "-"
    if metric.lower_is_better and value:
        return f"{value:.2f} ({1 / value:.1f} times less)" if value < 1 else f"{value:.2f}"
    return f"{value:.2f}"


def _echo(metric: Metric, values: Mapping[str, Sequence[float]]) -> str:
    if not values.get(ECHO):
        return "-"
    share = ratio(values, ECHO)
    text = _figure(medians(values)[ECHO])
    return f"{text} ({share:.2f})" if share is not None else text


def _figure(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _story(row: Row, result: RowResult) -> str:
    rounds = max((len(values) for sides in result.rounds.values() for values in sides.values()), default=0)
    load = f", load before: {result.load_before}" if result.load_before else ""
    beside = f", RocketMQ {result.rocketmq}" if result.rocketmq else ""
    head = f"- **{row.number} {row.title}.** {row.what} ({result.date}, {result.size}{beside}, rounds: {rounds}{load})"
    missed = any(judge(metric, result.rounds.get(metric.name, {})).word == MISSED for metric in row.metrics)
    why = [f"  - A target is missed: {row.cause}"] if missed and row.cause else []
    skipped = [f"  - {side} is left out: {why}" for side, why in result.skipped.items()]
    return "\n".join([head, *why, *skipped, *(f"  - {note}" for note in result.notes)])


def _chart(name: str, points: Sequence[tuple[float, float]]) -> svg.Chart:
    titles = {
        "growth_append_rate": ("Append rate as the store grows", "messages in the store", "messages/s", True),
        "growth_query_p50": ("Query by key as the store grows", "messages in the store", "p50, ms", True),
        "growth_topics_append_rate": ("Append rate as topics grow in number", "topics", "messages/s", True),
        "growth_topics_query_by_key_p50": ("Query by key as topics grow in number", "topics", "p50, ms", True),
        "growth_topics_all_services_PSS": ("Memory of all services as topics grow in number", "topics", "MiB", True),
        "growth_topics_start": ("Start as topics grow in number", "topics", "s", True),
        "growth_keys_of_a_message_append_rate": ("Append rate with more keys", "keys of a message", "messages/s", True),
        "growth_connections_append_rate": ("Append rate beside idle connections", "connections", "messages/s", True),
        "growth_connections_gateway_RSS": ("The gateway's memory with idle connections", "connections", "MiB", True),
        "growth_start": ("Start as the store grows", "messages in the store", "s", True),
        "restart_fresh": ("Restart after kill -9, checkpoints fresh", "GiB of log", "s", True),
        "pipeline_growth": ("Rebuild on Spark as the log grows", "GiB of log", "s", False),
        "first_seconds": ("Appends after a start", "s after SERVING", "messages/s", False),
        "memory": ("Memory under load 1", "s of load", "RSS of all processes, MiB", False),
    }
    title, x_name, y_name, is_log_x = titles.get(name, (name.replace("_", " "), "", "", False))
    return svg.Chart(title, x_name, y_name, points, is_log_x)
