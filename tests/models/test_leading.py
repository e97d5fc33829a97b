"""The model of who leads and what is confirmed holds in every behaviour within the bounds, and in none of its broken forms.

Larger bounds by hand, with their figures: docs/durability.md.
"""

from pathlib import Path

import pytest

from tests.models.spin import IS_THERE, MISSING, search

pytestmark = [pytest.mark.models, pytest.mark.skipif(not IS_THERE, reason=MISSING)]

MODEL = "leading.pml"
TWO = {"REPLICAS": 2, "EPOCHS": 2, "LENGTH": 1, "RESTARTS": 0, "STRAYS": 0}
THREE = {"REPLICAS": 3, "EPOCHS": 2, "LENGTH": 1, "RESTARTS": 0, "STRAYS": 0, "CHANGES": 0, "HAND_OVERS": 0}


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({**TWO, "RESTARTS": 1, "STRAYS": 1}, id="two replicas, a restart and a stray"),
        pytest.param({**TWO, "RESTARTS": 1, "SLOW_FLUSHES": 1}, id="a power cut takes what was not flushed"),
        pytest.param({**TWO, "SLOW_REPORTS": 1}, id="slow reports"),
        pytest.param({**TWO, "EPOCHS": 3, "FORCES": 1}, id="an operator"),
        pytest.param({**TWO, "LOSSES": 1, "STRAYS": 1}, id="the coordinator loses its data"),
        pytest.param({**TWO, "LENGTH": 2, "LEASE": 2}, id="more entries and finer time"),
        pytest.param({**THREE, "STRAYS": 1}, id="three replicas and a stray"),
        pytest.param({**THREE, "CHANGES": 1}, id="three replicas and a change of the set"),
    ],
)
def test_what_is_confirmed_is_in_every_later_log_and_never_changes(tmp_path: Path, bounds: dict[str, int]) -> None:
    found = search(MODEL, tmp_path, bounds)
    assert not found.failure, f"{found.failure}\n{found.story}"
    assert found.is_whole
    assert found.states > 10_000, "the bounds leave something to search"


@pytest.mark.parametrize(
    ("broken", "bounds"),
    [
        ("BROKEN_GROWS_LATE", TWO),
        ("BROKEN_PROMISES_WHILE_STANDING", TWO),
        ("BROKEN_RESTORES_ALWAYS", {**TWO, "LOSSES": 1}),
    ],
)
def test_a_rule_that_is_broken_is_found(tmp_path: Path, broken: str, bounds: dict[str, int]) -> None:
    """Those that are broken in the code, too: test_traces.py."""
    assert search(MODEL, tmp_path, {**bounds, broken: 1}).failure
