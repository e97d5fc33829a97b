"""The model of moves as state in the log holds in every behaviour within the bounds, and in none of its broken forms.

Larger bounds by hand, with their figures: docs/durability.md.
"""

from pathlib import Path

import pytest

from tests.models.spin import IS_THERE, MISSING, search

pytestmark = [pytest.mark.models, pytest.mark.skipif(not IS_THERE, reason=MISSING)]

MODEL = "moving.pml"
RETRIED = {"MESSAGES": 2, "RETRIES": 2, "KILLS": 1}
ONE = {"MESSAGES": 1, "RETRIES": 1}
ORDERED = {"MESSAGES": 3, "ORDERED": 1, "KILLS": 1}
TIMED = {"TIMERS": 2, "KILLS": 1}
HALVES = {"HALVES": 1, "KILLS": 1}


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(RETRIED, id="two messages and a kill"),
        pytest.param({**ONE, "KILLS": 2, "FULLS": 2, "REPORTS": 1}, id="full states, retention and two kills"),
        pytest.param({**ONE, "CUTS": 2, "FULLS": 1, "REPORTS": 1}, id="power cuts"),
        pytest.param({**ORDERED, "KILLS": 0}, id="an ordered group passes a message"),
        pytest.param({**ORDERED, "MESSAGES": 2, "FULLS": 1, "REPORTS": 1}, id="an ordered group with a full state"),
        pytest.param({**TIMED, "FULLS": 1, "REPORTS": 1}, id="timers with a full state"),
        pytest.param({**TIMED, "TIMERS": 1, "ROLLS": 1, "CUTS": 1, "REPORTS": 2}, id="a timer is stored again"),
        pytest.param({**TIMED, "CUTS": 1, "SAVES": 2, "LOSSES": 1}, id="files of timers"),
        pytest.param({**HALVES, "HALVES": 2}, id="transactions"),
        pytest.param({**HALVES, "KILLS": 2, "FULLS": 1, "REPORTS": 2}, id="a transaction with a full state"),
    ],
)
def test_each_message_moves_once_and_none_is_skipped(tmp_path: Path, bounds: dict[str, int]) -> None:
    found = search(MODEL, tmp_path, bounds)
    assert not found.failure, f"{found.failure}\n{found.story}"
    assert found.is_whole
    assert found.states > 1_000, "the bounds leave something to search"


@pytest.mark.parametrize(
    ("broken", "bounds"),
    [
        ("BROKEN_EQUAL_EPOCHS", ONE),
        ("BROKEN_READS_FIRST", ONE),
        ("BROKEN_FORGETS_MOVED", ONE),
        ("BROKEN_FULL_FIRST", {**ONE, "FULLS": 1}),
        ("BROKEN_TRUSTS_UNFINISHED", {**ONE, "FULLS": 1}),
        ("BROKEN_STATE_EARLY", {**ONE, "FULLS": 1, "REPORTS": 1}),
        ("BROKEN_RETAINS_BESIDES", {**TIMED, "TIMERS": 1, "REPORTS": 1}),
        ("BROKEN_RETAINS_UNDER_WAY", {**TIMED, "TIMERS": 1, "REPORTS": 1}),
        ("BROKEN_REPORTS_EARLY", {**TIMED, "TIMERS": 1, "REPORTS": 1, "CUTS": 1}),
        ("BROKEN_FILES_EARLY", {**TIMED, "TIMERS": 1, "SAVES": 1, "CUTS": 1}),
        ("BROKEN_RECALLS_UNDER_WAY", {**TIMED, "TIMERS": 1}),
        ("BROKEN_NO_CLAIM", HALVES),
        ("BROKEN_PASSES_CLAIMED", {**HALVES, "FULLS": 1}),
    ],
)
def test_a_rule_of_moves_that_is_broken_is_found(tmp_path: Path, broken: str, bounds: dict[str, int]) -> None:
    """By what it breaks for a message, not only by a memory that differs from the log; others: test_moved_traces.py."""
    assert search(MODEL, tmp_path, {**bounds, broken: 1, "ONLY_PROMISES": 1}).failure
