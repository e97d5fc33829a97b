"""The tables and curves of docs/scale.md, from what was simulated. Pure but for `write`."""

import pathlib
import re
from collections.abc import Mapping, Sequence

from benchmarks import svg
from benchmarks.simulation.scenarios import Figures, LoadFigures

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "scale.md"
MIB = 1 << 20


def queries_table(figures: Mapping[str, Mapping[int, Figures]]) -> str:
    """A row for each scenario and number of shards."""
    lines = [
        "| query | shards | p50 ms | p99 ms | calls | gateway CPU ms | queries/s of one gateway | queries |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, by_count in figures.items():
        for count, one in by_count.items():
            lines.append(
                f"| {name} | {count:,} | {number(one.p50_millis)} | {number(one.p99_millis)} | {number(one.call_count)} "
                f"| {number(one.cpu_millis)} | {number(1000 / one.cpu_millis)} | {one.query_count} |"
            )
    return "\n".join(lines)


def check_table(real: Mapping[int, tuple[float, float]], simulated: Mapping[int, Figures]) -> str:
    """What was measured beside what was simulated."""
    lines = ["| shards | measured p50 / p99 ms | simulated p50 / p99 ms |", "|---|---|---|"]
    for count, (p50, p99) in real.items():
        one = simulated[count]
        lines.append(
            f"| {count} | {number(p50)} / {number(p99)} | {number(one.p50_millis)} / {number(one.p99_millis)} |"
        )
    return "\n".join(lines)


def threads_table(figures: Mapping[int, Figures]) -> str:
    """By threads of a gateway."""
    lines = ["| `worker_count` | p50 ms | p99 ms |", "|---|---|---|"]
    lines += [f"| {count} | {number(one.p50_millis)} | {number(one.p99_millis)} |" for count, one in figures.items()]
    return "\n".join(lines)


def load_table(figures: Sequence[tuple[str, str, LoadFigures]]) -> str:
    """What one bad shard does, with the guard and without."""
    lines = [
        "| one shard of ten | guard | p50 ms | p99 ms | PARTIAL | calls that waited for a thread, at most |",
        "|---|---|---|---|---|---|",
    ]
    for what, guard, one in figures:
        lines.append(
            f"| {what} | {guard} | {number(one.p50_millis)} | {number(one.p99_millis)} "
            f"| {one.partial_share * 100:.0f} % | {one.waiting_count_max:,} |"
        )
    return "\n".join(lines)


def memory_table(figures: Mapping[int, Figures]) -> str:
    """By shards."""
    lines = ["| shards | records read for one page, MiB (held at most) | p50 ms |", "|---|---|---|"]
    lines += [
        f"| {count:,} | {number(one.loaded_bytes_max / MIB)} | {number(one.p50_millis)} |"
        for count, one in figures.items()
    ]
    return "\n".join(lines)


def chart(title: str, y_name: str, points: Sequence[tuple[float, float]]) -> str:
    """A curve over the number of shards."""
    return svg.draw(svg.Chart(title, "shards", y_name, points, is_log_x=True))


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between its marks; KeyError for a part that has none.

    <!-- simulated: NAME -->
    ...
    <!-- end -->
    """
    for name, text in parts.items():
        pattern = re.compile(rf"(<!-- simulated: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = pattern.search(page)
        if found is None:
            raise KeyError(name)
        page = f"{page[: found.start()]}{found[1]}{text}\n{found[2]}{page[found.end() :]}"
    return page


def write(parts: Mapping[str, str], charts: Mapping[str, str]) -> None:
    """Bring the page and its curves up to date."""
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    for name, text in charts.items():
        (DOCS / f"{name}.svg").write_text(text, encoding="utf-8")


def number(value: float) -> str:
    """Three digits or so."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
