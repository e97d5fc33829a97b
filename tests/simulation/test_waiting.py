"""The real schedule service in a simulated world keeps its promises; where a request is not atomic a history shows it.

`python -m tests.simulation waiting --seed N` replays the history that a failure names.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulation.slow_log import SlowLog
from tests.simulation.waiting import run_history
from tests.simulation.world import BrokenPromiseError
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

HISTORIES_MAX = 30  # in which a broken rule is found


def test_no_history_loses_or_repeats_what_waits() -> None:
    dice = random.Random(pick_seed("waiting messages in a simulated world"))
    lives = delivered_count = 0
    for _ in range(amount(sample=2, change=10, full=2_000)):
        waiting = run_history(dice.getrandbits(32))
        lives += waiting.life_count
        delivered_count += len(waiting.delivered)
    assert lives > 4
    assert delivered_count > 20


def test_a_due_message_that_is_apart_from_its_record_is_found_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SlowLog.append

    def apart(self: SlowLog, epoch: int, records: Sequence[Any], flush: Any) -> Any:
        return [result for record in records for result in right(self, epoch, [record], flush)]

    monkeypatch.setattr(SlowLog, "append", apart)
    with pytest.raises(BrokenPromiseError, match=r"seed \d+: BrokenPromiseError: m\d+ appears twice"):
        for seed in range(HISTORIES_MAX):
            run_history(seed)
