"""What the real services do is a behaviour of the model of moves; a rule that is broken in both is found in both.

As test_traces.py, for moves.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.append.refusals import FollowerFence
from consumer_svc.delivering import acks, pop
from consumer_svc.state.queue_state import HandedOut, Lease, QueueRef
from services.following.state_topic.state_writer import StateWriter
from tests.models import traced_timers
from tests.models.spin import IS_THERE, MISSING, search
from tests.models.test_moving import MODEL, ONE, ORDERED, TIMED
from tests.models.traced_moves import BOUNDS, ORDERED_BOUNDS, steps_of
from tests.models.traced_world import Seen
from tests.models.traces import TraceChecker
from tests.simulation.slow_log import SlowLog
from tests.torture.amount import amount, level
from tests.torture.seeds import pick_seed

pytestmark = [pytest.mark.models, pytest.mark.skipif(not IS_THERE, reason=MISSING)]

KNOWN_SEED = 7_000
BROKEN_SEED_COUNT = 30


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TraceChecker:
    return TraceChecker(MODEL, tmp_path_factory.mktemp("traces"), BOUNDS)


@pytest.fixture(scope="module")
def ordered_checker(tmp_path_factory: pytest.TempPathFactory) -> TraceChecker:
    return TraceChecker(MODEL, tmp_path_factory.mktemp("ordered"), ORDERED_BOUNDS)


@pytest.mark.parametrize("ordered", [False, True])
def test_every_trace_of_the_real_consumer_service_is_a_behaviour_of_the_model(
    checker: TraceChecker, ordered_checker: TraceChecker, ordered: bool
) -> None:
    first = pick_seed("traces of moves") if level() == "full" else KNOWN_SEED
    kinds: set[str] = set()
    for seed in range(first, first + amount(sample=3, change=10, full=500)):
        steps = steps_of(seed, ordered=ordered)
        explained = (ordered_checker if ordered else checker).explained(steps)
        assert explained == len(steps), f"TORTURE_SEED={seed}: no behaviour has {steps[explained - 10 : explained + 1]}"
        kinds |= {step.what for step in steps}
    wanted = {"BEGIN", "SEND", "HAND", "ACK", "EXPIRE", "FULL", "GOT", "TOLD"} | ({"PASS"} if ordered else set())
    assert kinds >= wanted, "there is something to explain"


@pytest.fixture(scope="module")
def timer_checker(tmp_path_factory: pytest.TempPathFactory) -> TraceChecker:
    return TraceChecker(MODEL, tmp_path_factory.mktemp("timers"), traced_timers.BOUNDS)


def test_every_trace_of_the_real_timers_is_a_behaviour_of_the_model(timer_checker: TraceChecker) -> None:
    first = pick_seed("traces of timers") if level() == "full" else KNOWN_SEED
    kinds: set[str] = set()
    for seed in range(first, first + amount(sample=2, change=4, full=200)):
        steps = traced_timers.steps_of(seed)
        explained = timer_checker.explained(steps)
        assert explained == len(steps), f"TORTURE_SEED={seed}: no behaviour has {steps[explained - 10 : explained + 1]}"
        kinds |= {step.what for step in steps}
    assert kinds >= {"BEGIN", "TIME", "DELIVER"}, "there is something to explain"


def test_a_due_message_apart_from_its_change_is_found_in_code_and_model(
    timer_checker: TraceChecker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {**TIMED, "TIMERS": 1, "BROKEN_APART": 1, "ONLY_PROMISES": 1}
    assert search(MODEL, tmp_path, bounds).failure, "the search finds it in the model"
    right = SlowLog.append

    def apart(self: SlowLog, epoch: int, records: Sequence[Any], flush: Any) -> Any:
        return [result for record in records for result in right(self, epoch, [record], flush)]

    monkeypatch.setattr(SlowLog, "append", apart)
    steps = traced_timers.steps_of(KNOWN_SEED)
    assert timer_checker.explained(steps) < len(steps)


def test_a_step_of_moves_that_the_model_has_not_ends_a_trace(checker: TraceChecker) -> None:
    steps = steps_of(1)
    first = next(place for place, step in enumerate(steps) if step.what == "ACK")
    told = next(place for place, step in enumerate(steps) if step.what == "TOLD")

    assert checker.explained([*steps[: first + 1], steps[first], *steps[first + 1 :]]) == first + 1, "it ends once"
    assert checker.explained([steps[told], *steps]) == 0, "nobody is told before the log has it"
    assert checker.explained([*steps[:first], Seen("COPIED", 0), *steps[first:]]) == first


class NoFence(FollowerFence):
    """It lets all lives append."""

    def enter(self, follower: str, epoch: int, *, begins: bool = False) -> None:
        """See FollowerFence."""


def answer_before_the_log_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "wait_for", lambda written: None)


def append_a_copy_without_its_change(monkeypatch: pytest.MonkeyPatch) -> None:
    right = StateWriter.__init__

    def begin(self: StateWriter, topic: Any, append: Any, *args: Any, **fields: Any) -> None:
        def apart(records: Sequence[Any], flush: Any) -> Any:
            results = append(records[:-1], flush) if len(records) > 1 else []
            return [*results, *append(records[-1:], flush)]

        right(self, topic, apart, *args, **fields)

    monkeypatch.setattr(StateWriter, "__init__", begin)


def let_all_lives_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowerFence, "enter", NoFence.enter)


def hold_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pop.Taking.__init__

    def begin(self: pop.Taking, *args: Any) -> None:
        right(self, *args)
        self._held = set()

    monkeypatch.setattr(pop.Taking, "__init__", begin)


def pass_without_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def handed_out(ref: QueueRef, next_offset: int, leases: Sequence[Lease], _passed: object = ()) -> HandedOut:
        return HandedOut(ref, next_offset, leases)

    monkeypatch.setattr(pop, "HandedOut", handed_out)


@pytest.mark.parametrize(
    ("break_rule", "macro"),
    [
        (let_all_lives_append, "BROKEN_NO_FENCE"),
        (answer_before_the_log_has_it, "BROKEN_ANSWERS_EARLY"),
        (append_a_copy_without_its_change, "BROKEN_APART"),
        (hold_nothing_back, "BROKEN_OVERTAKES"),
        (pass_without_a_note, "BROKEN_PASSES_SILENTLY"),
    ],
)
def test_a_rule_of_moves_that_is_broken_in_code_and_model_is_found_in_both(
    checker: TraceChecker,
    ordered_checker: TraceChecker,
    tmp_path: Path,
    break_rule: Callable[[pytest.MonkeyPatch], None],
    macro: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ordered = break_rule in (hold_nothing_back, pass_without_a_note)
    bounds = {**(ORDERED if ordered else ONE), macro: 1, "ONLY_PROMISES": 1}
    assert search(MODEL, tmp_path, bounds).failure, "the search finds it in the model"
    break_rule(monkeypatch)
    for seed in range(BROKEN_SEED_COUNT):
        steps = steps_of(seed, ordered=ordered)
        if (ordered_checker if ordered else checker).explained(steps) < len(steps):
            return
    raise AssertionError(f"{BROKEN_SEED_COUNT} traces of the broken code are behaviours of the model")
