"""Simulates a gateway over 1 to 1,000 shards and writes docs/scale.md's tables and curves.

    python -m benchmarks.simulate [--measure]

The gateway's query code and its limits are real. Shards are simulated in memory, with latencies measured on a real shard
(`--measure` measures them again: about a minute, with real processes). Time is virtual, so other work of the machine hardly
changes the result; the CPU time of the gateway's code is measured while it runs. Takes one to two minutes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.simulation import report
from benchmarks.simulation.measure import DATA, CallCost, Measured, load
from benchmarks.simulation.measure import measure as measure_real
from benchmarks.simulation.scenarios import (
    SCENARIOS,
    SKIPPING,
    Figures,
    LoadFigures,
    Scenario,
    World,
    measure,
    under_load,
)

# Number of queries by number of shards: one query of a thousand shards takes as long as a thousand queries of one shard.
QUERY_COUNTS = {1: 500, 3: 500, 10: 200, 30: 100, 100: 50, 300: 20, 1_000: 10}
THREAD_COUNTS = (16, 64, 256)
LOAD_SHARD_COUNT, LOAD_RATE, LOAD_QUERY_COUNT = 10, 20.0, 400
LARGE_BODY_BYTES = 32 * 1024
UNIQUE_KEY, EVERYWHERE = SCENARIOS[0], SCENARIOS[2]


def simulate(measured: Measured, query_counts: dict[int, int]) -> tuple[dict[str, str], dict[str, str]]:
    """The parts of docs/scale.md and its curves, by name."""
    costs = measured.calls
    figures = {
        scenario.name: {count: _said(costs, scenario, count, queries) for count, queries in query_counts.items()}
        for scenario in (*SCENARIOS, *SKIPPING)
    }
    most = max(query_counts)
    threads = {
        count: measure(costs, UNIQUE_KEY, most, query_counts[most] // 2, thread_count=count) for count in THREAD_COUNTS
    }
    large = replace(EVERYWHERE, body_bytes=LARGE_BODY_BYTES)
    memory = {count: measure(costs, large, count, max(queries // 10, 1)) for count, queries in query_counts.items()}
    check = replace(UNIQUE_KEY, holder_count=0)
    no_front = {**costs, "front": replace(costs["front"], cpu_millis=0.0)}
    checked = {count: measure(no_front, check, count, 500) for count in measured.real}
    parts = {
        "machine": "\n".join(f"- {name}: {value}" for name, value in measured.machine.items()),
        "check": report.check_table(measured.real, checked),
        "queries": report.queries_table(figures),
        "threads": report.threads_table(threads),
        "bad shard": report.load_table(_bad_shards(measured)),
        "memory": report.memory_table(memory),
    }
    charts = {
        "scale_unique_key": _chart("Query by unique key: latency", "p50, ms", figures[UNIQUE_KEY.name]),
        "scale_everywhere": _chart("A page of a key that every shard has", "p50, ms", figures[EVERYWHERE.name]),
    }
    return parts, charts


def _said(costs: Mapping[str, CallCost], scenario: Scenario, count: int, queries: int) -> Figures:
    print(f"{scenario.name}: {count} shards", flush=True)
    return measure(costs, scenario, count, queries)


def _bad_shards(measured: Measured) -> list[tuple[str, str, LoadFigures]]:
    def is_slow(world: World) -> None:
        world.shards[-1].slow_factor = 100.0

    def hangs(world: World) -> None:
        world.shards[-1].hangs = True

    rows = []
    for what, prepare in (("sound", lambda world: None), ("100 times as slow", is_slow), ("hangs", hangs)):
        for guard in (False, True):
            print(f"one shard {what}, guard {guard}", flush=True)
            one = under_load(
                measured.calls,
                UNIQUE_KEY,
                LOAD_SHARD_COUNT,
                LOAD_RATE,
                LOAD_QUERY_COUNT,
                prepare=prepare,
                is_guarded=guard,
            )
            rows.append((what, "yes" if guard else "no", one))
    return rows


def _chart(title: str, y_name: str, figures: dict[int, Figures]) -> str:
    return report.chart(title, y_name, [(count, one.p50_millis) for count, one in figures.items()])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the simulation; returns the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.simulate", description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure a real shard first")
    options = parser.parse_args(argv)
    if options.measure or not DATA.exists():
        measure_real(lambda text: print(text, flush=True))
    report.write(*simulate(load(), QUERY_COUNTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
