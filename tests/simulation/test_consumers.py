"""The real consumer service in a simulated world keeps its promises; with one rule broken a history shows it.

`python -m tests.simulation consumers --seed N` replays the history that a failure names.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from consumer_svc.delivering import acks
from services.following.state_topic.state_writer import StateWriter
from tests.simulation.consumers import run_history
from tests.simulation.world import BrokenPromiseError
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

HISTORIES_MAX = 30  # in which a broken rule is found


def test_no_history_breaks_a_promise_to_consumers() -> None:
    dice = random.Random(pick_seed("consumers in a simulated world"))
    moves = lives = 0
    for _ in range(amount(sample=2, change=10, full=2_000)):
        consumers = run_history(dice.getrandbits(32))
        moves += consumers.move_count
        lives += consumers.life_count
    assert moves > 0
    assert lives > 4


def answer_before_the_log_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "wait_for", lambda written: None)


def append_a_move_before_the_record_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    right = StateWriter.__init__

    def begin(self: StateWriter, topic: Any, append: Any, *args: Any, **fields: Any) -> None:
        def apart(records: Sequence[Any], flush: Any) -> Any:
            results = append(records[:-1], flush) if len(records) > 1 else []
            return [*results, *append(records[-1:], flush)]

        right(self, topic, apart, *args, **fields)

    monkeypatch.setattr(StateWriter, "__init__", begin)


@pytest.mark.parametrize("break_rule", [answer_before_the_log_has_it, append_a_move_before_the_record_that_says_so])
def test_a_broken_rule_of_delivery_is_found_with_its_seed(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(BrokenPromiseError, match=r"seed \d+: BrokenPromiseError: ") as found:
        for seed in range(HISTORIES_MAX):
            run_history(seed)
    assert "is killed" in str(found.value)
