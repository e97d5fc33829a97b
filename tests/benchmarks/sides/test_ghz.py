"""What ghz says is read, and its race is tried again."""

import json
import pathlib

import pytest

from benchmarks.sides import ghz

REPORT = {
    "statusCodeDistribution": {"OK": 10},
    "latencyDistribution": [{"percentage": 99, "latency": 2_000_000}],
    "total": 1_000_000_000,
}


def program(directory: pathlib.Path, panic_count: int, words: str) -> str:
    """A ghz that fails so often with these words, and then prints its report."""
    path = directory / "ghz"
    path.write_text(
        f"#!/bin/sh\necho >> {directory}/runs\n"
        f'if [ "$(wc -l < {directory}/runs)" -le {panic_count} ]; then echo "{words}" >&2; exit 2; fi\n'
        f"echo '{json.dumps(REPORT)}'\n"
    )
    path.chmod(0o755)
    return str(path)


def calls(path: str) -> ghz.Outcome:
    return ghz.run(path, "127.0.0.1:1", "a.B/C", {}, callers=1, warm_seconds=0.1, seconds=0.1)


def test_a_race_of_ghz_failed_the_row(tmp_path: pathlib.Path) -> None:
    outcome = calls(program(tmp_path, 2, "panic: send on closed channel"))
    assert (outcome.rate, outcome.p99_millis, outcome.ok_count) == (10.0, 2.0, 10)


@pytest.mark.parametrize(
    ("count", "words"), [(1, "connection refused"), (99, "panic: send on closed channel")], ids=["other", "always"]
)
def test_another_failure_and_one_that_stays_fail_the_row(tmp_path: pathlib.Path, count: int, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        calls(program(tmp_path, count, words))
